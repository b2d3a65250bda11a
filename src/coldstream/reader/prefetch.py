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
from typing import Generic, Protocol, TypeVar

from coldstream.reader.budget import MemoryBudget
from coldstream.reader.fetch import Fetch
from coldstream.reader.settings import threads
from coldstream.reader.shared import Place

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_FIRST_WINDOW = 2


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


class _Ticket(Protocol[T_co]):
    """A fetch that was started."""

    def result(self) -> T_co: ...

    def release(self) -> None: ...


class _Private(Generic[T]):
    """A fetch for one reader."""

    def __init__(self, size: int, future: Future[T], budget: MemoryBudget) -> None:
        self._size, self._future, self._budget = size, future, budget

    def result(self) -> T:
        return self._future.result()

    def release(self) -> None:
        self._future.cancel()
        self._budget.give_back(self._size)


def in_order(
    fetches: Iterator[Fetch[T]],
    pool: Executor,
    *,
    budget: MemoryBudget,
    in_flight: int,
    place: Place | None = None,
) -> Generator[T, None, None]:
    """Yield the result of every fetch, in order, with at most `in_flight` of them ahead.

    A result counts against the budget until the next one is asked for. Closing the iterator gives
    everything back.

    Args:
        fetches: the plan; asked for more only when there is room.
        pool: where they run.
        budget: shared with other readers.
        in_flight: fetches ahead of the consumer, at least 1.
        place: of the reader, under the same budget; what has a span is shared with other readers
            of its stream.
    """

    def start(fetch: Fetch[T], needed: bool) -> _Ticket[T] | None:
        if place is not None and fetch.span is not None:
            return place.lease(fetch, pool, needed=needed)
        if not budget.take(fetch.size, needed=needed):
            return None
        return _Private(fetch.size, pool.submit(fetch.run), budget)

    window: deque[_Ticket[T]] = deque()
    waiting: Fetch[T] | None = None
    allowed = min(_FIRST_WINDOW, in_flight)
    try:
        while True:
            while len(window) < allowed:
                waiting = waiting or next(fetches, None)
                if waiting is None:
                    break
                started = start(waiting, not window)
                if started is None:
                    break
                window.append(started)
                waiting = None
            if not window:
                return
            yield window[0].result()
            window.popleft().release()
            allowed = min(2 * allowed, in_flight)
    finally:
        for ticket in window:
            ticket.release()
