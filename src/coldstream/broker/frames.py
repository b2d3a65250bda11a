"""Frames of the RabbitMQ stream protocol, as a client writes and reads them; no I/O.

Source: rabbitmq-server, deps/rabbitmq_stream/docs/PROTOCOL.adoc; measured on 3.10.8 and 4.3.6.

    frame    u32 size of the rest, u16 key (0x8000 set in responses), u16 version, fields
    string   i16 length, UTF-8; -1 for none
    bytes    i32 length
    array    i32 count

All numbers are big endian. What comes from the network is bounded before it is believed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TypeVar

from coldstream.errors import InvalidInputError, UnavailableError

RESPONSE = 0x8000
VERSION = 1
#: No frame but a Deliver is larger; what a Deliver carries is not kept.
MAX_FRAME = 2**20
_MAX_ARRAY = 100_000
T = TypeVar("T")


class Key(IntEnum):
    """Commands that are sent or understood here."""

    SUBSCRIBE = 7
    DELIVER = 8
    CREDIT = 9
    UNSUBSCRIBE = 12
    METADATA = 15
    PEER_PROPERTIES = 17
    SASL_HANDSHAKE = 18
    SASL_AUTHENTICATE = 19
    TUNE = 20
    OPEN = 21
    CLOSE = 22
    HEARTBEAT = 23


class Code(IntEnum):
    """What a response says."""

    OK = 1
    NO_STREAM = 2
    NOT_AVAILABLE = 6
    AUTHENTICATION_FAILED = 8
    NO_VHOST = 12
    ACCESS_REFUSED = 16


class OffsetType(IntEnum):
    """Where a subscription begins."""

    FIRST = 1
    LAST = 2
    OFFSET = 4


def frame(key: Key, body: bytes, *, response: bool = False) -> bytes:
    """A whole frame."""
    number = key | (RESPONSE if response else 0)
    return struct.pack(">IHH", len(body) + 4, number, VERSION) + body


def string(text: str) -> bytes:
    """A string field.

    Raises:
        InvalidInputError: it is longer than one can be.
    """
    data = text.encode()
    if len(data) > 0x7FFF:
        raise InvalidInputError("a string of more than 32,767 bytes")
    return struct.pack(">h", len(data)) + data


def binary(data: bytes) -> bytes:
    """A field of bytes."""
    return struct.pack(">i", len(data)) + data


def properties(pairs: Mapping[str, str]) -> bytes:
    """An array of pairs of strings."""
    rows = b"".join(string(name) + string(value) for name, value in pairs.items())
    return struct.pack(">i", len(pairs)) + rows


def subscribe(subscription: int, stream: str, where: OffsetType, *, offset: int = 0) -> bytes:
    """The fields of a Subscribe for one chunk, behind the correlation id."""
    value = struct.pack(">Q", offset) if where is OffsetType.OFFSET else b""
    return (
        struct.pack(">B", subscription)
        + string(stream)
        + struct.pack(">H", where)
        + value
        + struct.pack(">H", 1)
    )


class Fields:
    """Reads the fields of one frame, in order; of no use is a peer whose frames are none.

    Args:
        data: the frame behind its key and version.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, code: str) -> int:
        """A number, by its code of `struct`.

        Raises:
            UnavailableError: the frame ends before it.
        """
        size = struct.calcsize(">" + code)
        return int(struct.unpack(">" + code, self._take(size))[0])

    def string(self) -> str:
        """A string; "" for none; raises as `number`."""
        size = self.number("h")
        return "" if size < 0 else self._take(size).decode("utf-8", "replace")

    def array(self, read: Callable[[Fields], T]) -> list[T]:
        """An array; raises as `number`."""
        count = self.number("i")
        if not 0 <= count <= _MAX_ARRAY:
            raise UnavailableError(f"an array of {count} in a frame of the stream protocol")
        return [read(self) for _ in range(count)]

    def _take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise UnavailableError("a frame of the stream protocol ends too early")
        data = self._data[self._at : self._at + size]
        self._at += size
        return data
