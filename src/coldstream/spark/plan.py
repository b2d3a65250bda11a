"""Cut what a query reads into splits of even size, from the manifest alone. Pure: no I/O.

The bytes below an entry are those of its children laid end to end, so a byte range of a group is
work that can be handed out without looking into the group:

    root      [ kilo-group, 60 GB           ][ group, 6 GB ][f][f][ f ][f][f]
    splits    |-------|-------|-------|-------|-------|-------|-------|----|

A worker fetches the groups of its split and turns the byte range into fragments and chunks
(`leaves`). Of a fragment that is cut, its offsets are cut in the same ratio as its bytes, and a
chunk belongs to the split that has its id (`chunks_of`). Where its bytes lie says nothing: an
erasure between two tasks may have made chunks before it shorter or longer, and offsets stay. A hole
has no bytes; it belongs to the split that goes on at its place.

So a stream of any size costs the driver no group at all, tiny fragments are packed, and large ones
are cut. Only where a query asks for some offsets or times are groups fetched, and only those that
are partly asked for, the largest first, a bounded number of them; what lies in the others is left
to the worker, who prunes by the same test.

A plan may have 100,000 splits, so their bytes on the way to a worker are few and cheap to make, and
hold nothing but what a manifest holds: no keys, no credentials.

    parts u32 | for each part: stream u32, start u64, end u64, entry (56 bytes, as in a manifest)
"""

from __future__ import annotations

import heapq
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.manifest.entries import ENTRY_SIZE, Entries, Entry
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch
from coldstream.spark.window import Window

DEFAULT_PARTITION_BYTES = 256 * 2**20
DEFAULT_MAX_PARTITIONS = 100_000
#: Groups that planning one query fetches at most.
MAX_READS = 64
#: A cut is moved to the border of an entry if that is at most this part of a split away.
SNAP = 8
_COUNT = struct.Struct(">I")
_PART = struct.Struct(">IQQ")


@dataclass(frozen=True, slots=True)
class EntryPart:
    """A byte range of what lies below one entry.

    Attributes:
        entry: a fragment, a hole or a group.
        start: first byte, counted from the first byte below the entry.
        end: one past the last; equal to `start` for a hole, and wherever there are no bytes.
        stream: number of the stream among those that the query reads.
    """

    entry: Entry
    start: int
    end: int
    stream: int = 0

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads.

    Attributes:
        parts: in offset order within each stream.
    """

    parts: tuple[EntryPart, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large splits are to be.

    Attributes:
        partition_bytes: bytes that a split should have.
        max_partitions: most splits; they grow where there would be more.
    """

    partition_bytes: int = DEFAULT_PARTITION_BYTES
    max_partitions: int = DEFAULT_MAX_PARTITIONS

    def __post_init__(self) -> None:
        if min(self.partition_bytes, self.max_partitions) < 1:
            raise InvalidInputError("partitions have at least one byte, and there is at least one")


def select(
    root: Root, window: Window, fetch: Fetch, *, stream: int = 0, reads: int = MAX_READS
) -> tuple[list[EntryPart], int]:
    """The entries that may hold what is asked for, in offset order, and how many groups it took.

    Args:
        root: of the stream.
        window: what is asked for.
        fetch: gives a group; called at most `reads` times.
        stream: number of the stream, for the parts.
        reads: groups that may be fetched.
    """
    window = window.between(root.first_offset, root.next_offset)
    if window.empty:
        return [], 0
    chosen: dict[tuple[int, ...], EntryPart] = {}
    partly: list[tuple[int, tuple[int, ...]]] = []  # a heap of groups, the largest first

    def choose(entries: Iterable[Entry], path: tuple[int, ...], dead: int) -> None:
        for number, entry in enumerate(entries):
            # What retention has taken from the first group lies at the beginning of its bytes.
            start, dead = min(dead, entry.size), max(0, dead - entry.size)
            if not window.overlaps(entry):
                continue
            place = (*path, number)
            chosen[place] = EntryPart(entry, start, entry.size, stream)
            if entry.kind.level and not window.contains(entry, first_offset=root.first_offset):
                heapq.heappush(partly, (start - entry.size, place))

    choose(root.entries, (), root.head.dead_size if root.head else 0)
    used = 0
    while partly and used < reads:
        _, place = heapq.heappop(partly)
        group = chosen.pop(place)
        used += 1
        choose(fetch(group.entry).entries, place, group.start)
    return [chosen[place] for place in sorted(chosen)], used


def cut(parts: Sequence[EntryPart], sizes: Sizes) -> list[Split]:
    """Cut parts into splits of even size; every byte and every hole is in exactly one.

    With B bytes in all there are n = ceil(B / partition_bytes) splits, or as many as there may be.
    A cut lies at a multiple of B / n, or at the border of an entry that is at most an eighth of
    that away, so splits have between three quarters and five quarters of B / n bytes.
    """
    total = sum(part.size for part in parts)
    if not parts:
        return []
    count = min(max(1, -(-total // sizes.partition_bytes)), sizes.max_partitions)
    splits: list[Split] = []
    here: list[EntryPart] = []
    position = 0  # of the next part's first byte, among all bytes
    number = 1  # of the next cut

    def end_split() -> None:
        if here:
            splits.append(Split(tuple(here)))
            here.clear()

    for part in parts:
        next_offset = position + part.size
        while number < count:
            border = _snapped(number, total, count, position, next_offset)
            if border > next_offset or (border == next_offset and part.size):
                break
            if border > position:
                middle = part.end - (next_offset - border)
                here.append(replace(part, end=middle))
                part = replace(part, start=middle)
                position = border
            end_split()
            number += 1
        here.append(part)
        position = next_offset
    end_split()
    return splits


def _snapped(number: int, total: int, count: int, begin: int, end: int) -> int:
    """Where cut `number` lies, if a part reaches from `begin` to `end`."""
    border = number * total // count
    near = total // count // SNAP
    if abs(border - begin) <= near:
        return begin
    if abs(border - end) <= near:
        return end
    return border


def plan(
    roots: Sequence[Root],
    windows: Sequence[Window],
    fetches: Sequence[Fetch],
    sizes: Sizes,
    *,
    reads: int = MAX_READS,
) -> list[Split]:
    """The splits of a query over some streams; the lists belong together, one item a stream.

    Raises:
        What a fetch raises.
    """
    parts: list[EntryPart] = []
    for number, (root, window, fetch) in enumerate(zip(roots, windows, fetches, strict=True)):
        found, used = select(root, window, fetch, stream=number, reads=reads)
        parts += found
        reads -= used
    return cut(parts, sizes)


def leaves(part: EntryPart, window: Window, fetch: Fetch) -> Iterator[EntryPart]:
    """The fragments and holes of a part that may hold what is asked for, in offset order.

    What has no bytes (a hole) lies at one byte position, and belongs to the part that goes on
    there; behind the last byte of the entry, to the part that ends there.

    Args:
        part: of a split.
        window: what is asked for, cut to the offsets that are alive.
        fetch: gives a group.
    """
    yield from _below(part, part.entry, 0, window, fetch)


def _below(
    part: EntryPart, entry: Entry, begin: int, window: Window, fetch: Fetch
) -> Iterator[EntryPart]:
    """What of `entry`, whose bytes begin at `begin` of those of the part's entry, is in `part`."""
    if not window.overlaps(entry):
        return
    end = begin + entry.size
    at_the_end = part.end == part.entry.size
    if not entry.kind.level:
        if begin < end:
            inside = begin < part.end and part.start < end
        else:
            inside = part.start <= begin < part.end or (at_the_end and begin == part.end)
        if inside:
            start, stop = max(part.start - begin, 0), min(part.end - begin, entry.size)
            yield EntryPart(entry, start, stop, part.stream)
        return
    # A group that ends where the part begins may have a hole there.
    if part.start <= end and (begin < part.end or (at_the_end and begin == part.end)):
        for child in fetch(entry).entries:
            yield from _below(part, child, begin, window, fetch)
            begin += child.size


def chunks_of(chunk_ids: Sequence[int], part: EntryPart) -> tuple[int, int]:
    """Which chunks of a fragment belong to a part of it: number of the first, one past the last.

    Args:
        chunk_ids: of all chunks, rising.
        part: of the fragment.
    """
    low, high = _border(part.entry, part.start), _border(part.entry, part.end)
    return bisect_left(chunk_ids, low), bisect_left(chunk_ids, high)


def _border(entry: Entry, byte: int) -> int:
    """The offset that stands for a byte of a fragment: as far on among its offsets, rounded up."""
    if byte >= entry.size:
        return entry.next_offset
    offsets = entry.next_offset - entry.first_offset
    return entry.first_offset + -(-max(byte, 0) * offsets // entry.size)


def whole(part: EntryPart) -> bool:
    """Whether a part is all of its entry."""
    return part.start <= 0 and part.end >= part.entry.size


def encode_split(split: Split) -> bytes:
    """A split's bytes."""
    return _COUNT.pack(len(split.parts)) + b"".join(
        _PART.pack(part.stream, part.start, part.end) + part.entry.encode() for part in split.parts
    )


def decode_split(data: bytes) -> Split:
    """The split that `encode_split` made these bytes of.

    Raises:
        CorruptDataError: they are something else.
    """
    size = _PART.size + ENTRY_SIZE
    if len(data) < _COUNT.size or len(data) != _COUNT.size + _COUNT.unpack_from(data)[0] * size:
        raise CorruptDataError("the bytes of a split do not add up")
    parts = []
    for at in range(_COUNT.size, len(data), size):
        stream, start, end = _PART.unpack_from(data, at)
        (entry,) = Entries(data[at + _PART.size : at + size])
        parts.append(EntryPart(entry, start, end, stream))
    return Split(tuple(parts))
