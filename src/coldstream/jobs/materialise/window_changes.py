"""What the windows of a run have covered so far, and what the commit of each says of offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from coldstream.jobs.materialise.engine import StreamNow, Task
from coldstream.jobs.materialise.plan import Wanted
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.state import ByEpoch, TableState
from coldstream.jobs.materialise.table import Append
from coldstream.jobs.materialise.task_result import TaskResult, check_tiling, spans_of


@dataclass(frozen=True, slots=True)
class WindowChanges:
    """Of one run on one table; all mappings are by stream.

    Attributes:
        in_order: whether it is a table of the latest.
        last: number of the last window that has a piece of it.
        left: what the windows have still to cover.
        owed: what the table owed when the run was planned.
        stands: see `Append.stands`.
        replaces: whose rows are to be made anew; a table of the latest forgets them once.
        cut_off: rows of a history that was cut off, which go once.
        epochs: of the manifests.
        new_id: gives an id that is used once.
    """

    in_order: bool
    last: Mapping[str, int]
    left: dict[str, Ranges]
    owed: Mapping[str, Ranges]
    stands: Mapping[str, ByEpoch]
    replaces: dict[str, Ranges]
    cut_off: dict[str, Ranges]
    epochs: Mapping[str, int]
    new_id: Callable[[], str]

    @classmethod
    def of(
        cls,
        todo: Sequence[tuple[StreamNow, Wanted]],
        planned: TableState,
        windows: Sequence[Sequence[Task]],
        epochs: Mapping[str, int],
        new_id: Callable[[], str],
        *,
        in_order: bool,
    ) -> WindowChanges:
        """Before the first window.

        Args:
            todo: what is wanted of each stream.
            planned: the table as it was when that was decided.
            windows: the tasks of each.
            epochs: of the manifests.
            new_id: gives an id that is used once.
            in_order: whether it is a table of the latest.
        """
        return cls(
            in_order,
            {piece.stream: n for n, window in enumerate(windows) for piece in chain(*window)},
            {now.stream: each.read for now, each in todo},
            {now.stream: planned.owed.get(now.stream, Ranges()) for now, _ in todo},
            {now.stream: planned.standing(now.stream, now.ledger) for now, _ in todo},
            {now.stream: each.replaces - each.lost for now, each in todo if each.replaces},
            {now.stream: each.cut_off for now, each in todo if each.cut_off},
            epochs,
            new_id,
        )

    def cover(
        self, number: int, results: Sequence[TaskResult], streams: Collection[str]
    ) -> dict[str, Ranges]:
        """What window `number` has covered of its streams; what nothing is covered of is left out.

        Raises:
            InternalError, ConflictError: it is not what was wanted, as `check_tiling` says.
        """
        covered = spans_of(results, "covered")
        by_stream = {stream: list[TaskResult]() for stream in sorted(streams)}
        for result in results:
            by_stream[result.stream].append(result)
        for stream, mine in by_stream.items():
            ranges = covered.get(stream, Ranges())
            left = self.left[stream]
            # What a window covers must follow on what the windows before it have covered.
            check_tiling(stream, mine, left if self.last[stream] == number else _head(left, ranges))
            self.left[stream] = left - ranges
        # Pieces that lie within a chunk, or below what is wanted, rightly hold nothing.
        return {stream: ranges for stream, ranges in covered.items() if ranges}

    def change(self, covered: Mapping[str, Ranges]) -> Append:
        """The commit of a window, but for its files."""
        change = Append(
            self.new_id(),
            covered=covered,
            epochs=self.epochs,
            pays={stream: ranges & self.owed[stream] for stream, ranges in covered.items()},
            stands={stream: self.stands[stream] for stream in covered},
        )
        if not self.in_order:
            none = Ranges()
            within = {s: ranges & self.replaces.get(s, none) for s, ranges in covered.items()}
            return replace(change, replaces=within)
        # With the first of its messages a stream begins anew, not before: a run may die.
        forgets = {s: self.replaces.pop(s) for s in covered if s in self.replaces}
        gone = {s: self.cut_off.pop(s) for s in covered if s in self.cut_off}
        return replace(change, forgets=forgets, replaces=gone, in_order=True)


def _head(left: Ranges, done: Ranges) -> Ranges:
    """What a window had to cover, if it ends where it says: all that is left up to there.

    Whether it ends too early shows in the windows after it: the last one has to cover the rest.
    """
    return left & Ranges.of([(0, done.spans[-1][1])]) if done else done
