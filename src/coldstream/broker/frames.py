"""Frames of the RabbitMQ stream protocol, as both sides write and read them; no I/O.

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


class FrameError(UnavailableError):
    """A peer sends what is no frame of the protocol."""


class Key(IntEnum):
    """Commands that are sent or understood here."""

    DECLARE_PUBLISHER = 1
    PUBLISH = 2
    PUBLISH_CONFIRM = 3
    PUBLISH_ERROR = 4
    QUERY_PUBLISHER_SEQUENCE = 5
    DELETE_PUBLISHER = 6
    SUBSCRIBE = 7
    DELIVER = 8
    CREDIT = 9
    STORE_OFFSET = 10
    QUERY_OFFSET = 11
    UNSUBSCRIBE = 12
    CREATE = 13
    DELETE = 14
    METADATA = 15
    METADATA_UPDATE = 16
    PEER_PROPERTIES = 17
    SASL_HANDSHAKE = 18
    SASL_AUTHENTICATE = 19
    TUNE = 20
    OPEN = 21
    CLOSE = 22
    HEARTBEAT = 23
    ROUTE = 24
    PARTITIONS = 25
    CONSUMER_UPDATE = 26
    COMMAND_VERSIONS = 27
    STREAM_STATS = 28
    CREATE_SUPER_STREAM = 29
    DELETE_SUPER_STREAM = 30
    RESOLVE_OFFSET = 31


class Code(IntEnum):
    """What a response says."""

    OK = 1
    NO_STREAM = 2
    SUBSCRIPTION_EXISTS = 3
    NO_SUBSCRIPTION = 4
    STREAM_EXISTS = 5
    NOT_AVAILABLE = 6
    NO_MECHANISM = 7
    AUTHENTICATION_FAILED = 8
    SASL_ERROR = 9
    NO_VHOST = 12
    UNKNOWN_FRAME = 13
    FRAME_TOO_LARGE = 14
    INTERNAL_ERROR = 15
    ACCESS_REFUSED = 16
    PRECONDITION_FAILED = 17
    NO_PUBLISHER = 18
    NO_OFFSET = 19


class OffsetType(IntEnum):
    """Where a subscription begins; NONE only in the answer to a ConsumerUpdate."""

    NONE = 0
    FIRST = 1
    LAST = 2
    NEXT = 3
    OFFSET = 4
    TIMESTAMP = 5


def frame(key: int, body: bytes, *, response: bool = False, version: int = VERSION) -> bytes:
    """A whole frame."""
    number = key | (RESPONSE if response else 0)
    return struct.pack(">IHH", len(body) + 4, number, version) + body


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


def subscribe(
    subscription: int,
    stream: str,
    where: OffsetType,
    *,
    offset: int = 0,
    credit: int = 1,
    more: Mapping[str, str] | None = None,
) -> bytes:
    """The fields of a Subscribe, behind the correlation id.

    Args:
        subscription: its number.
        stream: name.
        where: where it begins.
        offset: for OFFSET an offset, for TIMESTAMP ms since the Unix epoch.
        credit: chunks that may be delivered.
        more: properties.
    """
    value = b""
    if where in (OffsetType.OFFSET, OffsetType.TIMESTAMP):
        value = struct.pack(">Q" if where is OffsetType.OFFSET else ">q", offset)
    return (
        struct.pack(">B", subscription)
        + string(stream)
        + struct.pack(">H", where)
        + value
        + struct.pack(">H", credit)
        + (properties(more) if more else b"")
    )


_NUMBERS = {code: struct.Struct(">" + code) for code in "bBhHiIqQ"}
_TOO_EARLY = "a frame of the stream protocol ends too early"


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
            FrameError: the frame ends before it.
        """
        layout = _NUMBERS[code]
        if self._at + layout.size > len(self._data):
            raise FrameError(_TOO_EARLY)
        value: int = layout.unpack_from(self._data, self._at)[0]
        self._at += layout.size
        return value

    def string(self) -> str:
        """A string; "" for none; raises as `number`."""
        size = self.number("h")
        return "" if size < 0 else self._take(size).decode("utf-8", "replace")

    def array(self, read: Callable[[Fields], T], most: int = _MAX_ARRAY) -> list[T]:
        """An array of at most `most` items; raises as `number`."""
        count = self.number("i")
        if not 0 <= count <= most:
            raise FrameError(f"an array of {count} in a frame of the stream protocol")
        return [read(self) for _ in range(count)]

    @property
    def left(self) -> int:
        """Bytes that have not been read."""
        return len(self._data) - self._at

    def binary(self) -> bytes:
        """Bytes; none where there are none; raises as `number`."""
        return self._take(max(self.number("i"), 0))

    def rest(self) -> bytes:
        """All that has not been read."""
        return self._take(self.left)

    def skip(self, size: int) -> None:
        """Pass over bytes; raises as `number`."""
        self._take(size)

    def _take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise FrameError(_TOO_EARLY)
        data = self._data[self._at : self._at + size]
        self._at += size
        return data
