"""AMQP values in the binary encoding of VARIANT, as Spark 4, Iceberg 3 and Parquet have it.

    metadata   u8 version 1 and width of offsets │ count │ offsets │ names of fields, UTF-8
    value      u8 basic type (2 bits) and what it says │ data; little-endian

Source: Apache Parquet, VariantEncoding.md; what Spark 4.1 reads (it has no UUID in Python: those
are text here). Fields of an object are in the order of their names in UTF-16, as Spark's own
`parse_json` has them, and not in that of their bytes in UTF-8. The types of AMQP that VARIANT has
not become the next wider one: an ushort an int, a ulong beyond int64 a decimal, a symbol or a
character a string. A decimal that has more than 38 digits, or is none, is text.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from decimal import Decimal as Number

from coldstream.columns.typed import TYPE_NAMES, names_of
from coldstream.osiris.amqp_types import AmqpMap, Decimal, Described, Typed, Value
from coldstream.osiris.decimals import number_of

#: Spark refuses larger ones.
MAX_BYTES = 16 * 2**20 - 1
_NULL, _TRUE, _FALSE = b"\x00", b"\x04", b"\x08"
_MAX_SHORT = 63
_DECIMALS = ((8, 4, 9), (9, 8, 18), (10, 16, 38))  # type, bytes, digits
_MAX_US = 2**63 - 1
#: By type of AMQP: type of VARIANT, format.
_NUMBERS = {
    "byte": (3, "<b"), "ubyte": (4, "<h"), "short": (4, "<h"), "ushort": (5, "<i"),
    "int": (5, "<i"), "uint": (6, "<q"), "long": (6, "<q"), "float": (14, "<f"),
    "double": (7, "<d"),
}  # fmt: skip


def variant(value: Value, *, named: bool = False) -> dict[str, bytes] | None:
    """A value as VARIANT: `{"value": bytes, "metadata": bytes}`; None if it would be too large.

    Args:
        value: with `Typed` where it is not composed.
        named: whether the keys of the outermost map are names, whatever their type.
    """
    ids: dict[str, int] = {}
    made = _encoded(value, ids, named=named)
    metadata = _metadata(list(ids))
    if max(len(made), len(metadata)) > MAX_BYTES:
        return None
    return {"value": made, "metadata": metadata}


def _encoded(value: Value, ids: dict[str, int], *, named: bool = False) -> bytes:
    match value:
        case Typed():
            return _scalar(TYPE_NAMES[value.code], value.value)
        case tuple():
            return _array([_encoded(each, ids) for each in value])
        case Described():
            return _object(
                ["descriptor", "value"],
                [_encoded(value.descriptor, ids), _encoded(value.value, ids)],
                ids,
            )
        case AmqpMap():
            of_text = all(
                isinstance(key, Typed) and TYPE_NAMES[key.code] in ("string", "symbol")
                for key, _ in value.pairs
            )
            names = names_of(value) if named or of_text else None
            if names is None:
                pairs = ((_encoded(key, ids), _encoded(each, ids)) for key, each in value.pairs)
                return _array([_array(list(pair)) for pair in pairs])
            return _object(names, [_encoded(each, ids) for _, each in value.pairs], ids)
    return _NULL


def _scalar(name: str, value: Value) -> bytes:
    if name in _NUMBERS:
        kind, layout = _NUMBERS[name]
        return bytes([kind << 2]) + struct.pack(layout, value)
    match value:
        case None:
            return _NULL
        case bool():
            return _TRUE if value else _FALSE
        case int() if name == "timestamp":
            us = min(max(value * 1000, -_MAX_US - 1), _MAX_US)
            return bytes([12 << 2]) + struct.pack("<q", us)
        case int():  # a ulong
            if value < 2**63:
                return bytes([6 << 2]) + struct.pack("<q", value)
            return _number(Number(value))
        case bytes():
            return bytes([15 << 2]) + struct.pack("<I", len(value)) + value
        case Decimal():
            return _number(number_of(value))
        case uuid.UUID():
            return _text(str(value))
    return _text(str(value))


def _text(text: str) -> bytes:
    data = text.encode()
    if len(data) <= _MAX_SHORT:
        return bytes([len(data) << 2 | 1]) + data
    return bytes([16 << 2]) + struct.pack("<I", len(data)) + data


def _number(number: Number) -> bytes:
    sign, digits, exponent = number.as_tuple()
    if isinstance(exponent, str) or not -38 <= exponent <= 38:
        return _text(str(number))
    unscaled: int = int("".join(map(str, digits)) or "0") * 10 ** max(exponent, 0)
    scale = max(-exponent, 0)
    for kind, size, most in _DECIMALS:
        if unscaled < 10**most and scale <= most:
            signed = -unscaled if sign else unscaled
            return bytes([kind << 2, scale]) + signed.to_bytes(size, "little", signed=True)
    return _text(str(number))


def _array(elements: list[bytes]) -> bytes:
    large, width = len(elements) > 0xFF, _width(sum(map(len, elements)))
    head = bytes([(large << 2 | width - 1) << 2 | 3])
    return head + _count(len(elements), large) + _offsets(elements, width) + b"".join(elements)


def _object(names: Sequence[str], values: list[bytes], ids: dict[str, int]) -> bytes:
    # Java searches by halves, and compares strings so: U+E000 to U+FFFF come after all beyond.
    rows = sorted(zip(names, values, strict=True), key=lambda row: row[0].encode("utf-16-be"))
    numbers = [ids.setdefault(name, len(ids)) for name, _ in rows]
    data = [value for _, value in rows]
    large, width = len(rows) > 0xFF, _width(sum(map(len, data)))
    id_width = _width(max(numbers, default=0))
    head = bytes([(large << 4 | (id_width - 1) << 2 | width - 1) << 2 | 2])
    fields = b"".join(number.to_bytes(id_width, "little") for number in numbers)
    return head + _count(len(rows), large) + fields + _offsets(data, width) + b"".join(data)


def _metadata(names: list[str]) -> bytes:
    data = [name.encode() for name in names]
    width = _width(max(sum(map(len, data)), len(data)))
    head = bytes([1 | (width - 1) << 6])
    return head + len(data).to_bytes(width, "little") + _offsets(data, width) + b"".join(data)


def _offsets(parts: list[bytes], width: int) -> bytes:
    at, found = 0, [bytes(width)]
    for part in parts:
        at += len(part)
        found.append(at.to_bytes(width, "little"))
    return b"".join(found)


def _count(count: int, large: bool) -> bytes:
    return count.to_bytes(4 if large else 1, "little")


def _width(most: int) -> int:
    """Bytes that a number up to this one takes."""
    return max(1, (most.bit_length() + 7) // 8)
