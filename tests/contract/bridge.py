"""A loopback HTTP server in front of moto, for clients that are not botocore (obstore).

moto's own server mode needs flask; this hands each request to the same code that answers botocore.
It takes one request at a time, because moto is not safe for threads, and it can lose requests and
answers. It can also answer as S3 does to a role that may list below a prefix only: moto knows no
roles.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from botocore.awsrequest import AWSPreparedRequest
from botocore.compat import HTTPHeaders
from moto.core.botocore_stubber import BotocoreStubber


class Bridge(ThreadingHTTPServer):
    """moto's S3 on a free loopback port; use inside `mock_aws`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.stubber = BotocoreStubber()
        self.one_at_a_time = threading.Lock()
        self.lose_answers = 0
        self.lose_requests = 0
        self.answer_conflict = 0
        self.lists_below = ""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Bridge

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass

    def _hang_up(self) -> None:
        self.close_connection = True

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

    def _is_forbidden(self, status: int) -> bool:
        """Whether S3 would say 403 to who may list below `lists_below` only."""
        below, asked = self.server.lists_below, urlsplit(self.path)
        if not below:
            return False
        if self.command == "HEAD":
            return status == 404 or "/" not in asked.path.strip("/")
        if self.command != "GET":
            return False
        prefix = parse_qs(asked.query).get("prefix", [""])[0]
        return status == 404 or ("list-type" in asked.query and not prefix.startswith(below))

    def _answer(self) -> None:
        body = self._body()
        bridge = self.server
        with bridge.one_at_a_time:
            if self.command == "PUT" and bridge.lose_requests:
                bridge.lose_requests -= 1
                return self._hang_up()
            if self.command == "PUT" and bridge.answer_conflict:
                bridge.answer_conflict -= 1
                error = b"<Error><Code>ConditionalRequestConflict</Code></Error>"
                return self._send(409, {"Content-Type": "application/xml"}, error)
            headers = HTTPHeaders()
            for name, value in self.headers.items():
                headers[name] = value
            request = AWSPreparedRequest(
                method=self.command,
                url=f"https://s3.us-east-1.amazonaws.com{self.path}",
                headers=headers,
                body=body,
                stream_output=False,
            )
            answer = bridge.stubber.process_request(request)
            assert answer is not None
            status, answer_headers, content = answer
            if self.command == "PUT" and bridge.lose_answers:
                bridge.lose_answers -= 1
                return self._hang_up()
            if self._is_forbidden(status):
                error = b"<Error><Code>AccessDenied</Code></Error>"
                return self._send(403, {"Content-Type": "application/xml"}, error)
            data = content.encode() if isinstance(content, str) else content
            return self._send(status, {k: str(v) for k, v in answer_headers.items()}, data)

    def _send(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response_only(status)
        length = headers.pop("Content-Length", headers.pop("content-length", None))
        for name, value in headers.items():
            self.send_header(name, value)
        if self.command != "HEAD":
            length = str(len(data))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _answer  # noqa: N815 - http.server's names
