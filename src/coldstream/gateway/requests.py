"""What a client asks, from the bytes of its frame; no I/O.

Layouts: rabbitmq-server, deps/rabbitmq_stream/docs/PROTOCOL.adoc, and sessions of rstream, rbfly
and the JavaScript client that were captured. Every length is checked against the frame, which is
bounded before it is read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from coldstream.broker.frames import RESPONSE, Code, Fields, FrameError, Key, OffsetType
from coldstream.reader.spec import First, Last, Next, Offset, OffsetSpec, Timestamp

#: Streams that one Metadata may ask for, and properties that a request may have.
MAX_NAMES, MAX_PROPERTIES = 1000, 200
#: Commands whose versions a client may name, and messages of a Publish, of which each is refused:
#: while a frame is parsed, all other clients wait.
MAX_VERSIONS, MAX_PUBLISHED = 256, 2000
SINGLE_ACTIVE_CONSUMER = "single-active-consumer"


@dataclass(frozen=True, slots=True)
class Unknown:
    """A frame of a command that is not one of the protocol's, or that no client sends."""

    key: int


@dataclass(frozen=True, slots=True)
class Silent:
    """A frame that wants no answer: a heartbeat."""

    key: Key


@dataclass(frozen=True, slots=True)
class Tuned:
    """The client's word on frames and heartbeats, which is what holds."""

    frame_max: int
    heartbeat: int


@dataclass(frozen=True, slots=True)
class Request:
    """Anything that has a correlation id and wants a response.

    Attributes:
        key: of the command.
        correlation: to be given back.
    """

    key: Key
    correlation: int


@dataclass(frozen=True, slots=True)
class Refusable(Request):
    """A command that changes something, and is always refused."""


@dataclass(frozen=True, slots=True)
class Authenticate(Request):
    """A login; `user` and `password` of PLAIN, "" for both where they cannot be read."""

    mechanism: str
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Named(Request):
    """A request about one name: a virtual host, a stream, a super stream, or a closing word.

    Attributes:
        name: the first.
        detail: a routing key, or a reference.
    """

    name: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Metadata(Request):
    """Where these streams are."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Versions(Request):
    """Which versions of commands the client speaks: (key, lowest, highest)."""

    versions: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Subscribe(Request):
    """Begin to deliver."""

    subscription: int
    stream: str
    spec: OffsetSpec
    credit: int
    properties: Mapping[str, str]

    @property
    def takes_turns(self) -> bool:
        """Whether it is a single active consumer: of all of its name, one is delivered to."""
        return self.properties.get(SINGLE_ACTIVE_CONSUMER, "false").lower() == "true"


@dataclass(frozen=True, slots=True)
class Unsubscribe(Request):
    """End it."""

    subscription: int


@dataclass(frozen=True, slots=True)
class TurnTaken:
    """The answer to a ConsumerUpdate: the client knows whether it is the active one.

    Attributes:
        correlation: of the ConsumerUpdate.
        spec: where it goes on; None for where its subscription begins, and where it steps down.
    """

    correlation: int
    spec: OffsetSpec | None


@dataclass(frozen=True, slots=True)
class Resolve(Request):
    """Which offset a spec means."""

    stream: str
    spec: OffsetSpec


@dataclass(frozen=True, slots=True)
class Credit:
    """So many more chunks may be delivered."""

    subscription: int
    credit: int


@dataclass(frozen=True, slots=True)
class Store:
    """Remember an offset of a consumer; there is no response."""

    reference: str
    stream: str
    offset: int


@dataclass(frozen=True, slots=True)
class Publish:
    """Messages, of which only the publishing ids are looked at."""

    publisher: int
    ids: tuple[int, ...]


AnyRequest = Request | Unknown | Silent | Tuned | Credit | Store | Publish | TurnTaken

_REFUSABLE = (
    Key.DECLARE_PUBLISHER,
    Key.QUERY_PUBLISHER_SEQUENCE,
    Key.DELETE_PUBLISHER,
    Key.CREATE,
    Key.DELETE,
    Key.CREATE_SUPER_STREAM,
    Key.DELETE_SUPER_STREAM,
)
_NAMED = (Key.OPEN, Key.STREAM_STATS, Key.PARTITIONS)


_CREDIT_KEY = struct.pack(">H", Key.CREDIT)
_CREDIT = struct.Struct(
    ">"
    "2x"  # version
    "B"  # subscription
    "H"  # credit
)
_CREDIT_SIZE = len(_CREDIT_KEY) + _CREDIT.size


def parse(data: bytes) -> AnyRequest:
    """The request in a frame.

    Args:
        data: the frame behind its size.

    Raises:
        FrameError: it ends too early, or claims more than it has.
    """
    if data.startswith(_CREDIT_KEY) and len(data) == _CREDIT_SIZE:
        return Credit(*_CREDIT.unpack_from(data, len(_CREDIT_KEY)))  # one for each chunk
    fields = Fields(data)
    number, version = fields.number("H"), fields.number("H")
    if number == Key.TUNE | RESPONSE:
        number = Key.TUNE  # the Java client answers so
    read = _READERS.get(number)
    return Unknown(number) if read is None else read(fields, version)


def _tuned(fields: Fields, _: int) -> AnyRequest:
    return Tuned(fields.number("I"), fields.number("I"))


def _heartbeat(_: Fields, __: int) -> AnyRequest:
    return Silent(Key.HEARTBEAT)


def _refusable(key: Key) -> Callable[[Fields, int], AnyRequest]:
    return lambda fields, _: Refusable(key, fields.number("I"))


def _plain(key: Key) -> Callable[[Fields, int], AnyRequest]:
    return lambda fields, _: Request(key, fields.number("I"))


def _named(key: Key) -> Callable[[Fields, int], AnyRequest]:
    return lambda fields, _: Named(key, fields.number("I"), fields.string())


def _authenticate(fields: Fields, _: int) -> AnyRequest:
    correlation, mechanism = fields.number("I"), fields.string()
    secret = fields.binary() if fields.left else b""
    # An identity to act as may stand before the user; nobody may act as another one here.
    parts = secret.split(b"\0")
    user = password = ""
    if len(parts) == 3 and parts[0] in (b"", parts[1]):
        user, password = (each.decode("utf-8", "replace") for each in parts[1:])
    return Authenticate(Key.SASL_AUTHENTICATE, correlation, mechanism, user, password)


def _query(fields: Fields, _: int) -> AnyRequest:
    correlation, reference = fields.number("I"), fields.string()
    return Named(Key.QUERY_OFFSET, correlation, fields.string(), reference)


def _route(fields: Fields, _: int) -> AnyRequest:
    correlation, routing_key = fields.number("I"), fields.string()
    return Named(Key.ROUTE, correlation, fields.string(), routing_key)


def _close(fields: Fields, _: int) -> AnyRequest:
    correlation, code = fields.number("I"), fields.number("H")
    return Named(Key.CLOSE, correlation, fields.string(), str(code))


def _metadata(fields: Fields, _: int) -> AnyRequest:
    correlation = fields.number("I")
    names = fields.array(Fields.string)
    if len(names) > MAX_NAMES:
        raise FrameError(f"metadata of {len(names)} streams is asked at once")
    return Metadata(Key.METADATA, correlation, tuple(names))


def _versions(fields: Fields, _: int) -> AnyRequest:
    correlation = fields.number("I")
    rows = fields.array(
        lambda each: (each.number("H"), each.number("H"), each.number("H")), MAX_VERSIONS
    )
    return Versions(Key.COMMAND_VERSIONS, correlation, tuple(rows))


def _subscribe(fields: Fields, _: int) -> AnyRequest:
    correlation, subscription = fields.number("I"), fields.number("B")
    stream, spec, credit = fields.string(), _spec(fields), fields.number("H")
    return Subscribe(
        Key.SUBSCRIBE, correlation, subscription, stream, spec, credit, _properties(fields)
    )


def _resolve(fields: Fields, _: int) -> AnyRequest:
    correlation, stream = fields.number("I"), fields.string()
    return Resolve(Key.RESOLVE_OFFSET, correlation, stream, _spec(fields))


def _unsubscribe(fields: Fields, _: int) -> AnyRequest:
    return Unsubscribe(Key.UNSUBSCRIBE, fields.number("I"), fields.number("B"))


def _credit(fields: Fields, _: int) -> AnyRequest:
    return Credit(fields.number("B"), fields.number("H"))


def _store(fields: Fields, _: int) -> AnyRequest:
    return Store(fields.string(), fields.string(), fields.number("Q"))


def _turn_taken(fields: Fields, _: int) -> AnyRequest:
    correlation = fields.number("I")
    fields.skip(2)  # the code: a broker looks at none, either
    return TurnTaken(correlation, _spec_if_any(fields))


def _publish(fields: Fields, version: int) -> AnyRequest:
    publisher = fields.number("B")
    numbers = fields.array(lambda each: _publishing_id(each, version), MAX_PUBLISHED)
    return Publish(publisher, tuple(numbers))


def _publishing_id(fields: Fields, version: int) -> int:
    number = fields.number("Q")
    if version >= 2:
        fields.string()  # the filter value
    # A message: u32 length and body. A sub-batch: u8 with the top bit set, u16 count, two sizes.
    first = fields.number("B")
    if first & 0x80:
        fields.skip(6)
        fields.skip(fields.number("I"))
    else:
        fields.skip(first << 24 | fields.number("B") << 16 | fields.number("H"))
    return number


def _spec(fields: Fields) -> OffsetSpec:
    if (found := _spec_if_any(fields)) is None:
        raise FrameError("no offset")
    return found


def _spec_if_any(fields: Fields) -> OffsetSpec | None:
    kind = fields.number("H")
    match kind:
        case OffsetType.NONE:
            return None
        case OffsetType.FIRST:
            return First()
        case OffsetType.LAST:
            return Last()
        case OffsetType.NEXT:
            return Next()
        case OffsetType.OFFSET:
            return Offset(fields.number("Q"))
        case OffsetType.TIMESTAMP:
            return Timestamp(fields.number("q"))
    raise FrameError(f"an offset of type {kind}")


def _properties(fields: Fields) -> Mapping[str, str]:
    if not fields.left:
        return {}
    return dict(fields.array(lambda each: (each.string(), each.string()), MAX_PROPERTIES))


_READERS: Mapping[int, Callable[[Fields, int], AnyRequest]] = {
    Key.TUNE: _tuned,
    Key.HEARTBEAT: _heartbeat,
    Key.PEER_PROPERTIES: _plain(Key.PEER_PROPERTIES),
    Key.SASL_HANDSHAKE: _plain(Key.SASL_HANDSHAKE),
    Key.SASL_AUTHENTICATE: _authenticate,
    Key.CLOSE: _close,
    Key.METADATA: _metadata,
    Key.COMMAND_VERSIONS: _versions,
    Key.SUBSCRIBE: _subscribe,
    Key.UNSUBSCRIBE: _unsubscribe,
    Key.RESOLVE_OFFSET: _resolve,
    Key.CREDIT: _credit,
    Key.STORE_OFFSET: _store,
    Key.QUERY_OFFSET: _query,
    Key.ROUTE: _route,
    Key.PUBLISH: _publish,
    Key.CONSUMER_UPDATE | RESPONSE: _turn_taken,
    **{key: _named(key) for key in _NAMED},
    **{key: _refusable(key) for key in _REFUSABLE},
}

#: What is answered to a command that is refused: nobody may write here.
REFUSAL = {
    **dict.fromkeys(_REFUSABLE, Code.ACCESS_REFUSED),
    Key.DELETE_PUBLISHER: Code.NO_PUBLISHER,
}
