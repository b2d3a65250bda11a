"""Offsets that consumers store.

Where there is a broker they are the broker's: a consumer that changes the port finds what it has
stored, and may go back. Without one they are in the catalog's table, if the gateway may write there
(decision 0044).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from coldstream.errors import (
    ColdstreamError,
    ConflictError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.gateway.broker_tier import BrokerTier
from coldstream.gateway.remote import RemoteStream
from coldstream.gateway.stream import TieredStream
from coldstream.ports import ConsumerOffsets

T = TypeVar("T")
#: Directory and reference.
_Key = tuple[str, str]
#: Consumers of one client whose offsets wait, or are remembered.
_MOST = 256


@dataclass(frozen=True, slots=True)
class Offsets:
    """Who keeps offsets.

    Attributes:
        broker: that keeps them; None without one.
        table: that keeps them if no broker does; None for nobody.
        pool: threads for what blocks.
        seconds: a client's offsets are written as often; those in between are not.
    """

    broker: BrokerTier | None
    table: ConsumerOffsets | None = None
    pool: Executor | None = None
    seconds: float = 1.0


@dataclass(slots=True)
class Bookmarks:
    """The offsets of one client's consumers.

    In the table they are written once a second, the last one of each, and when the client leaves:
    a consumer that stores each offset would otherwise cost a write for each.

    Args:
        offsets: who keeps them.
        lost: told of what could not be stored, and why.
    """

    offsets: Offsets
    lost: Callable[[ColdstreamError], None]
    _waiting: dict[_Key, tuple[int, int]] = field(default_factory=dict)
    _seen: dict[_Key, int] = field(default_factory=dict)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _task: asyncio.Task[None] | None = None
    _firsts: dict[str, int] = field(default_factory=dict)  # of streams, as last seen
    _asking: asyncio.Task[None] | None = None
    _proved: set[tuple[str, str, str]] = field(default_factory=set)  # that the broker keeps

    async def store(self, stream: TieredStream, reference: str, offset: int) -> None:
        """Remember an offset; neither broker nor gateway says anything of it.

        Raises:
            PermissionDeniedError: nobody keeps offsets here, or the broker does not take it.
            InvalidInputError: a reference that none can be.
            UnavailableError, NotFoundError: the broker does not answer.
        """
        if self.offsets.broker is not None:
            await self._pass_on(self.offsets.broker, stream, reference, offset)
            return
        if self.offsets.table is None or stream.remote is None:
            raise PermissionDeniedError(
                "nobody keeps offsets here; start the gateway with --stream-uri",
                stream=stream.name,
                offset=offset,
            )
        key = stream.remote.reader.stream, reference
        if key not in self._waiting and len(self._waiting) >= _MOST:
            await self._write_to_the_end(last=True)
        # What is below the stream's begin may make room for others. It need not be exact, and no
        # offset waits for it: it is written though S3 does not answer.
        self._waiting[key] = offset, self._firsts.get(key[0], 0)
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_first(stream.remote))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._later())

    async def _pass_on(
        self, broker: BrokerTier, stream: TieredStream, reference: str, offset: int
    ) -> None:
        """Have the broker store an offset; the first one of a reference is looked for there.

        A broker says nothing of one that it drops, and some drop those of who may only read.
        """
        place = stream.vhost, reference, stream.name
        if place in self._proved:
            await broker.store_offset(*place, offset)
            return
        before = await broker.query_offset(*place)
        await broker.store_offset(*place, offset)
        found = await broker.query_offset(*place)
        # Another one than both is of another consumer that is called so: it was taken, too.
        if found != offset and found == before:
            raise PermissionDeniedError(
                f"the broker does not keep that of {reference!r}: it has no such queue, or it is a"
                " RabbitMQ 3.10, which wants the right `write` for it, of the user in --stream-uri",
                stream=stream.name,
                offset=offset,
            )
        if len(self._proved) >= _MOST:
            self._proved.clear()
        self._proved.add(place)

    async def query(self, stream: TieredStream, reference: str) -> int | None:
        """The offset that was stored; None if there is none.

        Raises:
            UnavailableError, PermissionDeniedError, CorruptDataError: nobody can say.
            InvalidInputError: a reference that none can be.
        """
        if self.offsets.broker is not None:
            return await self.offsets.broker.query_offset(stream.vhost, reference, stream.name)
        if self.offsets.table is None or stream.remote is None:
            return None
        await self._write_to_the_end()
        key = stream.remote.reader.stream, reference
        if key in self._waiting:
            # What is stored is older: who went on there would read again what he has done with.
            raise UnavailableError("the table does not take the last offset", stream=key[0])
        found = await self._run(partial(self.offsets.table.query, *key))
        if found is not None:
            self._remember(key, found)
        return found

    async def close(self, until: float) -> None:
        """Write what waits; what is not written in time is lost, and told.

        Args:
            until: time of the event loop.
        """
        for task in (self._task, self._asking):
            if task is not None:
                task.cancel()
        try:
            async with asyncio.timeout_at(until):
                await self._write(last=True)
        except TimeoutError:
            for (stream, reference), (offset, _) in self._waiting.items():
                late = f"the table does not take that of {reference!r} in time"
                self.lost(UnavailableError(late, stream=stream, offset=offset))

    async def _ask_first(self, remote: RemoteStream) -> None:
        with contextlib.suppress(ColdstreamError):
            root = (await remote.snapshot(seconds=60.0)).root
            if len(self._firsts) >= _MOST:
                self._firsts.clear()
            self._firsts[remote.reader.stream] = root.first_offset

    async def _later(self) -> None:
        while self._waiting:  # also what has come while others were written
            await asyncio.sleep(self.offsets.seconds)
            await self._write_to_the_end()

    async def _write_to_the_end(self, *, last: bool = False) -> None:
        """As `_write`; whoever is cancelled here leaves nothing half done behind."""
        await asyncio.shield(self._write(last=last))

    async def _write(self, *, last: bool) -> None:
        """Write what waits; what gets no answer waits on, unless this is the last try."""
        async with self._writing:
            for key in list(self._waiting):
                offset, first = self._waiting[key]
                try:
                    await self._write_one(key, offset, first)
                except ColdstreamError as error:
                    if isinstance(error, UnavailableError) and error.may_retry and not last:
                        continue
                    self.lost(error.located(stream=key[0], offset=offset))
                # Who is stopped before leaves it waiting; and meanwhile a newer one may have come.
                if self._waiting[key] == (offset, first):
                    del self._waiting[key]

    async def _write_one(self, key: _Key, offset: int, first: int) -> None:
        assert self.offsets.table is not None
        seen = self._seen.get(key)
        store = partial(self.offsets.table.store, *key, offset, seen=seen, first=first)
        kept = await self._run(store)
        if kept == offset:
            self._remember(key, offset)
        else:
            raise ConflictError(
                f"another consumer {key[1]!r} has stored {kept}: it is not taken back to {offset}"
            )

    def _remember(self, key: _Key, offset: int) -> None:
        if len(self._seen) >= _MOST and key not in self._seen:
            self._seen.clear()  # whoever goes back must ask again before
        self._seen[key] = offset

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.offsets.pool, call)
