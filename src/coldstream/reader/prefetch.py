"""Run fetches ahead of their consumer: in threads, within a budget, results in order.

The consumer's thread plans and submits; worker threads fetch and verify. Read-ahead starts small,
so that reading one chunk does not cost a hundred megabytes, and grows with the results that are
consumed as `depth` says.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from typing import Generic, Protocol, TypeVar

from coldstream.errors import ColdstreamError, InvalidInputError
from coldstream.read_policy import ReadPolicy
from coldstream.reader.budget import MemoryBudget
from coldstream.reader.depth import Depth
from coldstream.reader.fetch import Fetch
from coldstream.reader.pool import submit
from coldstream.reader.settings import threads
from coldstream.reader.shared import Place

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


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


class Ticket(Protocol[T_co]):
    """A fetch that was started."""

    def done(self) -> bool:
        """Whether `result` does not wait."""
        ...

    def result(self) -> T_co:
        """What it brings; raises what the fetch raises."""
        ...

    def release(self) -> None:
        """It is not needed any more."""
        ...


class Later:
    """In a plan: what follows is known once `ticket` is done."""

    def __init__(self, ticket: Ticket[object]) -> None:
        self._ticket = ticket

    def wait(self) -> None:
        """Until it is; what went wrong is for the plan to tell."""
        with suppress(ColdstreamError):
            self._ticket.result()


class _Private(Generic[T]):
    """A fetch for one reader."""

    def __init__(self, size: int, future: Future[T], budget: MemoryBudget) -> None:
        self._size, self._future, self._budget = size, future, budget

    def done(self) -> bool:
        return self._future.done()

    def result(self) -> T:
        return self._future.result()

    def release(self) -> None:
        self._future.cancel()
        self._budget.give_back(self._size)


def started(
    fetch: Fetch[T], pool: Executor, *, budget: MemoryBudget, place: Place | None, needed: bool
) -> Ticket[T] | None:
    """A fetch that is under way or done, for this reader or for all of its stream.

    None if there is no memory for it, unless it is needed.

    Args:
        fetch: to be carried out.
        pool: where it runs.
        budget: shared with other readers.
        place: of the reader, whose policy says what may answer; None if it shares nothing.
        needed: whether it gets memory in any case.
    """
    if place is not None and fetch.span is not None:
        if place.policy is ReadPolicy.DISABLE:
            # What fails here must be nobody else's failure: others may ask the bucket.
            known = place.known(fetch, pool)
            if known is not None:
                return known
        elif place.policy is not ReadPolicy.FORCE:
            return place.lease(fetch, pool, needed=needed)
    if not budget.take(fetch.size, needed=needed):
        return None
    try:
        return _Private(fetch.size, submit(pool, fetch.size, fetch.run), budget)
    except BaseException:  # no thread, for one
        budget.give_back(fetch.size)
        raise


def in_order(
    fetches: Iterator[Fetch[T] | Later],
    pool: Executor,
    *,
    budget: MemoryBudget,
    in_flight: int,
    place: Place | None = None,
) -> Generator[T, None, None]:
    """Yield the result of every fetch, in order, while others are fetched ahead.

    As many are under way as bring more; as many again may be done and wait for their turn, so that
    a slow one does not stop the others.

    A result counts against the budget until the next one is asked for. Closing the iterator gives
    everything back.

    Args:
        fetches: the plan; asked for more only when there is room.
        pool: where they run.
        budget: shared with other readers.
        in_flight: fetches under way at once at most, at least 1.
        place: of the reader, under the same budget; what has a span is shared with other readers
            of its stream.
    """
    window: deque[Ticket[T]] = deque()
    sizes: deque[int] = deque()
    waiting: Fetch[T] | Later | None = None
    depth, process = Depth(in_flight), os.getpid()
    try:
        while True:
            while _room(window, depth.now, process):
                waiting = waiting or next(fetches, None)
                if waiting is None:
                    break
                if isinstance(waiting, Later):
                    if window and window[0].done():
                        break  # what is there is not held back for what may come
                    waiting.wait()
                    waiting = None
                    continue
                ticket = started(waiting, pool, budget=budget, place=place, needed=not window)
                if ticket is None:
                    break
                window.append(ticket)
                sizes.append(waiting.size)
                waiting = None
            if not window:
                return
            waited = not window[0].done()
            result = window[0].result()
            depth.consumed(sizes[0], time.monotonic(), waited=waited)
            yield result
            del result
            sizes.popleft()
            window.popleft().release()
    finally:
        for ticket in window:
            ticket.release()


def _room(window: Sequence[Ticket[T]], depth: int, process: int) -> bool:
    """Whether one more may be started.

    Raises:
        InvalidInputError: this is another process, which was forked and has none of the threads.
    """
    if process != os.getpid():
        raise InvalidInputError("a read goes on only in the process that began it")
    if len(window) >= 2 * depth:
        return False
    return len(window) < depth or sum(not each.done() for each in window) < depth
