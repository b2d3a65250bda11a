"""Whose turn it is to be looked at: by time, and never at a cost by all streams.

A stream that nobody has looked at since the agent began waits behind those whose time has come, for
after a restart there are ten thousand of them, and data that arrives now must not wait for all. One
turn in four is theirs, so that busy streams cannot keep them waiting for ever.
"""

from __future__ import annotations

from collections.abc import Collection
from heapq import heapify, heappop, heappush
from itertools import count

#: Of so many turns one is of a stream that was never looked at.
_FAIR = 4
#: So many stale turns are kept at least before they are dropped.
_STALE = 64


class Turns:
    """When each stream is looked at next. Times are monotonic seconds.

    A stream that is being looked at has no turn until it is `back`; what wakes it meanwhile is
    remembered, because the look may have been too early to see it.
    """

    def __init__(self) -> None:
        self._new: dict[str, None] = {}  # never looked at, in the order in which they came
        self._at: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []  # what `_at` does not say any more is stale
        self._numbers, self._taken = count(), 0
        self._busy: dict[str, float | None] = {}  # being looked at, and since when it waits again

    @property
    def busy(self) -> Collection[str]:
        """Streams that are being looked at."""
        return self._busy.keys()

    def begin(self, stream: str) -> None:
        """Take in a stream that nobody has looked at."""
        self._new[stream] = None

    def wake(self, stream: str, at: float) -> None:
        """Something has happened to a stream: it is looked at then, if not sooner."""
        if stream in self._busy:
            before = self._busy[stream]
            self._busy[stream] = at if before is None else min(at, before)
            return
        self._new.pop(stream, None)
        if at < self._at.get(stream, float("inf")):
            self._set(stream, at)

    def back(self, stream: str, at: float, *, soonest: float) -> None:
        """A look is over.

        Args:
            stream: that was looked at.
            at: when it is looked at next unless something happens; so it counts as woken.
            soonest: not before this, whatever has happened meanwhile.
        """
        woken = self._busy.pop(stream, None)
        self._set(stream, max(soonest, at if woken is None else min(at, woken)))

    def forget(self, stream: str) -> None:
        """A stream is gone."""
        self._new.pop(stream, None)
        self._at.pop(stream, None)
        self._busy.pop(stream, None)

    def take(self, now: float, most: int) -> list[str]:
        """Up to `most` streams whose time has come, those that wait longest first."""
        found: list[str] = []
        while len(found) < most:
            stream = self._next(now)
            if stream is None:
                break
            self._taken += 1
            self._busy[stream] = None
            found.append(stream)
        return found

    def next_at(self) -> float:
        """When somebody's turn comes; in the past if somebody waits."""
        if self._new:
            return float("-inf")
        self._clean()
        return self._heap[0][0] if self._heap else float("inf")

    def _set(self, stream: str, at: float) -> None:
        self._at[stream] = at
        heappush(self._heap, (at, next(self._numbers), stream))
        if len(self._heap) > 2 * len(self._at) + _STALE:
            # Who is woken every second leaves a turn behind each time, up to hours ahead.
            self._heap = [(at, next(self._numbers), each) for each, at in self._at.items()]
            heapify(self._heap)

    def _clean(self) -> None:
        """Drop what is stale from the top of the heap."""
        while self._heap and self._at.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)

    def _next(self, now: float) -> str | None:
        self._clean()
        ripe = bool(self._heap) and self._heap[0][0] <= now
        if self._new and (not ripe or self._taken % _FAIR == _FAIR - 1):
            stream = next(iter(self._new))
            del self._new[stream]
            return stream
        if not ripe:
            return None
        stream = heappop(self._heap)[2]
        del self._at[stream]
        return stream
