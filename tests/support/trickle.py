"""A server that answers a byte at a time, as a proxy before a node that is stuck may."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from contextlib import suppress

#: After so long an answer ends, so that a client that waits on fails its test and hangs no other.
_ENDS_SECONDS = 120.0
_PAUSE_SECONDS = 0.02

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
HEADERS = b"HTTP/1.1 200 OK\r\n"
HANDSHAKE = b"\x16\x03\x03\x3f\xff\x02\x00\x3f\xfb\x03\x03"


class Trickle:
    """Sends a beginning at once, and then bytes one by one.

    Args:
        begin: what comes at once.
        tls: speaks it before; None for plain TCP.

    Attributes:
        asked: set once somebody is connected.
    """

    def __init__(self, begin: bytes, tls: ssl.SSLContext | None = None) -> None:
        self._begin, self._tls = begin, tls
        self.asked = threading.Event()
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # the test is over
            while True:
                taken, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(taken,), daemon=True).start()

    def _answer(self, taken: socket.socket) -> None:
        self.asked.set()
        end = time.monotonic() + _ENDS_SECONDS
        with suppress(OSError), taken, self._spoken(taken) as spoken:
            spoken.sendall(self._begin)
            while time.monotonic() < end and not self._over.wait(_PAUSE_SECONDS):
                spoken.sendall(b"x")

    def _spoken(self, taken: socket.socket) -> socket.socket:
        return taken if self._tls is None else self._tls.wrap_socket(taken, server_side=True)

    def close(self) -> None:
        """Hang up on everybody."""
        self._over.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
