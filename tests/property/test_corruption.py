"""Flip any bit, cut at any byte, lie in any count: a clear error or a detected mismatch."""

from __future__ import annotations

import itertools
import struct
import tracemalloc
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import CorruptDataError, UnknownVersionError
from coldstream.fragment import (
    HEADER,
    TRAILER_SIZE,
    FragmentIndex,
    IndexRecord,
    check_against_key,
    parse_trailer,
)
from coldstream.manifest.entries import ENTRY_SIZE, Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import HEADER_SIZE, ROOT_SIZE, Head, LastChunk, Root, parse_root
from coldstream.names import DataKey
from coldstream_devkit.fragments import SyntheticFragment, build_fragment
from tests.support.examples import examples

FRAGMENT = build_fragment(
    100, 143, epoch=7, floor=50, chunk_epochs=[5, 6], timestamps=[1000, 900, 2000]
)


def decode(data: bytes, key: DataKey) -> tuple[object, list[IndexRecord], bytes]:
    """Everything that a careful reader takes from a fragment, with every check it must make."""
    trailer = parse_trailer(data[-TRAILER_SIZE:])
    check_against_key(trailer, key, len(data))
    position = trailer.index_position
    index = FragmentIndex(data[position : position + trailer.index_size], trailer)
    if data[: len(HEADER)] != HEADER:
        raise CorruptDataError("no fragment")
    chunks = data[len(HEADER) : position]
    if zlib.crc32(chunks) != trailer.data_crc:
        raise CorruptDataError("the data's checksum does not match")
    return trailer, [index[number] for number in range(len(index))], chunks


def test_a_whole_fragment_decodes() -> None:
    trailer, records, chunks = decode(FRAGMENT.data, FRAGMENT.key)

    assert (trailer, chunks, len(records)) == (FRAGMENT.trailer, FRAGMENT.chunks, 5)


def test_a_flip_of_any_bit_of_a_fragment_is_found() -> None:
    for position in range(len(FRAGMENT.data)):
        for bit in range(8):
            data = bytearray(FRAGMENT.data)
            data[position] ^= 1 << bit
            with pytest.raises(CorruptDataError):
                decode(bytes(data), FRAGMENT.key)


def test_a_cut_at_any_byte_of_a_fragment_is_found() -> None:
    for cut in range(len(FRAGMENT.data)):
        with pytest.raises(CorruptDataError):
            decode(FRAGMENT.data[:cut], FRAGMENT.key)
        if cut:
            with pytest.raises(CorruptDataError):
                decode(FRAGMENT.data[cut:], FRAGMENT.key)


@given(st.binary(max_size=400))
def test_garbage_is_no_fragment(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        decode(data, FRAGMENT.key)


@given(st.data())
def test_many_flips_and_moves_in_a_fragment_are_found(data: st.DataObject) -> None:
    damaged = bytearray(FRAGMENT.data)
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
        if not damaged:
            break
    if bytes(damaged) == FRAGMENT.data:
        return
    with pytest.raises(CorruptDataError):
        decode(bytes(damaged), FRAGMENT.key)


TRAILER_FIELDS = [
    *((name, 64) for name in ("first_offset", "next_offset")),
    *((name, -64) for name in ("first_timestamp", "last_timestamp")),
    *((name, -64) for name in ("min_timestamp", "max_timestamp")),
    *((name, 64) for name in ("epoch", "floor", "first_chunk_epoch", "last_chunk_epoch")),
    *((name, 64) for name in ("last_chunk_id", "segment_offset")),
    *((name, 32) for name in ("sequence", "segment_position", "chunks", "records")),
    *((name, 64) for name in ("data_size", "index_position", "index_size")),
    *((name, 32) for name in ("data_crc", "index_crc")),
]


def numbers(bits: int) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (-bits - 1)), 2 ** (-bits - 1) - 1) if bits < 0 else (0, 2**bits - 1)
    return st.one_of(
        st.integers(low, high),
        st.integers(0, 200),
        st.sampled_from([low, high, high - 1, min(high, 2**31), min(high, 2**32 - 1)]),
    )


@examples(4)
@given(st.data())
def test_a_trailer_that_lies_under_a_good_checksum_is_refused_or_agrees_with_everything(
    data: st.DataObject,
) -> None:
    lies = {
        name: data.draw(numbers(bits))
        for name, bits in data.draw(
            st.lists(st.sampled_from(TRAILER_FIELDS), min_size=1, max_size=4, unique=True)
        )
    }
    lying: SyntheticFragment = replace(
        FRAGMENT,
        data=FRAGMENT.data[:-TRAILER_SIZE] + replace(FRAGMENT.trailer, **lies).encode(),
    )
    tracemalloc.start()
    try:
        trailer, records, chunks = decode(lying.data, FRAGMENT.key)
    except CorruptDataError:
        return
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 100_000, f"{peak} bytes for an object of {len(lying.data)}"

    # Whatever was accepted is true of the data, or is information that binds nobody.
    free = {"segment_offset", "sequence", "segment_position", "floor"}
    free |= {"first_chunk_epoch", "last_chunk_epoch"}  # in the chunks, which are not decoded here
    assert trailer == replace(
        FRAGMENT.trailer, **{name: value for name, value in lies.items() if name in free}
    )
    assert (len(records), chunks) == (5, FRAGMENT.chunks)


@given(st.data())
def test_whatever_trailer_is_accepted_is_the_only_way_to_write_it(data: st.DataObject) -> None:
    values = {name: data.draw(numbers(bits)) for name, bits in TRAILER_FIELDS}
    encoded = replace(FRAGMENT.trailer, **values).encode()
    try:
        trailer = parse_trailer(encoded)
    except CorruptDataError:
        return
    assert trailer.encode() == encoded


def build_index(draw: st.DrawFn) -> SyntheticFragment:
    first = draw(st.integers(0, 2**40))
    return build_fragment(
        first,
        first + draw(st.integers(1, 60)),
        epoch=draw(st.integers(1, 2**32 - 1)),
        floor=draw(st.integers(0, first)),
        timestamps=draw(st.lists(st.integers(-(2**40), 2**40), max_size=8)),
        records_per_chunk=draw(st.integers(1, 20)),
    )


fragments = st.composite(build_index)()


@given(fragments)
def test_any_fragment_round_trips(fragment: SyntheticFragment) -> None:
    trailer, records, chunks = decode(fragment.data, fragment.key)

    assert trailer == fragment.trailer
    assert chunks == fragment.chunks
    assert records[0].chunk_id == fragment.key.first_offset


@given(fragments, st.integers(-5, 70))
def test_look_ups_in_an_index_agree_with_looking_at_every_record(
    fragment: SyntheticFragment, step: int
) -> None:
    index = FragmentIndex(fragment.index_section, fragment.trailer)
    records = [index[number] for number in range(len(index))]
    offset = max(0, fragment.key.first_offset + step)

    below = [n for n, each in enumerate(records) if each.chunk_id <= offset]
    assert index.chunk_of_offset(offset) == (below[-1] if below else 0)


# Roots.


def draw_root(draw: st.DrawFn) -> Root:
    epochs = sorted(draw(st.sets(st.integers(1, 2**32 - 1), min_size=1, max_size=4)))
    start = at = draw(st.integers(0, 2**50))
    ledger = Ledger.of((epoch, draw(st.integers(0, 2**50))) for epoch in epochs)
    entries = []
    kinds = draw(st.lists(st.sampled_from(EntryKind), max_size=6))
    for kind in sorted(kinds, key=lambda kind: -kind.level):
        next_offset = at + draw(st.integers(1, 2**40))
        low = draw(st.integers(-(2**63), 2**63 - 1))
        entries.append(
            Entry(
                first_offset=at,
                next_offset=next_offset,
                min_timestamp=low,
                max_timestamp=draw(st.integers(low, 2**63 - 1)),
                kind=kind,
                size=draw(st.integers(0, 2**56 - 1)),
                records=draw(st.integers(1, 2**32 - 1)),
                epoch=draw(st.integers(0, epochs[-1])),
                uid=draw(st.integers(0, 2**64 - 1)),
            )
        )
        at = next_offset
    first = draw(st.integers(start, entries[0].next_offset - 1)) if entries else at
    chunk_id = draw(st.integers(0, at - 1)) if at else None
    return Root(
        first_offset=first,
        next_offset=at,
        epoch=epochs[-1],
        version=draw(st.integers(0, 2**64 - 1)),
        ledger=ledger,
        entries=Entries.of(entries),
        head=draw_head(draw, entries[0]) if entries and entries[0].kind.level else None,
        last_chunk=None if chunk_id is None else LastChunk(chunk_id, draw(st.integers(0, 9))),
        quarantine_key=draw(st.text(max_size=20).filter(_encodable)),
    )


def draw_head(draw: st.DrawFn, group: Entry) -> Head:
    low = draw(st.integers(group.min_timestamp, group.max_timestamp))
    return Head(
        min_timestamp=low,
        max_timestamp=draw(st.integers(low, group.max_timestamp)),
        dead_size=draw(st.integers(0, group.size)),
        dead_fragments=draw(st.integers(0, group.records - 1)),
    )


def _encodable(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text)


roots = st.composite(draw_root)()

ROOT = Root(
    first_offset=3,
    next_offset=40,
    epoch=6,
    version=12,
    ledger=Ledger.of([(1, 0), (6, 20)]),
    entries=Entries.of(
        [
            Entry(0, 10, 5, 9, EntryKind.FRAGMENT, 1000, 10, 1, 1),
            Entry(10, 40, 6, 20, EntryKind.HOLE, 0, 0, 6, 2**64 - 1),
        ]
    ),
    last_chunk=LastChunk(35, 6),
    quarantine_key="q",
)


@given(roots)
def test_any_root_round_trips(root: Root) -> None:
    assert parse_root(root.encode()) == root


def test_a_flip_of_any_bit_of_a_root_is_found() -> None:
    encoded = ROOT.encode()
    for position in range(len(encoded)):
        for bit in range(8):
            data = bytearray(encoded)
            data[position] ^= 1 << bit
            with pytest.raises(CorruptDataError):
                parse_root(bytes(data))


def test_a_cut_at_any_byte_of_a_root_is_found() -> None:
    encoded = ROOT.encode()
    for cut in range(len(encoded)):
        with pytest.raises(CorruptDataError):
            parse_root(encoded[:cut])
        if cut:
            with pytest.raises(CorruptDataError):
                parse_root(encoded[cut:])


def sealed(data: bytearray) -> bytes:
    data[-4:] = struct.pack(">I", zlib.crc32(data[:-4]))
    return bytes(data)


def test_a_flip_under_a_checksum_made_anew_is_refused_or_another_root_but_never_a_crash() -> None:
    encoded = ROOT.encode()
    for position in range(len(encoded) - 4):
        for bit in range(8):
            data = bytearray(encoded)
            data[position] ^= 1 << bit
            damaged = sealed(data)
            try:
                root = parse_root(damaged)
            except (CorruptDataError, UnknownVersionError):
                continue
            assert root.encode() == damaged, "what is accepted is all that the bytes say"


@examples(3)
@given(
    st.integers(0, HEADER_SIZE + ROOT_SIZE - 4),
    st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1]),
)
def test_counts_that_lie_under_a_good_checksum_cost_no_memory(position: int, value: int) -> None:
    data = bytearray(ROOT.encode())
    struct.pack_into(">I", data, position, value)
    damaged = sealed(data)
    tracemalloc.start()
    try:
        root = parse_root(damaged)
    except (CorruptDataError, UnknownVersionError):
        pass
    else:
        assert root.encode() == damaged
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 100_000


@given(st.binary(max_size=300))
def test_garbage_is_no_root(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        parse_root(data)
    with pytest.raises(CorruptDataError):
        parse_root(sealed(bytearray(data + bytes(4))))


@given(st.binary(max_size=4 * ENTRY_SIZE))
def test_garbage_entries_are_refused_or_tile(data: bytes) -> None:
    try:
        entries = list(Entries(data))
    except CorruptDataError:
        return
    assert all(a.next_offset == b.first_offset for a, b in itertools.pairwise(entries))
    assert Entries.of(entries) == Entries(data)


@given(roots, st.integers(0, 2**50), st.integers(-(2**63), 2**63 - 1))
def test_look_ups_in_entries_agree_with_looking_at_every_entry(
    root: Root, offset: int, timestamp: int
) -> None:
    entries = list(root.entries)
    containing = [n for n, e in enumerate(entries) if e.first_offset <= offset < e.next_offset]
    reaching = [n for n, e in enumerate(entries) if e.max_timestamp >= timestamp]

    assert root.entries.number_of_offset(offset) == (containing[0] if containing else None)
    assert root.entries.number_of_timestamp(timestamp) == (reaching[0] if reaching else None)
