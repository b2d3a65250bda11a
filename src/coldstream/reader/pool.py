"""Threads for the GETs of many reads: small ones do not wait behind large ones.

What is to be done first is what would be finished first if all had begun when they were asked for.
So an index or the first range of a read passes the ranges that others read ahead, and those wait
for no more small ones than have come in the time that they take themselves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeVar

T = TypeVar("T")

#: What one connection to S3 gives, bytes a second.
_RATE = 40e6


class SizedExecutor(Executor):
    """An executor that wants to know how large a result will be."""

    def submit_sized(self, size: int, fn: Callable[[], T]) -> Future[T]:
        """As `submit`, of something that brings so many bytes."""
        raise NotImplementedError


def submit(pool: Executor, size: int, fn: Callable[[], T]) -> Future[T]:
    """Carry something out that brings so many bytes, in any pool."""
    return pool.submit_sized(size, fn) if isinstance(pool, SizedExecutor) else pool.submit(fn)


class SharedPool:
    """Threads for the GETs of all reads; each read has a view of it that it may shut down.

    Args:
        threads: that run at once.
        clock: seconds, from any start, never falling.
    """

    def __init__(self, threads: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="coldstream-get")
        self._clock = clock
        self._numbers = count()
        self._waiting: list[tuple[float, int, Future[Any], Callable[[], Any]]] = []
        self._lock = threading.Lock()

    def view(self, count: int) -> Executor:
        """An executor for one read, as `ReaderSettings.pool` wants it."""
        del count  # how much is in flight, the read itself bounds
        return _View(self)

    def submit_sized(self, size: int, fn: Callable[[], T]) -> Future[T]:
        """Carry out `fn`, which brings so many bytes, when its turn has come."""
        future: Future[T] = Future()
        due = self._clock() + size / _RATE
        with self._lock:
            heappush(self._waiting, (due, next(self._numbers), future, fn))
        self._pool.submit(self._run_next)
        return future

    def close(self) -> None:
        """End; what has not begun is dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            left, self._waiting = self._waiting, []
        for _, _, future, _ in left:
            future.cancel()

    def _run_next(self) -> None:
        with self._lock:
            if not self._waiting:
                return  # it is closed
            _, _, future, fn = heappop(self._waiting)
        if not future.set_running_or_notify_cancel():
            return
        try:
            value = fn()
        except BaseException as exc:  # noqa: BLE001 - it goes to who waits
            future.set_exception(exc)
        else:
            future.set_result(value)


class _View(SizedExecutor):
    """Runs in a pool of others; shutting it down only drops its own work that has not begun."""

    def __init__(self, pool: SharedPool) -> None:
        self._pool = pool
        self._futures: set[Future[Any]] = set()
        self._lock = threading.Lock()

    def submit_sized(self, size: int, fn: Callable[[], T]) -> Future[T]:
        """As `SizedExecutor` says."""
        future = self._pool.submit_sized(size, fn)
        with self._lock:
            self._futures.add(future)
        future.add_done_callback(self._forget)
        return future

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """As `Executor` says."""
        return self.submit_sized(0, lambda: fn(*args, **kwargs))

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
