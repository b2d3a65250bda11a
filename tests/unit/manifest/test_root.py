from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pytest

from coldstream.errors import CorruptDataError
from coldstream.manifest.entries import Entries, EntryKind
from coldstream.manifest.header import HEADER_SIZE
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.queue_name import QueueName
from coldstream.manifest.root import ROOT_SIZE, Head, LastChunk, Root, parse_root
from coldstream.names import MAX_NAME
from tests.unit.manifest.test_entries import TILES, entry

EMPTY = Root(first_offset=1592, next_offset=1592)
ROOT = Root(
    first_offset=105,
    next_offset=300,
    epoch=6,
    version=12,
    ledger=Ledger.of([(1, 100), (6, 200)]),
    entries=TILES,
    last_chunk=LastChunk(290, 6),
    quarantine_key="rabbitmq/stream/__s_1/metadata/quarantine.ü",
    name=QueueName("rabbit@größe", "/", "orders"),
)


@pytest.mark.parametrize(
    "root",
    [
        EMPTY,
        ROOT,
        replace(ROOT, quarantine_key=""),
        replace(ROOT, last_chunk=LastChunk(0, 0)),
        replace(ROOT, name=QueueName("😀" * MAX_NAME, "", "é" * MAX_NAME)),
    ],
)
def test_a_root_comes_back_as_it_was(root: Root) -> None:
    assert parse_root(root.encode()) == root


def test_a_root_sums_up_its_entries() -> None:
    assert ROOT.total_size == 4000
    assert (ROOT.first_timestamp, ROOT.last_timestamp) == (5, 8)
    assert (EMPTY.total_size, EMPTY.first_timestamp, EMPTY.last_timestamp) == (0, 0, 0)


def test_an_empty_run_gives_the_very_same_root() -> None:
    assert ROOT.appended([], LastChunk(0, 0)) is ROOT


def test_a_run_that_does_not_start_at_the_next_offset_is_refused() -> None:
    for first in (299, 301, 0):
        with pytest.raises(CorruptDataError):
            ROOT.appended([entry(first, 400)], LastChunk(390, 6))
        with pytest.raises(CorruptDataError):
            EMPTY.appended([entry(first, 2000)], LastChunk(1990, 6))


def test_a_run_moves_the_end_and_nothing_else() -> None:
    grown = ROOT.appended([entry(300, 310), entry(310, 320)], LastChunk(315, 6))

    assert grown.next_offset == 320
    assert grown.last_chunk == LastChunk(315, 6)
    assert replace(
        grown, next_offset=300, entries=ROOT.entries, last_chunk=ROOT.last_chunk
    ) == ROOT  # fmt: skip


def sealed(data: bytearray) -> bytes:
    """`data` with a checksum that holds."""
    data[-4:] = struct.pack(">I", zlib.crc32(data[:-4]))
    return bytes(data)


def poked(root: Root, position: int, letters: str, *values: int) -> bytes:
    data = bytearray(root.encode())
    struct.pack_into(">" + letters, data, position, *values)
    return sealed(data)


R = HEADER_SIZE
NAMES = R + ROOT_SIZE + 2 * 16 + len(ROOT.quarantine_key.encode())


def test_a_name_longer_than_any_is_refused_although_its_checksum_holds() -> None:
    long = replace(ROOT, name=QueueName("", "", "q" * (MAX_NAME + 1)))

    with pytest.raises(CorruptDataError, match="too long"):
        parse_root(long.encode())


@pytest.mark.parametrize(
    ("position", "letters", "value"),
    [
        (0, "I", 0),
        (4, "I", 1),  # which had no names
        (4, "I", 2),  # which had no super streams
        (4, "I", 0),
        (8, "Q", 99),  # first offset below the entries
        (8, "Q", 110),  # the first entry lies wholly below it
        (8, "Q", 301),
        (16, "Q", 299),
        (16, "Q", 301),
        (24, "q", 4),
        (32, "q", 8),
        (40, "Q", 1),  # high half of the total size
        (48, "Q", 3999),
        (R, "Q", 5),  # epoch against the ledger
        (R, "Q", 2**32),
        (R + 8, "Q", 300),  # the last chunk lies above the end
        (R + 24, "I", 0),
        (R + 24, "I", 3),
        (R + 24, "I", 2**32 - 1),
        (R + 28, "I", 0),
        (R + 28, "I", 2**32 - 1),
        (R + 32, "I", 0),
        (R + 32, "I", 2**32 - 1),
        (R + 36, "I", 1),
        (R + 40, "H", 0),
        (R + 42, "H", 2**16 - 1),
        (R + 44, "H", 7),
        (R + 46, "H", 2**16 - 1),
        (R + 48, "H", 1),
        (R + 50, "H", 1),  # reserved
        (NAMES, "B", 0xFF),  # not UTF-8
        (R + ROOT_SIZE, "Q", 0),  # a claim of epoch 0
        (R + ROOT_SIZE, "Q", 6),  # epochs that do not rise
        (R + ROOT_SIZE + 32, "B", 0xFF),  # not UTF-8
    ],
)
def test_a_root_that_contradicts_itself_is_refused_although_its_checksum_holds(
    position: int, letters: str, value: int
) -> None:
    with pytest.raises(CorruptDataError):
        parse_root(poked(ROOT, position, letters, value))


def test_a_root_without_a_last_chunk_names_no_epoch_for_it() -> None:
    with pytest.raises(CorruptDataError):
        parse_root(poked(EMPTY, R + 16, "Q", 3))


def test_a_root_with_a_fragment_newer_than_itself_is_refused() -> None:
    newer = Entries.of([entry(0, 10, epoch=7)])
    root = Root(0, 10, epoch=6, ledger=Ledger.of([(6, 0)]), entries=newer)

    with pytest.raises(CorruptDataError, match="newer"):
        parse_root(root.encode())


def test_a_root_with_holes_and_groups_is_readable() -> None:
    mixed = Entries.of(
        [
            entry(0, 10, kind=EntryKind.MEGA_GROUP, size=2**50),
            entry(10, 20, kind=EntryKind.GROUP),
            entry(20, 30, kind=EntryKind.HOLE, size=0),
            entry(30, 40),
        ]
    )
    root = Root(
        0,
        40,
        epoch=6,
        ledger=Ledger.of([(6, 0)]),
        entries=mixed,
        head=Head(mixed[0].min_timestamp, mixed[0].max_timestamp),
        last_chunk=LastChunk(39, 6),
    )

    assert parse_root(root.encode()) == root


@pytest.mark.parametrize("size", [0, 1, HEADER_SIZE + ROOT_SIZE + 3])
def test_a_root_too_short_for_its_header_is_refused(size: int) -> None:
    with pytest.raises(CorruptDataError):
        parse_root(ROOT.encode()[:size])


def test_a_root_with_bytes_after_its_end_is_refused() -> None:
    data = bytearray(ROOT.encode() + bytes(56))

    with pytest.raises(CorruptDataError):
        parse_root(sealed(data))


def test_empty_entries_need_an_empty_range() -> None:
    with pytest.raises(CorruptDataError):
        parse_root(Root(0, 10).encode())
