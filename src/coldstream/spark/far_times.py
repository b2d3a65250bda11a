"""Times in filters that no Python datetime can hold, such as `timestamp >= '290000-01-01'`.

Spark's timestamps reach to the year 294247 and far below the year 1, datetimes from year 1 to 9999.
Spark 4.1 turns the values of filters into Python objects before it asks a source which of them it
takes over, and the query fails there with an OverflowError, whatever the source would have said.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

#: What a filter has for a value then. It is no time, nor a list of times, so nobody takes it over.
FAR = ("a time that no datetime holds",)

_open = ExitStack()


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
