"""Servers on the loopback address that treat a PUT as bad links and services do."""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

OK = b'HTTP/1.1 200 OK\r\nETag: "x"\r\nContent-Length: 0\r\n\r\n'
NONE = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


@dataclass
class Request:
    """What arrived of one: its head, and as much of its body as the server has taken."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytearray


class Conversation:
    """One connection at the server."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._left = connection, b""

    def head(self) -> Request | None:
        while b"\r\n\r\n" not in self._left:
            data = self._connection.recv(65536)
            if not data:
                return None
            self._left += data
        head, _, self._left = self._left.partition(b"\r\n\r\n")
        first, *rows = head.decode().split("\r\n")
        method, path, _ = first.split(" ")
        pairs = (row.split(": ", 1) for row in rows)
        return Request(method, path, {name.lower(): value for name, value in pairs}, bytearray())

    def body(
        self, request: Request, *, most: int | None = None, pause: float = 0.0, piece: int = 2**16
    ) -> None:
        """Take the body, `pause` seconds before each piece."""
        size = int(request.headers.get("content-length", "0"))
        size = size if most is None else min(size, most)
        while len(request.body) < size:
            if not self._left:
                time.sleep(pause)
                self._left = self._connection.recv(min(piece, size - len(request.body)))
                if not self._left:
                    raise ConnectionResetError("the client has closed")
            request.body += self._left[: size - len(request.body)]
            self._left = self._left[size:]

    def answer(self, data: bytes) -> None:
        self._connection.sendall(data)

    def reset(self) -> None:
        """Close with an RST."""
        option = struct.pack("ii", 1, 0)
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
        self._connection.close()


@dataclass
class Server:
    """Accepts connections, and has each spoken to by `speak` in a thread of its own.

    Args:
        speak: called for each connection.
        small: whether little is buffered, so that what is not read is soon not sent.
        trust: makes it speak TLS; None for none.
    """

    speak: Callable[[Server, Conversation], None]
    small: bool = False
    trust: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    closed: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._listener = socket.socket()
        if self.small:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}" if self.trust else f"http://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        self._speak_on(connection)
        self.closed += 1

    def _speak_on(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            if self.trust is None:
                self.speak(self, Conversation(connection))
                return
            with self.trust.wrap_socket(connection, server_side=True) as secure:
                self.speak(self, Conversation(secure))

    def close(self) -> None:
        self.over.set()
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # also for a thread that waits in it
            each.close()


def certified(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """An authority, and what a server needs that it has certified as localhost."""

    def openssl(*words: str | Path) -> None:
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)

    new = ("-newkey", "rsa:2048", "-nodes")
    authority, signing = folder / "ca.pem", folder / "ca.key"
    certificate, key, request = (folder / f"leaf.{each}" for each in ("pem", "key", "csr"))
    (folder / "names").write_text("subjectAltName=DNS:localhost\n")
    openssl(
        "req", "-x509", *new, "-days", "2", "-subj", "/CN=ca",
        "-addext", "basicConstraints=critical,CA:TRUE", "-keyout", signing, "-out", authority,
    )  # fmt: skip
    openssl("req", *new, "-subj", "/CN=localhost", "-keyout", key, "-out", request)
    openssl(
        "x509", "-req", "-days", "2", "-in", request, "-CA", authority, "-CAkey", signing,
        "-CAcreateserial", "-extfile", folder / "names", "-out", certificate,
    )  # fmt: skip
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.load_cert_chain(certificate, key)
    return authority, trust


def polite(server: Server, talk: Conversation) -> None:
    """Takes every PUT; has no object that one asks for."""
    while (request := talk.head()) is not None:
        talk.body(request)
        server.requests.append(request)
        talk.answer(OK if request.method == "PUT" else NONE)


def answering(kind: str, body: bytes, headers: str = "") -> Server:
    """A server that says the same to everybody."""
    words = f"Content-Type: {kind}\r\n" if kind else ""
    head = f"HTTP/1.1 200 OK\r\n{words}{headers}Content-Length: {len(body)}\r\n\r\n".encode()

    def speak(server: Server, talk: Conversation) -> None:
        while (request := talk.head()) is not None:
            talk.body(request)
            server.requests.append(request)
            talk.answer(head if request.method == "HEAD" else head + body)

    return Server(speak)
