"""A proxy before the embedded AWS behind which a job dies at the write that a test names.

What the job has asked until then has happened, and nothing after it does: to stores and tables that
is what SIGKILL looks like. With a process named, it is SIGKILL.
"""

from __future__ import annotations

import http.client
import os
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

#: What changes something, by the operation's name in a request that has one.
_CHANGES = ("Put", "Create", "Update", "Delete", "Batch", "TransactWrite")
_NO_CHANGES = ("BatchGet", "PutMetricData")
_FORM = "application/x-www-form-urlencoded"


class Tripwire(ThreadingHTTPServer):
    """A proxy on a free port of 127.0.0.1.

    Attributes:
        writes: names of the writes since `arm`, the one that was not let through among them.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, endpoint: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        where = urlsplit(endpoint)
        self.upstream = (str(where.hostname), int(where.port or 80))
        self.writes: list[str] = []
        self.dead = False
        self._at: int | None = None
        self._victim: int | None = None
        self._lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        """URL of it."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def arm(self, at: int | None = None, *, victim: int | None = None) -> None:
        """Let everything through until the write of this number, from 0; all of it if None.

        Args:
            at: the write that is the first not to happen.
            victim: the process group that is killed then; else all requests are refused from then.
        """
        with self._lock:
            self.writes, self.dead, self._at, self._victim = [], False, at, victim

    def lets_through(self, write: str | None) -> bool:
        """Whether a request may happen; the wire is tripped where it is the one."""
        with self._lock:
            if write is not None and not self.dead:
                self.writes.append(write)
                self.dead = self._at is not None and len(self.writes) > self._at
                if self.dead and self._victim is not None:
                    os.killpg(self._victim, signal.SIGKILL)
            return not self.dead


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Tripwire

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass

    def _forward(self) -> None:
        body = self._body()
        if not self.server.lets_through(self._write()):
            # Nobody tries this again, so a job ends at once, as a process that is killed does.
            words = b'{"__type": "AccessDeniedException"}'
            if "X-Amz-Target" not in self.headers:
                words = b"<Error><Code>AccessDenied</Code></Error>"
            self._send(403, {}, words)
            return
        connection = http.client.HTTPConnection(*self.server.upstream, timeout=60)
        try:
            dropped = ("expect", "transfer-encoding")
            headers = {n: value for n, value in self.headers.items() if n.lower() not in dropped}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            self._send(answer.status, dict(answer.getheaders()), data)
        finally:
            connection.close()

    def _body(self) -> bytes:
        """The whole body; Arrow sends parts of uploads in chunks."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        chunks = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailing headers
        return b"".join(chunks)

    def _write(self) -> str | None:
        target = self.headers.get("X-Amz-Target", "").rpartition(".")[2]
        if target:
            changes = target.startswith(_CHANGES) and not target.startswith(_NO_CHANGES)
            return target if changes else None
        if self.headers.get("Content-Type", "").startswith(_FORM) or "PutMetricData" in self.path:
            return None  # a metric, in one of CloudWatch's protocols, changes no table
        return f"{self.command} {self.path}" if self.command in ("PUT", "POST", "DELETE") else None

    def _send(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response_only(status)
        dropped = {"connection", "transfer-encoding", "content-length", "keep-alive"}
        length = next((v for k, v in headers.items() if k.lower() == "content-length"), None)
        for name, value in headers.items():
            if name.lower() not in dropped:
                self.send_header(name, value)
        # The answer to HEAD says how long the body would be, and has none.
        self.send_header("Content-Length", length or str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward  # noqa: N815 - as http.server calls them
