"""Who may upload now: what link and breaker decide, for threads that wait; and the byte rate."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from coldstream.agent.host import Host
from coldstream.agent.sending.breaker import Breaker
from coldstream.agent.sending.link import Link, TokenBucket, told
from coldstream.agent.settings import AgentSettings
from coldstream.errors import (
    AlreadyExistsError,
    ColdstreamError,
    UnavailableError,
    UnknownOutcomeError,
)
from coldstream.ports.objects import CutShortError

_LOOK_SECONDS = 1.0
_SLICE_SECONDS = 0.5
_LEAST_GRANT = 1024
#: A service that goes on refusing is told again after so long, seconds.
_AGAIN_SECONDS = 600.0
#: A link that changes is told this often at the most, seconds.
_CHANGES_SECONDS = 60.0
#: Streams that wait for a service come back spread over this time, seconds.
_SPREAD_SECONDS = 10.0
_WORDS = 8


class Valve:
    """What the bodies of all uploads go through, piece by piece.

    Args:
        rate: bytes a second; 0 for no limit.
        clock: monotonic seconds.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        rate: int = 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bucket, self._clock, self._sleep = TokenBucket(rate), clock, sleep
        self._lock = threading.Lock()
        self._end: float | None = None

    def set_rate(self, rate: int) -> None:
        """Go on with another rate, bytes a second; 0 for no limit."""
        with self._lock:
            self._bucket.rate = rate

    def end_in(self, seconds: float) -> None:
        """Have what is under way given up after so long; safe from a signal handler."""
        self._end = self._clock() + seconds

    def ended(self) -> bool:
        """Whether what is under way is to be given up."""
        return self._end is not None and self._clock() >= self._end

    def grant(self, most: int) -> int:
        """How many bytes may go now, at most `most`; waits until some may, or all is to end."""
        with self._lock:
            rate = self._bucket.rate
            size = min(most, max(rate // 10, _LEAST_GRANT)) if rate else most
            left = self._bucket.reserve(size, self._clock())
        while left > 0 and not self.ended():
            self._sleep(min(left, _SLICE_SECONDS))
            left -= _SLICE_SECONDS
        return size


@dataclass(frozen=True, slots=True)
class Lane:
    """One upload's leave to go.

    Attributes:
        began: monotonic seconds.
        among: how many were under way then, itself included.
    """

    began: float
    among: int


class Lanes:
    """Lets uploads go, as many at once as is good.

    Args:
        host: clocks, waiting, randomness.
        settings: of the agent.
    """

    def __init__(self, host: Host, settings: AgentSettings) -> None:
        self._host, self._once = host, settings.once
        self._changed = host.condition()
        self._under_way = 0
        self.breaker = Breaker(settings.uploads, host.jitter)
        self.link = Link(settings.uploads, settings.target_size, settings.flush_ms / 1000)
        self._words: deque[str] = deque(maxlen=_WORDS)
        self._told_link = self.link.most * self.link.full
        self._told_link_at = self._told_refusals_at = float("-inf")
        self._told_open = False
        self._began_ms = 0

    def follow(self, settings: AgentSettings) -> None:
        """Go on with other settings."""
        with self._changed:
            link = self.link
            was_good = self._told_link == link.most * link.full
            link.change(settings.uploads, settings.target_size, settings.flush_ms / 1000)
            if was_good:  # nothing has become quicker or slower
                self._told_link = link.most * link.full
            self._tell_link()

    @property
    def piece(self) -> int | None:
        """Bytes of the next fragments at the most; None where the link asks for nothing."""
        return self.link.piece if self.link.piece < self.link.full else None

    def enter(self, stop: Callable[[], bool]) -> Lane | None:
        """Wait until one more upload may go; None once `stop` says so."""
        with self._changed:
            while not stop():
                now = self._host.monotonic()
                wait = self._wait(now)
                if wait == 0:
                    self._under_way += 1
                    return Lane(now, self._under_way)
                self._changed.wait(_LOOK_SECONDS if wait is None else min(wait, _LOOK_SECONDS))
        return None

    def _wait(self, now: float) -> float | None:
        if self._under_way >= self.link.at_once:
            return None
        # One run gives up after some tries; it does not wait for a service to come back.
        return 0.0 if self._once else self.breaker.wait(self._under_way, now)

    def leave(self, lane: Lane, *, size: int = 0, error: BaseException | None = None) -> None:
        """An upload has come back.

        Args:
            lane: that it had.
            size: bytes that have landed.
            error: why none have.
        """
        with self._changed:
            now = self._host.monotonic()
            among = (lane.among + self._under_way) / 2
            self._under_way -= 1
            if error is None:
                self.link.landed(size, lane.began, now, among=among)
                self._served()
            elif isinstance(error, AlreadyExistsError):
                self._served()
            elif isinstance(error, CutShortError):
                self.link.cut_short(error.sent)
            elif isinstance(error, UnavailableError | UnknownOutcomeError):
                self._refused(error, lane.began, now)
            self._tell_link()
            self._changed.notify_all()

    def too_large(self, size: int) -> bool:
        """Whether a fragment of `size` bytes is far more than goes through at once now."""
        piece = self.piece
        return piece is not None and not self.breaker.is_open and size > 2 * piece

    def later(self, now: float) -> float:
        """When it is worth asking the service again, monotonic seconds; `now` for now."""
        until = self.breaker.until
        if self._once or until is None or until <= now:
            return now
        return until + self._host.jitter(_SPREAD_SECONDS)

    def again_at(self, now: float, seconds: float) -> float:
        """When whoever failed tries again: after about `seconds`, never all in the same moment."""
        return max(self.later(now), now + 0.75 * seconds + self._host.jitter(seconds / 2))

    def words(self) -> list[str]:
        """The last things to say, oldest first."""
        return list(self._words)

    def figures(self) -> dict[str, float]:
        """What there is to say in numbers, by the names of metrics."""
        breaker, link = self.breaker, self.link
        return {
            "agent_uploads_allowed": min(breaker.allowed, link.at_once),
            "agent_fragment_limit_bytes": link.piece,
            "agent_upload_bytes_per_second": link.rate or 0.0,
            "agent_store_refusals": breaker.refusals,
            "agent_store_refuses": breaker.is_open,
        }

    def _refused(self, error: ColdstreamError, began: float, now: float) -> None:
        breaker, was_open = self.breaker, self.breaker.is_open
        if not breaker.refusals:
            self._began_ms = self._host.now_ms()
        breaker.refused(began, now)
        if self._once or not breaker.is_open:
            return
        if now - self._told_refusals_at >= (_AGAIN_SECONDS if was_open else _CHANGES_SECONDS):
            self._told_refusals_at, self._told_open = now, True
            self._words.append(
                f"S3 has refused {breaker.refusals} times in a row since {self._since()}, so it is"
                f" only asked now and then: {error.reason}"
            )

    def _served(self) -> None:
        breaker = self.breaker
        if breaker.is_open and self._told_open:
            self._told_open = False
            self._words.append(
                f"S3 takes uploads again, after {breaker.refusals} refusals in a row since"
                f" {self._since()}; they come back one by one"
            )
        breaker.landed()

    def _since(self) -> str:
        moment = datetime.fromtimestamp(self._began_ms / 1000, UTC)
        return moment.isoformat(timespec="seconds").replace("+00:00", "Z")

    def _tell_link(self) -> None:
        """Say how fragments are cut, where that has changed much."""
        link, now = self.link, self._host.monotonic()
        size, full = link.at_once * link.piece, link.most * link.full
        if max(size, self._told_link) < 2 * min(size, self._told_link) and size != full:
            return
        if size == self._told_link or now - self._told_link_at < _CHANGES_SECONDS:
            return
        self._told_link, self._told_link_at = size, now
        self._words.append(
            told(link) if size != full else "uploads go quickly again: fragments are full ones"
        )
