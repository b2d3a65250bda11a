"""The plain decoder: chunks to rows by `coldstream.osiris`, one message after the other.

It says what is right. The fast decoder (`decode`) must give the same rows for every input, and asks
this one for messages that it does not handle itself. Slow: a Python object for every value.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from coldstream.columns.schema import (
    DEAR,
    HEADER,
    NO_ORIGIN,
    OF_STREAM,
    PROPERTIES,
    Origin,
    Selection,
)
from coldstream.columns.typed import section_of, tagged_text
from coldstream.columns.variant import variant
from coldstream.errors import CorruptDataError
from coldstream.osiris.amqp import AmqpMessage, BodyKind, Header, Properties
from coldstream.osiris.amqp_json import bytes_to_jsonable, value_to_jsonable
from coldstream.osiris.amqp_typed import typed_sections
from coldstream.osiris.amqp_types import Decimal, Value
from coldstream.osiris.body import read_message
from coldstream.osiris.chunk import Buffer, Chunk, ChunkType
from coldstream.osiris.decimals import number_of
from coldstream.osiris.entry import iter_messages
from coldstream.osiris.tracking import TrackingType, parse_tracked

#: What timestamp[us] can hold, in ms; times outside are clamped to it.
MIN_MS, MAX_MS = -(2**63) // 1000 + 1, (2**63 - 1) // 1000

#: Columns that need no look at the entries of a chunk.
OF_CHUNK = frozenset({*OF_STREAM, "offset", "timestamp", "chunk_id", "epoch", "publishers"})
#: Columns that need messages decoded.
DECODED = frozenset(
    {
        *("body_kind", "body", "header", "properties", "application_properties", "error"),
        *("message_annotations", "delivery_annotations", "footer"),
        *DEAR,
    }
)

Row = dict[str, Any]


def decode_reference(
    selection: Selection,
    chunks: Iterable[Chunk],
    *,
    origin: Origin = NO_ORIGIN,
    start: int = 0,
    end: int = 2**63,
) -> pa.RecordBatch:
    """All messages of chunks, as one batch.

    A chunk gives a row for each record that its header counts. Where its entries are damaged, the
    messages before the damage are rows as usual, and all offsets from there on have an `error`.

    Args:
        selection: columns.
        chunks: user chunks become rows, tracking chunks do not.
        origin: stream of the rows.
        start: rows below this offset are left out,
        end: and rows from this one on.
    """
    rows: list[Row] = []
    for chunk in chunks:
        if chunk.header.chunk_type == ChunkType.USER:
            rows += (
                row for row in chunk_rows(selection, chunk, origin) if start <= row["offset"] < end
            )
    columns = [
        pa.array([row.get(field.name) for row in rows], field.type) for field in selection.schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=selection.schema)


def chunk_rows(selection: Selection, chunk: Chunk, origin: Origin) -> list[Row]:
    """The rows of one user chunk; each has its offset, whatever is selected."""
    header = chunk.header
    common: Row = {
        **origin.columns(),
        "timestamp": clamped_us(header.timestamp),
        "chunk_id": header.chunk_id,
        "epoch": header.epoch,
    }
    if "publishers" in selection:
        common["publishers"] = publishers(chunk.trailer)
    rows = [common | {"offset": header.chunk_id + number} for number in range(header.records)]
    if not OF_CHUNK.issuperset(selection.names):
        number = 0
        try:
            for wire in iter_messages(chunk):
                rows[number] |= message_columns(selection, bytes(wire))
                number += 1
        except CorruptDataError as exc:
            for row in rows[number:]:
                row["error"] = exc.reason
    return rows


def publishers(trailer: Buffer) -> list[tuple[str, int]]:
    """Publisher references and last publishing ids that a user chunk's trailer tracks.

    Ids beyond int64 are clamped; a trailer that is damaged tells of nobody (`scrub` finds it).
    """
    try:
        tracked = parse_tracked(trailer)
    except CorruptDataError:
        return []
    found: dict[str, int] = {}
    for each in tracked:
        if each.tracking_type == TrackingType.SEQUENCE:
            found[each.name] = min(each.value, 2**63 - 1)
    return list(found.items())


def message_columns(selection: Selection, wire: bytes) -> Row:
    """The columns of one message that come from its own bytes."""
    row: Row = {"raw": wire}
    if DECODED.isdisjoint(selection.names):
        return row
    try:
        message = read_message(wire, selection.body_format)
    except CorruptDataError as exc:
        return row | {"error": exc.reason}
    return row | {
        "body_kind": message.body_kind.value,
        "body": body_bytes(message),
        "header": _header(message.header),
        "properties": _properties(message.properties, selection.properties),
        "application_properties": _texts(message.application_properties),
        "message_annotations": _texts(message.message_annotations),
        "delivery_annotations": _texts(message.delivery_annotations),
        "footer": _texts(message.footer),
        **_typed(selection, wire, message),
    }


def dear_columns(selection: Selection, wire: bytes) -> Row:
    """Those of `DEAR` that are wanted; none of a message that is none."""
    try:
        return _typed(selection, wire, read_message(wire, selection.body_format))
    except CorruptDataError:
        return {}


def _typed(selection: Selection, wire: bytes, message: AmqpMessage) -> Row:
    if not selection.dear or message.body_kind is BodyKind.BYTES:
        return {}
    sections = typed_sections(wire)
    row: Row = {}
    for column in selection.dear:
        name, as_variant = DEAR[column]
        value = section_of(sections, name)
        named = name != "body"
        if as_variant:
            row[column] = None if value is None else variant(value, named=named)
        else:
            row[column] = tagged_text(value, named=named)
    return row


def body_bytes(message: AmqpMessage) -> bytes:
    """A body as bytes: data as it is, a text or binary value as it is, all else as JSON."""
    if message.body_kind is BodyKind.DATA:
        return message.data
    if message.body_kind is BodyKind.NONE:
        return b""
    body = message.body
    if message.body_kind in (BodyKind.VALUE, BodyKind.BYTES):
        if isinstance(body, bytes):
            return body
        if isinstance(body, str):
            return body.encode("utf-8")
        if isinstance(body, Decimal):
            return str(number_of(body)).encode()
    return _json(body).encode("utf-8")


def value_text(value: Value) -> str | None:
    """A value of a map as text; bytes that are UTF-8 as they are."""
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, Decimal):
        return str(number_of(value))
    if isinstance(value, bytes):
        made = bytes_to_jsonable(value)
        return made if isinstance(made, str) else json.dumps(made, separators=(",", ":"))
    return _json(value)


def clamped_us(milliseconds: int) -> int:
    """A time in us, clamped to what 64 bits hold."""
    return min(max(milliseconds, MIN_MS), MAX_MS) * 1000


def _header(header: Header | None) -> Row | None:
    if header is None:
        return None
    found: Row = {name: getattr(header, name) for name in HEADER}
    return {
        name: min(value, 2**63 - 1) if type(value) is int else value
        for name, value in found.items()
    }


def _properties(properties: Properties | None, wanted: Sequence[str]) -> Row | None:
    if properties is None or not wanted:
        return None
    found: Row = {}
    for name in ("message_id", "correlation_id"):
        found[name], found[f"{name}_type"] = _identifier(
            getattr(properties, name), getattr(properties, f"{name}_type")
        )
    for name in PROPERTIES:
        if name in found:
            continue
        value = getattr(properties, name)
        if name in ("absolute_expiry_time", "creation_time"):
            found[name] = None if value is None else clamped_us(value)
        elif name == "group_sequence" and value is not None:
            found[name] = min(value, 2**63 - 1)
        elif value is None or isinstance(value, bytes):
            found[name] = value
        else:
            found[name] = str(value)
    return {name: found[name] for name in wanted}


def _identifier(
    value: int | uuid.UUID | bytes | str | None, wrong: str | None
) -> tuple[str | None, str | None]:
    """An id as text and its type; `wrong` is the type of one that no id may have."""
    if value is None:
        return None, None
    if wrong is not None:
        return str(value), wrong
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii"), "binary"
    if isinstance(value, uuid.UUID):
        return str(value), "uuid"
    if isinstance(value, str):
        return value, "string"
    return str(value), "ulong"


def _texts(values: Mapping[Any, Value] | None) -> list[tuple[str, str | None]] | None:
    if values is None:
        return None
    return [(str(key), value_text(value)) for key, value in values.items()]


def _json(value: Value) -> str:
    return json.dumps(value_to_jsonable(value), ensure_ascii=False, separators=(",", ":"))
