"""What a run has to do: pure functions over what a table has and what the streams hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.ranges import Ranges


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be done about one stream.

    Attributes:
        read: offsets to read now.
        lost: offsets that the table should have had, and that retention has removed meanwhile.
        replaces: offsets among `read` whose rows the table has already; they are replaced.
    """

    read: Ranges
    lost: Ranges
    replaces: Ranges


@dataclass(frozen=True, slots=True)
class Window:
    """Part of a back-fill.

    Attributes:
        first: offset; None for where the table begins or goes on.
        following: offset; None for the end of the stream.
        overwrite: rows that are there already are made anew.
    """

    first: int | None = None
    following: int | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.overwrite and self.first is None:
            raise InvalidInputError("--overwrite needs --from: say what is to be replaced")
        first, following = self.first, self.following
        if first is not None and following is not None and first >= following:
            raise InvalidInputError(f"[{self.first}, {self.following}) is no range")


def wanted(
    covered: Ranges, first_offset: int, next_offset: int, *, start: str, window: Window
) -> Wanted:
    """What to do about a stream that holds [first_offset, next_offset).

    Without a window a table goes on after the last offset that it has, or begins where its rule
    says; with one, exactly what the window names and the table has not is read.

    Args:
        covered: what the table has.
        first_offset: of the stream.
        next_offset: of the stream.
        start: as in a rule.
        window: what was asked for.
    """
    end = next_offset if window.following is None else min(window.following, next_offset)
    if window.first is not None:
        begin = window.first
    elif covered:
        begin = covered.spans[-1][1]
    elif start in ("first", "next"):
        begin = first_offset if start == "first" else next_offset
    else:
        begin = int(start)
    asked = Ranges.of([(begin, max(begin, end))])
    alive = Ranges.of([(first_offset, next_offset)])
    missing = asked if window.overwrite else asked - covered
    # What was never begun is not lost when it is gone; what a table goes on from is.
    lost = missing - alive if covered and window.first is None else Ranges()
    read = missing & alive
    return Wanted(read, lost, read & covered)


T = TypeVar("T")


def windows(items: Iterable[tuple[T, int]], *, max_bytes: int, max_items: int) -> Iterator[list[T]]:
    """Neighbours that are committed together.

    Args:
        items: things, and how many bytes each means.
        max_bytes: of one window, unless a single thing has more.
        max_items: of one window.
    """
    together: list[T] = []
    size = 0
    for item, item_bytes in items:
        if together and (size + item_bytes > max_bytes or len(together) >= max_items):
            yield together
            together, size = [], 0
        together.append(item)
        size += item_bytes
    if together:
        yield together
