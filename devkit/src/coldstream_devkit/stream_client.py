"""A blocking client of RabbitMQ's stream protocol that says exactly what happened to it.

A campaign kills brokers under its clients. A stock client then waits, retries and reconnects in its
own way; this one raises at once, so that its user knows which messages were confirmed, and by whom.
Messages are confirmed, and delivered, as the broker says, without any AMQP.
"""

from __future__ import annotations

import gzip
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from coldstream.broker.frames import RESPONSE, Fields, binary, properties, string
from coldstream.errors import ColdstreamError
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE, parse_chunk_header

_DECLARE, _PUBLISH, _CONFIRM, _ERROR = 1, 2, 3, 4
_SUBSCRIBE, _DELIVER, _CREDIT, _STORE = 7, 8, 9, 10
_CREATE, _DELETE, _METADATA, _UPDATE = 13, 14, 15, 16
_PEER, _HANDSHAKE, _AUTHENTICATE, _TUNE, _OPEN, _CLOSE, _HEARTBEAT = 17, 18, 19, 20, 21, 22, 23
_OK, _EXISTS = 1, 5
_FIRST, _OFFSET = 1, 4
_SUB_BATCH, _GZIP = 0x80, 1
_BLOCK = 2**18
_MAX_FRAME = 2**20


class ClientError(Exception):
    """The broker refuses, is gone, or does not answer in time; the client is of no use any more.

    Args:
        message: what happened.
        code: of the broker's answer; 0 if it gave none.
    """

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class RefusedError(ClientError):
    """The broker did not take a message; it may take it later."""


class Delivered(NamedTuple):
    """A chunk of messages as the broker delivers it.

    Attributes:
        first: offset of its first message.
        epoch: of the leader that wrote it.
        bodies: of its messages, in order.
    """

    first: int
    epoch: int
    bodies: list[bytes]


class StreamClient:
    """Logged in as guest to the virtual host / of one node.

    Args:
        port: on 127.0.0.1.
        seconds: to wait for each answer.

    Raises:
        ClientError: as all its methods.
    """

    def __init__(self, port: int, *, seconds: float = 5.0) -> None:
        self._seconds, self._correlation = seconds, 0
        self._kept = bytearray()
        self._confirmed: deque[int] = deque()
        self._refused: deque[int] = deque()
        self._chunks: deque[Delivered] = deque()
        self.moved = False
        try:
            self._socket = socket.create_connection(("127.0.0.1", port), timeout=seconds)
        except OSError as exc:
            raise ClientError(f"{port}: {exc}") from exc
        try:
            self._ask(_PEER, properties({"product": "coldstream-devkit"}))
            self._ask(_HANDSHAKE, b"")
            self._ask(_AUTHENTICATE, string("PLAIN") + binary(b"\0guest\0guest"))
            self._until(lambda key: key == _TUNE)
            self._send(_TUNE, struct.pack(">II", _MAX_FRAME, 60))
            self._ask(_OPEN, string("/"))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Hang up."""
        with suppress(OSError):
            self._socket.close()

    def create(self, stream: str, arguments: Mapping[str, str]) -> None:
        """Create a stream, or find it."""
        self._ask(_CREATE, string(stream) + properties(arguments), also=_EXISTS)

    def delete(self, stream: str) -> None:
        """Delete a stream."""
        self._ask(_DELETE, string(stream))

    def leader(self, stream: str) -> int | None:
        """The stream port of the leader; None if there is none that the broker knows of."""
        self._correlation += 1
        body = struct.pack(">Ii", self._correlation, 1) + string(stream)
        self._send(_METADATA, body)
        fields = self._until(lambda key: key == _METADATA | RESPONSE)
        fields.number("I")
        nodes = {number: port for number, _, port in fields.array(_broker)}
        for _, code, leader, _ in fields.array(_row):
            return nodes.get(leader) if code == _OK else None
        return None

    def declare(self, stream: str, reference: str = "") -> None:
        """Become the publisher of a stream; with a reference, the broker drops what it has."""
        self._ask(_DECLARE, struct.pack(">B", 0) + string(reference) + string(stream))

    def publish(self, messages: Sequence[tuple[int, bytes]]) -> None:
        """Send messages with their publishing ids."""
        rows = b"".join(struct.pack(">Q", number) + binary(body) for number, body in messages)
        self._send(_PUBLISH, struct.pack(">Bi", 0, len(messages)) + rows)

    def publish_filtered(self, messages: Sequence[tuple[int, str, bytes]]) -> None:
        """Send messages with their publishing ids and filter values; 4.x only."""
        rows = b"".join(
            struct.pack(">Q", number) + string(value) + binary(body)
            for number, value, body in messages
        )
        self._send(_PUBLISH, struct.pack(">Bi", 0, len(messages)) + rows, version=2)

    def publish_together(self, number: int, bodies: Sequence[bytes]) -> None:
        """Send messages as one entry, compressed with gzip, under one publishing id."""
        raw = b"".join(struct.pack(">I", len(body)) + body for body in bodies)
        packed = gzip.compress(raw, 1)
        entry = struct.pack(">BHII", _SUB_BATCH | _GZIP << 4, len(bodies), len(raw), len(packed))
        self._send(_PUBLISH, struct.pack(">BiQ", 0, 1, number) + entry + packed)

    def confirmed(self, seconds: float) -> list[int]:
        """Publishing ids that were confirmed since; waits so long for the first.

        Raises:
            RefusedError: the broker refuses a message.
            ClientError: the connection is no good any more.
        """
        self._poll(seconds, self._confirmed)
        if self._refused:
            raise RefusedError("a message was refused")
        found = list(self._confirmed)
        self._confirmed.clear()
        return found

    def store_offset(self, stream: str, reference: str, offset: int) -> None:
        """Store an offset in the stream, as consumers do; nothing answers."""
        self._send(_STORE, string(reference) + string(stream) + struct.pack(">Q", offset))

    def subscribe(self, stream: str, offset: int = 0) -> None:
        """Have chunks delivered, from the one that holds `offset` or the first one above it."""
        where = struct.pack(">HQ", _OFFSET, offset) if offset else struct.pack(">H", _FIRST)
        self._ask(_SUBSCRIBE, struct.pack(">B", 0) + string(stream) + where + struct.pack(">H", 10))

    def delivered(self, seconds: float) -> list[Delivered]:
        """Chunks that have come; waits so long for the first."""
        self._poll(seconds, self._chunks)
        found = list(self._chunks)
        self._chunks.clear()
        return found

    def _poll(self, seconds: float, into: deque[int] | deque[Delivered]) -> None:
        deadline = time.monotonic() + seconds
        while self._whole() or not into:
            frame = self._frame(deadline)
            if frame is None:
                return
            self._take(*frame)

    def _ask(self, key: int, body: bytes, *, also: int = _OK) -> Fields:
        self._correlation += 1
        self._send(key, struct.pack(">I", self._correlation) + body)
        fields = self._until(lambda found: found == key | RESPONSE)
        fields.number("I")
        code = fields.number("H")
        if code not in (_OK, also):
            raise ClientError(f"command {key} is answered with code {code}", code)
        return fields

    def _until(self, wanted: Callable[[int], bool]) -> Fields:
        deadline = time.monotonic() + self._seconds
        while (frame := self._frame(deadline)) is not None:
            key, body = frame
            if wanted(key):
                return Fields(body)
            self._take(key, body)
        raise ClientError("no answer in time")

    def _take(self, key: int, body: bytes) -> None:
        """What the broker sends by itself."""
        if key == _HEARTBEAT:
            self._send(_HEARTBEAT, b"")
        elif key == _CONFIRM:
            self._confirmed.extend(struct.unpack(f">{(len(body) - 5) // 8}Q", body[5:]))
        elif key == _ERROR:
            self._refused.append(1)
        elif key == _DELIVER:
            self._chunks.append(_parsed(body[1:]))
            self._send(_CREDIT, struct.pack(">BH", 0, 1))
        elif key == _UPDATE:
            self.moved = True
        elif key == _CLOSE:
            raise ClientError("the broker closes the connection")

    def _send(self, key: int, body: bytes, *, version: int = 1) -> None:
        try:
            self._socket.settimeout(self._seconds)
            self._socket.sendall(struct.pack(">IHH", len(body) + 4, key, version) + body)
        except OSError as exc:
            raise ClientError(f"the broker hung up: {exc}") from exc

    def _whole(self) -> bool:
        kept = self._kept
        return len(kept) >= 4 and len(kept) >= 4 + int(struct.unpack_from(">I", kept)[0])

    def _frame(self, deadline: float) -> tuple[int, bytes] | None:
        """The next frame; None if none comes in time."""
        while not self._whole():
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            try:
                self._socket.settimeout(left)
                block = self._socket.recv(_BLOCK)
            except TimeoutError:
                return None
            except OSError as exc:
                raise ClientError(f"the broker hung up: {exc}") from exc
            if not block:
                raise ClientError("the broker hung up")
            self._kept += block
        size = struct.unpack_from(">I", self._kept)[0]
        frame = bytes(self._kept[4 : 4 + size])
        del self._kept[: 4 + size]
        return struct.unpack_from(">H", frame)[0], frame[4:]


def _broker(fields: Fields) -> tuple[int, str, int]:
    return fields.number("H"), fields.string(), fields.number("I")


def _row(fields: Fields) -> tuple[str, int, int, list[int]]:
    name, code, leader = fields.string(), fields.number("H"), fields.number("H")
    return name, code, leader, fields.array(lambda each: each.number("H"))


def _parsed(chunk: bytes) -> Delivered:
    """A chunk as it is delivered: without filter and trailer, whatever its header says."""
    try:
        header = parse_chunk_header(chunk[:CHUNK_HEADER_SIZE])
    except ColdstreamError as exc:
        raise ClientError(f"a chunk is none: {exc}") from exc
    bodies = list(_bodies(chunk[CHUNK_HEADER_SIZE:]))
    if len(bodies) != header.records:
        raise ClientError(f"the chunk {header.chunk_id} has {len(bodies)} messages")
    return Delivered(header.chunk_id, header.epoch, bodies)


def _bodies(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        if data[at] & _SUB_BATCH:
            kind, _, _, size = struct.unpack_from(">BHII", data, at)
            packed = data[at + 11 : at + 11 + size]
            at += 11 + size
            raw = gzip.decompress(packed) if kind >> 4 & 7 == _GZIP else packed
            yield from _bodies(raw)
        else:
            size = struct.unpack_from(">I", data, at)[0]
            yield data[at + 4 : at + 4 + size]
            at += 4 + size
