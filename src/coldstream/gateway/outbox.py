"""What waits for a client's socket.

A chunk of the remote tier is a view of what was fetched. Asyncio's transport copies what a socket
does not take at once, and sends each piece in a call of its own; so where there is no TLS, views go
to the socket from here, many in one call, and are never copied.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from coldstream.gateway.hang_up import hang_up

#: Bytes that may wait before whoever writes has to wait, and when he goes on.
HIGH_WATER, LOW_WATER = 2**20, 2**18
#: So much is sent at once; less waits for what comes in the same round of the event loop.
_WORTH_A_CALL = 2**18
#: Pieces of one call; Linux takes 1,024.
_PIECES = 256
_CLOSE_SECONDS = 1.0


class Outbox(Protocol):
    """The way out to one client."""

    @property
    def size(self) -> int:
        """Bytes that wait, without those that the system has taken."""
        ...

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        """Send bytes, with nothing between the parts; does not wait."""
        ...

    async def room(self) -> None:
        """Wait until no more than `HIGH_WATER` waits.

        Raises:
            ConnectionError: the client is gone.
        """
        ...

    def settle(self) -> None:
        """Copy what waits: a view keeps all that was fetched with it, and may wait for long."""
        ...

    async def close(self) -> None:
        """Hang up; what waits is sent if it is taken in a second."""
        ...


def outbox_of(writer: asyncio.StreamWriter) -> Outbox:
    """The way out of a connection; nobody else writes to it."""
    if writer.get_extra_info("ssl_object") is not None:
        return _ThroughTransport(writer)
    return _ToSocket(writer)


class _ThroughTransport:
    """With TLS: the transport encrypts, and keeps what the socket does not take."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        writer.transport.set_write_buffer_limits(high=HIGH_WATER, low=LOW_WATER)

    @property
    def size(self) -> int:
        return self._writer.transport.get_write_buffer_size()

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        for part in parts:
            self._writer.write(part)

    async def room(self) -> None:
        await self._writer.drain()
        # Of several that were waiting, another one may have been first.
        while self.size > HIGH_WATER:
            await asyncio.sleep(0)
            await self._writer.drain()

    def settle(self) -> None:
        """It has been encrypted, and so copied, already."""

    async def close(self) -> None:
        await hang_up(self._writer, _CLOSE_SECONDS)


class _ToSocket:
    """Without TLS: a second descriptor of the socket, which the transport only reads from."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._socket = writer.get_extra_info("socket").dup()
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[memoryview] = deque()
        self._size = 0
        self._settled = False
        self._soon: asyncio.Handle | None = None
        self._watched = False
        self._emptier = asyncio.Event()
        self._error: OSError | None = None

    @property
    def size(self) -> int:
        return self._size

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        if self._error is not None:
            return
        self._settled = False
        for part in parts:
            self._waiting.append(memoryview(part))
            self._size += len(part)
        if self._watched:
            return
        if self._size >= _WORTH_A_CALL:
            self._send()
        elif self._soon is None:
            self._soon = self._loop.call_soon(self._send)

    async def room(self) -> None:
        while self._size > HIGH_WATER and self._error is None:
            self._emptier.clear()
            await self._emptier.wait()
        if self._error is not None:
            raise ConnectionResetError("the client is gone") from self._error

    def settle(self) -> None:
        if not self._settled:
            self._waiting = deque([memoryview(b"".join(self._waiting))] if self._size else ())
            self._settled = True

    async def close(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                while self._size and self._error is None:
                    self._emptier.clear()
                    await self._emptier.wait()
        except TimeoutError:
            pass  # it takes nothing any more
        finally:
            self._drop()
            await hang_up(self._writer, _CLOSE_SECONDS)

    def _send(self) -> None:
        """As much as the socket takes."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        try:
            while self._waiting:
                pieces = list(islice(self._waiting, _PIECES))
                if not self._sent(self._socket.sendmsg(pieces)):
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as exc:
            self._error = exc
            self._drop()
            return
        if self._watched != bool(self._waiting):
            self._watched = bool(self._waiting)
            if self._watched:
                self._loop.add_writer(self._socket.fileno(), self._send)
            else:
                self._loop.remove_writer(self._socket.fileno())
        if self._size <= LOW_WATER:
            self._emptier.set()

    def _sent(self, count: int) -> bool:
        """Forget what was sent; whether it was all of the pieces that were tried."""
        self._size -= count
        tried = min(len(self._waiting), _PIECES)
        while tried and count >= len(self._waiting[0]):
            count -= len(self._waiting.popleft())
            tried -= 1
        if tried:
            self._waiting[0] = self._waiting[0][count:]
        return not tried

    def _drop(self) -> None:
        """Forget what waits, and let go of the socket."""
        if self._error is None:
            self._error = ConnectionAbortedError("closed")
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._socket.fileno() >= 0:
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
        self._waiting.clear()
        self._size = 0
        self._emptier.set()
