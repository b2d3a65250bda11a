"""Disturb a use case between any two of its calls: kill it there, or let others work meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from coldstream.errors import ColdstreamError, UnavailableError, UnknownOutcomeError
from coldstream.ports import CommitOutcome, Unknown


class Crash(BaseException):
    """The process is gone. No error of ours: nothing may catch it and go on."""


class Wire:
    """Counts calls, and at one of them something happens.

    Args:
        calls: how many calls go through before that; None for all.
        meanwhile: what happens then; the process goes on afterwards. None: the process ends.
        carried_out: whether the call at which the process ends still takes effect.
        answer_lost: the call takes effect and its answer is lost; the process goes on.

    Attributes:
        made: names of the calls so far.
    """

    def __init__(
        self,
        calls: int | None = None,
        *,
        meanwhile: Callable[[], object] | None = None,
        carried_out: bool = False,
        answer_lost: bool = False,
    ) -> None:
        self.made: list[str] = []
        self._answer_lost = answer_lost
        self._left = calls
        self._meanwhile = meanwhile
        self._carried_out = carried_out
        self._lock = threading.Lock()
        self._dead = False

    def call(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        """Pass a call on, or die."""
        with self._lock:
            if self._dead:
                raise Crash
            self.made.append(getattr(method, "__name__", ""))
            if self._left is not None:
                self._left -= 1
                if self._left == -1 and self._answer_lost:
                    method(*args, **kwargs)
                    return no_answer(method.__name__)
                if self._left == -1:
                    self._happen(method, *args, **kwargs)
        return method(*args, **kwargs)

    def _happen(self, method: Any, *args: Any, **kwargs: Any) -> None:
        if self._meanwhile is not None:
            self._meanwhile()
            return
        self._dead = True
        if self._carried_out:
            method(*args, **kwargs)
        raise Crash


#: What a lost answer to a call looks like: what comes back, or what is raised.
_NO_ANSWERS: dict[str, CommitOutcome | ColdstreamError] = {
    "commit": Unknown(None),
    "adopt": Unknown(None),
    "change_state": Unknown(None),
    "put": UnknownOutcomeError("no answer"),
    "compose": UnknownOutcomeError("no answer"),
    "delete": UnavailableError("no answer"),
    "anchor": UnavailableError("no answer"),
}
#: Calls that change something.
WRITES = frozenset(_NO_ANSWERS)


def no_answer(name: str) -> CommitOutcome:
    """What a port gives when a call was carried out and its answer is lost."""
    answer = _NO_ANSWERS[name]
    if isinstance(answer, ColdstreamError):
        raise type(answer)(answer.reason)
    return answer


class OverWire:
    """An adapter whose every method goes over a wire."""

    def __init__(self, inner: Any, wire: Wire) -> None:
        self._inner = inner
        self._wire = wire

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._wire.call(method, *args, **kwargs)

        return call
