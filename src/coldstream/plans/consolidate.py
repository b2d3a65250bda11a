"""Which small fragments become one, and out of which parts of them it is made.

Neighbours of one segment, one epoch and one cut join byte for byte: the new fragment is what the
agent would have uploaded, had it waited. To keep each byte from being written again and again, a
merge must at least double the largest of its pieces; and while it could still grow, it waits for
several pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from coldstream.crc import combine
from coldstream.fragment import HEADER, IndexRecord, Placement, Trailer, build_trailer, encode_index
from coldstream.manifest.entries import MAX_RECORDS, Entry, EntryKind

#: Pieces that an unfinished merge needs to be worth a new object.
MIN_PIECES = 8
#: Data up to this size, in bytes, is cheaper to read and PUT near the bucket than to compose: each
#: part of a multipart upload is charged like a PUT, which is 0.4 GB-seconds of a function, in which
#: it reads and writes about 30 MB (decision 0053).
READ_WHOLE = 64 * 2**20


@dataclass(frozen=True, slots=True)
class SmallFragment:
    """A small fragment of the manifest, with its trailer."""

    entry: Entry
    trailer: Trailer


@dataclass(frozen=True, slots=True)
class CopySpan:
    """Bytes [start, end) of the object of piece number `piece`."""

    piece: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """In bytes."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class PartPlan:
    """One part of the new object: one span to copy inside S3, or spans to read and join."""

    spans: tuple[CopySpan, ...]
    copy: bool


def may_be_worth_it(*, total_size: int, fragments: int, target_size: int) -> bool:
    """Whether a look at the tree can be worth it, from what the catalog item says."""
    return fragments >= MIN_PIECES and total_size < fragments * (target_size // 2)


def small(entry: Entry, target_size: int) -> bool:
    """Whether a fragment can be a piece at all: one above half the target can never be doubled."""
    return entry.kind is EntryKind.FRAGMENT and 2 * entry.size <= target_size


def choose(
    runs: Iterable[Sequence[SmallFragment]], *, target_size: int, last_is_open: bool
) -> list[tuple[SmallFragment, ...]]:
    """Pieces that are worth a fragment, each tuple to become one.

    Args:
        runs: small neighbours, in offset order; between two runs lies something that is not small.
        target_size: bytes of data in a full fragment.
        last_is_open: whether the last run ends where the manifest ends, so that it may go on.
    """
    all_runs = list(runs)
    chosen: list[tuple[SmallFragment, ...]] = []
    for number, run in enumerate(all_runs):
        open_end = last_is_open and number == len(all_runs) - 1
        begin = 0
        while begin < len(run):
            end = _end_of_bin(run, begin, target_size)
            pieces = tuple(run[begin:end])
            largest = max(piece.trailer.data_size for piece in pieces)
            total = sum(piece.trailer.data_size for piece in pieces)
            may_grow = open_end and end == len(run)
            if total >= 2 * largest and (len(pieces) >= MIN_PIECES or not may_grow):
                chosen.append(pieces)
                begin = end
            else:
                begin += 1
    return chosen


def _end_of_bin(run: Sequence[SmallFragment], begin: int, target_size: int) -> int:
    size = run[begin].trailer.data_size
    end = begin + 1
    while end < len(run):
        following = run[end].trailer
        size += following.data_size
        records = following.next_offset - run[begin].trailer.first_offset
        if size > target_size or records > MAX_RECORDS:
            break
        if not joins(run[end - 1].trailer, following):
            break
        end += 1
    return end


def joins(before: Trailer, after: Trailer) -> bool:
    """Whether two fragments are neighbours in one segment file, cut under one epoch."""
    return (
        before.next_offset == after.first_offset
        and before.segment_offset == after.segment_offset
        and before.segment_position + before.data_size == after.segment_position
        and (before.epoch, before.floor) == (after.epoch, after.floor)
        and before.last_chunk_epoch <= after.first_chunk_epoch
    )


def layout(
    data_sizes: Sequence[int], *, min_part: int, read_whole: int = 0
) -> tuple[PartPlan, ...]:
    """The parts of an object that holds a fragment header and the pieces' data, one after another.

    What is large enough is copied inside S3; what is not is read and joined until it is, if need be
    with the beginning of the piece behind it. The index and the trailer follow the last part, which
    may therefore be shorter than `min_part`; it is there even if nothing is left for it to begin
    with.

    Args:
        data_sizes: of the pieces, bytes.
        min_part: smallest part but the last, bytes.
        read_whole: data up to so many bytes is read and joined, whatever its pieces are.
    """
    if sum(data_sizes) <= read_whole:
        ends = [len(HEADER) + size for size in data_sizes]
        starts = [0, *[len(HEADER)] * (len(ends) - 1)]
        spans = map(CopySpan, range(len(ends)), starts, ends)
        return (PartPlan(tuple(spans), copy=False),)
    parts: list[PartPlan] = []
    waiting: list[CopySpan] = []
    for number, size in enumerate(data_sizes):
        start = 0 if number == 0 else len(HEADER)  # the first piece brings its header along
        end = len(HEADER) + size
        missing = min_part - sum(span.size for span in waiting) if waiting else 0
        cut = start + max(0, missing)
        if end - cut < min_part:
            waiting.append(CopySpan(number, start, end))
            continue
        if cut > start:
            waiting.append(CopySpan(number, start, cut))
        if waiting:
            parts.append(PartPlan(tuple(waiting), copy=False))
            waiting = []
        parts.append(PartPlan((CopySpan(number, cut, end),), copy=True))
    parts.append(PartPlan(tuple(waiting), copy=False))
    return tuple(parts)


def merged_index(indexes: Iterable[tuple[Trailer, Iterable[IndexRecord]]]) -> bytes:
    """Index records of the new fragment, without the section's header.

    Args:
        indexes: of the pieces, in order.
    """

    def records() -> Iterator[IndexRecord]:
        moved = 0
        for trailer, index in indexes:
            for record in index:
                yield IndexRecord(record.chunk_id, record.timestamp, record.position + moved)
            moved += trailer.data_size

    return encode_index(records())


def merged_trailer(trailers: Sequence[Trailer], index: bytes) -> Trailer:
    """The trailer of the new fragment: it has the epoch, and so the rights, of what it replaces."""
    first, last = trailers[0], trailers[-1]
    crc = 0
    for trailer in trailers:
        crc = combine(crc, trailer.data_crc, trailer.data_size)
    return build_trailer(
        placement=Placement(
            epoch=first.epoch,
            floor=first.floor,
            segment_offset=first.segment_offset,
            sequence=first.sequence,
            segment_position=first.segment_position,
        ),
        index=index,
        next_offset=last.next_offset,
        first_chunk_epoch=first.first_chunk_epoch,
        last_chunk_epoch=last.last_chunk_epoch,
        data_size=sum(trailer.data_size for trailer in trailers),
        data_crc=crc,
    )
