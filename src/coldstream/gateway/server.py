"""Listens for clients, and ends with all of them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

from coldstream.errors import InvalidInputError
from coldstream.gateway.connection import LEAVE_SECONDS, LOGIN_SECONDS, Connection
from coldstream.gateway.site import Site

#: Bytes of a client's frames that are read ahead of their turn.
_READ_AHEAD = 2**16
_ALIVE_SECONDS = 1.0
#: How long clients may take to leave at the end beside the offsets that they have stored, and the
#: event loop to close their sockets.
_HANG_UP_SECONDS, _SOCKETS_SECONDS = 3.0, 1.0


class Server:
    """Takes clients, up to a number.

    Args:
        site: what they share.
        most: clients at once; one more is hung up on.
    """

    def __init__(self, site: Site, most: int) -> None:
        self._site, self._most = site, most
        self._clients: set[asyncio.Task[None]] = set()
        self._tls: ssl.SSLContext | None = None
        self._ending = False

    @asynccontextmanager
    async def listening(
        self, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[int]:
        """Take clients while the context lasts; gives the port.

        Raises:
            InvalidInputError: nobody can listen there.
        """
        self._tls = tls
        try:
            server = await asyncio.start_server(
                self._taken,
                host,
                port,
                limit=_READ_AHEAD,
            )
        except OSError as exc:
            raise InvalidInputError(f"--host {host}, --port {port}: {exc.strerror or exc}") from exc
        tasks = [
            asyncio.create_task(self._alive()),
            asyncio.create_task(self._site.keep_rights()),
        ]
        try:
            yield int(server.sockets[0].getsockname()[1])
        finally:
            for each in tasks:
                each.cancel()
            await self._end(server)
            if self._site.streams.broker is not None:
                await self._site.streams.broker.close()

    async def _end(self, server: asyncio.Server) -> None:
        """Take nobody any more, and leave no socket of a client behind."""
        self._ending = True
        loop = asyncio.get_running_loop()
        for each in server.sockets:
            loop.remove_reader(each.fileno())
        # Asked before `close`: afterwards Python 3.11 says at once that all are closed.
        closed = asyncio.create_task(server.wait_closed())
        # Who was accepted just now has no transport yet; a closed server refuses it one, and its
        # socket would stay open.
        await asyncio.sleep(0)
        server.close()
        if self._clients:
            for client in self._clients:
                client.cancel()
            await asyncio.wait(self._clients, timeout=LEAVE_SECONDS + _HANG_UP_SECONDS)
        if self._site.leaving:
            # Of clients that were leaving already; each ends by itself.
            await asyncio.wait(self._site.leaving, timeout=LEAVE_SECONDS)
        await asyncio.wait({closed}, timeout=_SOCKETS_SECONDS)
        closed.cancel()

    def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client has come. No coroutine: the end must know of it before its first step."""
        metrics = self._site.metrics
        metrics.accepted += 1
        if self._ending:
            writer.transport.abort()
            return
        if len(self._clients) >= self._most:
            metrics.turned_away += 1
            self._site.say(f"more than {self._most} clients; one is hung up on")
            writer.transport.abort()
            return
        if self._tls is not None:
            assert isinstance(writer.transport, asyncio.Transport)
            writer.transport.pause_reading()  # all that comes is for the handshake
        task = asyncio.create_task(self._serve(reader, writer))
        self._clients.add(task)
        metrics.connections += 1
        task.add_done_callback(partial(self._left, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(asyncio.CancelledError):  # the server ends
                if not await self._shaken_hands(writer):
                    return
                await Connection(self._site, reader, writer).serve()
        except Exception as exc:
            self._site.say(f"the connection of a client ends: {exc!r}"[:500])
            raise

    async def _shaken_hands(self, writer: asyncio.StreamWriter) -> bool:
        """Whether the client speaks TLS, or need not.

        It counts among the clients by then: a handshake that stands still holds 300 KiB.
        """
        if self._tls is None:
            return True
        try:
            await writer.start_tls(self._tls, ssl_handshake_timeout=LOGIN_SECONDS)
        except OSError:  # of TLS, of the socket, or of time
            return False
        return True

    def _left(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        self._site.metrics.connections -= 1
        self._clients.discard(task)
        if not writer.transport.is_closing():  # it failed, or was cancelled before its first step
            writer.transport.abort()

    async def _alive(self) -> None:
        while True:
            self._site.metrics.alive()
            await asyncio.sleep(_ALIVE_SECONDS)
