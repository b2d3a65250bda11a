"""The way from an agent to AWS: a proxy on 127.0.0.1 that refuses, hangs, or lets little through.

What an agent has sent into a link that hangs arrives when it moves again, also where nobody waits
for the answer any more: a PUT that was given up is done minutes later.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from threading import Thread

from coldstream_devkit.broker import free_ports

_HOST = "127.0.0.1"
_BLOCK = 2**14
#: Of the kernel for each connection: what fits in there counts as sent.
_BUFFER = 2**16
_END_SECONDS = 10.0


class Fault(IntEnum):
    """What is wrong with a link; of several, the greatest holds."""

    SLOW = 1  # all connections together are given so many bytes a second
    HUNG = 2  # connections are taken, and nothing passes either way
    REFUSED = 3  # connections break, and none is taken


@dataclass(slots=True)
class Link:
    """A proxy in front of one port, in a thread of its own.

    Args:
        target: the port on 127.0.0.1 that it leads to.
        port: on 127.0.0.1, where it listens whenever it does not refuse.
    """

    target: int
    port: int = field(default_factory=lambda: free_ports(1)[0])
    _faults: dict[str, tuple[Fault, float]] = field(default_factory=dict)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _moves: asyncio.Event = field(default_factory=asyncio.Event)
    _ends: set[asyncio.StreamWriter] = field(default_factory=set)
    _server: asyncio.Server | None = None
    _rate: float = 0.0
    _free_at: float = 0.0
    _thread: Thread | None = None

    def start(self) -> None:
        """Listen."""
        self._thread = Thread(target=self._loop.run_forever, name=f"link {self.port}", daemon=True)
        self._thread.start()
        self._do(self._apply)

    def spoil(self, who: str, fault: Fault, rate: float = 0.0) -> None:
        """Have something wrong until the same one heals it.

        Args:
            who: wants it; one fault each.
            fault: what is wrong.
            rate: bytes a second, of a link that is slow.
        """
        self._do(lambda: self._faults.update({who: (fault, rate)}))
        self._do(self._apply)

    def heal(self, who: str) -> None:
        """Take the fault of one back; others' stay."""
        self._do(lambda: self._faults.pop(who, None))
        self._do(self._apply)

    def close(self) -> None:
        """End it and all its connections."""
        self._do(lambda: self._faults.update({"": (Fault.REFUSED, 0.0)}))
        self._do(self._apply)
        self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not None:
            self._thread.join(_END_SECONDS)
        self._loop.close()

    def _do(self, act: Callable[[], object]) -> None:
        async def done() -> None:
            found = act()
            if asyncio.iscoroutine(found):
                await found

        asyncio.run_coroutine_threadsafe(done(), self._loop).result(_END_SECONDS)

    async def _apply(self) -> None:
        none: tuple[Fault | None, float] = (None, 0.0)
        fault, self._rate = max(self._faults.values(), default=none)
        if fault is Fault.REFUSED:
            if self._server is not None:
                self._server.close()
                self._server = None
            for end in self._ends:
                end.transport.abort()
        elif self._server is None:
            self._server = await asyncio.start_server(self._connected, sock=self._listening())
        if fault is Fault.HUNG:
            self._moves.clear()
        else:
            self._moves.set()

    def _listening(self) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        listener.bind((_HOST, self.port))
        return listener

    async def _connected(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        self._ends.add(near)
        far: asyncio.StreamWriter | None = None
        with suppress(OSError):
            back, far = await asyncio.open_connection(_HOST, self.target)
            self._ends.add(far)
            await asyncio.gather(self._pass(reader, far), self._pass(back, near))
        for end in (near, far):
            if end is not None:
                end.transport.abort()
                self._ends.discard(end)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while block := await reader.read(_BLOCK):
            while block:
                size = await self._allowed(len(block))
                writer.write(block[:size])
                block = block[size:]
                await writer.drain()
        await self._moves.wait()
        writer.write_eof()

    async def _allowed(self, size: int) -> int:
        """Wait until something may pass, and say how many of these bytes."""
        await self._moves.wait()
        if self._rate:
            size = min(size, max(1, int(self._rate / 4)))
            now = self._loop.time()
            self._free_at = max(now, self._free_at) + size / self._rate
            await asyncio.sleep(self._free_at - now)
            await self._moves.wait()
        return size
