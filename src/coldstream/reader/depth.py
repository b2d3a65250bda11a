"""How many GETs are under way at once: found by measuring what more of them bring. Pure.

One S3 connection gives about 40 MB/s whatever the range, so throughput is a matter of how many
there are; but which number fills the link, nobody knows beforehand. So the number is doubled as
long as that brings more, and halved again where it does not. It never grows while the consumer is
what is slow: then there is memory to lose, and nothing to gain.
"""

from __future__ import annotations

#: Of twice as many GETs: below this gain they are not worth their memory.
_WORTH = 1.15
#: Numbers that are measured before a settled one is tried again: links change.
_SETTLED_ROUNDS = 32
#: A consumer that waited for fewer of its results than this has no use for more.
_WAITED = 0.25
#: GETs that a read has after its first two results, before anything is measured.
AT_ONCE = 8
#: How fast it comes to them: whoever takes a second result goes on, and each step is a round trip.
_RISE = 4


class Depth:
    """The number for one read.

    Args:
        most: GETs, however much they would bring.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.now = 1
        self._begun_at = 0.0
        self._size = self._results = self._waits = 0
        self._before = 0.0  # bytes a second with half as many
        self._settled = 0
        self._skip = True

    def consumed(self, size: int, now: float, *, waited: bool) -> None:
        """One more result was taken.

        Args:
            size: its bytes.
            now: seconds, never falling.
            waited: whether it was still under way when it was asked for.
        """
        if self.now < min(AT_ONCE, self._most):
            self.now = min(_RISE * self.now, AT_ONCE, self._most)
            self._restart(now)
            return
        self._size += size or 1  # of things without a size, their number counts
        self._results += 1
        self._waits += waited
        # The first after a change had been asked for while fewer were under way.
        if self._results < (self.now // 2 if self._skip else self.now):
            return
        rate = self._size / max(now - self._begun_at, 1e-9)
        if self._skip:
            self._skip = False
        elif self._waits >= _WAITED * self._results:
            self._decide(rate)
        self._begun_at = now
        self._size = self._results = self._waits = 0

    def _decide(self, rate: float) -> None:
        if self._settled:
            self._settled -= 1
            if self._settled:
                return
        if self._before and rate < _WORTH * self._before:
            self.now = max(self.now // 2, 1)
            self._before = 0.0
            self._settled = _SETTLED_ROUNDS
        elif self.now < self._most:
            self._before = rate
            self.now = min(2 * self.now, self._most)
            self._skip = True

    def _restart(self, now: float) -> None:
        self._begun_at = now
        self._size = self._results = self._waits = 0
        self._skip = True
