"""What a client is answered, as bytes of frames; no I/O. Layouts as in `requests`."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

from coldstream.broker.frames import VERSION, Code, Key, OffsetType, frame, properties
from coldstream.broker.frames import string as text

#: As the broker's own default; no frame of a client is longer.
FRAME_MAX = 2**20
NO_NODE = 0xFFFF
DELIVER_V2 = 2

#: (key, lowest, highest) version. rstream takes the n-th row for the command with the number n, as
#: far as 2, so those that are refused stand here, too.
VERSIONS = (
    (Key.DECLARE_PUBLISHER, 1, 1),
    (Key.PUBLISH, 1, 2),
    (Key.QUERY_PUBLISHER_SEQUENCE, 1, 1),
    (Key.DELETE_PUBLISHER, 1, 1),
    (Key.SUBSCRIBE, 1, 1),
    (Key.DELIVER, 1, DELIVER_V2),
    (Key.CREDIT, 1, 1),
    (Key.STORE_OFFSET, 1, 1),
    (Key.QUERY_OFFSET, 1, 1),
    (Key.UNSUBSCRIBE, 1, 1),
    (Key.CREATE, 1, 1),
    (Key.DELETE, 1, 1),
    (Key.METADATA, 1, 1),
    (Key.CLOSE, 1, 1),
    (Key.HEARTBEAT, 1, 1),
    (Key.ROUTE, 1, 1),
    (Key.PARTITIONS, 1, 1),
    (Key.CONSUMER_UPDATE, 1, 1),
    (Key.COMMAND_VERSIONS, 1, 1),
    (Key.STREAM_STATS, 1, 1),
    (Key.CREATE_SUPER_STREAM, 1, 1),
    (Key.DELETE_SUPER_STREAM, 1, 1),
    (Key.RESOLVE_OFFSET, 1, 1),
)
#: What follows the code of a refusal, where anything does: as a broker has it, and clients read it.
_NOTHING = {
    Key.QUERY_OFFSET: struct.pack(">Q", 0),
    Key.QUERY_PUBLISHER_SEQUENCE: struct.pack(">Q", 0),
    Key.PARTITIONS: struct.pack(">i", 0),
    Key.ROUTE: struct.pack(">i", 0),
    Key.STREAM_STATS: struct.pack(">i", 0),
    Key.RESOLVE_OFFSET: struct.pack(">HQ", OffsetType.OFFSET, 0),
}
_DELIVER = struct.Struct(">IHHB")
_DELIVER_V2 = struct.Struct(">IHHBQ")


def response(key: Key, correlation: int, code: Code = Code.OK, more: bytes = b"") -> bytes:
    """A response, with what follows its code."""
    if code != Code.OK:
        more = _NOTHING.get(key, b"")
    return frame(key, struct.pack(">IH", correlation, code) + more, response=True)


def peer_properties(correlation: int, version: str) -> bytes:
    """Who we are. Clients decide by `version` which commands they send; ours are those of 4.x."""
    told = {
        "product": "coldstream gateway",
        "version": "4.0.0",
        "platform": f"coldstream {version}",
        "information": "read side of the RabbitMQ stream protocol",
    }
    return response(Key.PEER_PROPERTIES, correlation, more=properties(told))


def mechanisms(correlation: int) -> bytes:
    """PLAIN."""
    return response(Key.SASL_HANDSHAKE, correlation, more=struct.pack(">i", 1) + text("PLAIN"))


def tune(heartbeat: int) -> bytes:
    """What we propose; `heartbeat` in seconds."""
    return frame(Key.TUNE, struct.pack(">II", FRAME_MAX, heartbeat))


def opened(correlation: int, host: str, port: int) -> bytes:
    """Where clients find the streams: here. The same as in `metadata`, clients compare them."""
    told = {"advertised_host": host, "advertised_port": str(port)}
    return response(Key.OPEN, correlation, more=properties(told))


def versions(correlation: int) -> bytes:
    """Versions of all commands that are understood."""
    rows = b"".join(struct.pack(">HHH", *row) for row in VERSIONS)
    more = struct.pack(">i", len(VERSIONS)) + rows
    return response(Key.COMMAND_VERSIONS, correlation, more=more)


def metadata(correlation: int, host: str, port: int, streams: Mapping[str, Code]) -> bytes:
    """Of each stream: it is here, or the code that says why it is nowhere.

    This node is the writer's, and the replica's: clients take one or the other.
    """
    nodes = struct.pack(">iH", 1, 0) + text(host) + struct.pack(">I", port)
    rows = b""
    for name, code in streams.items():
        if code is Code.OK:
            rows += text(name) + struct.pack(">HHiH", code, 0, 1, 0)
        else:
            rows += text(name) + struct.pack(">HHi", code, NO_NODE, 0)
    body = struct.pack(">I", correlation) + nodes + struct.pack(">i", len(streams)) + rows
    return frame(Key.METADATA, body, response=True)


def stored_offset(correlation: int, offset: int) -> bytes:
    """An offset that a consumer has stored."""
    return response(Key.QUERY_OFFSET, correlation, more=struct.pack(">Q", offset))


def statistics(correlation: int, numbers: Mapping[str, int]) -> bytes:
    """Of a stream."""
    rows = b"".join(text(name) + struct.pack(">q", value) for name, value in numbers.items())
    more = struct.pack(">i", len(numbers)) + rows
    return response(Key.STREAM_STATS, correlation, more=more)


def resolved(correlation: int, offset: int) -> bytes:
    """The offset that a spec means."""
    more = struct.pack(">HQ", OffsetType.OFFSET, offset)
    return response(Key.RESOLVE_OFFSET, correlation, more=more)


def names(key: Key, correlation: int, found: Sequence[str]) -> bytes:
    """Streams of a super stream."""
    more = struct.pack(">i", len(found)) + b"".join(text(each) for each in found)
    return response(key, correlation, more=more)


def turn(correlation: int, subscription: int, *, active: bool) -> bytes:
    """A consumer is the active one of its group from now on, or it is not any more."""
    return frame(Key.CONSUMER_UPDATE, struct.pack(">IBB", correlation, subscription, active))


def no_credit(subscription: int) -> bytes:
    """There is no such subscription to give credit to."""
    body = struct.pack(">HB", Code.NO_SUBSCRIPTION, subscription)
    return frame(Key.CREDIT, body, response=True)


def publish_error(publisher: int, ids: Iterable[int]) -> bytes:
    """No message was taken: nobody has such a publisher here."""
    rows = [struct.pack(">QH", each, Code.NO_PUBLISHER) for each in ids]
    return frame(Key.PUBLISH_ERROR, struct.pack(">Bi", publisher, len(rows)) + b"".join(rows))


def gone(stream: str, code: Code = Code.NOT_AVAILABLE) -> bytes:
    """A stream can no longer be read here; the client loses its subscriptions to it."""
    return frame(Key.METADATA_UPDATE, struct.pack(">H", code) + text(stream))


def closing(code: Code, reason: str) -> bytes:
    """We end the connection."""
    return frame(Key.CLOSE, struct.pack(">IH", 1, code) + text(reason[:500]))


def heartbeat() -> bytes:
    """We live."""
    return frame(Key.HEARTBEAT, b"")


def deliver(subscription: int, size: int, committed: int, version: int) -> bytes:
    """The beginning of a Deliver; a chunk of `size` bytes follows it.

    Args:
        subscription: its number.
        size: bytes of the chunk's header and data.
        committed: offset up to which all is committed; told by version 2.
        version: of Deliver.
    """
    if version >= DELIVER_V2:
        length = _DELIVER_V2.size - 4 + size
        return _DELIVER_V2.pack(length, Key.DELIVER, version, subscription, committed)
    return _DELIVER.pack(_DELIVER.size - 4 + size, Key.DELIVER, VERSION, subscription)
