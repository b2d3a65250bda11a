"""A set of offsets as ranges: what a person asked for, and what a record names."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from coldstream.errors import InvalidInputError
from coldstream.names import MAX_OFFSET


@dataclass(frozen=True, slots=True)
class OffsetSet:
    """Offsets as ranges [first, next) in order; none touches another, so equal sets are equal.

    Made by `of`.
    """

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]]) -> OffsetSet:
        """The set of all offsets of `ranges`, which may overlap and come in any order.

        Raises:
            InvalidInputError: one is no range of offsets.
        """
        found: list[tuple[int, int]] = []
        for first, next_offset in sorted(ranges):
            if not 0 <= first < next_offset <= MAX_OFFSET:
                raise InvalidInputError(f"[{first}, {next_offset}) is no range of offsets")
            if found and first <= found[-1][1]:
                found[-1] = (found[-1][0], max(found[-1][1], next_offset))
            else:
                found.append((first, next_offset))
        return cls(tuple(found))

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __contains__(self, offset: int) -> bool:
        return self.overlaps(offset, offset + 1)

    def __or__(self, other: OffsetSet) -> OffsetSet:
        return OffsetSet.of((*self.ranges, *other.ranges))

    @property
    def end(self) -> int:
        """The offset after the last one; 0 of an empty set."""
        return self.ranges[-1][1] if self.ranges else 0

    def overlaps(self, first: int, next_offset: int) -> bool:
        """Whether some offset of [first, next_offset) is in the set."""
        # Ranges are disjoint and in order, so only the last that begins below the end can do it.
        number = bisect_right(self.ranges, next_offset - 1, key=lambda each: each[0]) - 1
        return number >= 0 and self.ranges[number][1] > first

    def within(self, first: int, next_offset: int) -> OffsetSet:
        """The offsets of the set that lie in [first, next_offset)."""
        begin = max(0, bisect_right(self.ranges, first, key=lambda each: each[0]) - 1)
        end = bisect_right(self.ranges, next_offset - 1, key=lambda each: each[0])
        cut = ((max(low, first), min(high, next_offset)) for low, high in self.ranges[begin:end])
        return OffsetSet(tuple((low, high) for low, high in cut if low < high))

    def without(self, other: OffsetSet) -> OffsetSet:
        """The offsets of the set that are not in another one."""
        left: list[tuple[int, int]] = []
        for first, next_offset in self.ranges:
            at = first
            for low, high in other.within(first, next_offset).ranges:
                if at < low:
                    left.append((at, low))
                at = high
            if at < next_offset:
                left.append((at, next_offset))
        return OffsetSet(tuple(left))

    def count(self) -> int:
        """How many offsets there are."""
        return sum(next_offset - first for first, next_offset in self.ranges)
