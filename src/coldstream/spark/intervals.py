"""Sets of integers as half-open intervals: which offsets, and which times, a query asks for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


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
        for first, following in self.spans[number:]:
            if first >= high:
                return
            begin, end = max(first, low), min(following, high)
            if begin < end:
                yield begin, end


def _low(span: tuple[int, int]) -> int:
    return span[0]


def union(parts: Iterable[Intervals]) -> Intervals:
    """What lies in any of them."""
    return Intervals.of(*(span for part in parts for span in part))
