"""A peer at a stream port that answers as a test says, frame by frame."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

from coldstream.broker.frames import Code, Key, frame

Answer = Callable[[int, bytes], list[bytes]]


def reply(key: Key, body: bytes, *, code: int = Code.OK, rest: bytes = b"") -> bytes:
    return frame(key, body[:4] + struct.pack(">H", code) + rest, response=True)


def logging_in(key: int, body: bytes) -> list[bytes]:
    """As a broker answers until a virtual host is open."""
    if key == Key.TUNE:
        return []
    answers = [reply(Key(key), body, rest=struct.pack(">i", 0))]
    if key == Key.SASL_AUTHENTICATE:
        answers.append(frame(Key.TUNE, struct.pack(">II", 2**20, 60)))
    return answers


def deliver(subscription: int, chunk: bytes) -> bytes:
    return frame(Key.DELIVER, struct.pack(">B", subscription) + chunk)


class Peer:
    """Answers each connection in a thread."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.heard: list[int] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        try:
            while True:
                connection, _ = self._listener.accept()
                self._start(lambda taken=connection: self._serve(taken))  # type: ignore[misc]
        except OSError:
            pass  # the test is over

    def _serve(self, connection: socket.socket) -> None:
        # As a broker's: else two frames in a row wait 40 ms for a client that has nothing to say.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with connection, connection.makefile("rb") as stream:
                while len(size := stream.read(4)) == 4:
                    data = stream.read(struct.unpack(">I", size)[0])
                    key = struct.unpack(">H", data[:2])[0]
                    self.heard.append(key)
                    for each in self.answer(key, data[4:]):
                        connection.sendall(each)
        except OSError:
            pass  # as above

    def close(self) -> None:
        with suppress(OSError):  # twice
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._threads:
            each.join(5)
