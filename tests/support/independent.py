"""A decoder of its own: segments of RabbitMQ streams to the rows that the how-to of Spark promises.

None of the product's code is here, and none may be: it is what the product is compared with. Made
from the Osiris sources (osiris_log.erl), the stream protocol's sub-entries, OASIS AMQP 1.0 parts 1
and 3, and the how-to. It believes its input: damaged bytes are other tests'.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import struct
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import cramjam

Row = dict[str, Any]
Typed = tuple[str, Any]  # name of the AMQP type, value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INFLATE = {
    0: bytes,
    1: gzip.decompress,
    2: lambda data: bytes(cramjam.snappy.decompress(data)),
    3: lambda data: bytes(cramjam.lz4.decompress(data)),
    4: lambda data: bytes(cramjam.zstd.decompress(data)),
}
#: Format code -> type, struct format; all of fixed width.
_FIXED = {
    0x50: ("ubyte", ">B"), 0x51: ("byte", ">b"), 0x52: ("uint", ">B"), 0x53: ("ulong", ">B"),
    0x54: ("int", ">b"), 0x55: ("long", ">b"), 0x60: ("ushort", ">H"), 0x61: ("short", ">h"),
    0x70: ("uint", ">I"), 0x71: ("int", ">i"), 0x72: ("float", ">f"), 0x73: ("char", ">I"),
    0x74: ("decimal32", ">4s"), 0x80: ("ulong", ">Q"), 0x81: ("long", ">q"),
    0x82: ("double", ">d"), 0x83: ("timestamp", ">q"), 0x84: ("decimal64", ">8s"),
    0x94: ("decimal128", ">16s"), 0x98: ("uuid", ">16s"), 0x56: ("boolean", ">?"),
}  # fmt: skip
_EMPTY = {
    0x40: ("null", None), 0x41: ("boolean", True), 0x42: ("boolean", False), 0x43: ("uint", 0),
    0x44: ("ulong", 0), 0x45: ("list", []),
}  # fmt: skip
_PROPERTIES = (
    "message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type",
    "content_encoding", "absolute_expiry_time", "creation_time", "group_id", "group_sequence",
    "reply_to_group_id",
)  # fmt: skip
_HEADER = ("durable", "priority", "ttl", "first_acquirer", "delivery_count")
_MOST = 2**63 - 1


def rows_of(segment: bytes, stream: str) -> Iterator[Row]:
    """The rows of one segment file; those columns that come from its bytes."""
    assert segment[:4] == b"OSIL"
    at = 8
    while at < len(segment):
        (magic, kind, entries, records, ms, epoch, chunk_id, _, size, trailer_size, bloom) = (
            struct.unpack_from(">BBHIqQQIIIB", segment, at)
        )
        assert magic == 0x50
        begin = at + 48 + bloom
        data, trailer = segment[begin:][:size], segment[begin + size :][:trailer_size]
        at = begin + size + trailer_size
        if kind:
            continue
        messages = list(_messages(data, entries))
        assert len(messages) == records
        for number, wire in enumerate(messages):
            yield {
                "stream": stream,
                "offset": chunk_id + number,
                "timestamp": _time(ms),
                "chunk_id": chunk_id,
                "epoch": epoch,
                "publishers": list(_publishers(trailer)),
                "raw": wire,
                "error": None,
                **message_of(wire),
            }


def _messages(data: bytes, entries: int) -> Iterator[bytes]:
    at = 0
    for _ in range(entries):
        if data[at] & 0x80:
            head, records, inflated, size = struct.unpack_from(">BHII", data, at)
            at += 11
            payload = _INFLATE[head >> 4 & 7](data[at : at + size])
            at += size
            assert len(payload) == inflated
            yield from _messages(payload, records)
        else:
            (size,) = struct.unpack_from(">I", data, at)
            yield data[at + 4 : at + 4 + size]
            at += 4 + size
    assert at == len(data)


def _publishers(trailer: bytes) -> Iterator[tuple[str, int]]:
    found: dict[str, int] = {}
    at = 0
    while at < len(trailer):
        kind, size = trailer[at], trailer[at + 1]
        name = trailer[at + 2 : at + 2 + size].decode()
        (value,) = struct.unpack_from(">Q", trailer, at + 2 + size)
        at += 10 + size
        if kind == 0:
            found[name] = min(value, _MOST)
    yield from found.items()


def message_of(wire: bytes) -> Row:
    """The columns of a message; of plain bytes, if it is no AMQP 1.0 as a whole."""
    row: Row = dict.fromkeys(
        ("header", "properties", "application_properties", "message_annotations",
         "delivery_annotations", "footer", "application_properties_json",
         "message_annotations_json", "body_json")
    )  # fmt: skip
    try:
        sections = list(_sections(wire))
    except (AssertionError, IndexError, KeyError, struct.error, UnicodeDecodeError, TypeError):
        return row | {"body_kind": "bytes", "body": wire}
    row |= {"body_kind": "none", "body": b""}
    sequences: list[Typed] = []
    for code, value in sections:
        if code == 0x70:
            row["header"] = _named(_HEADER, value)
        elif code == 0x73:
            row["properties"] = _properties(value)
        elif code in (0x71, 0x72, 0x74, 0x78):
            name = {0x71: "delivery_annotations", 0x72: "message_annotations",
                    0x74: "application_properties", 0x78: "footer"}[code]  # fmt: skip
            row[name] = [(str(key[1]), _text(each)) for key, each in value[1]]
            if code in (0x72, 0x74):
                tags = {str(key[1]): tagged(each) for key, each in value[1]}
                row[f"{name}_json"] = json.dumps(tags)
        elif code == 0x75:
            row["body_kind"], row["body"] = "data", row["body"] + value[1]
        elif code == 0x76:
            sequences.append(value)
            row["body_kind"] = "sequence"
        else:
            row |= {
                "body_kind": "value",
                "body": _body(value),
                "body_json": json.dumps(tagged(value)),
            }
    if sequences:
        row["body"] = json.dumps([plain(each) for each in sequences])
        row["body_json"] = json.dumps([tagged(each) for each in sequences])
    return row


def _sections(wire: bytes) -> Iterator[tuple[int, Typed]]:
    at, last = 0, 0
    assert wire
    while at < len(wire):
        assert wire[at] == 0
        (kind, code), at = value_at(wire, at + 1)
        assert kind == "ulong"
        assert 0x70 <= code <= 0x78
        assert code > last or code == last in (0x75, 0x76)
        value, at = value_at(wire, at)
        assert value[0] == _SECTION_TYPES.get(code, value[0])
        last = code
        yield code, value


_SECTION_TYPES = {
    0x70: "list", 0x71: "map", 0x72: "map", 0x73: "list", 0x74: "map", 0x75: "binary",
    0x76: "list", 0x78: "map",
}  # fmt: skip


def value_at(data: bytes, at: int) -> tuple[Typed, int]:
    """The value that begins there, and where it ends."""
    code = data[at]
    at += 1
    if code == 0:
        descriptor, at = value_at(data, at)
        value, at = value_at(data, at)
        return ("described", (descriptor, value)), at
    return _data(code, data, at)


def _data(code: int, data: bytes, at: int) -> tuple[Typed, int]:
    if code in _EMPTY:
        return _EMPTY[code], at
    if code in _FIXED:
        name, layout = _FIXED[code]
        (value,) = struct.unpack_from(layout, data, at)
        return (name, chr(value) if name == "char" else value), at + struct.calcsize(layout)
    wide = bool(code & 0x10)
    (size,) = struct.unpack_from(">I" if wide else ">B", data, at)
    at += 4 if wide else 1
    end = at + size
    assert end <= len(data)
    if code >> 4 in (0xA, 0xB):
        raw = data[at:end]
        name = {0: "binary", 1: "string", 3: "symbol"}[code & 0xF]
        return (name, raw if name == "binary" else raw.decode()), end
    (count,) = struct.unpack_from(">I" if wide else ">B", data, at)
    at += 4 if wide else 1
    items: list[Typed] = []
    if code & 0xE0 == 0xE0:
        descriptors = []
        while data[at] == 0:
            descriptor, at = value_at(data, at + 1)
            descriptors.append(descriptor)
        element = data[at]
        at += 1
        for _ in range(count):
            item, at = _data(element, data, at)
            for each in reversed(descriptors):
                item = ("described", (each, item))
            items.append(item)
    else:
        for _ in range(count):
            item, at = value_at(data, at)
            items.append(item)
    assert at == end
    if code in (0xC1, 0xD1):
        return ("map", list(zip(items[::2], items[1::2], strict=True))), end
    return ("list", items), end


def _time(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


def _named(names: tuple[str, ...], value: Typed) -> Row:
    found: Row = dict.fromkeys(names)
    for name, (_, each) in zip(names, value[1], strict=False):
        found[name] = min(each, _MOST) if type(each) is int else each
    return found


def _properties(value: Typed) -> Row:
    found: Row = dict.fromkeys(_PROPERTIES) | {
        "message_id_type": None, "correlation_id_type": None,
    }  # fmt: skip
    for name, (kind, each) in zip(_PROPERTIES, value[1], strict=False):
        if kind == "null":
            continue
        if name in ("message_id", "correlation_id"):
            found[f"{name}_type"] = kind
            if kind == "binary":
                each = base64.b64encode(each).decode()
            found[name] = str(uuid.UUID(bytes=each)) if kind == "uuid" else str(each)
        elif kind == "timestamp":
            found[name] = _time(each)
        else:
            found[name] = min(each, _MOST) if type(each) is int else each
    return found


def _text(value: Typed) -> str | None:
    """A value of a map."""
    kind, each = value
    match kind:
        case "null":
            return None
        case "boolean":
            return "true" if each else "false"
        case "string" | "symbol" | "char":
            return str(each)
        case "uuid":
            return str(uuid.UUID(bytes=each))
        case "decimal32" | "decimal64" | "decimal128":
            return str(decimal_of(each))
        case "float" | "double":
            return repr(each)
        case "list" | "map" | "described" | "binary":
            made = plain(value)
            return made if kind == "binary" and isinstance(made, str) else json.dumps(made)
    return str(each)


def _body(value: Typed) -> bytes | str:
    """A value body; JSON as text, which is compared as JSON."""
    kind, each = value
    if kind == "binary":
        return bytes(each)
    if kind in ("string", "symbol", "char"):
        return str(each).encode()
    if kind.startswith("decimal"):
        return str(decimal_of(each)).encode()
    return json.dumps(plain(value))


def plain(value: Typed) -> Any:
    """A value as JSON without types."""
    kind, each = value
    match kind:
        case "list":
            return [plain(item) for item in each]
        case "map":
            keys = [key[1] for key, _ in each]
            texts = all(key[0] in ("string", "symbol", "char") for key, _ in each)
            if texts and len(set(keys)) == len(keys):
                return {key[1]: plain(item) for key, item in each}
            return {"map": [[plain(key), plain(item)] for key, item in each]}
        case "described":
            return {"descriptor": plain(each[0]), "value": plain(each[1])}
        case "binary":
            try:
                return each.decode()
            except UnicodeDecodeError:
                return {"base64": base64.b64encode(each).decode()}
        case "uuid":
            return str(uuid.UUID(bytes=each))
        case "float" | "double":
            return each if math.isfinite(each) else {"float": str(each)}
        case "decimal32" | "decimal64" | "decimal128":
            return {"decimal": str(decimal_of(each))}
    return each


def tagged(value: Typed) -> Any:
    """A value as tagged JSON."""
    kind, each = value
    match kind:
        case "null" | "boolean" | "string":
            return each
        case "list":
            return [tagged(item) for item in each]
        case "map":
            return {"map": [[tagged(key), tagged(item)] for key, item in each]}
        case "described":
            return {"described": [tagged(each[0]), tagged(each[1])]}
        case "binary":
            return {"binary": base64.b64encode(each).decode()}
        case "uuid":
            return {"uuid": str(uuid.UUID(bytes=each))}
        case "decimal32" | "decimal64" | "decimal128":
            return {kind: str(decimal_of(each))}
        case "float" | "double" if not math.isfinite(each):
            return {kind: "NaN" if math.isnan(each) else f"{'-' if each < 0 else ''}Infinity"}
    return {kind: each}


def decimal_of(raw: bytes) -> Decimal:
    """IEEE 754-2008, binary integer decimal."""
    bits = bin(int.from_bytes(raw, "big"))[2:].zfill(8 * len(raw))
    width = {4: 8, 8: 10, 16: 14}[len(raw)]
    bias, digits = {4: (101, 7), 8: (398, 16), 16: (6176, 34)}[len(raw)]
    sign = "-" if bits[0] == "1" else ""
    if bits[1:5] == "1111":
        return Decimal("NaN" if bits[5] == "1" else f"{sign}Infinity")
    if bits[1:3] == "11":
        exponent, coefficient = bits[3 : 3 + width], "100" + bits[3 + width :]
    else:
        exponent, coefficient = bits[1 : 1 + width], bits[1 + width :]
    number = int(coefficient, 2)
    return Decimal(f"{sign}{number if number < 10**digits else 0}E{int(exponent, 2) - bias}")


#: Columns that are not in the bytes of a segment.
_NAMES = ("vhost", "queue", "super_stream", "routing_key")


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose JSON is what it says and not how it is written."""
    found = {name: value for name, value in row.items() if name not in _NAMES}
    for name, value in found.items():
        if name.endswith("_json"):
            found[name] = json.loads(value) if isinstance(value, str) else value
        elif name in ("application_properties", "message_annotations", "footer",
                      "delivery_annotations") and value is not None:  # fmt: skip
            found[name] = [(key, parsed(text)) for key, text in value]
        elif name == "body" and row["body_kind"] in ("value", "sequence"):
            found[name] = parsed(
                value if isinstance(value, str) else value.decode(errors="surrogateescape")
            )
    return json.loads(json.dumps(found, default=written, sort_keys=True))


def written(value: Any) -> str:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else repr(value)


def parsed(text: str | None) -> Any:
    try:
        value = json.loads(text or "null")
    except ValueError:
        return text
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def assert_same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert comparable(ours) == comparable(theirs), f"offset {theirs['offset']}"
