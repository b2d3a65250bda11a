"""Listens for clients, and ends with all of them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from coldstream.errors import InvalidInputError
from coldstream.gateway.connection import LOGIN_SECONDS, Connection
from coldstream.gateway.site import Site

#: Bytes of a client's frames that are read ahead of their turn.
_READ_AHEAD = 2**16
_ALIVE_SECONDS = 1.0
#: The event loop closes sockets of transports in its next rounds.
_SOCKETS_SECONDS = 0.01


class Server:
    """Takes clients, up to a number.

    Args:
        site: what they share.
        most: clients at once; one more is hung up on.
    """

    def __init__(self, site: Site, most: int) -> None:
        self._site, self._most = site, most
        self._clients: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(
        self, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[int]:
        """Take clients while the context lasts; gives the port.

        Raises:
            InvalidInputError: nobody can listen there.
        """
        try:
            server = await asyncio.start_server(
                self._taken,
                host,
                port,
                ssl=tls,
                # Who has not shaken hands is no client yet, and counts among none.
                ssl_handshake_timeout=LOGIN_SECONDS if tls else None,
                limit=_READ_AHEAD,
            )
        except OSError as exc:
            raise InvalidInputError(f"--host {host}, --port {port}: {exc.strerror or exc}") from exc
        alive = asyncio.create_task(self._alive())
        try:
            yield int(server.sockets[0].getsockname()[1])
        finally:
            server.close()
            alive.cancel()
            for client in list(self._clients):
                client.cancel()
            if self._clients:
                await asyncio.wait(self._clients, timeout=5.0)
            await server.wait_closed()
            await asyncio.sleep(_SOCKETS_SECONDS)
            if self._site.streams.broker is not None:
                await self._site.streams.broker.close()

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        metrics = self._site.metrics
        metrics.accepted += 1
        if len(self._clients) >= self._most:
            metrics.turned_away += 1
            self._site.say(f"more than {self._most} clients; one is hung up on")
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        metrics.connections += 1
        try:
            with suppress(asyncio.CancelledError):  # the server ends
                await Connection(self._site, reader, writer).serve()
        except Exception as exc:
            self._site.say(f"the connection of a client ends: {exc!r}"[:500])
            writer.close()
            raise
        finally:
            metrics.connections -= 1
            self._clients.discard(task)

    async def _alive(self) -> None:
        while True:
            self._site.metrics.alive()
            await asyncio.sleep(_ALIVE_SECONDS)
