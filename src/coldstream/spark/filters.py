"""Filters that Spark pushes down, as windows. Knows Spark's filters by name, so it needs no Spark.

Only what a window says exactly is taken over; everything else stays with Spark. Spark does not test
again what is taken over, so the window must let through precisely the rows that the filter does.

Some times fit in no Python datetime, such as `timestamp >= '290000-01-01'`: Spark's timestamps
reach to the year 294247 and far below the year 1, datetimes from year 1 to 9999. Spark 4.1 turns
the values of filters into Python objects before it asks a source which of them it takes over, and
the query would fail there with an OverflowError, whatever the source would have said (`far_times`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from coldstream.columns.reference import MAX_MS, MIN_MS
from coldstream.spark.options import Rows
from coldstream.spark.window import Intervals, Window, union

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
#: Longer lists are left to Spark.
_MAX_VALUES = 1000
_MIN, _MAX = -(2**63), 2**63
#: What a filter has for a value then. It is no time, nor a list of times, so nobody takes it over.
FAR = ("a time that no datetime holds",)

_open = ExitStack()


@dataclass(frozen=True, slots=True)
class Pushed:
    """What became of filters.

    Attributes:
        window: that stands for those that are taken over.
        left: the others.
    """

    window: Window
    left: list[Any]


def push(filters: Iterable[Any], rows: Rows) -> Pushed:
    """Take over what a window can say.

    Args:
        filters: objects of pyspark.sql.datasource.
        rows: what one row is; fragments have no `timestamp`.
    """
    window, left = Window(), []
    for each in filters:
        found = _window(each, rows)
        if found is None:
            left.append(each)
        else:
            window &= found
    return Pushed(window, left)


def _window(given: Any, rows: Rows) -> Window | None:
    if rows is Rows.STREAMS:
        return None
    column = getattr(given, "attribute", None)
    if column not in (("offset",), ("timestamp",)) or (
        column == ("timestamp",) and rows is Rows.FRAGMENTS
    ):
        return None
    name = type(given).__name__
    if name == "IsNotNull":
        return Window()  # every row has both, also one that stands for damage or a gap
    values = tuple(given.value) if name == "In" else (getattr(given, "value", None),)
    if len(values) > _MAX_VALUES:
        return None
    read = _offset if column == ("offset",) else _microseconds
    numbers = [read(value) for value in values if value is not None or name != "In"]
    if any(number is None for number in numbers):
        return None
    spans = [_span(name, number) for number in numbers if number is not None]
    if any(span is None for span in spans):
        return None
    asked = union(Intervals.of(span) for span in spans if span is not None)
    return Window(offsets=asked) if column == ("offset",) else Window(times=_in_ms(asked))


def _span(name: str, value: int) -> tuple[int, int] | None:
    """What `column NAME value` lets through, half-open; None for a filter of another kind."""
    match name:
        case "EqualTo" | "EqualNullSafe" | "In":
            return value, value + 1
        case "GreaterThan":
            return value + 1, _MAX
        case "GreaterThanOrEqual":
            return value, _MAX
        case "LessThan":
            return _MIN, value
        case "LessThanOrEqual":
            return _MIN, value + 1
    return None


def _offset(value: Any) -> int | None:
    return value if type(value) is int else None


def _microseconds(value: Any) -> int | None:
    """A point in time as Spark counts it; None where there is no zone to tell which it is."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND


def _in_ms(asked: Intervals) -> Intervals:
    """From times of rows (us) to times of chunks (ms): the whole milliseconds inside.

    A chunk's time that does not fit in a row's is clamped there, so whoever asks for the last time
    that fits asks for all beyond it, too.
    """
    found = []
    for low, high in asked:
        first, next_offset = -(-low // 1000), -(-high // 1000)
        if first <= MIN_MS < next_offset:
            first = _MIN
        if first <= MAX_MS < next_offset:
            next_offset = _MAX
        found.append((first, next_offset))
    return Intervals.of(*found)


def expect_filters() -> None:
    """Open `far_times` in a process in which Spark plans a read: filters come next."""
    _open.enter_context(far_times())


def filters_came() -> None:
    """Close it again, if it is open: nobody else's values are touched."""
    _open.close()


@contextmanager
def far_times() -> Iterator[None]:
    """While this is open, the values of filters that Python cannot hold are `FAR`."""
    from pyspark.sql.types import VariantVal

    plain = VariantVal.toPython

    def to_python(self: VariantVal) -> Any:
        try:
            return plain(self)
        except OverflowError:
            return FAR

    # A method of a class is replaced on purpose, which no type allows.
    VariantVal.toPython = to_python  # type: ignore[method-assign]
    try:
        yield
    finally:
        VariantVal.toPython = plain  # type: ignore[method-assign]
