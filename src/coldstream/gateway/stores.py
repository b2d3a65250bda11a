"""Offsets that a client has sent, on their way to who keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from coldstream.gateway.requests import Store

#: Consumers of one client whose offsets wait; more are waited for.
_MOST = 256


class Stores:
    """Stores what a client sends, one after the other; nothing else of the client waits for it.

    A broker may stand still for long, and what is read meanwhile comes from elsewhere. Of each
    consumer the last offset counts, so no more waits than there are consumers.

    Args:
        store: stores one; raises nothing.
    """

    def __init__(self, store: Callable[[Store], Awaitable[None]]) -> None:
        self._store = store
        self._waiting: dict[tuple[str, str], Store] = {}
        self._task: asyncio.Task[None] | None = None

    async def put(self, request: Store) -> None:
        """Have an offset stored."""
        self._waiting[request.stream, request.reference] = request
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        if len(self._waiting) > _MOST:
            await self.settled()  # it is stored also where the gateway ends meanwhile

    async def settled(self, seconds: float | None = None) -> None:
        """Wait until all that was sent is stored, or so long; who is cancelled stops nothing."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=seconds)

    def cancel(self) -> None:
        """Store nothing more."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._waiting:
            await self._store(self._waiting.pop(next(iter(self._waiting))))
