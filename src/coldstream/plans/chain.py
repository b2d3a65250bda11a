"""`plans.resolve` for petabytes: the same run of fragments, found in one pass over sorted keys.

Candidates come as LIST gives them, by first offset. A *tip* is an offset at which a run may end so
far. Once a candidate begins at x, no run can grow from a tip below x any more. So where only one
tip is left, the run to it is decided, whatever comes: it is given out and forgotten. What must be
held is what lies between the last such offset and the frontier: nothing, for fragments that join
without overlap; one another's neighbours, where two uploads overlap.

Where no fragment begins at the last tip, holes may lead from it exactly to the candidate behind.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from coldstream.errors import ConflictError, InternalError
from coldstream.manifest.entries import EntryKind

#: The last fragment of a run, and the run before it.
_Run: TypeAlias = "tuple[_Run | None, bytes]"

#: What a run costs: one for each object, and far more for each offset that it gives up as lost.
_LOST = 2**64

#: Undecided candidates that are held at the most: about 30 MB.
MAX_WINDOW = 2**17


class Chain:
    """The run of fragments that `resolve_run` would choose among all candidates, piece by piece.

    Args:
        start: where the run begins.
        window: undecided candidates that may be held.
        until: where the manifest is known to end; holes that lead there count although nothing
            follows them.
    """

    def __init__(self, start: int, *, window: int = MAX_WINDOW, until: int | None = None) -> None:
        self._window = window
        self._until = until
        self._holes: list[tuple[int, int, bytes]] = []
        self._tips: dict[int, tuple[int, _Run | None]] = {start: (0, None)}
        self._order = [start]  # of the tips, a heap
        self._held = 0
        self._first = 0
        #: Greatest number of candidates that were held at once.
        self.widest = 0
        #: Where the first candidate behind a gap begins, None while there is no gap.
        self.beyond: int | None = None

    def declare(self, holes: NDArray[np.void]) -> None:
        """Remember holes; those that begin below a candidate must come before it.

        Args:
            holes: entries that the ledger accepts, sorted as their keys are.
        """
        if not len(holes):
            return
        # From an offset below the lowest tip no run goes on any more.
        self._holes = [each for each in self._holes if each[0] >= self._order[0]]
        firsts, nexts = holes["first_offset"].tolist(), holes["next_offset"].tolist()
        self._holes += [
            (first, nexts[number], holes[number : number + 1].tobytes())
            for number, first in enumerate(firsts)
        ]

    def take(self, candidates: NDArray[np.void]) -> list[bytes]:
        """Weigh the next candidates; give the entries that are decided now, in offset order.

        A hole among them is taken as a fragment is, but of two runs to one offset the one that
        gives up fewer offsets is the better one.

        Args:
            candidates: entries that the ledger accepts, sorted as their keys are, all behind those
                of the last call.

        Raises:
            InternalError: they are not sorted.
            ConflictError: too many candidates overlap to hold them all.
        """
        decided: list[bytes] = []
        firsts = candidates["first_offset"].astype(np.uint64)
        nexts = candidates["next_offset"].astype(np.uint64)
        if len(firsts) and (int(firsts[0]) < self._first or (firsts[1:] < firsts[:-1]).any()):
            raise InternalError("keys that are not sorted", offset=int(firsts[0]))
        # From one seam to the next the candidates join, and nothing overlaps them.
        seams = np.flatnonzero(firsts[1:] != nexts[:-1])
        at = 0
        while at < len(firsts) and self.beyond is None:
            first = int(firsts[at])
            self._reach(first, decided)
            seam = int(np.searchsorted(seams, at))
            end = int(seams[seam]) if seam < len(seams) else len(firsts) - 1
            if at < end and len(self._tips) == 1 and first in self._tips:
                decided.append(candidates[at:end].tobytes())
                self._first = int(firsts[end - 1])
                self._settle(int(nexts[end - 1]))
                at = end
            else:
                self._weigh(first, int(nexts[at]), candidates[at : at + 1])
                at += 1
        return decided

    def end(self) -> list[bytes]:
        """There are no more candidates: the rest of the run that reaches furthest."""
        furthest = max(self._tips)
        rest = _fragments(self._tips[furthest][1])
        self._settle(furthest)
        until = self._until
        if until is not None and furthest < until <= (self.beyond or until):
            over = self._over(furthest, until)
            if over:
                rest += over
                self._settle(until)
        return rest

    @property
    def next_offset(self) -> int:
        """How far the best run reaches."""
        return max(self._tips)

    def _reach(self, first: int, decided: list[bytes]) -> None:
        """Candidates begin at `first` from now on: forget every tip below it."""
        self._first = first
        while self._order[0] < first:
            if len(self._order) == 1:
                [(offset, (_, run))] = self._tips.items()
                over = self._over(offset, first)
                if not over:
                    self.beyond = first
                    return
                decided += [*_fragments(run), *over]
                self._settle(first)
                return
            del self._tips[heappop(self._order)]
        if len(self._tips) == 1:
            [(offset, (_, run))] = self._tips.items()
            if run is not None:
                decided += _fragments(run)
                self._settle(offset)

    def _over(self, start: int, until: int) -> list[bytes]:
        """The fewest holes that lead from `start` to `until`; none if they do not."""
        best: dict[int, tuple[int, _Run | None]] = {start: (0, None)}
        for first, following, entry in self._holes:
            so_far = best.get(first)
            if so_far is None or following > until:
                continue
            there = best.get(following)
            if there is None or so_far[0] + 1 < there[0]:
                best[following] = (so_far[0] + 1, (so_far[1], entry))
        return _fragments(best[until][1]) if until in best else []

    def _settle(self, offset: int) -> None:
        self._tips = {offset: (0, None)}
        self._order = [offset]
        self._held = 0

    def _weigh(self, first: int, following: int, entry: NDArray[np.void]) -> None:
        so_far = self._tips.get(first)
        if so_far is None:
            return
        count = so_far[0] + 1
        if int(entry["kind_size"][0]) >> 56 == EntryKind.HOLE:
            count += _LOST * (following - first)
        there = self._tips.get(following)
        if there is not None and there[0] <= count:
            return
        if there is None:
            heappush(self._order, following)
        self._tips[following] = (count, (so_far[1], entry.tobytes()))
        self._held += 1
        self.widest = max(self.widest, self._held)
        if self._held > self._window:
            raise ConflictError(
                f"more than {self._window} fragments overlap without meeting at an offset",
                offset=first,
            )


def _fragments(run: _Run | None) -> list[bytes]:
    found: list[bytes] = []
    while run is not None:
        run, entry = run
        found.append(entry)
    return found[::-1]
