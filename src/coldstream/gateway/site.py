"""What all clients of a gateway share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from coldstream.gateway.metrics import GatewayMetrics
from coldstream.gateway.offsets import Offsets
from coldstream.gateway.streams import Streams
from coldstream.gateway.users import Rights, Users

#: Passwords are checked one after the other: a hash costs a processor a twentieth of a second.
_LOGINS_AT_ONCE = 2


@dataclass(slots=True)
class Site:
    """One gateway.

    Attributes:
        streams: that can be read.
        offsets: of consumers.
        users: who may log in.
        metrics: counted as it goes.
        pool: threads for what blocks.
        say: writes a sentence to the log.
        version: of coldstream.
        host: that clients are told to connect to; "" for the one that they came by.
        port: the same; 0 for the one that they came by.
        subscriptions: of all clients together, at the most: each may hold a range in memory.
        penalty_seconds: after which a wrong password is answered, so that nobody tries thousands.
        saving: what still writes offsets of clients that leave; the end waits for it.
    """

    streams: Streams
    offsets: Offsets
    users: Users
    metrics: GatewayMetrics
    pool: Executor
    say: Callable[[str], None]
    version: str
    host: str = ""
    port: int = 0
    subscriptions: int = 1024
    penalty_seconds: float = 1.0
    saving: set[asyncio.Task[None]] = field(default_factory=set)
    _logins: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_LOGINS_AT_ONCE))

    def advertised(self, local: tuple[str, int]) -> tuple[str, int]:
        """What a client that came by this address is told."""
        return self.host or local[0], self.port or local[1]

    async def log_in(self, user: str, password: str) -> Rights | None:
        """As `Users` says."""
        async with self._logins:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self.pool, self.users.log_in, user, password)
