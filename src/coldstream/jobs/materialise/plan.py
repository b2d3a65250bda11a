"""What a run has to do: pure functions over what a table has and what the streams hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import TypeVar

from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.engine import StreamNow, Task, TaskPiece
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rules import TableRule
from coldstream.jobs.materialise.state import TableState
from coldstream.jobs.materialise.write import UNIT_US

_NONE = Ranges()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be done about one stream.

    Attributes:
        read: offsets to read now.
        lost: offsets that the table should have had, and that retention has removed meanwhile.
        replaces: offsets among `read` and `lost` whose rows the table has already; these go. What
            the table has and is lost otherwise is what it owed: rows of it stay.
        refused: offsets that the table has of a history that was cut off, and that nobody has asked
            to make anew; then there is nothing to do but to tell.
        begins: where the table begins in this stream from now on, which has to be written down
            because nothing is read of it yet; None if there is nothing to write.
        cut_off: offsets of which a table of the latest has rows of such a history, which go with
            the first window, wherever they are.
    """

    read: Ranges = _NONE
    lost: Ranges = _NONE
    replaces: Ranges = _NONE
    refused: Ranges = _NONE
    cut_off: Ranges = _NONE
    begins: int | None = None


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
    begins: int | None = None,
    owed: Ranges = _NONE,
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
        begins: where an earlier run has said that the table begins.
        owed: part of `covered` that is to be made anew whatever was asked for.
    """
    end = next_offset if window.next_offset is None else min(window.next_offset, next_offset)
    if window.first is not None:
        begin = window.first
    elif covered:
        begin = covered.spans[-1][1]
    elif begins is not None:
        begin = begins
    elif start == "next":
        return Wanted(begins=next_offset)
    elif start == "first":
        begin = first_offset
    else:
        begin = int(start)
    asked = Ranges.of([(begin, max(begin, end))])
    alive = Ranges.of([(first_offset, next_offset)])
    missing = asked if window.overwrite else asked - covered
    read = (missing | owed) & alive
    lost = _passed_over(covered, begins, first_offset, read)
    if window.first is None and (covered or begins is not None):
        lost |= missing - alive
    if cut_off:
        if not window.overwrite or cut_off - asked:
            return Wanted(refused=cut_off)
        lost |= cut_off - alive
    replaces = (read | lost) & covered
    return Wanted(read, lost | (owed - alive), replaces)


def _passed_over(covered: Ranges, begins: int | None, first_offset: int, read: Ranges) -> Ranges:
    """What retention took between where a table goes on and what is read now.

    What was never begun is not lost when it is gone; what a table goes on from is.
    """
    end = covered.spans[-1][1] if covered else begins
    if end is None or not read or read.spans[-1][1] <= end:
        return Ranges()
    return Ranges.of([(end, max(end, first_offset))])


def wanted_latest(
    covered: Ranges,
    first_offset: int,
    next_offset: int,
    *,
    start: str,
    window: BackfillWindow,
    cut_off: Ranges = _NONE,
    begins: int | None = None,
    owed: Ranges = _NONE,
) -> Wanted:
    """The same for a table that has the last message of each key.

    Its messages must come in the order of offsets, because a tombstone leaves no trace: after it an
    older message of its key would be taken for a new one. So nothing is filled in later, and to
    make rows anew is to begin a stream anew, also where a history was cut off. A row that was not
    cut off stays until its message is read again: a run may die, and retention be quicker than the
    next one.

    Args:
        covered, first_offset, next_offset, start, window, cut_off, begins, owed: as for `wanted`;
            such a table owes nothing, for it forgets what it has to read again.

    Raises:
        InvalidInputError: the window leaves something out.
    """
    if window.first is None:
        return wanted(
            covered, first_offset, next_offset, start=start, window=window, cut_off=cut_off,
            begins=begins, owed=owed,
        )  # fmt: skip
    if window.first or window.next_offset is not None or not window.overwrite:
        raise InvalidInputError(
            "a table of the latest of each key takes its streams in from the beginning on: only"
            " --from 0 --overwrite, without --to, makes it anew"
        )
    alive = Ranges.of([(first_offset, next_offset)])
    if not alive:
        return Wanted(refused=cut_off)
    gone = Ranges.of([(0, first_offset)])
    lost = (cut_off & gone) | _passed_over(covered, begins, first_offset, alive)
    return Wanted(alive, lost, (covered - gone) | (cut_off & gone), cut_off=cut_off - gone)


def todo_of(
    rule: TableRule,
    state: TableState,
    streams: Sequence[StreamNow],
    window: BackfillWindow,
    named: Iterable[str] = (),
) -> list[tuple[StreamNow, Wanted]]:
    """What is to be done about each stream, where that is anything.

    Only a rule that is new to the table begins at `next`. A stream that comes later is read from
    its first message: all of it is new.

    Args:
        rule: of the table.
        state: of the table.
        streams: that a run looks at.
        window: of the run.
        named: directory names of more streams that the rule means: what the table knows of them
            says that the rule is not new, though nobody can look at them now.

    Raises:
        InvalidInputError: as `wanted_latest`.
    """
    todo = []
    begun = any(map(state.knows, [*named, *(now.stream for now in streams)]))
    start = "first" if rule.start == "next" and begun else rule.start
    for now in streams:
        each = (wanted if rule.latest is None else wanted_latest)(
            state.of(now.stream),
            now.first_offset,
            now.next_offset,
            start="first" if now.deleted else start,
            window=window,
            cut_off=state.cut_off(now.stream, now.ledger),
            begins=state.begin_of(now.stream, now.ledger),
            owed=state.owed.get(now.stream, Ranges()),
        )
        if each.read or each.lost or each.refused or each.begins is not None:
            todo.append((now, each))
    return todo


#: Small pieces of work that one task does, at most: each costs a worker a few requests.
MAX_TASK_PIECES = 200
#: Pieces of a window: each worker is told all of them, about a kilobyte each.
MAX_WINDOW_PIECES = 20_000
#: A task counts as this many pieces at least, so a window has 2000 tasks at most.
_LEAST = 10
#: And as this many at most for the files that it may write: a broker with a bad clock can make a
#: stream reach over any time.
_MOST = 4000


S = TypeVar("S", bound=Sized)


def task_windows(
    tasks: Iterable[tuple[S, int]], max_bytes: int, files: Callable[[S], int] = len
) -> Iterator[list[S]]:
    """Tasks that are done at once and committed together.

    Args:
        tasks: of one piece or more, and how many bytes each means.
        max_bytes: as for `windows`.
        files: how many a task writes, about: the driver is told some kilobytes of each.
    """
    return windows(
        tasks,
        max_bytes=max_bytes,
        max_items=MAX_WINDOW_PIECES,
        count=lambda task: max(_LEAST, len(task), min(files(task), _MOST)),
    )


def files_of(rule: TableRule, task: Task) -> int:
    """How many files a task writes, about: one for each bucket, or unit of time it reaches over."""
    if rule.latest is not None:
        return rule.latest.buckets
    unit_us = UNIT_US.get(rule.partition)
    if unit_us is None:
        return 1
    each = [1 + 1000 * piece.reach_ms // unit_us for piece in task]
    return max(each) if rule.shared else sum(each)


def tasks_of(pieces: Iterable[TaskPiece], *, shared: bool, max_bytes: int) -> list[Task]:
    """What each worker does at once, in the order of streams and offsets.

    Args:
        pieces: of work, in the order of offsets within a stream.
        shared: whether streams share files; otherwise a task has one piece.
        max_bytes: of a task that has more pieces than one.
    """
    if not shared:
        return [(piece,) for piece in pieces]
    sized = ((each, each.size) for each in sorted(pieces, key=lambda each: each.stream))
    return list(map(tuple, windows(sized, max_bytes=max_bytes, max_items=MAX_TASK_PIECES)))


T = TypeVar("T")


def windows(
    items: Iterable[tuple[T, int]],
    *,
    max_bytes: int,
    max_items: int,
    count: Callable[[T], int] = lambda _: 1,
) -> Iterator[list[T]]:
    """Neighbours that are committed together.

    Args:
        items: things, and how many bytes each means.
        max_bytes: of one window, unless a single thing has more.
        max_items: of one window, unless a single thing counts more.
        count: for how many items a thing counts.
    """
    together: list[T] = []
    size = number = 0
    for item, item_bytes in items:
        more = count(item)
        if together and (size + item_bytes > max_bytes or number + more > max_items):
            yield together
            together, size, number = [], 0, 0
        together.append(item)
        size += item_bytes
        number += more
    if together:
        yield together
