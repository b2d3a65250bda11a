"""Which offsets of a stream a table holds: a set of half-open intervals, kept normal.

A table that has been filled from the beginning has one interval. One that was begun at `next` and
back-filled later has two for a while, so a single next offset would not do.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.names import MAX_OFFSET

#: Of one stream in a state object. More mean that something else than back-fills is going on.
MAX_RANGES = 10_000


@dataclass(frozen=True, slots=True)
class Ranges:
    """Intervals [first, next) in order, none empty, no two touching.

    Attributes:
        spans: the intervals.
    """

    spans: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, spans: Iterable[tuple[int, int]]) -> Ranges:
        """The union of any intervals; empty ones do not count.

        Raises:
            InvalidInputError: an interval runs backwards.
        """
        merged: list[tuple[int, int]] = []
        for first, next_offset in sorted(spans):
            if not 0 <= first <= next_offset <= MAX_OFFSET:
                raise InvalidInputError(f"[{first}, {next_offset}) is no range of offsets")
            if first == next_offset:
                continue
            if merged and first <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], next_offset))
            else:
                merged.append((first, next_offset))
        return cls(tuple(merged))

    def __bool__(self) -> bool:
        return bool(self.spans)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self.spans)

    def __or__(self, other: Ranges) -> Ranges:
        return Ranges.of((*self.spans, *other.spans))

    def __and__(self, other: Ranges) -> Ranges:
        """What both have."""
        found = []
        for first, next_offset in self.spans:
            for start, end in other._meeting(first, next_offset):
                found.append((max(first, start), min(next_offset, end)))
        return Ranges.of(found)

    def __sub__(self, other: Ranges) -> Ranges:
        """What `self` has and `other` has not."""
        left = []
        for first, next_offset in self.spans:
            position = first
            for start, end in other._meeting(first, next_offset):
                if start > position:
                    left.append((position, start))
                position = end
            if position < next_offset:
                left.append((position, next_offset))
        return Ranges.of(left)

    @property
    def offsets(self) -> int:
        """How many offsets they hold."""
        return sum(next_offset - first for first, next_offset in self.spans)

    @property
    def holes(self) -> Ranges:
        """What lies between them."""
        return Ranges(tuple((end, begin) for (_, end), (begin, _) in pairwise(self.spans)))

    def contains(self, offset: int) -> bool:
        """Whether one of them holds `offset`."""
        return bool(self._meeting(offset, offset + 1))

    def _meeting(self, first: int, next_offset: int) -> tuple[tuple[int, int], ...]:
        """The intervals that share an offset with [first, next_offset)."""
        begin = bisect_right(self.spans, first, key=lambda span: span[1])
        end = bisect_left(self.spans, next_offset, key=lambda span: span[0])
        return self.spans[begin:end]

    def newest(self, count: int) -> Ranges:
        """The last `count` intervals."""
        return self if len(self.spans) <= count else Ranges(self.spans[-count:])

    def to_json(self) -> list[list[int]]:
        """As in a report or a state object."""
        return [list(span) for span in self.spans]


def parse_ranges(value: object) -> Ranges:
    """Ranges out of a state object.

    Raises:
        CorruptDataError: it is no list of pairs of offsets.
    """
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise CorruptDataError("the ranges of a table's state are no list")
    spans = []
    for each in value:
        pair = isinstance(each, Sequence) and not isinstance(each, str | bytes) and len(each) == 2
        if not pair or not all(type(number) is int for number in each):
            raise CorruptDataError("a range of a table's state is no pair of offsets")
        spans.append((each[0], each[1]))
    if len(spans) > MAX_RANGES:
        raise CorruptDataError(f"a table's state has {len(spans)} ranges of one stream")
    try:
        return Ranges.of(spans)
    except InvalidInputError as exc:
        raise CorruptDataError(f"a table's state is damaged: {exc.reason}") from exc
