"""What a program asks of a read: where to begin and to end, and which chunks it wants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from coldstream.errors import InvalidInputError
from coldstream.osiris.bloom import FilterMatcher
from coldstream.reader.spec import Bound, OffsetSpec, as_bound, as_spec, check_order

#: Where to begin: a spec, an offset, a time, or words such as "first" and "2026-03-01T08:00Z".
Begin = OffsetSpec | int | str | datetime
#: Where to end: an offset or a time, both left out.
End = Bound | int | str | datetime


@dataclass(frozen=True, slots=True)
class Filter:
    """Which chunks are wanted, by the filter values of their publishers.

    A chunk that is left may hold other messages, too: the value is not stored with a message.

    Attributes:
        values: any of which will do.
        match_unfiltered: whether messages without a filter value are wanted, too.

    Raises:
        InvalidInputError: one value that stands in no list.
    """

    values: Sequence[str | bytes]
    match_unfiltered: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.values, str | bytes):
            # Its letters would be taken for values, and nearly all chunks passed over.
            raise InvalidInputError(f"Filter takes a list of values, not {self.values!r:.80} alone")

    def matcher(self) -> FilterMatcher:
        """The same, as chunks are tested."""
        values = tuple(v.encode() if isinstance(v, str) else v for v in self.values)
        return FilterMatcher(values, self.match_unfiltered)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a read is about.

    Attributes:
        spec: where to begin.
        bound: where to end.
        follow: whether it goes on for ever.
        matcher: of chunks.
    """

    spec: OffsetSpec
    bound: Bound | None
    follow: bool
    matcher: FilterMatcher | None

    @classmethod
    def of(
        cls, begin: Begin, end: End | None, *, follow: bool = False, only: Filter | None = None
    ) -> Asked:
        """From what a program has.

        Raises:
            InvalidInputError: it is nothing that can be read.
        """
        if follow and end is not None:
            raise InvalidInputError("a read that follows its stream has no end, and one is given")
        spec, bound = as_spec(begin), None if end is None else as_bound(end)
        check_order(spec, bound, "begin", "end")
        return cls(spec, bound, follow, None if only is None else only.matcher())
