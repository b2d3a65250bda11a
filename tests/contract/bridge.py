"""A loopback HTTP server in front of moto, for clients that are not botocore (obstore).

moto's own server mode needs flask; this hands each request to the same code that answers botocore.
It takes one request at a time, because moto is not safe for threads, and it can lose requests and
answers.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
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
