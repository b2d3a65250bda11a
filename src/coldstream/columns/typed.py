"""AMQP values as JSON that keeps their types, so that an int, a string and a time stay apart.

    null, true, "text", [list or array]      as they are
    {"int": 5} {"ulong": 7} {"double": 1.5}  every other type: an object with its name alone
    {"timestamp": ms} {"uuid": "…"} {"binary": base64} {"decimal64": "19.99"} {"symbol": "…"}
    {"map": [[key, value], …]} {"described": [descriptor, value]}

Numbers that JSON has not are text: `{"double": "NaN"}`. Names of types: OASIS AMQP 1.0, part 1.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from typing import Any

from coldstream.osiris.amqp import Section
from coldstream.osiris.amqp_types import AmqpMap, Decimal, Described, Typed, Value
from coldstream.osiris.decimals import number_of

#: Types by format code.
TYPE_NAMES = {
    0x40: "null", 0x41: "boolean", 0x42: "boolean", 0x43: "uint", 0x44: "ulong", 0x50: "ubyte",
    0x51: "byte", 0x52: "uint", 0x53: "ulong", 0x54: "int", 0x55: "long", 0x56: "boolean",
    0x60: "ushort", 0x61: "short", 0x70: "uint", 0x71: "int", 0x72: "float", 0x73: "char",
    0x74: "decimal32", 0x80: "ulong", 0x81: "long", 0x82: "double", 0x83: "timestamp",
    0x84: "decimal64", 0x94: "decimal128", 0x98: "uuid", 0xA0: "binary", 0xA1: "string",
    0xA3: "symbol", 0xB0: "binary", 0xB1: "string", 0xB3: "symbol",
}  # fmt: skip
_PLAIN = frozenset({"null", "boolean", "string"})
#: The section of each column of `schema.TYPED`; a body's are looked for among these.
SECTIONS = {
    "application_properties": Section.APPLICATION_PROPERTIES,
    "message_annotations": Section.MESSAGE_ANNOTATIONS,
}


def section_of(sections: dict[Section, list[Value]], name: str) -> Value:
    """What a typed column is made of; None where the message has no such thing.

    Args:
        sections: of a message, as `amqp.typed_sections` gives them.
        name: one of `schema.TYPED`. A body of data is bytes, and has no types.
    """
    if name != "body":
        return next(iter(sections.get(SECTIONS[name], ())), None)
    if Section.VALUE in sections:
        return sections[Section.VALUE][0]
    found = sections.get(Section.SEQUENCE)
    return None if found is None else tuple(found)


def tagged_text(value: Value, *, named: bool) -> str | None:
    """A value as such JSON; None for nothing.

    Args:
        value: with `Typed` where it is not composed.
        named: whether it is a map of names, which becomes an object: `{"key": value}`.
    """
    if value is None:
        return None
    made = _named(value) if named and isinstance(value, AmqpMap) else tagged(value)
    return json.dumps(made, ensure_ascii=False, separators=(",", ":"))


def tagged(value: Value) -> Any:
    """A value as what JSON is made of."""
    match value:
        case Typed():
            name = TYPE_NAMES[value.code]
            return value.value if name in _PLAIN else {name: _scalar(value.value)}
        case AmqpMap():
            return {"map": [[tagged(key), tagged(each)] for key, each in value.pairs]}
        case Described():
            return {"described": [tagged(value.descriptor), tagged(value.value)]}
        case tuple():
            return [tagged(each) for each in value]
    return value


def names_of(value: AmqpMap) -> Sequence[str] | None:
    """The keys of a map as text; None if two are the same then."""
    names = [str(key.value if isinstance(key, Typed) else key) for key, _ in value.pairs]
    return names if len(set(names)) == len(names) else None


def _named(value: AmqpMap) -> Any:
    names = names_of(value)
    if names is None:
        return tagged(value)
    return {name: tagged(each) for name, (_, each) in zip(names, value.pairs, strict=True)}


def _scalar(value: Value) -> Any:
    match value:
        case float():
            if math.isnan(value):
                return "NaN"
            return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case Decimal():
            return str(number_of(value))
        case int():
            return int(value)
    return str(value)
