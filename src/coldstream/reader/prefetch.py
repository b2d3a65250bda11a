"""Run fetches ahead of their consumer: in threads, within a budget, results in order.

The consumer's thread plans and submits; worker threads fetch and verify. Read-ahead starts small
and doubles with every result that is consumed, so that reading one chunk does not cost a hundred
megabytes and a long read soon has everything in flight that it may have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from coldstream.reader.budget import MemoryBudget
from coldstream.reader.settings import threads

T = TypeVar("T")

_FIRST_WINDOW = 2


@dataclass(frozen=True, slots=True)
class Fetch(Generic[T]):
    """Something to be fetched.

    Attributes:
        size: bytes that its result holds.
        run: does it, in a worker thread; what it raises is raised to the consumer, in its turn.
    """

    size: int
    run: Callable[[], T]


@contextmanager
def workers(count: int, make: Callable[[int], Executor] = threads) -> Iterator[Executor]:
    """A pool whose threads have ended when this is left, or end as soon as they can.

    What has not begun is dropped; what is in flight is waited for, but not where a generator is
    closed: perhaps the garbage collector does it, in the middle of anything, with locks held that
    waiting for a thread takes, too.
    """
    pool = make(count)
    waits = True
    try:
        yield pool
    except GeneratorExit:
        waits = False
        raise
    finally:
        pool.shutdown(wait=waits, cancel_futures=True)


def in_order(
    fetches: Iterator[Fetch[T]], pool: Executor, *, budget: MemoryBudget, in_flight: int
) -> Generator[T, None, None]:
    """Yield the result of every fetch, in order, with at most `in_flight` of them ahead.

    A result counts against the budget until the next one is asked for. Closing the iterator gives
    everything back.

    Args:
        fetches: the plan; asked for more only when there is room.
        pool: where they run.
        budget: shared with other readers.
        in_flight: fetches ahead of the consumer, at least 1.
    """
    window: deque[tuple[int, Future[T]]] = deque()
    waiting: Fetch[T] | None = None
    allowed = min(_FIRST_WINDOW, in_flight)
    try:
        while True:
            while len(window) < allowed:
                waiting = waiting or next(fetches, None)
                if waiting is None or not budget.take(waiting.size, needed=not window):
                    break
                window.append((waiting.size, pool.submit(waiting.run)))
                waiting = None
            if not window:
                return
            yield window[0][1].result()
            budget.give_back(window.popleft()[0])
            allowed = min(2 * allowed, in_flight)
    finally:
        for size, future in window:
            future.cancel()
            budget.give_back(size)
