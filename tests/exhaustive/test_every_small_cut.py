"""Every small index, cut under every small limit, against a cutter that goes chunk by chunk.

Scope of limits: all indices of up to 3 chunks of 1..3 records, epochs 1..2, a byte each, under each
committed limit, epoch, closed or not, flush or not, three target sizes (28,584 cuts). Scope of
sizes: all indices of up to 4 chunks of 1..3 bytes under eight target sizes (17,472 cuts). Scope of
counts: up to 3 chunks whose records come close to the 32 bits of a trailer, on both sides
(11,808 cuts). A cut looks at one fragment after the other and only at sums behind its begin, so a
full one, one that waits and what comes between them are all there are; limits and sizes do not know
of each other.

Scope of uploads: three chunks, one with a filter and a trailer; each field of each index record one
off, each bit of each chunk's header and each bit of its data the other way (1,656 bits).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coldstream.agent.disk.log import StreamLog
from coldstream.agent.sending.slices import FragmentNumbers, check_chunks, fragment_size
from coldstream.errors import CorruptDataError
from coldstream.osiris.amqp import encode_data
from coldstream.osiris.index import INDEX_DTYPE
from coldstream.plans.claim import LocalChunk
from coldstream.plans.cut import SegmentView, Slice, cut
from coldstream_devkit.generator import build_chunk

STREAM = "__orders_1"
MAX_RECORDS = 2**32 - 1


@dataclass(frozen=True)
class Small:
    """One chunk of an index."""

    first: int
    next_offset: int
    epoch: int
    start: int
    end: int


def index(
    records: Sequence[int], sizes: Sequence[int], epochs: Sequence[int], first: int = 5
) -> list[Small]:
    offsets = list(accumulate(records, initial=first))
    positions = list(accumulate(sizes, initial=8))
    return [
        Small(offsets[n], offsets[n + 1], epoch, positions[n], positions[n + 1])
        for n, epoch in enumerate(epochs)
    ]


def view(chunks: Sequence[Small], *, closed: bool = False) -> SegmentView:
    rows = [(c.first, 1000 + c.first, c.epoch, c.start, 0) for c in chunks]
    return SegmentView(
        first_offset=5,
        records=np.array(rows, INDEX_DTYPE),
        skipped=0,
        end_position=chunks[-1].end if chunks else 8,
        next_offset=chunks[-1].next_offset if chunks else 5,
        closed=closed,
    )


@dataclass(frozen=True)
class Expected:
    """What a slice has to be."""

    chunks: tuple[Small, ...]
    ends_segment: bool


def naive_cut(
    chunks: Sequence[Small], *, closed: bool, target: int, committed: int, epoch: int, flush: bool
) -> list[Expected]:
    """Chunk by chunk: a fragment is full when the next chunk of the segment would not fit."""
    found: list[Expected] = []
    current: list[Small] = []
    for number, chunk in enumerate(chunks):
        if chunk.next_offset > committed or chunk.epoch > epoch:
            break
        current.append(chunk)
        if number + 1 == len(chunks):
            if closed:
                found.append(Expected(tuple(current), ends_segment=True))
                current = []
            continue
        after = chunks[number + 1]
        too_large = after.end - current[0].start > target
        too_many = after.next_offset - current[0].first > MAX_RECORDS
        if too_large or too_many:
            found.append(Expected(tuple(current), ends_segment=False))
            current = []
    if current and flush:
        found.append(Expected(tuple(current), ends_segment=False))
    return found


def check(
    chunks: Sequence[Small], *, closed: bool, target: int, committed: int, epoch: int, flush: bool
) -> None:
    slices = cut(
        view(chunks, closed=closed),
        target_size=target,
        committed=committed,
        epoch=epoch,
        flush=flush,
    )
    expected = naive_cut(
        chunks, closed=closed, target=target, committed=committed, epoch=epoch, flush=flush
    )
    case = (chunks, closed, target, committed, epoch, flush)
    assert len(slices) == len(expected), case
    for piece, wanted in zip(slices, expected, strict=True):
        assert piece.records["offset"].tolist() == [c.first for c in wanted.chunks], case
        assert piece.records["position"].tolist() == [c.start for c in wanted.chunks], case
        assert (piece.start, piece.end) == (wanted.chunks[0].start, wanted.chunks[-1].end), case
        assert piece.next_offset == wanted.chunks[-1].next_offset, case
        assert piece.ends_segment == wanted.ends_segment, case
        assert (piece.segment_offset, piece.first_offset) == (5, wanted.chunks[0].first)
        assert piece.size == sum(c.end - c.start for c in wanted.chunks)


def rising(count: int, most: int) -> Iterator[tuple[int, ...]]:
    for epochs in product(range(1, most + 1), repeat=count):
        if list(epochs) == sorted(epochs):
            yield epochs


def test_an_empty_index_is_cut_into_nothing() -> None:
    for closed, flush in product((False, True), repeat=2):
        check([], closed=closed, target=1, committed=9, epoch=1, flush=flush)


def test_only_what_is_committed_and_of_a_claimed_epoch_is_cut_and_the_rest_waits() -> None:
    for count in (1, 2, 3):
        for records, epochs in product(product((1, 2, 3), repeat=count), rising(count, 2)):
            chunks = index(records, [1] * count, epochs)
            limits = range(4, 7 + sum(records))
            for committed, epoch, target, closed, flush in product(
                limits, (1, 2), (1, 2, 3), (False, True), (False, True)
            ):
                check(
                    chunks,
                    closed=closed,
                    target=target,
                    committed=committed,
                    epoch=epoch,
                    flush=flush,
                )


def test_a_fragment_is_as_large_as_whole_chunks_allow() -> None:
    for count in (1, 2, 3, 4):
        for sizes in product((1, 2, 3), repeat=count):
            chunks = index([1] * count, sizes, [1] * count)
            for target, usable, closed, flush in product(
                range(1, 9), range(count + 1), (False, True), (False, True)
            ):
                check(
                    chunks,
                    closed=closed,
                    target=target,
                    committed=5 + usable,
                    epoch=1,
                    flush=flush,
                )


def test_no_fragment_has_more_records_than_its_trailer_can_count() -> None:
    counts = (1, 2, 2**31 - 1, 2**31, MAX_RECORDS - 1, MAX_RECORDS)
    for count in (1, 2, 3):
        for records, target in product(product(counts, repeat=count), (1, 2, 9)):
            chunks = index(records, [1] * count, [1] * count)
            for closed, flush, usable in product((False, True), (False, True), range(count + 1)):
                committed = chunks[usable - 1].next_offset if usable else 5
                check(
                    chunks, closed=closed, target=target, committed=committed, epoch=1, flush=flush
                )


def test_a_view_counts_the_chunks_that_end_at_or_below_an_offset_and_shows_each() -> None:
    for count in (0, 1, 2, 3, 4):
        for records, epochs in product(product((1, 2, 3), repeat=count), rising(count, 2)):
            chunks = index(records, [1] * count, epochs)
            segment = view(chunks)
            for offset in range(3, 8 + sum(records)):
                ended = sum(chunk.next_offset <= offset for chunk in chunks)
                assert segment.committed(offset) == ended, (chunks, offset)
            for number in range(-count, count):
                wanted = chunks[number]
                assert segment.chunk(number) == LocalChunk(
                    wanted.first, wanted.next_offset, wanted.epoch
                )


# What is uploaded.


def message(number: int) -> list[bytes]:
    return [encode_data(b"%d" % n) for n in range(number)]


CHUNKS = (
    build_chunk(5, 1, 1000, message(1)),
    build_chunk(6, 2, 900, message(3), bloom=b"\x01\x02", trailer=b"\x03"),
    build_chunk(9, 2, 1000, message(2)),
)
ROWS = [(5, 1000, 1, 0, 0), (6, 900, 2, 0, 0), (9, 1000, 2, 0, 0)]


def piece_of(start: int = 8) -> Slice:
    ends = list(accumulate((len(each) for each in CHUNKS), initial=start))
    rows = [(*row[:3], at, row[4]) for row, at in zip(ROWS, ends, strict=False)]
    return Slice(5, np.array(rows, INDEX_DTYPE), start, ends[-1], 11, ends_segment=False)


def verdict(piece: Slice, data: bytes) -> int | None:
    """The offset that is complained of; None if all is well."""
    log = StreamLog(Path("/nowhere") / STREAM)
    try:
        check_chunks(log, piece, memoryview(data))
    except CorruptDataError as exc:
        located = (exc.stream, exc.key) == (STREAM, str(log.segment_path(5)))
        return exc.offset if located else -1
    return None


def naive_verdict(piece: Slice, data: bytes) -> int | None:
    """Header by header, by the page that draws the formats."""
    rows = piece.records.tolist()
    for number, (offset, timestamp, epoch, position, kind) in enumerate(rows):
        last = number + 1 == len(rows)
        next_offset = piece.next_offset if last else rows[number + 1][0]
        start = position - piece.start
        end = (piece.end if last else rows[number + 1][3]) - piece.start
        if not 0 <= start <= len(data) - 48:
            return int(offset)
        magic, its_kind, entries, records, time, its_epoch, chunk_id, crc, size, trailer, bloom = (
            struct.unpack_from(">BBHIqQQIIIB", data, start)
        )
        body = data[start + 48 + bloom : start + 48 + bloom + size]
        right = (
            magic == 0x50
            and its_kind in (0, 1, 2)
            and 1 <= entries <= records
            and (chunk_id, chunk_id + records) == (offset, next_offset)
            and (time, its_epoch, its_kind) == (timestamp, epoch, kind)
            and 48 + bloom + size + trailer == end - start
            and zlib.crc32(body) == crc
        )
        if not right:
            return int(offset)
    return None


def test_what_is_as_its_index_says_is_uploaded_wherever_it_stands_in_the_segment() -> None:
    for start in (8, 9, 1000):
        assert verdict(piece_of(start), b"".join(CHUNKS)) is None


def test_an_index_record_that_is_one_off_in_any_field_is_noticed_at_the_first_wrong_chunk() -> None:
    data = b"".join(CHUNKS)
    piece = piece_of()
    for number, name, by in product(range(3), INDEX_DTYPE.names or (), (-1, 1)):
        records: NDArray[np.void] = piece.records.copy()
        if int(records[name][number]) + by < 0:
            continue
        records[name][number] = int(records[name][number]) + by
        other = replace(piece, records=records)
        said = verdict(other, data)
        assert said is not None, (number, name, by)
        assert said == naive_verdict(other, data), (number, name, by)
    for by in (-1, 1):
        assert verdict(replace(piece, next_offset=11 + by), data) == 9
        assert verdict(replace(piece, end=piece.end + by), data) == 9


def test_a_chunk_with_any_bit_the_other_way_is_judged_as_by_the_formats() -> None:
    piece, data = piece_of(), b"".join(CHUNKS)
    noticed = 0
    for place, bit in product(range(len(data)), range(8)):
        other = bytearray(data)
        other[place] ^= 1 << bit
        said = verdict(piece, bytes(other))
        assert said == naive_verdict(piece, bytes(other)), (place, bit)
        noticed += said is not None
    assert noticed > len(data) * 6


def test_a_fragments_size_counts_headers_chunks_index_and_trailer() -> None:
    assert fragment_size(piece_of()) == 8 + sum(map(len, CHUNKS)) + 8 + 3 * 20 + 156


def test_fragments_are_numbered_in_their_segment_from_0() -> None:
    for segments in product((0, 5), repeat=4):
        numbers = FragmentNumbers()
        said = [numbers.next(segment) for segment in segments]
        for at, segment in enumerate(segments):
            before = 0
            while before < at and segments[at - 1 - before] == segment:
                before += 1
            assert said[at] == before
