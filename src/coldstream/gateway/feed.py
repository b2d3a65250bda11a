"""The chunks of one subscription at a broker, no more of them than it was given credit for."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from coldstream.errors import CorruptDataError, UnavailableError
from coldstream.gateway.parcel import Parcel, delivered

_V2 = 2
#: Key, version and subscription stand before the chunk, in version 2 also what is committed.
_BEFORE_CHUNK, _BEFORE_CHUNK_V2 = 5, 13
#: The CRC of a larger chunk is computed in a thread.
_LARGE = 2**20


@dataclass(frozen=True, slots=True)
class Fed:
    """A chunk as it was delivered.

    Attributes:
        parcel: header and data, whose CRC holds.
        committed: what the broker said of the commit offset; 0 where it says nothing.
        first_offset: asks the very node that gave it where its log begins.
    """

    parcel: Parcel
    committed: int
    first_offset: Callable[[], Awaitable[int | None]]


class Source(Protocol):
    """The connection of a feed."""

    def give_credit(self, number: int) -> None:
        """One more chunk."""
        ...

    async def first_offset(self, stream: str) -> int | None:
        """Where the node's log of a stream begins; None if nobody can say."""
        ...

    async def unsubscribe(self, feed: Feed) -> None:
        """End a subscription; never raises for a connection that is broken."""
        ...


class Feed:
    """The chunks of one subscription, in order; used by one task.

    Args:
        source: its connection.
        number: of the subscription.
        stream: name.
        credit: chunks that may come.
    """

    def __init__(self, source: Source, number: int, stream: str, credit: int) -> None:
        self._source = source
        self.number, self.stream = number, stream
        self._credit = credit
        self._come: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._error: UnavailableError | None = None

    def put(self, data: bytes) -> bool:
        """A Deliver has come; False if it was not asked for."""
        if not self._credit:
            return False
        self._credit -= 1
        self._come.append(data)
        self._changed.set()
        return True

    def end(self, error: UnavailableError) -> None:
        """Nothing more comes, and why; what has come can still be taken."""
        self._error = self._error or error
        self._changed.set()

    def empty(self) -> bool:
        """Whether no chunk has come that was not taken."""
        return not self._come

    async def arrival(self) -> None:
        """Wait until a chunk has come.

        Raises:
            UnavailableError: nothing more comes.
        """
        while not self._come:
            if self._error is not None:
                raise self._error
            self._changed.clear()
            await self._changed.wait()

    async def next(self) -> Fed:
        """The next chunk; its credit is given back by `taken`.

        Raises:
            UnavailableError: nothing more comes.
            CorruptDataError: what came is no chunk, or its CRC does not hold.
        """
        await self.arrival()
        data = self._come.popleft()
        at, committed = _BEFORE_CHUNK, 0
        if len(data) >= _BEFORE_CHUNK_V2 and struct.unpack_from(">H", data, 2)[0] >= _V2:
            at, committed = _BEFORE_CHUNK_V2, struct.unpack_from(">Q", data, _BEFORE_CHUNK)[0]
        if len(data) < at:
            raise CorruptDataError("the broker delivers less than a chunk", stream=self.stream)
        view = memoryview(data)[at:]
        if len(view) > _LARGE:
            parcel = await asyncio.to_thread(delivered, view)
        else:
            parcel = delivered(view)
        return Fed(parcel, committed, lambda: self._source.first_offset(self.stream))

    def taken(self) -> None:
        """The last chunk was handed on: another one may come.

        Raises:
            UnavailableError: the connection is broken.
        """
        self._credit += 1
        self._source.give_credit(self.number)

    async def close(self) -> None:
        """End the subscription."""
        await self._source.unsubscribe(self)
