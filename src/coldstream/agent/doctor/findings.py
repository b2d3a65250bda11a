"""Checks as values, and how they are carried out: each in time, whatever became of the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from queue import Empty, SimpleQueue

from coldstream.errors import ColdstreamError


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found.

    Attributes:
        level: how bad it is.
        about: what was looked at, in a word or two.
        said: what was found, without a dot at its end.
        remedy: what to do, in one sentence; "" if nothing is to be done.
        seconds: that it took; None until it was carried out.
    """

    level: Level
    about: str
    said: str
    remedy: str = ""
    seconds: float | None = None


def ok(about: str, said: str) -> Finding:
    """A finding that all is well."""
    return Finding(Level.OK, about, said)


def warning(about: str, said: str, remedy: str) -> Finding:
    """A finding that somebody should know."""
    return Finding(Level.WARNING, about, said, remedy)


def failed(about: str, said: str, remedy: str) -> Finding:
    """A finding that keeps an agent from its work."""
    return Finding(Level.FAILED, about, said, remedy)


def of_error(about: str, error: ColdstreamError, remedy: str) -> Finding:
    """A failure that an error tells; the error's own remedy counts, if it has one."""
    return failed(about, str(error), error.remedy or remedy)


@dataclass(frozen=True, slots=True)
class Check:
    """Something to look at.

    Attributes:
        about: as in the finding of a check that fails as a whole.
        look: gives the findings one after the other; what it raises is a failure, behind those
            that it has given.
        remedy: what to do where it raises, or gives no answer in time.
        seconds: that it may take.
    """

    about: str
    look: Callable[[], Iterable[Finding]]
    remedy: str
    seconds: float = 20.0


def perform(checks: Iterable[Check]) -> Iterator[Finding]:
    """The findings of all checks, as they come.

    A check that gives no answer in time is left behind in its thread, which ends with the process.
    """
    for check in checks:
        yield from _performed(check)


def _performed(check: Check) -> Iterator[Finding]:
    found: SimpleQueue[Finding | None] = SimpleQueue()
    thread = threading.Thread(target=_look, args=(check, found), name=check.about, daemon=True)
    begun = time.monotonic()
    deadline = begun + check.seconds
    thread.start()
    while True:
        try:
            finding = found.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            said = f"no answer within {check.seconds:.0f} s"
            yield replace(failed(check.about, said, check.remedy), seconds=check.seconds)
            return
        if finding is None:
            return
        now = time.monotonic()
        yield replace(finding, seconds=now - begun)
        begun = now


def _look(check: Check, found: SimpleQueue[Finding | None]) -> None:
    try:
        for finding in check.look():
            found.put(finding)
    except ColdstreamError as exc:
        found.put(of_error(check.about, exc, check.remedy))
    except OSError as exc:
        found.put(failed(check.about, str(exc), check.remedy))
    except Exception as exc:  # noqa: BLE001 - of a check; the others go on
        bug = f"{type(exc).__name__}: {exc}"
        found.put(failed(check.about, bug, "report this: it is a bug of coldstream"))
    found.put(None)
