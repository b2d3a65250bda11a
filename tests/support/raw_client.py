"""A client of the stream protocol that sends exactly what it is told, and hides nothing."""

from __future__ import annotations

import socket
import struct
from typing import Any

from coldstream.broker.frames import RESPONSE, Fields, Key, binary, frame, string

FIRST = struct.pack(">H", 1)


class RawClient:
    """Blocking, with a limit for each read; not logged in before `log_in`."""

    def __init__(self, port: int, *, tls: Any = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self._correlation = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def log_in(self, user: str = "guest", password: str = "guest", vhost: str = "/") -> RawClient:
        assert self.ask(Key.PEER_PROPERTIES, struct.pack(">i", 0))[0] == 1
        assert self.ask(Key.SASL_HANDSHAKE, b"")[0] == 1
        assert self.authenticate(user, password) == 1
        key, fields = self.frame()
        assert key == Key.TUNE
        self.send(Key.TUNE, struct.pack(">II", fields.number("I"), fields.number("I")))
        assert self.ask(Key.OPEN, string(vhost))[0] == 1
        return self

    def authenticate(self, user: str, password: str) -> int:
        secret = binary(f"\0{user}\0{password}".encode())
        return self.ask(Key.SASL_AUTHENTICATE, string("PLAIN") + secret)[0]

    def subscribe(
        self, stream: str, spec: bytes = FIRST, *, credit: int = 1, more: bytes = b"",
        number: int = 1,
    ) -> int:  # fmt: skip
        """The code of the answer."""
        body = struct.pack(">B", number) + string(stream) + spec + struct.pack(">H", credit) + more
        return self.ask(Key.SUBSCRIBE, body)[0]

    def credit(self, count: int, number: int = 1) -> None:
        self.send(Key.CREDIT, struct.pack(">BH", number, count))

    def chunk(self) -> bytes:
        """The next chunk that is delivered."""
        key, fields = self.frame()
        assert key == Key.DELIVER, key
        fields.skip(1)
        return fields.rest()

    def ask(self, key: int, body: bytes) -> tuple[int, Fields]:
        """The code of an answer, and what follows it."""
        fields = self.request(key, body)
        return fields.number("H"), fields

    def request(self, key: int, body: bytes) -> Fields:
        """What follows the correlation id of an answer."""
        self._correlation += 1
        self.send(key, struct.pack(">I", self._correlation) + body)
        found, fields = self.frame()
        assert found == key | RESPONSE, (found, key)
        assert fields.number("I") == self._correlation
        return fields

    def send(self, key: int, body: bytes, version: int = 1) -> None:
        self.socket.sendall(frame(key, body, version=version))

    def frame(self) -> tuple[int, Fields]:
        """Key and fields of the next frame."""
        size = struct.unpack(">I", self._read(4))[0]
        fields = Fields(self._read(size))
        key, self.version = fields.number("H"), fields.number("H")
        return key, fields

    def silent(self, seconds: float = 0.2) -> bool:
        """Whether nothing comes for a while."""
        self.socket.settimeout(seconds)
        try:
            return not self.socket.recv(1, socket.MSG_PEEK) and False
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(60)

    def hung_up(self) -> bool:
        """Whether the other end is gone, once all it has sent was read."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionError:
            pass
        return True

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            block = self.socket.recv(size - len(data))
            if not block:
                raise ConnectionError("hung up")
            data += block
        return bytes(data)
