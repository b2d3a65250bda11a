"""Whether to ask a service that has refused again and again.

    closed ── `_REFUSALS` in a row ──> open ── a pause is over ──> one probe ── it failed ──> open
       ▲                                                              │
       └──── as many as there may be <── 2, 4, 8 at once <── it landed ┘

Pure: clocks and randomness are arguments. Pauses double from one probe to the next, up to a minute,
and each is drawn anew, so that a thousand agents do not come back in the same second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_REFUSALS = 5
#: While it is let in again, fewer are enough.
_REFUSALS_AFTER = 2
_FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0


@dataclass(slots=True)
class Breaker:
    """One service, and how many may ask it at once.

    Args:
        most: may ask while all is well.
        jitter: a random number of seconds in [0, given).

    Attributes:
        since: monotonic seconds of the first refusal in a row; None while the last one was none.
        refusals: in a row.
        until: while it is open, when the next probe may begin, monotonic seconds; None if it is not
            open.
        tried: probes that failed, one after the other.
    """

    most: int
    jitter: Callable[[float], float]
    since: float | None = None
    refusals: int = 0
    until: float | None = None
    tried: int = 0
    _allowed: int | None = None  # at once; None for all
    _good: int = 0  # landed since as many are allowed

    @property
    def is_open(self) -> bool:
        """Whether nobody but a probe may ask."""
        return self.until is not None

    @property
    def allowed(self) -> int:
        """How many may ask at once."""
        if self.is_open:
            return 1
        return self.most if self._allowed is None else min(self._allowed, self.most)

    def wait(self, under_way: int, now: float) -> float | None:
        """How long to wait before one more asks, seconds; None until another has come back.

        Args:
            under_way: who asks now.
            now: monotonic seconds.
        """
        if under_way >= self.allowed:
            return None
        return 0.0 if self.until is None else max(0.0, self.until - now)

    def landed(self) -> None:
        """Somebody was served."""
        self.since, self.refusals = None, 0
        if self.until is not None:
            self.until, self._allowed, self._good = None, 1, 0
        if self._allowed is None:
            return
        self._good += 1
        if self._good >= self._allowed:
            self._allowed, self._good = self._allowed * 2, 0
        if self._allowed >= self.most:
            self._allowed, self.tried = None, 0

    def refused(self, began: float, now: float) -> None:
        """Somebody was refused, or got no answer.

        Args:
            began: when who was refused has asked, monotonic seconds.
            now: likewise.
        """
        self.refusals += 1
        self.since = now if self.since is None else self.since
        if self.until is not None:
            if began >= self.until:  # it was the probe; others had begun before
                self._open(now)
        elif self.refusals >= (_REFUSALS if self._allowed is None else _REFUSALS_AFTER):
            self._open(now)

    def _open(self, now: float) -> None:
        pause = min(LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self.tried, 16))
        self.until = now + pause / 2 + self.jitter(pause / 2)
        self.tried += 1
