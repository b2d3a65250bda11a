"""A place in a group of single active consumers, at the broker: it says who delivers, we deliver.

The gateway is a consumer of the group for its client, and gives no credit: the broker never sends
it a chunk. All consumers of a name are one group so, whether they come by a gateway, by several, or
to the broker itself. Measured on 4.3.6 (`rabbit_stream_sac_coordinator`):

    broker: ConsumerUpdate(active)      the client answers where it goes on
    broker: ConsumerUpdate(not active)  the client answers when it has stopped; then the next one's
                                        turn comes

Which place it has ends with its connection, as that of a client would.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from coldstream.errors import UnavailableError
from coldstream.gateway.requests import SINGLE_ACTIVE_CONSUMER

#: Broker that knows such groups; an older one delivers to all of one.
SINCE = (3, 11, 0)
_NAMES = ("name", "super-stream")
#: Turns that wait; a broker waits for an answer before it gives the next one.
_MOST = 100


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """What a ConsumerUpdate of the broker says.

    Attributes:
        correlation: of it.
        active: whether its client is the one that is delivered to.
    """

    correlation: int
    active: bool


class Source(Protocol):
    """The connection of a membership."""

    def take_turn(self, correlation: int) -> None:
        """Answer a ConsumerUpdate."""
        ...

    async def close(self) -> None:
        """Leave."""
        ...


class Membership:
    """The turns of one consumer, in order; used by one task.

    Args:
        source: its connection, which it has for itself.
        number: of the subscription.
        stream: name.
    """

    def __init__(self, source: Source, number: int, stream: str) -> None:
        self._source = source
        self.number, self.stream = number, stream
        self._turns: deque[Turn] = deque()
        self._changed = asyncio.Event()
        self._error: UnavailableError | None = None

    def put(self, _: bytes) -> bool:
        """A Deliver has come: it was not asked for."""
        return False

    def turn(self, correlation: int, *, active: bool) -> bool:
        """A ConsumerUpdate has come; False if there are too many."""
        self._turns.append(Turn(correlation, active))
        self._changed.set()
        return len(self._turns) < _MOST

    def end(self, error: UnavailableError) -> None:
        """Nothing more comes, and why."""
        self._error = self._error or error
        self._changed.set()

    async def next(self) -> Turn:
        """The next turn.

        Raises:
            UnavailableError: the place is lost: another consumer may have the turn by now.
        """
        while True:
            if self._error is not None:
                raise self._error
            if self._turns:
                return self._turns.popleft()
            self._changed.clear()
            await self._changed.wait()

    def take(self, turn: Turn) -> None:
        """The client knows of a turn.

        Raises:
            UnavailableError: the place is lost.
        """
        self._source.take_turn(turn.correlation)

    async def close(self) -> None:
        """Leave the group."""
        await self._source.close()


def as_member(properties: Mapping[str, str]) -> Mapping[str, str]:
    """What the broker is told of a client's subscription: its group, and no filters."""
    told = {name: properties[name] for name in _NAMES if name in properties}
    return {SINGLE_ACTIVE_CONSUMER: "true", **told}
