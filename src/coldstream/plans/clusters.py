"""Candidates in offset order, cut wherever nothing reaches over an offset.

Between two such cuts a *cluster* lies: objects that overlap, directly or by way of one another.
What stands for its offsets has nothing to do with any other cluster, so a rebuild decides one after
the other and holds no more than one of them and a page of keys. Objects that overlap nothing and
join come as one *stretch*, however long: nothing is to be decided about them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coldstream.errors import ConflictError

#: Candidates of a cluster that are held at the most: about 30 MB.
MAX_WINDOW = 2**17


@dataclass(frozen=True, slots=True)
class Cluster:
    """Neighbouring candidates that no other one overlaps.

    Attributes:
        rows: entries, sorted by first offset, next offset and uid.
        plain: whether each begins where the one before it ends, so that nothing overlaps.
    """

    rows: NDArray[np.void]
    plain: bool

    @property
    def first(self) -> int:
        """Where the first one begins."""
        return int(self.rows["first_offset"][0])

    @property
    def next_offset(self) -> int:
        """Where the one that reaches furthest ends."""
        return int(self.rows["next_offset"].max())


class Clusters:
    """Cuts sorted candidates into pieces.

    Args:
        window: candidates of one cluster that may be held.
    """

    def __init__(self, *, window: int = MAX_WINDOW) -> None:
        self._window = window
        self._waiting: NDArray[np.void] | None = None
        #: Greatest number of candidates that had to be held at once.
        self.widest = 0

    @property
    def reach(self) -> int:
        """How far what is held reaches; what begins there or behind it overlaps nothing of it."""
        return 0 if self._waiting is None else int(self._waiting["next_offset"].max())

    def take(self, rows: NDArray[np.void]) -> Iterator[Cluster]:
        """Take the next candidates; give what nothing that follows can overlap.

        Args:
            rows: sorted, all behind those of the last call.

        Raises:
            ConflictError: too many candidates overlap to hold them all.
        """
        if not len(rows):
            return
        if self._waiting is not None:
            # Not by numpy's own means: those turn the bytes of each number round.
            rows = np.frombuffer(self._waiting.tobytes() + rows.tobytes(), rows.dtype)
        firsts = rows["first_offset"].astype(np.uint64)
        reach = np.maximum.accumulate(rows["next_offset"].astype(np.uint64))
        cuts = np.flatnonzero(firsts[1:] >= reach[:-1]) + 1
        last = int(cuts[-1]) if len(cuts) else 0
        self._waiting = rows[last:]
        self.widest = max(self.widest, len(self._waiting))
        if len(self._waiting) > self._window:
            raise ConflictError(
                f"more than {self._window} fragments overlap without meeting at an offset",
                offset=int(firsts[last]),
            )
        if last:
            yield from _pieces(rows[:last], cuts)

    def end(self) -> Iterator[Cluster]:
        """There are no more: the rest."""
        rest, self._waiting = self._waiting, None
        if rest is not None:
            yield Cluster(rest, plain=len(rest) == 1)


def _pieces(rows: NDArray[np.void], cuts: NDArray[np.intp]) -> Iterator[Cluster]:
    """Pieces of rows that are cut before the numbers in `cuts`, the last of which is their end."""
    begins = np.concatenate([np.zeros(1, cuts.dtype), cuts[:-1]])
    single = cuts - begins == 1
    firsts, nexts = rows["first_offset"][begins], rows["next_offset"][cuts - 1]
    # A stretch goes on where both sides of a cut are single ones that join.
    seams = np.flatnonzero(~(single[1:] & single[:-1] & (firsts[1:] == nexts[:-1]))) + 1
    for begin, end in zip([0, *seams.tolist()], [*seams.tolist(), len(cuts)], strict=True):
        yield Cluster(rows[int(begins[begin]) : int(cuts[end - 1])], plain=bool(single[begin]))
