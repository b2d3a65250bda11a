"""What of a stream a query asks for, by offset and by time; the same test prunes everywhere.

The driver prunes entries of the manifest by it, a worker entries of groups, then chunks by the
index of their fragment, then single rows. All of them ask this one value, so nothing that one of
them lets through can be what another took away.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coldstream.manifest.entries import Entry
from coldstream.names import MAX_OFFSET

#: Columns have signed numbers: every offset in them, and what follows it, is at most this.
MAX_SIGNED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals [low, high) in order, none empty, no two touching; made by `of`.

    Attributes:
        spans: the intervals.
    """

    spans: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, *spans: tuple[int, int]) -> Intervals:
        """The union of any intervals; empty ones do not count."""
        merged: list[tuple[int, int]] = []
        for low, high in sorted(spans):
            if low >= high:
                continue
            if merged and low <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], high))
            else:
                merged.append((low, high))
        return cls(tuple(merged))

    def __bool__(self) -> bool:
        return bool(self.spans)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self.spans)

    def __and__(self, other: Intervals) -> Intervals:
        """What lies in both."""
        few, many = sorted((self, other), key=lambda each: len(each.spans))
        return Intervals.of(*(found for low, high in few for found in many.within(low, high)))

    def overlaps(self, low: int, high: int) -> bool:
        """Whether any of [low, high) lies inside."""
        return next(iter(self.within(low, high)), None) is not None

    def contains(self, low: int, high: int) -> bool:
        """Whether all of [low, high), which is not empty, lies inside."""
        number = bisect_right(self.spans, low, key=_low) - 1
        return number >= 0 and high <= self.spans[number][1]

    def within(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """The parts of [low, high) that lie inside, in order."""
        number = max(0, bisect_right(self.spans, low, key=_low) - 1)
        for first, next_offset in self.spans[number:]:
            if first >= high:
                return
            begin, end = max(first, low), min(next_offset, high)
            if begin < end:
                yield begin, end


def _low(span: tuple[int, int]) -> int:
    return span[0]


def union(parts: Iterable[Intervals]) -> Intervals:
    """What lies in any of them."""
    return Intervals.of(*(span for part in parts for span in part))


ALL_OFFSETS = Intervals.of((0, MAX_OFFSET))
ALL_TIMES = Intervals.of((-(2**63), 2**63))


@dataclass(frozen=True, slots=True)
class Window:
    """Offsets and chunk timestamps (ms) of the rows that are asked for; both must hold."""

    offsets: Intervals = ALL_OFFSETS
    times: Intervals = ALL_TIMES

    def __and__(self, other: Window) -> Window:
        """What both let through."""
        return Window(self.offsets & other.offsets, self.times & other.times)

    @property
    def empty(self) -> bool:
        """Whether nothing can be in it."""
        return not (self.offsets and self.times)

    def between(self, first: int, next_offset: int) -> Window:
        """The part of it that lies in a range of offsets."""
        return Window(self.offsets & Intervals.of((first, next_offset)), self.times)

    def overlaps(self, entry: Entry) -> bool:
        """Whether something below `entry` may be asked for."""
        return self.offsets.overlaps(entry.first_offset, entry.next_offset) and (
            self.times.overlaps(entry.min_timestamp, entry.max_timestamp + 1)
        )

    def contains(self, entry: Entry, *, first_offset: int = 0) -> bool:
        """Whether all below `entry` that is not below `first_offset` is certainly asked for."""
        begin = max(entry.first_offset, first_offset)
        return self.offsets.contains(begin, entry.next_offset) and self.all_times_of(entry)

    def all_times_of(self, entry: Entry) -> bool:
        """Whether no chunk below `entry` has a time that is not asked for."""
        return self.times.contains(entry.min_timestamp, entry.max_timestamp + 1)
