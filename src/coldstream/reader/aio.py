"""The library for asyncio: the same streams, read in threads, a batch of messages at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from coldstream.errors import ColdstreamError, InvalidInputError
from coldstream.osiris.chunk import Chunk
from coldstream.read_policy import ReadPolicy
from coldstream.reader.asked import Asked, Begin, End, Filter
from coldstream.reader.gap import Gap, refuse_gap
from coldstream.reader.library import (
    POLL_SECONDS,
    RemoteTier,
    Stream,
    StreamEntry,
    open_tier,
)
from coldstream.reader.pump import Pump
from coldstream.reader.stream import Message

T = TypeVar("T")

#: Items that go from a thread to the event loop at once; the first ones go alone, at once.
_MOST = 1024
#: Bytes that a batch keeps in memory, beside the largest of what its items are parts of.
_MOST_BYTES = 256 * 2**10
#: Reads that wait for S3 at once; others wait for a thread.
_THREADS = 64


class ClosedError(InvalidInputError, RuntimeError):
    """The tier was closed, and is read on."""

    remedy = "close the tier when its reads have ended, or open it anew"


class _Threads(ThreadPoolExecutor):
    """Those of one tier; says in our words that it was closed."""

    def submit(self, call: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        try:
            return super().submit(call, *args, **kwargs)
        except RuntimeError as exc:
            raise ClosedError("the tier was closed") from exc


class AsyncStream:
    """One stream; as `Stream`, whose arguments and errors its methods have.

    Args:
        stream: the same, that blocks.
        pool: threads in which it does.
    """

    def __init__(self, stream: Stream, pool: Executor) -> None:
        self.stream = stream
        self._pool = pool

    @property
    def directory(self) -> str:
        """The broker's name of its directory, by which all objects are called."""
        return self.stream.directory

    async def offsets(self) -> tuple[int, int]:
        """As `Stream.offsets`."""
        return await self._run(self.stream.offsets)

    async def locate(self, begin: Begin) -> int:
        """As `Stream.locate`."""
        return await self._run(partial(self.stream.locate, begin))

    async def chunks(
        self,
        begin: Begin = "first",
        end: End | None = None,
        *,
        on_gap: Callable[[Gap], None] = refuse_gap,
    ) -> AsyncGenerator[Chunk, None]:
        """As `Stream.chunks`; `on_gap` is called in a thread."""
        chunks = _later(partial(self.stream.chunks, begin, end, on_gap=on_gap))
        async with aclosing(self._pumped(chunks)) as found:
            async for each in found:
                yield each

    async def entries(
        self,
        begin: Begin = "first",
        end: End | None = None,
        *,
        on_gap: Callable[[Gap], None] = refuse_gap,
    ) -> AsyncGenerator[StreamEntry, None]:
        """As `Stream.entries`; `on_gap` is called in a thread."""
        async with aclosing(self._pumped(self.stream.entries(begin, end, on_gap=on_gap))) as found:
            async for each in found:
                yield each

    async def messages(
        self,
        begin: Begin = "first",
        end: End | None = None,
        *,
        follow: bool = False,
        only: Filter | None = None,
        on_gap: Callable[[Gap], None] = refuse_gap,
        poll_seconds: float = POLL_SECONDS,
    ) -> AsyncGenerator[Message, None]:
        """As `Stream.messages`; `on_gap` is called in the event loop."""
        events = self.events(begin, end, follow=follow, only=only, poll_seconds=poll_seconds)
        async with aclosing(events) as found:
            async for each in found:
                if isinstance(each, Gap):
                    on_gap(each)
                else:
                    yield each

    async def events(
        self,
        begin: Begin = "first",
        end: End | None = None,
        *,
        follow: bool = False,
        only: Filter | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> AsyncGenerator[Message | Gap, None]:
        """As `Stream.events`."""
        asked = Asked.of(begin, end, follow=follow, only=only)
        reader = self.stream.reader
        read = await self._run(partial(reader.begin, asked.spec, asked.bound))
        while True:
            async with aclosing(self._pumped(reader.events(read, asked.matcher))) as found:
                async for each in found:
                    yield each
            if not asked.follow:
                return
            await asyncio.sleep(poll_seconds)
            async with aclosing(self._pumped(read.go_on())) as gaps:
                async for gap in gaps:
                    yield gap

    async def to_arrow(self, begin: Begin = "first", end: End | None = None, **options: Any) -> Any:
        """As `Stream.to_arrow`; `on_gap` is called in a thread."""
        batches = await self._run(partial(self.stream.arrow_batches, begin, end, **options))
        pump, taken = Pump(_given(batches), self._pool), list[Any]()
        try:
            # One by one: a thread that reads all of it at once would read on for who is cancelled.
            while (each := await _unless_closed(pump.next())) is not None:
                taken.append(each)
        finally:
            pump.close()
        return _table(taken, batches.schema)

    async def _pumped(self, items: Generator[T, None, None]) -> AsyncGenerator[T, None]:
        pump = Pump(in_batches(items), self._pool)
        try:
            while (batch := await _unless_closed(pump.next())) is not None:
                for each in batch:
                    yield each
        finally:
            pump.close()

    async def _run(self, call: Callable[[], T]) -> T:
        return await _in_thread(self._pool, call)


class AsyncRemoteTier:
    """The streams of one cluster in a bucket; an asynchronous context manager.

    Args:
        tier: the same, that blocks; it is closed with this one.
    """

    def __init__(self, tier: RemoteTier) -> None:
        self._tier = tier
        self._pool = _Threads(_THREADS, thread_name_prefix="coldstream-async")

    async def __aenter__(self) -> AsyncRemoteTier:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End its threads and leave its cache; unfinished reads end with an `InvalidInputError`."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._tier.close()

    async def names(self) -> list[str]:
        """As `RemoteTier.names`."""
        return await _in_thread(self._pool, lambda: list(self._tier.names()))

    async def stream(self, name: str, *, policy: ReadPolicy | None = None) -> AsyncStream:
        """As `RemoteTier.stream`."""
        found = await _in_thread(self._pool, partial(self._tier.stream, name, policy=policy))
        return AsyncStream(found, self._pool)


async def _in_thread(pool: Executor, call: Callable[[], T]) -> T:
    return await _unless_closed(asyncio.get_running_loop().run_in_executor(pool, call))


async def _unless_closed(awaited: Awaitable[T]) -> T:
    """What is awaited; what was cancelled though nobody has cancelled this task, was closed."""
    try:
        return await awaited
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise ClosedError("the tier was closed") from None


def open_async_tier(**options: Any) -> AsyncRemoteTier:
    """Open the remote tier of a cluster for asyncio; arguments and errors as `open_tier`."""
    return AsyncRemoteTier(open_tier(**options))


def _later(begin: Callable[[], Generator[T, None, None]]) -> Generator[T, None, None]:
    """Begins in the thread that takes the first item: to find where blocks, too."""
    yield from begin()


def _given(batches: Any) -> Generator[Any, None, None]:
    """What a `pyarrow.RecordBatchReader` gives."""
    with batches:
        yield from batches


def _table(batches: list[Any], schema: Any) -> Any:
    import pyarrow as pa

    return pa.Table.from_batches(batches, schema)


def _whole(item: object) -> Any:
    """The bytes that an item is a part of; None if it has none."""
    match item:
        case Message(body=view) | Chunk(buffer=view) | StreamEntry(data=view):
            return view.obj if isinstance(view, memoryview) else view
        case _:
            return None


class _Parts:
    """What a batch holds on to, each counted once."""

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._newest: Any = None
        self._bytes = self._largest = 0

    def hold(self, whole: Any) -> int:
        """Take one in; the bytes of all but the largest, which whoever reads on holds as well."""
        if whole is not None and whole is not self._newest and id(whole) not in self._known:
            size = memoryview(whole).nbytes
            self._known.add(id(whole))
            self._bytes += size
            self._largest = max(self._largest, size)
        self._newest = whole
        return self._bytes - self._largest


def in_batches(items: Generator[T, None, None]) -> Generator[list[T], None, None]:
    """Lists of items; what came before an error of ours comes first.

    An item keeps all in memory that it is a part of, a range of a fragment: no list holds on to
    many of them, which nobody would count.
    """
    most, batch, parts = 1, list[T](), _Parts()
    try:
        for each in items:
            if parts.hold(_whole(each)) >= _MOST_BYTES and batch:
                yield batch
                batch, parts = [], _Parts()
                parts.hold(_whole(each))
            batch.append(each)
            if len(batch) >= most:
                yield batch
                batch, parts, most = [], _Parts(), min(2 * most, _MOST)
    except ColdstreamError:
        if batch:
            yield batch
        raise
    finally:
        items.close()
    if batch:
        yield batch
