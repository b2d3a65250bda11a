"""Reads that block, for an event loop: what they give is taken in threads, one piece at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from concurrent.futures import Executor
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Pump(Generic[T]):
    """Takes what a generator gives in a thread of a pool; used by one task.

    Args:
        items: blocks; is closed when this is.
        pool: where it is run.
    """

    def __init__(self, items: Generator[T, None, None], pool: Executor) -> None:
        self._items, self._pool = items, pool
        self._running: asyncio.Future[T | None] | None = None

    async def next(self) -> T | None:
        """The next item; None at the end. Raises what the generator raises."""
        loop = asyncio.get_running_loop()
        self._running = loop.run_in_executor(self._pool, next, self._items, None)
        # Who waits may be told to stop; the thread cannot be, and must be waited for in `close`.
        return await asyncio.shield(self._running)

    def close(self) -> None:
        """Give back what the generator holds, as soon as its thread is out of it."""
        if self._running is not None and not self._running.done():
            self._running.add_done_callback(lambda done: self._close(done))
        else:
            self._close(None)

    def _close(self, done: asyncio.Future[T | None] | None) -> None:
        if done is not None and not done.cancelled():
            done.exception()  # nobody waits for it any more
        with suppress(RuntimeError):  # the pool has ended, and so has what was in it
            self._pool.submit(self._items.close)
