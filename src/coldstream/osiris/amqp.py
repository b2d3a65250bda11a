"""Messages in the format of AMQP 1.0, which is what brokers keep in streams.

    header? │ delivery annotations? │ message annotations? │ properties? │ application properties? │
    body: data+ or sequence+ or value │ footer?

A section is a described value: 0x00, a descriptor (0x70 to 0x78 as ulong, or its symbol), a list,
map, binary or any value. Source: OASIS AMQP 1.0, part 3, section 3.2. RabbitMQ stores whatever a
publisher sends, so a stream may also have messages that are none of this; they raise.

`amqp_json.py` turns them into JSON.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import TypeVar

from coldstream.errors import CorruptDataError
from coldstream.osiris.amqp_types import (
    AmqpMap,
    AmqpTimestamp,
    Symbol,
    Value,
    ValueReader,
)
from coldstream.osiris.chunk import Buffer

Annotations = Mapping[str | int, Value]
MessageId = int | uuid.UUID | bytes | str

_DATA_SECTION = b"\x00\x53\x75"


class Section(IntEnum):
    """Descriptors of the sections, in the order in which they must come."""

    HEADER = 0x70
    DELIVERY_ANNOTATIONS = 0x71
    MESSAGE_ANNOTATIONS = 0x72
    PROPERTIES = 0x73
    APPLICATION_PROPERTIES = 0x74
    DATA = 0x75
    SEQUENCE = 0x76
    VALUE = 0x77
    FOOTER = 0x78


_SYMBOLS = {
    "amqp:header:list": Section.HEADER,
    "amqp:delivery-annotations:map": Section.DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": Section.MESSAGE_ANNOTATIONS,
    "amqp:properties:list": Section.PROPERTIES,
    "amqp:application-properties:map": Section.APPLICATION_PROPERTIES,
    "amqp:data:binary": Section.DATA,
    "amqp:amqp-sequence:list": Section.SEQUENCE,
    "amqp:amqp-value:*": Section.VALUE,
    "amqp:footer:map": Section.FOOTER,
}


class BodyKind(StrEnum):
    """What a message's body is made of."""

    NONE = "none"
    DATA = "data"
    SEQUENCE = "sequence"
    VALUE = "value"
    BYTES = "bytes"  # no AMQP 1.0: the message is its body (osiris/body.py)


_BODY_KINDS = {
    Section.DATA: BodyKind.DATA,
    Section.SEQUENCE: BodyKind.SEQUENCE,
    Section.VALUE: BodyKind.VALUE,
}


@dataclass(frozen=True, slots=True)
class Header:
    """How the message is to be delivered. `ttl` in ms; None where the sender said nothing."""

    durable: bool | None = None
    priority: int | None = None
    ttl: int | None = None
    first_acquirer: bool | None = None
    delivery_count: int | None = None


@dataclass(frozen=True, slots=True)
class Properties:
    """The standard properties; None where the sender said nothing. Times in ms since the epoch.

    An id is a ulong, UUID, binary or string (section 3.2.4). Senders have sent narrower and signed
    integers and characters, too: such an id is kept, and `message_id_type` or
    `correlation_id_type` names its type. They say nothing of an id that is as it must be.
    """

    message_id: MessageId | None = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: MessageId | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: AmqpTimestamp | None = None
    creation_time: AmqpTimestamp | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None
    message_id_type: str | None = None
    correlation_id_type: str | None = None


_ID_TYPES: tuple[type, ...] = (int, uuid.UUID, bytes, str)
#: Where ids stand in the list of properties, and the types that none may have, by format code.
_MESSAGE_ID, _CORRELATION_ID = 0, 5
_WRONG_IDS = {
    0x43: "uint", 0x50: "ubyte", 0x51: "byte", 0x52: "uint", 0x54: "int", 0x55: "long",
    0x60: "ushort", 0x61: "short", 0x70: "uint", 0x71: "int", 0x73: "char", 0x81: "long",
}  # fmt: skip
_HEADER_TYPES: tuple[tuple[type, ...], ...] = ((bool,), (int,), (int,), (bool,), (int,))
_PROPERTY_TYPES: tuple[tuple[type, ...], ...] = (
    _ID_TYPES, (bytes,), (str,), (str,), (str,), _ID_TYPES, (Symbol,), (Symbol,), (AmqpTimestamp,),
    (AmqpTimestamp,), (str,), (int,), (str,),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AmqpMessage:
    """One decoded message. What a message does not have is None, or empty.

    Attributes:
        header: delivery.
        delivery_annotations: for the next hop; keys are symbols or integers.
        message_annotations: of the infrastructure, such as "x-exchange".
        properties: standard ones.
        application_properties: the publisher's own.
        body_kind: what `body` is.
        body: DATA: a tuple of bytes, one a section, mostly one in all. SEQUENCE: a tuple of tuples.
            VALUE: the value itself. NONE (brokers accept it): an empty tuple. BYTES: bytes.
        footer: what can be said only after the body, such as checksums.
    """

    header: Header | None = None
    delivery_annotations: Annotations | None = None
    message_annotations: Annotations | None = None
    properties: Properties | None = None
    application_properties: Mapping[str, Value] | None = None
    body_kind: BodyKind = BodyKind.NONE
    body: Value = ()
    footer: Annotations | None = None

    @property
    def data(self) -> bytes:
        """The data sections as one, empty if the body is of another kind."""
        if self.body_kind is not BodyKind.DATA or not isinstance(self.body, tuple):
            return b""
        return b"".join(part for part in self.body if isinstance(part, bytes))


def decode_message(buf: Buffer) -> AmqpMessage:
    """Decode the wire bytes of one message.

    Raises:
        CorruptDataError: it is no AMQP 1.0 message, or a damaged one: a section that is unknown,
            doubled, out of order or of the wrong type, or a value that does not hold.
    """
    reader = ValueReader(buf)
    if not reader.left:
        raise CorruptDataError("an AMQP message without any section")
    message = AmqpMessage()
    parts: list[Value] = []
    last: Section | None = None
    while reader.left:
        section = read_section(reader)
        repeatable = section in (Section.DATA, Section.SEQUENCE)
        if last is not None and not (section > last or (section == last and repeatable)):
            raise CorruptDataError(f"an AMQP section {section.name} after {last.name}")
        begin = reader.position
        value = reader.read()
        if section in _BODY_KINDS:
            if last in _BODY_KINDS and last != section:
                raise CorruptDataError(f"an AMQP body of both {last.name} and {section.name}")
            parts.append(_body_part(section, value))
            message = replace(message, body_kind=_BODY_KINDS[section])
        else:
            message = _with(message, section, value)
        if section is Section.PROPERTIES and message.properties is not None:
            wire = memoryview(buf)[begin : reader.position]
            message = replace(message, properties=_with_id_types(message.properties, wire))
        last = section
    if message.body_kind is BodyKind.VALUE:
        return replace(message, body=parts[0])
    return replace(message, body=tuple(parts))


def encode_data(payload: Buffer) -> bytes:
    """A message that has one data section and nothing else."""
    size = len(payload)
    length = b"\xa0" + size.to_bytes(1) if size < 256 else b"\xb0" + size.to_bytes(4)
    return b"".join((_DATA_SECTION, length, payload))


def read_section(reader: ValueReader) -> Section:
    """Which section begins here; its value comes next.

    Raises:
        CorruptDataError: none does.
    """
    descriptor = reader.read_descriptor()
    if type(descriptor) is Symbol:
        section = _SYMBOLS.get(descriptor)
        if section is not None:
            return section
    elif type(descriptor) is int and Section.HEADER <= descriptor <= Section.FOOTER:
        return Section(descriptor)
    # What is composed may be long, and deep.
    plain = isinstance(descriptor, str | int)
    words = repr(str(descriptor)[:80]) if plain else f"a {type(descriptor).__name__}"
    raise CorruptDataError(f"{words} is no section of an AMQP message")


def _body_part(section: Section, value: Value) -> Value:
    if section is Section.DATA and type(value) is not bytes:
        raise CorruptDataError("an AMQP data section that is not binary")
    if section is Section.SEQUENCE and type(value) is not tuple:
        raise CorruptDataError("an AMQP sequence section that is not a list")
    return value


def _with(message: AmqpMessage, section: Section, value: Value) -> AmqpMessage:
    match section:
        case Section.HEADER:
            return replace(message, header=_fields(Header, _HEADER_TYPES, value))
        case Section.PROPERTIES:
            return replace(message, properties=_fields(Properties, _PROPERTY_TYPES, value))
        case Section.APPLICATION_PROPERTIES:
            return replace(message, application_properties=_application_properties(value))
        case Section.DELIVERY_ANNOTATIONS:
            return replace(message, delivery_annotations=_annotations(value))
        case Section.MESSAGE_ANNOTATIONS:
            return replace(message, message_annotations=_annotations(value))
        case _:
            return replace(message, footer=_annotations(value))


_Fields = TypeVar("_Fields", Header, Properties)


def _fields(
    kind: Callable[..., _Fields], types: tuple[tuple[type, ...], ...], value: Value
) -> _Fields:
    """A list as a dataclass; fields at its end may be missing, and any may be null."""
    if type(value) is not tuple or len(value) > len(types):
        raise CorruptDataError("AMQP header or properties that are no list, or too long a one")
    for each, allowed in zip(value, types, strict=False):
        # Exact types: True is no integer here, and a symbol no string.
        if each is not None and type(each) not in allowed:
            raise CorruptDataError(f"an AMQP header or property field is a {type(each).__name__}")
    return kind(*value)


def _with_id_types(properties: Properties, wire: Buffer) -> Properties:
    """Properties that say of which type an id is, if the standard does not allow it.

    Args:
        properties: as decoded.
        wire: the list that they were decoded from.
    """
    ids = (properties.message_id, properties.correlation_id)
    if not any(type(each) in (int, str) for each in ids):
        return properties
    codes = ValueReader(wire).element_codes().ljust(_CORRELATION_ID + 1, b"\x40")
    return replace(
        properties,
        message_id_type=_WRONG_IDS.get(codes[_MESSAGE_ID]),
        correlation_id_type=_WRONG_IDS.get(codes[_CORRELATION_ID]),
    )


def _annotations(value: Value) -> Annotations:
    found: dict[str | int, Value] = {}
    for key, each in _pairs(value):
        if type(key) is not Symbol and type(key) is not int:
            raise CorruptDataError(f"a key of AMQP annotations is a {type(key).__name__}")
        if key in found:
            raise CorruptDataError("AMQP annotations have a key twice")
        found[key] = each
    return found


def _application_properties(value: Value) -> Mapping[str, Value]:
    found: dict[str, Value] = {}
    for key, each in _pairs(value):
        if type(key) is not str:
            raise CorruptDataError(f"a key of application properties is a {type(key).__name__}")
        if key in found:
            raise CorruptDataError("application properties have a key twice")
        found[key] = each
    return found


def _pairs(value: Value) -> tuple[tuple[Value, Value], ...]:
    if not isinstance(value, AmqpMap):
        raise CorruptDataError("AMQP annotations or application properties that are no map")
    return value.pairs
