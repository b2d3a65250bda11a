"""Reads that block, for an event loop: what they give is taken in threads, one piece at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Generic, TypeVar

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


class SharedPool:
    """Threads for the GETs of all reads; each read has a view of it that it may shut down.

    Args:
        threads: that run at once.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="coldstream-get")

    def view(self, count: int) -> Executor:
        """An executor for one read, as `ReaderSettings.pool` wants it."""
        del count  # how much is in flight, the read itself bounds
        return _View(self._pool)

    def close(self) -> None:
        """End; what has not begun is dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class _View(Executor):
    """Runs in a pool of others; shutting it down only drops its own work that has not begun."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._futures: set[Future[Any]] = set()
        self._lock = threading.Lock()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """As `Executor` says."""
        future = self._pool.submit(fn, *args, **kwargs)
        with self._lock:
            self._futures.add(future)
        future.add_done_callback(self._forget)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Drop what has not begun; what runs is for nobody then."""
        del wait
        if cancel_futures:
            with self._lock:
                left = list(self._futures)
            for future in left:
                future.cancel()

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            self._futures.discard(future)
