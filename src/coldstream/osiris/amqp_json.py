"""Messages of AMQP 1.0 as JSON, for people: for the command line and for columns of text.

What JSON has no type for becomes an object with one telling key: {"base64": …} for bytes that are
no UTF-8, {"decimal": "19.99"}, {"float": "nan"}, {"map": [[key, value], …]} for maps with other
keys than strings, {"descriptor": …, "value": …}.
"""

from __future__ import annotations

import base64
import math
import uuid
from collections.abc import Mapping
from dataclasses import fields
from typing import TypeAlias

from coldstream.osiris.amqp import AmqpMessage, BodyKind, Header, Properties
from coldstream.osiris.amqp_types import AmqpMap, Decimal, Described, Typed, Value
from coldstream.osiris.chunk import Buffer
from coldstream.osiris.decimals import number_of

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None


def to_jsonable(message: AmqpMessage) -> dict[str, Json]:
    """A message without what it does not have; timestamps are ms, UUIDs text.

    The body of a single data section is that section's text or {"base64": …}; of more, a list.
    """
    found: dict[str, Json] = {}
    if message.header is not None:
        found["header"] = _present(message.header)
    if message.delivery_annotations is not None:
        found["delivery_annotations"] = _mapping(message.delivery_annotations)
    if message.message_annotations is not None:
        found["message_annotations"] = _mapping(message.message_annotations)
    if message.properties is not None:
        found["properties"] = _present(message.properties)
    if message.application_properties is not None:
        found["application_properties"] = _mapping(message.application_properties)
    found["body_kind"] = message.body_kind.value
    if message.body_kind is not BodyKind.NONE:
        found["body"] = _body(message)
    if message.footer is not None:
        found["footer"] = _mapping(message.footer)
    return found


def bytes_to_jsonable(data: Buffer) -> Json:
    """Bytes as text where they are UTF-8, otherwise as {"base64": …}."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def value_to_jsonable(value: Value) -> Json:
    """One AMQP value; see the module for what has no counterpart in JSON."""
    match value:
        case float():
            return value if math.isfinite(value) else {"float": str(value)}
        case bytes():
            return bytes_to_jsonable(value)
        case uuid.UUID():
            return str(value)
        case Decimal():
            return {"decimal": str(number_of(value))}
        case tuple():
            return [value_to_jsonable(each) for each in value]
        case AmqpMap():
            return _map(value)
        case Described():
            return {
                "descriptor": value_to_jsonable(value.descriptor),
                "value": value_to_jsonable(value.value),
            }
        case Typed():
            return value_to_jsonable(value.value)
        case _:
            return value


def _body(message: AmqpMessage) -> Json:
    body = message.body
    if message.body_kind is BodyKind.DATA and isinstance(body, tuple) and len(body) == 1:
        return value_to_jsonable(body[0])
    return value_to_jsonable(body)


def _present(section: Header | Properties) -> dict[str, Json]:
    values = ((each.name, getattr(section, each.name)) for each in fields(section))
    return {name: value_to_jsonable(value) for name, value in values if value is not None}


def _mapping(values: Mapping[str, Value] | Mapping[str | int, Value]) -> Json:
    return _map(AmqpMap(tuple(values.items())))


def _map(value: AmqpMap) -> Json:
    keys = [key for key, _ in value.pairs]
    if all(isinstance(key, str) for key in keys) and len(set(keys)) == len(keys):
        return {str(key): value_to_jsonable(each) for key, each in value.pairs}
    return {"map": [[value_to_jsonable(key), value_to_jsonable(each)] for key, each in value.pairs]}
