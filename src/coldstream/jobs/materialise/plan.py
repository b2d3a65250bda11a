"""What a run has to do: pure functions over what a table has and what the streams hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.ranges import Ranges

_NONE = Ranges()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be done about one stream.

    Attributes:
        read: offsets to read now.
        lost: offsets that the table should have had, and that retention has removed meanwhile.
        replaces: offsets among `read` and `lost` whose rows the table has already; these go.
        refused: offsets that the table has of a history that was cut off, and that nobody has asked
            to make anew; then there is nothing to do but to tell.
    """

    read: Ranges = _NONE
    lost: Ranges = _NONE
    replaces: Ranges = _NONE
    refused: Ranges = _NONE


@dataclass(frozen=True, slots=True)
class BackfillWindow:
    """Part of a back-fill.

    Attributes:
        first: offset; None for where the table begins or goes on.
        next_offset: offset; None for the end of the stream.
        overwrite: rows that are there already are made anew.
    """

    first: int | None = None
    next_offset: int | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.overwrite and self.first is None:
            raise InvalidInputError("--overwrite needs --from: say what is to be replaced")
        first, next_offset = self.first, self.next_offset
        if first is not None and next_offset is not None and first >= next_offset:
            raise InvalidInputError(f"[{self.first}, {self.next_offset}) is no range")


def wanted(
    covered: Ranges,
    first_offset: int,
    next_offset: int,
    *,
    start: str,
    window: BackfillWindow,
    cut_off: Ranges = _NONE,
) -> Wanted:
    """What to do about a stream that holds [first_offset, next_offset).

    Without a window a table goes on after the last offset that it has, or begins where its rule
    says; with one, exactly what the window names and the table has not is read.

    Rows of a history that was cut off are never mixed with those of the one that the stream has
    now: nothing is read before a window makes all of them anew, which takes a stream that has grown
    back to where they end. What of them lies below the stream's first offset goes then, too.

    Args:
        covered: what the table has.
        first_offset: of the stream.
        next_offset: of the stream.
        start: as in a rule.
        window: what was asked for.
        cut_off: part of `covered` that belongs to a history that was cut off.
    """
    end = next_offset if window.next_offset is None else min(window.next_offset, next_offset)
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
    if cut_off:
        if not window.overwrite or cut_off - asked:
            return Wanted(refused=cut_off)
        lost = cut_off - alive
    return Wanted(read, lost, (read | lost) & covered)


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
