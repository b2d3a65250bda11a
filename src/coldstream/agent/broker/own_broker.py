"""What an agent asks of the broker of its own node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol, TypeVar

from coldstream.agent.broker.listing import Lists
from coldstream.broker.answers import LogInError, NoMemberError
from coldstream.errors import UnavailableError

T = TypeVar("T")

#: A broker that does not answer is asked again after so long, twice as long each time, seconds.
_SILENT_LEAST = 0.5
_SILENT_MOST = 10.0
#: Nor is it asked for the writer for so long where it was silent about one: 3.10.8 waits for frozen
#: nodes.
_ROLES_PAUSE = 20.0


class Delivers(Protocol):
    """Whoever gives the headers of chunks that are committed."""

    def header_at(self, vhost: str, queue: str, offset: int) -> bytes | None:
        """As `broker.connection.Connection.header`, of the chunk with an offset.

        Raises:
            As it, and NotFoundError if there is no such stream or virtual host.
        """
        ...


class Broker(Lists, Delivers, Protocol):
    """The node's own broker."""

    def last_header(self, vhost: str, queue: str) -> bytes | None:
        """As `broker.connection.Connection.last_header`.

        Raises:
            As it, and NotFoundError if there is no such stream or virtual host.
        """
        ...

    def leads(self, vhost: str, queue: str) -> bool | None:
        """As `broker.connection.Connection.leads`; raises as `last_header`."""
        ...

    def keep_up(self) -> None:
        """Show every now and then that this end lives."""
        ...

    def generation(self) -> int:
        """A number that rises whenever a connection to it had to be made anew."""
        ...

    def close(self) -> None:
        """Leave."""
        ...


@dataclass(slots=True)
class InTurn:
    """A broker that several threads ask, each by one call at a time.

    Nobody waits for the files that a thread reads between two calls. Who must know whether the same
    broker has answered, compares `generation`. A broker that does not answer is left alone for some
    seconds, also by those who wait for their turn: ten thousand streams must not wait for its
    answer one after the other, nor log in one after the other in vain.

    Args:
        broker: that is asked.
        clock: monotonic seconds.

    Attributes:
        silent_until: it is not asked before; monotonic seconds.
        silence: why.
    """

    broker: Broker
    clock: Callable[[], float]
    silent_until: float = float("-inf")
    silence: str = ""
    _silences: int = 0  # in a row
    _roles_from: float = float("-inf")  # when it is asked again who writes
    _lock: Lock = field(default_factory=Lock)

    def header_at(self, vhost: str, queue: str, offset: int) -> bytes | None:
        """As `Delivers` says."""
        return self._ask(lambda: self.broker.header_at(vhost, queue, offset))

    def last_header(self, vhost: str, queue: str) -> bytes | None:
        """As `Broker` says."""
        return self._ask(lambda: self.broker.last_header(vhost, queue))

    def leads(self, vhost: str, queue: str) -> bool | None:
        """As `Broker` says; None, too, where it did not answer lately."""
        with self._lock:
            if self.clock() < self._roles_from:
                return None
            try:
                return self.broker.leads(vhost, queue)
            except UnavailableError:
                self._roles_from = self.clock() + _ROLES_PAUSE
                return None

    def keep_up(self) -> None:
        """As `Broker` says."""
        with self._lock:
            self.broker.keep_up()

    def generation(self) -> int:
        """As `Broker` says."""
        return self.broker.generation()

    def close(self) -> None:
        """As `Broker` says."""
        with self._lock:
            self.broker.close()

    def _ask(self, ask: Callable[[], T]) -> T:
        with self._lock:
            if self.clock() < self.silent_until:
                raise UnavailableError(self.silence)
            try:
                answer = ask()
            except NoMemberError:
                raise  # it has answered
            except (UnavailableError, LogInError) as exc:
                self._silences += 1
                wait = min(_SILENT_MOST, _SILENT_LEAST * 2 ** min(self._silences - 1, 10))
                # It may have taken long to say so: the pause is from now on.
                self.silent_until, self.silence = self.clock() + wait, exc.reason
                raise
            self._silences = 0
            return answer
