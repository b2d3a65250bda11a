"""What can happen to a call: refused before it arrived, lost on the way back, late, slow, or well.

Faults come singly and as outages: for a while one service answers nothing, or denies everything. A
call may also take its time, while others act: on its way to the service, or on its way back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from coldstream.errors import PermissionDeniedError, UnavailableError
from coldstream_devkit.simulation.scheduler import Crash, Scheduler

T = TypeVar("T")

S3, DYNAMODB, LAMBDA = "S3", "DynamoDB", "Lambda"
#: A call in an outage fails after this long: what an SDK tries by itself.
_GIVEN_UP_MS = 2000


class LostError(Exception):
    """No answer. What was asked for may have been done, may be done later, or never."""


class Fault(Enum):
    """What goes wrong with one call."""

    REFUSED = "refused"  # 503, and nothing was done
    UNANSWERED = "done, no answer"
    LATE = "no answer, and done later"
    NEVER = "no answer, and never done"
    REPEATED = "done, no answer, sent again by the SDK"


class Outage(Enum):
    """How a service fails for a while."""

    SILENT = "silent"  # no answer, and nothing is done
    DENIED = "denied"  # credentials have expired, or a policy forbids all


_OF_WRITES = (Fault.REFUSED, Fault.REPEATED, Fault.UNANSWERED, Fault.LATE, Fault.NEVER)
_LATE_MS = (5, 500, 20_000)
_SLOW_MS = (300, 5000, 30_000)


@dataclass(slots=True)
class Net:
    """Carries calls of tasks to services.

    Attributes:
        scheduler: whose tasks make the calls.
        percent: of all calls, how many go wrong.
        slow_percent: of all calls, how many take long.
        outages: how a service fails, and until when, ms.
        faults: how many calls went wrong.
        buckets: counts what happened, for coverage.
    """

    scheduler: Scheduler
    percent: float = 0
    slow_percent: float = 0
    outages: dict[str, tuple[Outage, int]] = field(default_factory=dict)
    faults: int = 0
    buckets: Counter[str] = field(default_factory=Counter)

    def read(self, service: str, what: str, effect: Callable[[], T]) -> T:
        """Ask for something.

        Raises:
            UnavailableError: refused.
            PermissionDeniedError: the service denies everything at the moment.
        """
        scheduler = self.scheduler
        scheduler.pause()
        if self.outages:
            self._check_outage(service, what)
        if self.percent and scheduler.choices.chance(self.percent):
            self.faults += 1
            scheduler.say(f"{what}: refused")
            raise UnavailableError(f"{what}: slow down")
        if self.slow_percent and scheduler.choices.chance(self.slow_percent):
            answer = effect()
            self.take_time(what)
            return answer
        return effect()

    def write(self, service: str, what: str, effect: Callable[[], T], *, times: float = 1) -> T:
        """Have something done.

        Args:
            service: which.
            what: in words.
            effect: does it.
            times: how much more often it goes wrong than calls do: for one that is rarely made.

        Raises:
            UnavailableError: refused, and not done.
            PermissionDeniedError: the service denies everything at the moment.
            LostError: nobody knows.
        """
        scheduler = self.scheduler
        scheduler.pause()
        if self.outages:
            self._check_outage(service, what)
        if self.slow_percent and scheduler.choices.chance(self.slow_percent):
            self.take_time(what)
        if not self.percent or not scheduler.choices.chance(times * self.percent):
            return effect()
        self.faults += 1
        fault = scheduler.choices.one_of(_OF_WRITES)
        scheduler.say(f"{what}: {fault.value}")
        match fault:
            case Fault.REFUSED:
                raise UnavailableError(f"{what}: slow down")
            case Fault.REPEATED:
                effect()
                scheduler.pause()
                return effect()
            case Fault.UNANSWERED:
                effect()
            case Fault.LATE:
                self._later(what, effect)
            case Fault.NEVER:
                pass
        raise LostError(what)

    def break_down(self, service: str, how: Outage, ms: int) -> None:
        """Let a service fail for a while."""
        self.buckets[f"outage of {service}"] += 1
        self.scheduler.say(f"{service} is {how.value} for {ms} ms")
        self.outages[service] = how, self.scheduler.now + ms

    def take_time(self, what: str) -> None:
        """A call is under way for a while."""
        scheduler = self.scheduler
        if scheduler.task is None:
            return
        ms = scheduler.choices.one_of(_SLOW_MS)
        self.buckets["slow call"] += 1
        scheduler.say(f"{what}: takes {ms} ms")
        scheduler.sleep(ms)

    def _check_outage(self, service: str, what: str) -> None:
        scheduler = self.scheduler
        how, until = self.outages.get(service, (None, 0))
        if how is None:
            return
        if scheduler.now >= until:
            del self.outages[service]
            return
        self.faults += 1
        if how is Outage.DENIED:
            raise PermissionDeniedError(f"{what}: denied")
        if scheduler.task is not None:
            scheduler.sleep(_GIVEN_UP_MS)
        raise UnavailableError(f"{what}: no answer")

    def _later(self, what: str, effect: Callable[[], object]) -> None:
        scheduler = self.scheduler
        after = scheduler.choices.one_of(_LATE_MS)

        def arrive() -> None:
            scheduler.sleep(after)
            try:
                effect()
            except Crash:
                raise
            except Exception as exc:  # noqa: BLE001 - nobody waits for it any more
                scheduler.say(f"{what}: late, {type(exc).__name__}")

        scheduler.spawn("late", arrive, "net")
