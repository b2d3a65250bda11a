"""A gateway on loopback, over a remote tier in memory, and what talks to it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coldstream.adapters.memory import MemoryOffsets
from coldstream.gateway.broker_tier import BrokerTier
from coldstream.gateway.metrics import GatewayMetrics
from coldstream.gateway.offsets import Offsets
from coldstream.gateway.server import Server
from coldstream.gateway.site import Site
from coldstream.gateway.streams import Streams
from coldstream.gateway.users import Users, parse_users
from coldstream.read_policy import ReadPolicy
from coldstream.reader import MemoryBudget, ReaderSettings
from tests.support.tier import PREFIX, SMALL, Tier

USERS = "guest:guest:.*\nfew:secret:fx[.].*\n"


@dataclass
class Gateway:
    """A gateway whose event loop runs in a thread of its own.

    Attributes:
        tier: what it reads.
        port: where it listens.
        said: sentences of its log.
        broker_uri: of a node, or a list of several.
        broker: in place of one at `broker_uri`.
    """

    tier: Tier
    users: Users = field(default_factory=lambda: parse_users(USERS))
    settings: ReaderSettings = SMALL
    broker_uri: Any = None
    broker: Any = None
    data_dir: Path | None = None
    most: int = 50
    tls: Any = None
    offsets: Any = field(default_factory=MemoryOffsets)
    port: int = 0
    said: list[str] = field(default_factory=list)
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    policy: ReadPolicy = ReadPolicy.NOT_IN_MEM

    def __enter__(self) -> Gateway:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """As a signal does it; twice is as good as once."""
        if not self._thread.is_alive():
            return
        self.loop.call_soon_threadsafe(self._end.set)
        self._thread.join(60)
        assert not self._thread.is_alive()

    async def _serve(self) -> None:
        self.loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        uris = self.broker_uri if isinstance(self.broker_uri, list) else [self.broker_uri]
        broker = BrokerTier(uris[0], uris[1:]) if self.broker_uri else self.broker
        with ThreadPoolExecutor(16) as pool:
            streams = Streams(
                self.tier.store, self.tier.catalog, PREFIX, self.settings, self.budget, pool,
                broker, self.data_dir, lambda stream, words: self.said.append(f"{stream}: {words}"),
                self.policy,
            )  # fmt: skip
            self.metrics = GatewayMetrics(self.budget)
            self.site = Site(
                streams,
                Offsets(broker, self.offsets, pool, seconds=0.01),
                self.users,
                self.metrics,
                pool,
                self.said.append,
                "1",
                penalty_seconds=0.01,
                rights_seconds=0.05,
            )
            async with Server(self.site, self.most).listening(
                "127.0.0.1", 0, self.tls
            ) as self.port:
                self._ready.set()
                await self._end.wait()
