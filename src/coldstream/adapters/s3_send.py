"""The object store of the agent: its PUTs go on for as long as their bytes move.

A request is made and signed by boto3; where botocore would send it, `wire` does. Everything else
is as in `S3ObjectStore`. No attempt is repeated by botocore: whoever uploads sees each failure, and
decides when the next one begins.
"""

from __future__ import annotations

import base64
import http.client
import io
import os
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import ClientError, HTTPClientError
from botocore.utils import get_environ_proxies

from coldstream.adapters.aws_errors import code_of
from coldstream.adapters.s3 import S3ObjectStore
from coldstream.adapters.s3_boto import WRITE_ID, BotoObjectStore
from coldstream.adapters.wire import BrokenWireError, Pace, Unpaced, Waits, Wire
from coldstream.crc import crc32
from coldstream.errors import UnavailableError
from coldstream.fragment import Buffer
from coldstream.ports.objects import CutShortError

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest
    from mypy_boto3_s3 import S3Client

#: What S3 says when it has not even looked at a request.
_NOT_NOW = frozenset({"SlowDown", "ServiceUnavailable", "Throttling", "TooManyRequests"})
_NOT_NOW_STATUS = frozenset({429, 503})
#: What it says when it got other bytes than the checksum is of; the same would be refused again.
_CHANGED = frozenset({"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch"})
#: botocore asks for a "100 Continue"; an answer that comes early is seen anyway.
_LEFT_OUT = frozenset({"expect", "connection", "transfer-encoding"})
#: More attempts are the uploader's, after a pause.
_ATTEMPTS = 2
_KEPT = 64


class _Body:
    """Bytes that botocore takes for a file, and never copies where it does not hash them."""

    def __init__(self, data: Buffer) -> None:
        self.data = memoryview(data)
        self._at = 0

    def __len__(self) -> int:
        return len(self.data)

    def read(self, size: int | None = -1) -> bytes:
        """As a file does."""
        end = len(self.data) if size is None or size < 0 else self._at + size
        found = bytes(self.data[self._at : end])
        self._at += len(found)
        return found

    def tell(self) -> int:
        """As a file does."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """As a file does."""
        self._at = offset + (0, self._at, len(self.data))[whence]
        return self._at


class _WireError(HTTPClientError):
    """A `BrokenWireError` on its way through botocore."""

    fmt = "{broken}"

    def __init__(self, broken: BrokenWireError) -> None:
        super().__init__(broken=broken)
        self.broken = broken


class Sender:
    """Sends requests that botocore has prepared, on connections that it keeps.

    Args:
        waits: how long nothing may happen.
        pace: of all bodies together.
        ended: whether what is under way is to be given up.
    """

    def __init__(
        self,
        waits: Waits | None = None,
        pace: Pace | None = None,
        ended: Callable[[], bool] = lambda: False,
    ) -> None:
        self.waits = waits or Waits()
        self._pace, self._ended = pace or Unpaced(), ended
        self._idle: dict[tuple[str, str], list[Wire]] = {}
        self._lock = threading.Lock()
        self._trust: ssl.SSLContext | None = None

    def send(self, request: AWSPreparedRequest, **_: Any) -> Any:
        """The answer to a request, an `AWSResponse`: a handler of botocore's `before-send`.

        Raises:
            _WireError: there is none.
        """
        data: Any = request.body
        body: Buffer = data.data if isinstance(data, _Body) else bytes(data or b"")
        url = urllib.parse.urlsplit(request.url)
        proxy = get_environ_proxies(request.url).get(url.scheme, "")
        place = (f"{url.scheme}://{url.netloc}", proxy)
        head = _head(request, url, through=bool(proxy) and url.scheme == "http")
        try:
            wire = self._wire(url, proxy, place)
            try:
                answer = wire.exchange(head, body)
            except BrokenWireError:
                wire.close()
                raise
        except BrokenWireError as exc:
            raise _WireError(exc) from exc
        self._keep(place, wire, over=answer.closes)
        headers = HTTPHeaders()
        for name, value in answer.headers:
            headers[name] = value
        return AWSResponse(request.url, answer.status, headers, _Raw(answer.body))

    def close(self) -> None:
        """Close the connections that wait for a request."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for wire in (each for wires in idle.values() for each in wires):
            wire.close()

    def _wire(self, url: urllib.parse.SplitResult, proxy: str, place: tuple[str, str]) -> Wire:
        while (wire := self._idle_one(place)) is not None:
            if wire.is_fresh():
                return wire
            wire.close()
        try:
            connected = self._connected(url, proxy)
        except (OSError, http.client.HTTPException) as exc:
            raise BrokenWireError(f"no connection to {url.netloc}: {exc}") from exc
        return Wire(connected, self.waits, self._pace, self._ended)

    def _idle_one(self, place: tuple[str, str]) -> Wire | None:
        with self._lock:
            idle = self._idle.get(place)
            return idle.pop() if idle else None

    def _connected(self, url: urllib.parse.SplitResult, proxy: str) -> Any:
        """A socket to the endpoint, perhaps through an HTTP proxy."""
        secure = url.scheme == "https"
        host, port = url.hostname or "", url.port or (443 if secure else 80)
        through = urllib.parse.urlsplit(proxy) if proxy else None
        near = (through.hostname or "", through.port or 80) if through else (host, port)
        made: http.client.HTTPConnection
        if secure:
            made = http.client.HTTPSConnection(
                *near, timeout=self.waits.connect, context=self._trusted()
            )
        else:
            made = http.client.HTTPConnection(*near, timeout=self.waits.connect)
        if secure and through is not None:
            made.set_tunnel(host, port, _proxy_headers(through))
        made.connect()
        return made.sock

    def _trusted(self) -> ssl.SSLContext:
        with self._lock:
            if self._trust is None:
                self._trust = ssl.create_default_context()
                if bundle := os.environ.get("AWS_CA_BUNDLE"):
                    self._trust.load_verify_locations(bundle)
            return self._trust

    def _keep(self, place: tuple[str, str], wire: Wire, *, over: bool) -> None:
        with self._lock:
            idle = self._idle.setdefault(place, [])
            if not over and len(idle) < _KEPT:
                idle.append(wire)
                return
        wire.close()


class _Raw(io.BytesIO):
    """An answer's body, as botocore reads it."""

    def stream(self, **_: Any) -> Any:
        """All, in one piece."""
        yield self.read()


def _head(request: AWSPreparedRequest, url: urllib.parse.SplitResult, *, through: bool) -> bytes:
    """Request line and headers.

    Args:
        request: signed.
        url: of it.
        through: whether a proxy gets it in clear, which wants to know the whole address.
    """
    rows = {"Host": url.netloc.rpartition("@")[2]}
    headers: Any = request.headers
    for name, value in headers.items():
        if name.lower() not in _LEFT_OUT:
            rows[name] = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    if through:
        rows |= _proxy_headers(urllib.parse.urlsplit(get_environ_proxies(request.url)["http"]))
    target = request.url if through else urllib.parse.urlunsplit(("", "", url.path, url.query, ""))
    lines = [f"{request.method} {target} HTTP/1.1", *(f"{each}: {rows[each]}" for each in rows)]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header has a line break")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _proxy_headers(proxy: urllib.parse.SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    words = urllib.parse.unquote(f"{proxy.username}:{proxy.password or ''}")
    return {"Proxy-Authorization": "Basic " + base64.b64encode(words.encode()).decode()}


class _Puts(BotoObjectStore):
    """Whose objects are sent by a `Sender`."""

    def _create(self, key: str, body: Buffer, write_id: str, crc: int | None) -> None:
        # What was checked on its way here is not read once more for S3, who compares it anyway.
        known = crc32(body) if crc is None else crc
        checksum = base64.b64encode(known.to_bytes(4, "big")).decode()
        try:
            self._client.put_object(
                Bucket=self._bucket,
                Key=key,
                Body=_Body(body),  # type: ignore[arg-type]  # it is enough of a file
                IfNoneMatch="*",
                ChecksumCRC32=checksum,
                Metadata={WRITE_ID: write_id},
            )
        except _WireError as exc:
            if exc.broken.whole:
                raise  # nobody knows whether it has landed
            words = f"S3 did not get the object: {exc.broken}"
            if exc.broken.sent:
                raise CutShortError(words, key=key, sent=exc.broken.sent) from exc
            raise UnavailableError(words, key=key) from exc
        except ClientError as exc:
            if code_of(exc) in _CHANGED:
                words = f"the bytes are no longer those that were checked: {code_of(exc)}"
                raise UnavailableError(words, key=key) from exc
            status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if code_of(exc) in _NOT_NOW or status in _NOT_NOW_STATUS:
                raise UnavailableError(
                    f"S3 refused the object for now: {code_of(exc)}", key=key
                ) from exc
            raise


class SendingObjectStore(S3ObjectStore):
    """An `S3ObjectStore` whose PUTs have no deadline.

    Args:
        bucket: name.
        region: of it; "" for what the environment says.
        endpoint: URL of S3; "" for what the environment says.
        make_client: makes a boto3 client of the same S3 with the given options of its `Config`.
        sender: sends the PUTs.
        store: as in `S3ObjectStore`.
    """

    def __init__(
        self,
        *,
        bucket: str,
        region: str = "",
        endpoint: str = "",
        make_client: Callable[[Mapping[str, Any]], S3Client],
        sender: Sender,
        store: Any = None,
    ) -> None:
        super().__init__(bucket=bucket, region=region, endpoint=endpoint, store=store)
        client = _putting(make_client)
        client.meta.events.register("before-send.s3.PutObject", sender.send)
        self._sender, self._client = sender, client
        self._puts = _Puts(client=client, bucket=bucket, put_attempts=_ATTEMPTS)

    def put(self, key: str, body: Buffer, *, write_id: str, crc: int | None = None) -> None:
        """As `ObjectStore` says; CutShortError where the link broke before all was sent."""
        self._puts.put(key, body, write_id=write_id, crc=crc)

    def close(self) -> None:
        """Close what PUTs go by."""
        self._sender.close()
        self._client.close()


def _putting(make_client: Callable[[Mapping[str, Any]], S3Client]) -> S3Client:
    """A client that hashes bodies only where nothing else keeps them from being changed.

    To sign a body means its SHA-256, which costs more than all else. Over TLS the signed checksum
    is enough.
    """
    made = partial(_with_signed_bodies, make_client)
    client = made(False)
    return client if client.meta.endpoint_url.startswith("https:") else made(True)


def _with_signed_bodies(
    make_client: Callable[[Mapping[str, Any]], S3Client], signed: bool
) -> S3Client:
    return make_client(
        {
            "retries": {"mode": "standard", "total_max_attempts": 1},
            "request_checksum_calculation": "when_required",
            "s3": {"payload_signing_enabled": signed},
        }
    )
