"""Ranges that were fetched, shared by all readers of a stream in this process.

    a range is asked for once    who comes while it is under way waits for the same GET
    it stays                     until all readers of the stream have passed it, or it was used by
                                 nobody for a minute, or its memory is wanted (`eviction`)
    it counts once               against the one budget, however many readers hold it

What failed or came damaged is never given to anybody who comes later. Objects are immutable and
their keys unique, so what is here is never out of date.

Locks: a reader may be closed by the garbage collector, in the middle of anything. So what is given
back is put into a queue that takes no lock, and whoever has the lock, or can have it at once, takes
it from there.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Executor, Future
from typing import Any, Generic, TypeVar

from coldstream.errors import ColdstreamError
from coldstream.ports import ObjectStore
from coldstream.read_policy import ReadPolicy
from coldstream.reader.budget import MemoryBudget
from coldstream.reader.eviction import distance
from coldstream.reader.fetch import Fetch
from coldstream.reader.pool import submit

T = TypeVar("T")

#: A range that nobody has used for so long goes: who waits for it, stands still.
UNUSED_SECONDS = 60.0
_SWEEP_SECONDS = 1.0
#: Ranges that are kept at most, so that to choose among them never takes long.
_MAX_KEPT = 4096


class _Spot:
    """Where a reader is; the place itself must not be kept alive by those who look at it."""

    __slots__ = ("position",)

    def __init__(self) -> None:
        self.position = 0


class _Stream:
    """The readers of one stream, and what was fetched for them."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store  # as long as it is here, no other store has its identity
        self.spots: set[_Spot] = set()
        self.kept: dict[Hashable, _Kept] = {}

    def positions(self) -> list[int]:
        return sorted(spot.position for spot in self.spots)


class _Kept:
    """A range that was fetched, or is under way."""

    __slots__ = ("fetch", "job", "known", "process", "promise", "refs", "stream", "used_at")

    def __init__(self, fetch: Fetch[Any], stream: _Stream, now: float) -> None:
        self.fetch = fetch
        self.stream = stream
        self.process = os.getpid()
        self.promise: Future[Any] = Future()
        self.job: Future[Any] | None = None
        self.refs = 1
        self.known = True  # whether who asks for it finds it
        self.used_at = now

    def begin(self, pool: Executor) -> None:
        """Fetch it in a thread; if that never begins, whoever waits is told."""
        try:
            self.job = submit(pool, self.fetch.size, self._run)
        except BaseException:
            self.promise.cancel()
            raise
        # A job keeps what is called at its end: this, and only a collection would free the range.
        promise = self.promise
        self.job.add_done_callback(lambda job: promise.cancel() if job.cancelled() else None)

    def _run(self) -> None:
        try:
            value = self.fetch.run()
        except BaseException as exc:  # noqa: BLE001 - it goes to all who wait
            self.promise.set_exception(exc)
        else:
            self.promise.set_result(value)

    def usable(self) -> bool:
        """Whether it is what was asked for, as far as one knows by now."""
        if not self.promise.done():
            return self.process == os.getpid()  # a forked one has no thread that would bring it
        failed = self.promise.cancelled() or self.promise.exception() is not None
        return not failed and self.fetch.sound(self.promise.result())

    def away(self, positions: list[int]) -> float:
        span = self.fetch.span
        assert span is not None
        return distance(span.first_offset, span.next_offset, self.fetch.size, positions)


class Place:
    """Where a reader is, in its stream; while it has joined, what it will want is kept for it.

    A place that is not used any more leaves by itself.

    Attributes:
        policy: of the reader.
    """

    def __init__(
        self, ranges: SharedRanges, key: Hashable, store: ObjectStore, policy: ReadPolicy
    ) -> None:
        self.policy = policy
        self._ranges, self._key, self._store = ranges, key, store
        self._spot = _Spot()
        self._stream: _Stream | None = None

    def join(self, position: int) -> None:
        """Begin to read at an offset, or go on at another one."""
        self._spot.position = position
        if self._stream is None:
            self._stream = self._ranges._joined(self._spot, self._key, self._store)

    def move(self, position: int) -> None:
        """Everything below an offset was given to the consumer."""
        self._spot.position = max(self._spot.position, position)

    def leave(self) -> None:
        """Nothing is wanted any more, until it joins again."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self._ranges._left(self._spot, stream)

    def lease(self, fetch: Fetch[T], pool: Executor, *, needed: bool) -> Lease[T] | None:
        """A fetch that is under way, or done; None if there is no memory for it.

        Args:
            fetch: with a span.
            pool: in which it is carried out unless another reader has asked for it.
            needed: whether it gets memory in any case.
        """
        assert self._stream is not None
        return self._ranges._lease(self._stream, fetch, pool, needed=needed)

    def known(self, fetch: Fetch[T], pool: Executor) -> Lease[T] | None:
        """A fetch of another reader that is done; None if there is none."""
        assert self._stream is not None
        return self._ranges._done(self._stream, fetch, pool)

    def __del__(self) -> None:
        self.leave()


class Lease(Generic[T]):
    """One reader's hold on a range; given back by `release`, once."""

    def __init__(
        self, ranges: SharedRanges, kept: _Kept, fetch: Fetch[T], pool: Executor, *, mine: bool
    ) -> None:
        self._ranges, self._kept, self._fetch, self._pool = ranges, kept, fetch, pool
        self._mine = mine

    def done(self) -> bool:
        """Whether `result` does not wait."""
        return self._kept.promise.done()

    def result(self) -> T:
        """What it brings; raises what the fetch raises."""
        while True:
            kept = self._kept
            try:
                value: T = kept.promise.result()
            except CancelledError:
                # Who was to fetch it is gone.
                again = self._ranges._lease(
                    kept.stream, self._fetch, self._pool, needed=True, instead_of=kept
                )
                assert again is not None
                self._kept, self._mine = again._kept, again._mine
                continue
            except ColdstreamError as error:
                if self._mine:
                    raise
                raise copy.copy(error) from error  # an error of its own for each who is told
            if self._mine or self._fetch.sound(value):
                return value
            return self._fetch.run()  # what damaged it may have been on the way to the other one

    def release(self) -> None:
        """It is not needed any more."""
        self._ranges._released(self._kept)


class SharedRanges:
    """What readers have fetched, of all streams, under one budget; safe between threads.

    Args:
        budget: bytes that may be held.
        clock: seconds, from any start, never falling.
    """

    def __init__(self, budget: MemoryBudget, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget = budget
        self._clock = clock
        self._streams: dict[Hashable, _Stream] = {}
        self._count = 0
        self._swept_at = clock()
        self._lock = threading.Lock()
        self._to_do: deque[Callable[[], None]] = deque()

    @classmethod
    def of(cls, budget: MemoryBudget) -> SharedRanges:
        """The one of a budget."""
        return budget.shared(cls)

    def place(
        self,
        store: ObjectStore,
        prefix: str,
        stream: str,
        policy: ReadPolicy = ReadPolicy.NOT_IN_DISK,
    ) -> Place:
        """For one reader of a stream, which has not joined yet."""
        return Place(self, (id(store), prefix, stream), store, policy)

    def reclaim(self, size: int) -> None:
        """Give back so many bytes of what nobody holds, if there are as many."""
        with self._lock:
            self._make_room(size, beyond=-1.0)
        self._catch_up()

    def _joined(self, spot: _Spot, key: Hashable, store: ObjectStore) -> _Stream:
        with self._lock:
            stream = self._streams.get(key)
            if stream is None:
                stream = self._streams[key] = _Stream(store)
            stream.spots.add(spot)
        self._catch_up()
        return stream

    def _left(self, spot: _Spot, stream: _Stream) -> None:
        self._to_do.append(lambda: self._leave(spot, stream))
        self._catch_up()

    def _released(self, kept: _Kept) -> None:
        self._to_do.append(lambda: self._let_go(kept))
        self._catch_up()

    def _lease(
        self,
        stream: _Stream,
        fetch: Fetch[T],
        pool: Executor,
        *,
        needed: bool,
        instead_of: _Kept | None = None,
    ) -> Lease[T] | None:
        assert fetch.span is not None
        try:
            with self._lock:
                if instead_of is not None:
                    self._let_go(instead_of)
                self._sweep()
                known = stream.kept.get(fetch.span.key)
                if known is not None:
                    if known.usable():
                        return self._held(known, fetch, pool)
                    self._forget(known)
                kept = _Kept(fetch, stream, self._clock())
                if not self._room(kept, needed):
                    return None
                stream.kept[fetch.span.key] = kept
                self._count += 1
        finally:
            self._catch_up()
        try:
            kept.begin(pool)
        except BaseException:
            self._released(kept)
            raise
        return Lease(self, kept, fetch, pool, mine=True)

    def _done(self, stream: _Stream, fetch: Fetch[T], pool: Executor) -> Lease[T] | None:
        assert fetch.span is not None
        try:
            with self._lock:
                known = stream.kept.get(fetch.span.key)
                if known is None or not known.promise.done() or not known.usable():
                    return None
                return self._held(known, fetch, pool)
        finally:
            self._catch_up()

    def _catch_up(self) -> None:
        """Do what was put off. Who finds the lock taken may go: its holder does it afterwards."""
        while self._to_do and self._lock.acquire(blocking=False):
            try:
                while self._to_do:
                    self._to_do.popleft()()
            finally:
                self._lock.release()

    # What follows has the lock.

    def _held(self, known: _Kept, fetch: Fetch[T], pool: Executor) -> Lease[T]:
        known.refs += 1
        known.used_at = self._clock()
        return Lease(self, known, fetch, pool, mine=False)

    def _let_go(self, kept: _Kept) -> None:
        kept.refs -= 1
        kept.used_at = self._clock()
        if kept.refs:
            return
        if not kept.known:
            self._budget.give_back(kept.fetch.size)
        elif self._of_no_use(kept):
            self._forget(kept)

    def _of_no_use(self, kept: _Kept) -> bool:
        """Whether nobody will want what nobody holds; what has not begun is not begun any more."""
        if kept.job is not None and kept.job.cancel():
            return True
        return not kept.usable() or self._passed(kept)

    def _passed(self, kept: _Kept) -> bool:
        span = kept.fetch.span
        assert span is not None
        return all(spot.position >= span.next_offset for spot in kept.stream.spots)

    def _leave(self, spot: _Spot, stream: _Stream) -> None:
        stream.spots.discard(spot)
        for kept in list(stream.kept.values()):
            if not kept.refs and self._passed(kept):
                self._forget(kept)
        if not stream.spots:
            for key in [key for key, each in self._streams.items() if each is stream]:
                del self._streams[key]

    def _forget(self, kept: _Kept) -> None:
        """Nobody finds it any more; its memory is given back once nobody holds it."""
        span = kept.fetch.span
        assert span is not None
        if kept.known:
            kept.known = False
            del kept.stream.kept[span.key]
            self._count -= 1
            if not kept.refs:
                self._budget.give_back(kept.fetch.size)

    def _sweep(self) -> None:
        """Forget what was passed or is of no use to anybody, now and then."""
        now = self._clock()
        if now - self._swept_at < _SWEEP_SECONDS:
            return
        self._swept_at = now
        for stream in self._streams.values():
            for kept in list(stream.kept.values()):
                unused = now - kept.used_at >= UNUSED_SECONDS
                if not kept.refs and (unused or self._passed(kept)):
                    self._forget(kept)

    def _room(self, kept: _Kept, needed: bool) -> bool:
        """Whether there is memory for a range, perhaps by forgetting what is needed later."""
        size = kept.fetch.size
        beyond = -1.0 if needed else kept.away(kept.stream.positions())
        if self._count >= _MAX_KEPT:
            self._make_room(0, beyond=beyond)
        if self._budget.take_free(size):
            return True
        self._make_room(size, beyond=beyond)
        return self._budget.take_free(size) or (
            needed and self._budget.take(size, needed=True, reclaim=False)
        )

    def _make_room(self, size: int, *, beyond: float) -> None:
        """Forget what is needed last, and only what is needed later than in `beyond` bytes."""
        unheld = [
            (kept.away(positions), kept)
            for stream in self._streams.values()
            for positions in [stream.positions()]
            for kept in stream.kept.values()
            if not kept.refs
        ]
        unheld.sort(key=lambda each: each[0], reverse=True)
        for away, kept in unheld:
            if away <= beyond or (self._budget.free >= size and self._count < _MAX_KEPT):
                return
            self._forget(kept)
