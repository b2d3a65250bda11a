"""HTTP for the stand-in of AWS: just the requests that an agent makes, read without any copy.

What is asked beside them is answered 501, so that a benchmark cannot measure what is not there. A
PUT must bring the checksum that S3 would compare; it is not computed here.
"""

from __future__ import annotations

import json
import socket
import socketserver
import ssl
import sys
import threading
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from bench.cloud import BUCKET, PREFIX, Cloud
from coldstream.adapters.dynamodb_item import name_values, state_values, summary_values
from coldstream.errors import AlreadyExistsError, NotFoundError
from coldstream.names import CATALOG_ITEM, CATALOG_PARTITION_KEY, CATALOG_SORT_KEY

_BLOCK = 256 * 1024
_KEPT = 4 * 2**20
_RECEIVED = 4 * 2**20
#: Of the agent, and of the plain PUTs that it is compared with.
_CHECKSUMS = ("x-amz-checksum-crc32", "x-amz-checksum-crc64nvme")

Answer = tuple[int, dict[str, str], bytes]


def serve(cloud: Cloud, trust: ssl.SSLContext | None, ready: Callable[[int], None]) -> None:
    """Serve for ever.

    Args:
        cloud: what there is.
        trust: for TLS; None without.
        ready: called with the port.
    """

    class Connection(_Connection):
        service = _Service(cloud)

    with _Server(("127.0.0.1", 0), Connection) as server:
        server.trust = trust
        ready(server.server_address[1])
        server.serve_forever()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128
    trust: ssl.SSLContext | None = None

    def server_bind(self) -> None:
        # As of a service far away: who sends is not woken for every few kilobytes.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVED)
        super().server_bind()

    def get_request(self) -> tuple[socket.socket, Any]:
        taken, address = super().get_request()
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return taken, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up says nothing of interest."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handle_error(request, client_address)


class _Connection(socketserver.BaseRequestHandler):
    """One connection, with as many requests as come."""

    service: _Service
    request: socket.socket

    def setup(self) -> None:
        server = self.server
        if isinstance(server, _Server) and server.trust is not None:
            self.request = server.trust.wrap_socket(self.request, server_side=True)
        self._begun = bytearray()
        self._scratch = memoryview(bytearray(_BLOCK))

    def handle(self) -> None:
        while (head := self._head()) is not None:
            method, target, headers = head
            if headers.get("expect", "").lower() == "100-continue":
                self.request.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            size = int(headers.get("content-length", "0"))
            body = self._body(size)
            status, more, answer = self.service.answer(method, target, headers, size, body)
            if "Content-Length" not in more:
                more["Content-Length"] = str(len(answer))
            lines = "".join(f"{name}: {value}\r\n" for name, value in more.items())
            words = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{lines}\r\n"
            self.request.sendall(words.encode() + (b"" if method == "HEAD" else answer))

    def _head(self) -> tuple[str, str, dict[str, str]] | None:
        while (end := self._begun.find(b"\r\n\r\n")) < 0:
            more = self.request.recv(65536)
            if not more:
                return None
            self._begun += more
        first, *rows = bytes(self._begun[:end]).decode("latin-1").split("\r\n")
        del self._begun[: end + 4]
        method, target, _ = first.split(" ", 2)
        headers = dict(row.split(":", 1) for row in rows)
        return method, target, {name.lower(): value.strip() for name, value in headers.items()}

    def _body(self, size: int) -> bytes:
        """A body, or the end of a large one."""
        if not size:
            return b""
        begun = min(size, len(self._begun))
        left, kept = size - begun, bytes(self._begun[:begun])
        del self._begun[:begun]
        self.service.cloud.link.take(begun)
        while left > _KEPT:  # what nobody asks for goes into the same few pages, in the cache
            left -= self._receive(self._scratch, left - _KEPT)
            kept = b""
        into = bytearray(left)
        at = 0
        while at < len(into):
            at += self._receive(memoryview(into)[at:], _BLOCK)
        return kept + into

    def _receive(self, into: memoryview, most: int) -> int:
        count = self.request.recv_into(into, min(most, _BLOCK, len(into)))
        if not count:
            raise ConnectionError
        self.service.cloud.link.take(count)
        return count


class _Service:
    """Answers requests."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self._lock = threading.Lock()

    def answer(
        self, method: str, target: str, headers: dict[str, str], size: int, body: bytes
    ) -> Answer:
        """To one request, of whose body maybe only the end is here."""
        path = urlsplit(target).path
        what = headers.get("x-amz-target", "").rpartition(".")[2] or f"{method} {path[:9]}"
        with self._lock:
            self.cloud.requests[what] = self.cloud.requests.get(what, 0) + 1
        if path.startswith("/-/"):
            return self._of_benchmark(path)
        if "x-amz-target" in headers:
            return self._of_table(what, json.loads(body))
        if path.startswith("/2015-03-31/functions/"):
            return HTTPStatus.OK, {}, self.cloud.invoke(body)
        bucket, _, key = unquote(path).lstrip("/").partition("/")
        if bucket != BUCKET:
            return HTTPStatus.NOT_IMPLEMENTED, {}, b""
        if method == "PUT":
            return self._put(key, headers, size, body)
        if key and method in ("GET", "HEAD"):
            return self._get(method, key, headers)
        if method == "GET":
            return self._list(parse_qs(urlsplit(target).query))
        return HTTPStatus.NOT_IMPLEMENTED, {}, b""

    def _of_benchmark(self, path: str) -> Answer:
        if path.startswith("/-/link/"):
            self.cloud.link.rate = float(path.rpartition("/")[2])
            return HTTPStatus.OK, {}, b""
        return HTTPStatus.OK, {}, json.dumps(self.cloud.taken()).encode()

    def _put(self, key: str, headers: dict[str, str], size: int, body: bytes) -> Answer:
        checked = any(name in headers for name in _CHECKSUMS)
        if not checked or headers.get("if-none-match") != "*":
            return HTTPStatus.NOT_IMPLEMENTED, {}, b""
        try:
            write_id = headers.get("x-amz-meta-write-id", "")
            if size > len(body):
                self.cloud.store.put_end(key, size, body, write_id)
            else:
                self.cloud.store.put(key, body, write_id=write_id)
        except AlreadyExistsError:
            return (
                HTTPStatus.PRECONDITION_FAILED,
                {},
                b"<Error><Code>PreconditionFailed</Code></Error>",
            )
        self.cloud.landed(key, size)
        return HTTPStatus.OK, {"ETag": f'"{size:x}"'}, b""

    def _get(self, method: str, key: str, headers: dict[str, str]) -> Answer:
        store = self.cloud.store
        try:
            size = store.size_of(key)
        except NotFoundError:
            return HTTPStatus.NOT_FOUND, {}, b"<Error><Code>NoSuchKey</Code></Error>"
        more = {
            "ETag": f'"{size:x}"',
            "Last-Modified": formatdate(usegmt=True),
            "x-amz-meta-write-id": store.written_by(key),
        }
        if method == "HEAD":
            return HTTPStatus.OK, more | {"Content-Length": str(size)}, b""
        start, end, status = 0, size, HTTPStatus.OK
        if "range" in headers:
            low, high = headers["range"].removeprefix("bytes=").split("-")
            start = int(low) if low else max(0, size - int(high))
            end = min(size, int(high) + 1) if low and high else size
            status = HTTPStatus.PARTIAL_CONTENT
            more["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        return status, more, bytes(store.get(key, start, end))

    def _list(self, query: dict[str, list[str]]) -> Answer:
        def said(name: str, default: str = "") -> str:
            return query.get(name, [default])[0]

        most = int(said("max-keys", "1000"))
        found = self.cloud.store.list(said("prefix"), start_after=said("start-after"), limit=most)
        rows = "".join(
            f"<Contents><Key>{escape(quote(each.key))}</Key>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<Size>{each.size}</Size></Contents>"
            for each in found
        )
        truncated = "true" if len(found) == most else "false"
        words = (
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{BUCKET}</Name><EncodingType>url</EncodingType><KeyCount>{len(found)}</KeyCount>"
            f"<IsTruncated>{truncated}</IsTruncated>{rows}</ListBucketResult>"
        )
        return HTTPStatus.OK, {"Content-Type": "application/xml"}, words.encode()

    def _of_table(self, what: str, request: dict[str, Any]) -> Answer:
        row: dict[str, Any] = {}
        if what == "DescribeTable":
            row = {"Table": {"TableId": self.cloud.catalog.table_id()}}
        elif what == "GetItem":
            row = self._item(request["Key"])
        elif what not in ("PutItem", "UpdateItem"):  # heartbeats: nobody reads them here
            return HTTPStatus.NOT_IMPLEMENTED, {}, b""
        return (
            HTTPStatus.OK,
            {"Content-Type": "application/x-amz-json-1.0"},
            json.dumps(row).encode(),
        )

    def _item(self, key: dict[str, Any]) -> dict[str, Any]:
        partition = key[CATALOG_PARTITION_KEY]["S"]
        if key[CATALOG_SORT_KEY]["S"] != CATALOG_ITEM or not partition.startswith(PREFIX):
            return {}
        item = self.cloud.catalog.get(partition.removeprefix(PREFIX))
        if item is None:
            return {}
        state = state_values(item.state, item.revision, item.undelete_until, item.state_token)
        values = {**summary_values(item), **name_values(item.name), **state}
        values["table_id"] = {"S": item.table_id}
        return {"Item": {**key, **values}}
