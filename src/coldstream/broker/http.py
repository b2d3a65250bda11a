"""HTTP whose whole answer has one deadline: its bytes may come one by one, for ever."""

from __future__ import annotations

import io
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from typing import Any


@dataclass(frozen=True, slots=True)
class Deadline:
    """Until when all must be there.

    Args:
        at: seconds of the clock.
        clock: monotonic seconds.
        silence: seconds for which nothing may come.
    """

    at: float
    clock: Callable[[], float]
    silence: float

    def left(self) -> float:
        """Seconds for the next call of a socket.

        Raises:
            TimeoutError: none.
        """
        left = self.at - self.clock()
        if left <= 0:
            raise TimeoutError
        return min(left, self.silence)


class TimedConnection(HTTPConnection):
    """A connection for one question.

    Args:
        host: name or address.
        port: of the listener.
        deadline: of connection, handshake, question and answer together.
        tls: checks the certificate; None for none.
        name: that the certificate must be for.
    """

    def __init__(
        self, host: str, port: int, deadline: Deadline, tls: ssl.SSLContext | None, name: str
    ) -> None:
        super().__init__(host, port)
        self._deadline, self._tls, self._name = deadline, tls, name
        # The library calls it with the socket, and asks for no class.
        self.response_class = self._response  # type: ignore[assignment]

    def connect(self) -> None:
        """Open the socket; the library would have the host for the certificate's name.

        Raises:
            OSError: as it; TimeoutError after the deadline.
        """
        made = socket.create_connection((self.host, self.port), self._deadline.left())
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = made
        if self._tls is not None:
            made.settimeout(self._deadline.left())  # of the handshake as a whole
            self.sock = self._tls.wrap_socket(made, server_hostname=self._name)
        self.sock.settimeout(self._deadline.left())

    def _response(self, sock: socket.socket, **more: Any) -> HTTPResponse:
        response = HTTPResponse(sock, **more)
        response.fp = io.BufferedReader(_Bytes(sock, response.fp.detach(), self._deadline))
        return response


class _Bytes(io.RawIOBase):
    """What comes through a socket, each time with the time that is left for all of it."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase, deadline: Deadline) -> None:
        self._sock, self._raw, self._deadline = sock, raw, deadline

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Raises TimeoutError after the deadline."""
        self._sock.settimeout(self._deadline.left())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Let go of the socket, which is closed with the last of those that have it."""
        self._raw.close()
        super().close()
