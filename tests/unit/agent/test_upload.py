"""What is read is what was cut: a broker truncates and rewrites its files in place meanwhile."""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coldstream.adapters.memory import MemoryObjectStore
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.sending.slices import BufferPool, FragmentNumbers, fragment_size, upload
from coldstream.errors import CorruptDataError
from coldstream.fragment import (
    HEADER,
    TRAILER_SIZE,
    FragmentIndex,
    Placement,
    check_against_key,
    parse_trailer,
)
from coldstream.names import parse_data_key
from coldstream.osiris.amqp import encode_data
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE, ChunkType, iter_chunks
from coldstream.plans.cut import Slice, cut
from coldstream_devkit.generator import append_chunks, build_chunk, write_stream

from .conftest import Site
from .disturbed import Run, durable

STREAM = "__orders_1745252105682952932"
PLACEMENT = Placement(epoch=9, floor=0, segment_offset=0, sequence=0, segment_position=8)


def slices(log: StreamLog, **more: Any) -> list[Slice]:
    view = log.view_at(0, 0, closed=False)
    assert view is not None
    return cut(view, target_size=10**6, committed=10**6, epoch=9, flush=True, **more)


def sent(log: StreamLog, piece: Slice) -> dict[str, bytes]:
    store = MemoryObjectStore()
    buffer = bytearray(fragment_size(piece))
    upload(store, log, piece, PLACEMENT, prefix="rabbitmq/", uid=5, buffer=buffer)
    return store.objects


def written(tmp_path: Path, chunks: list[bytes]) -> StreamLog:
    append_chunks(tmp_path / STREAM, chunks)
    return StreamLog(tmp_path / STREAM)


def plain(first: int, epoch: int = 1, timestamp: int = 1000, count: int = 10) -> bytes:
    return build_chunk(first, epoch, timestamp, [encode_data(b"%04d" % n) for n in range(count)])


def headed(chunk: bytes, at: int, form: str, value: int) -> bytes:
    """The chunk with another number in its header, which no CRC covers."""
    size = struct.calcsize(form)
    return chunk[:at] + struct.pack(form, value) + chunk[at + size :]


def later(chunk: bytes) -> bytes:
    """The chunk as if its first record were not there, and all else were."""
    (first,) = struct.unpack_from(">Q", chunk, 24)
    return headed(chunk, 24, ">Q", first + 1)


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("another chunk id", lambda c: headed(c, 24, ">Q", 11)),
        ("a later begin", lambda c: later(headed(headed(c, 4, ">I", 9), 2, ">H", 9))),
        ("fewer records", lambda c: headed(headed(c, 4, ">I", 9), 2, ">H", 9)),
        ("more records", lambda c: headed(c, 4, ">I", 11)),
        ("another time", lambda c: headed(c, 8, ">q", 1001)),
        ("another writer's", lambda c: headed(c, 16, ">Q", 2)),
        ("an older writer's", lambda c: headed(c, 16, ">Q", 0)),
        ("another type", lambda c: headed(c, 1, ">B", ChunkType.TRACKING_DELTA)),
        ("a filter of a byte", lambda c: headed(headed(c, 44, ">B", 1), 36, ">I", len(c) - 49)),
        ("a longer one", lambda c: headed(c, 40, ">I", 1)),
        ("no chunk", lambda c: b"\0" + c[1:]),
        ("damaged data", lambda c: c[:-1] + bytes([c[-1] ^ 1])),
        ("another CRC", lambda c: headed(c, 32, ">I", 7)),
    ],
)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_chunk_that_is_not_the_one_that_was_cut_is_never_uploaded(
    tmp_path: Path, what: str, change: Callable[[bytes], bytes], number: int
) -> None:
    """Every number in the index is looked for in the chunk: the CRC covers none of them."""
    del what
    chunks = [plain(0), plain(10), plain(20)]
    log = written(tmp_path, chunks)
    (piece,) = slices(log)
    path = log.segment_path(0)
    before = path.read_bytes()
    changed = list(chunks)
    changed[number] = change(chunks[number])
    if changed[number] == chunks[number]:
        pytest.skip("it is so already")
    after = before[:8] + b"".join(changed)
    assert len(after) == len(before)
    path.write_bytes(after)

    with pytest.raises(CorruptDataError) as caught:
        sent(log, piece)

    assert (caught.value.stream, caught.value.offset) == (STREAM, 10 * number)
    assert caught.value.key == str(path)


def test_another_history_of_the_same_length_in_the_same_place_is_never_uploaded(
    tmp_path: Path,
) -> None:
    """The log was truncated and written again by another writer after it was cut: every chunk is
    whole, and has the same id, but none is what the index said."""
    log = written(tmp_path, [plain(0), plain(10), plain(20)])
    (piece,) = slices(log)
    for path in (tmp_path / STREAM).iterdir():
        path.unlink()
    written(tmp_path, [plain(0), plain(10, epoch=2), plain(20, epoch=2)])

    with pytest.raises(CorruptDataError, match="not the one that its index record describes"):
        sent(log, piece)


def test_a_segment_that_was_cut_short_in_the_meantime_is_told(tmp_path: Path) -> None:
    log = written(tmp_path, [plain(0), plain(10), plain(20)])
    (piece,) = slices(log)
    path = log.segment_path(0)
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(CorruptDataError, match="the segment ends at byte") as caught:
        sent(log, piece)

    assert (caught.value.stream, caught.value.offset) == (STREAM, 0)


def test_an_agent_whose_file_is_rewritten_between_cut_and_read_uploads_the_new_history(
    site: Site,
) -> None:
    """As a whole: the slice fails, the stream is claimed and cut again, and nothing is mixed."""
    write_stream(site.data_dir / STREAM, messages=30, chunk_messages=10)

    def rewrite() -> None:
        for path in (site.data_dir / STREAM).iterdir():
            path.unlink()
        write_stream(
            site.data_dir / STREAM, messages=30, chunk_messages=10, epochs=((1, 0), (2, 10))
        )
        run.machine.held = False

    run = Run(site, settings={"rescan_seconds": 5})
    run.machine.held = True
    run.happens = {3: rewrite}
    (row,) = run.go()

    assert row.error is None
    assert durable(site, STREAM)
    assert site.catalog.items[STREAM].ledger.floor(2) is not None


# The object.


def test_what_is_uploaded_is_a_whole_fragment_with_every_byte_in_its_place(tmp_path: Path) -> None:
    chunks = [plain(0), plain(10, timestamp=900), plain(20, epoch=3)]
    log = written(tmp_path, chunks)
    (piece,) = slices(log)

    ((path, body),) = sent(log, piece).items()

    trailer = parse_trailer(body[-TRAILER_SIZE:])
    check_against_key(trailer, parse_data_key(path, "rabbitmq/"), len(body))
    index = FragmentIndex(
        body[trailer.index_position : trailer.index_position + trailer.index_size], trailer
    )
    assert body[: len(HEADER)] == HEADER
    found = list(iter_chunks(body, len(HEADER), trailer.index_position))
    assert [bytes(each.buffer) for each in found] == chunks
    assert [index[n].position + len(HEADER) for n in range(3)] == [
        len(HEADER) + sum(len(each) for each in chunks[:n]) for n in range(3)
    ]
    assert [index[n].timestamp for n in range(3)] == [1000, 900, 1000]
    assert (trailer.first_chunk_epoch, trailer.last_chunk_epoch) == (1, 3)


def test_the_second_slice_of_a_segment_begins_at_the_begin_of_its_own_data(tmp_path: Path) -> None:
    chunks = [plain(0), plain(10), plain(20)]
    log = written(tmp_path, chunks)
    view = log.view_at(0, 0, closed=False)
    assert view is not None
    size = len(chunks[0])
    pieces = cut(view, target_size=size, committed=10**6, epoch=1, flush=True)

    for number, piece in enumerate(pieces):
        ((_, body),) = sent(log, piece).items()
        assert body[len(HEADER) : len(HEADER) + size] == chunks[number]


def test_a_damaged_filter_is_not_told_by_the_crc_of_the_data() -> None:
    """What the upload cannot see: the CRC covers the data section only."""
    chunk = plain(0)
    assert CHUNK_HEADER_SIZE == 48
    assert struct.unpack_from(">I", chunk, 36)[0] == len(chunk) - 48


# Buffers and numbers.


def test_the_store_gets_the_crc_of_the_very_bytes_that_were_checked(tmp_path: Path) -> None:
    class Seen(MemoryObjectStore):
        crc: int | None = None

        def put(self, key: str, body: Any, *, write_id: str, crc: int | None = None) -> None:
            self.crc = crc
            super().put(key, body, write_id=write_id, crc=crc)

    log, store = written(tmp_path, [plain(0), plain(10), plain(20)]), Seen()
    (piece,) = slices(log)
    buffer = bytearray(fragment_size(piece) + 9)
    upload(store, log, piece, PLACEMENT, prefix="rabbitmq/", uid=5, buffer=buffer)

    (body,) = store.objects.values()
    assert store.crc == zlib.crc32(body)


def test_buffers_are_bounded_by_the_budget_and_used_again() -> None:
    pool = BufferPool(100, threading.Condition())
    never, now = lambda: False, lambda: True
    one = pool.take(60, stop=never)
    assert one is not None
    stops = iter([False, True])
    assert pool.take(60, stop=lambda: next(stops)) is None, "60 of 100 are out"
    assert pool.take(40, stop=never) is not None
    pool.give_back(one)
    assert pool.take(50, stop=never) is one, "used again"
    assert pool.take(1, stop=now) is None


def test_a_buffer_larger_than_the_budget_is_given_out_alone_and_not_kept() -> None:
    pool = BufferPool(100, threading.Condition())
    tries = iter([False, True])
    large = pool.take(500, stop=lambda: next(tries))
    assert large is not None
    stops = iter([False, True])
    assert pool.take(10, stop=lambda: next(stops)) is None
    pool.give_back(large)
    small = pool.take(10, stop=lambda: False)
    assert small is not None
    assert len(small) == 10
    another = pool.take(90, stop=lambda: False)
    assert another is not None


def test_a_small_buffer_that_is_free_makes_room_for_a_large_one() -> None:
    pool = BufferPool(100, threading.Condition())
    small = pool.take(60, stop=lambda: False)
    assert small is not None
    pool.give_back(small)

    found = pool.take(90, stop=lambda: False)

    assert found is not None
    assert len(found) == 90


def test_fragments_are_numbered_within_their_segment() -> None:
    numbers = FragmentNumbers()

    assert [numbers.next(segment) for segment in (0, 0, 7, 7, 7, 9)] == [0, 1, 0, 1, 2, 0]
