"""What can happen to a call: refused before it arrived, lost on the way back, late, or all well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from coldstream.errors import UnavailableError
from coldstream.testing.simulation.scheduler import Crash, Scheduler

T = TypeVar("T")


class LostError(Exception):
    """No answer. What was asked for may have been done, may be done later, or never."""


class Fault(Enum):
    """What goes wrong with one call."""

    REFUSED = "refused"  # 503, and nothing was done
    UNANSWERED = "done, no answer"
    LATE = "no answer, and done later"
    NEVER = "no answer, and never done"
    REPEATED = "done, no answer, sent again by the SDK"


_OF_WRITES = (Fault.REFUSED, Fault.REPEATED, Fault.UNANSWERED, Fault.LATE, Fault.NEVER)
_LATE_MS = (5, 500, 20_000)


@dataclass(slots=True)
class Net:
    """Carries calls of tasks to services.

    Attributes:
        scheduler: whose tasks make the calls.
        percent: of all calls, how many go wrong.
        faults: how many did.
    """

    scheduler: Scheduler
    percent: float = 0
    faults: int = 0

    def read(self, what: str, effect: Callable[[], T]) -> T:
        """Ask for something.

        Raises:
            UnavailableError: refused.
        """
        scheduler = self.scheduler
        scheduler.pause()
        if self.percent and scheduler.choices.chance(self.percent):
            self.faults += 1
            scheduler.say(f"{what}: refused")
            raise UnavailableError(f"{what}: slow down")
        return effect()

    def write(self, what: str, effect: Callable[[], T]) -> T:
        """Have something done.

        Raises:
            UnavailableError: refused, and not done.
            LostError: nobody knows.
        """
        scheduler = self.scheduler
        scheduler.pause()
        if not self.percent or not scheduler.choices.chance(self.percent):
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

    def _later(self, what: str, effect: Callable[[], object]) -> None:
        scheduler = self.scheduler
        after = scheduler.choices.one_of(_LATE_MS)

        def arrive() -> None:
            scheduler.sleep(after)
            try:
                effect()
            except Crash:
                raise
            except Exception as exc:
                scheduler.say(f"{what}: late, {type(exc).__name__}")

        scheduler.spawn("late", arrive, "net")
