"""One subscription: chunks go to the client as fast as it takes them, and no faster.

The client's credit says how many chunks may be sent, and its socket when. Who has neither for some
seconds loses what was read ahead, and reads from its place again later: a client that stands still
holds no memory that others could use.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from coldstream.errors import ColdstreamError, InternalError
from coldstream.gateway import answers
from coldstream.gateway.parcel import Parcel
from coldstream.gateway.remote import Batch, Tier
from coldstream.gateway.stream import TieredStream, Wanted

#: A client without credit gives back what was read ahead for it after this long.
IDLE_SECONDS = 5.0
#: More is never asked for, and a number that is never reached needs no end.
MAX_CREDIT = 2**31


class Line(Protocol):
    """The way to the client."""

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        """Send a frame in parts, with nothing between them; does not wait."""
        ...

    async def drained(self, seconds: float) -> bool:
        """Wait until there is room again; False if there is none after so long.

        Raises:
            ConnectionError: the client is gone.
        """
        ...

    def settle(self) -> None:
        """Keep nothing but what waits: the client stands still."""
        ...


@dataclass(slots=True)
class Delivery:
    """What one subscription needs.

    Args:
        subscription: its number.
        stream: that it reads.
        position: where it begins.
        wanted: which chunks.
        version: of Deliver.
        line: to the client.
        count: told of each chunk: its bytes, and where they were read.
        ended: told of the error that ends it.
        credit: chunks that may be sent.
        idle: how long a client may stand still before it loses what was read ahead, seconds.
    """

    subscription: int
    stream: TieredStream
    position: int
    wanted: Wanted
    version: int
    line: Line
    count: Callable[[int, Tier], None]
    ended: Callable[[int, ColdstreamError], None]
    credit: int = 0
    idle: float = IDLE_SECONDS
    _granted: asyncio.Event = field(default_factory=asyncio.Event)

    def grant(self, credit: int) -> None:
        """So many more chunks may be sent."""
        self.credit = min(self.credit + credit, MAX_CREDIT)
        if self.credit:
            self._granted.set()

    async def run(self) -> None:
        """Deliver until cancelled, or until the stream cannot be read any more."""
        try:
            while True:
                await self._credit(None)
                while not await self.line.drained(self.idle):
                    pass  # what is written waits for the client; nothing is read meanwhile
                batches = self.stream.follow(self.position, self.wanted)
                async with contextlib.aclosing(batches):
                    await self._send(batches)
        except ColdstreamError as error:
            self.ended(self.subscription, error)
        except ConnectionError:
            return  # the connection sees that as well, and ends
        except Exception as exc:  # whoever reads must not wait for ever because of our bug
            self.ended(self.subscription, InternalError(f"a bug: {exc!r}"[:500]))
            raise

    async def _send(self, batches: AsyncGenerator[Batch, None]) -> None:
        """Until the client stands still."""
        async for batch in batches:
            sent: Parcel | None = None
            for parcel in batch.parcels:
                if parcel.next_offset <= self.position:
                    continue  # it was sent before the client stood still
                ready = self.credit or await self._credit(self.idle)
                if not ready:
                    self.line.settle()
                # Before, so that no more than this chunk lies behind what waits.
                if not ready or not await self.line.drained(self.idle):
                    if sent is not None:
                        self.stream.gave(sent)
                    return
                self.line.write([self._head(parcel, batch), *parcel.parts])
                self.credit -= 1
                self.position, sent = parcel.next_offset, parcel
                self.count(parcel.size, batch.tier)
            self.position = max(self.position, batch.next_offset)

    def _head(self, parcel: Parcel, batch: Batch) -> bytes:
        committed = max(batch.committed, 0)
        return answers.deliver(self.subscription, parcel.size, committed, self.version)

    async def _credit(self, seconds: float | None) -> bool:
        """Wait for credit; False if none comes for so long."""
        while not self.credit:
            self._granted.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._granted.wait()
            except TimeoutError:
                return False
        return True
