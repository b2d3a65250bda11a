"""What many clients ask a blocking store for at once, asked once for all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from coldstream.errors import PermissionDeniedError, UnavailableError

T = TypeVar("T")


@dataclass(slots=True)
class SharedLook(Generic[T]):
    """Keeps what a look found, and has one look under way at a time.

    Args:
        look: asks; it blocks, and raises what it cannot find.
        pool: threads for it.
        clock: monotonic seconds.
        found: what the last look found; None before the first.
        found_at: when that look began, monotonic seconds.
    """

    look: Callable[[], T]
    pool: Executor
    clock: Callable[[], float] = time.monotonic
    found: T | None = field(default=None, init=False)
    found_at: float = field(default=float("-inf"), init=False)
    _began_at: float = field(default=float("-inf"), init=False)
    _running: asyncio.Task[T] | None = field(default=None, init=False)

    async def since(self, instant: float) -> T:
        """What a look has found that began at `instant` or later.

        Whoever comes while a look is under way shares its outage, too. Were the store asked again
        for each of them, one after another, the last of a thousand would hear of it a thousand
        times as late.

        Raises:
            As `look`.
        """
        while self.found is None or self.found_at < instant:
            if self._running is None or self._running.done():
                self._began_at = self.clock()
                self._running = asyncio.create_task(self._run(self._began_at))
                self._running.add_done_callback(_retrieve)
            began_at = self._began_at
            try:
                await asyncio.shield(self._running)
            except (UnavailableError, PermissionDeniedError):
                raise
            except Exception:
                if began_at >= instant:
                    raise
                # It began too early to say: what it missed may be there by now.
        return self.found

    async def _run(self, began_at: float) -> T:
        found = await asyncio.get_running_loop().run_in_executor(self.pool, self.look)
        self.found, self.found_at = found, began_at
        return found


def _retrieve(task: asyncio.Task[T]) -> None:
    """Take the error of a look for which nobody waits any more; without this, asyncio logs it."""
    if not task.cancelled():
        task.exception()
