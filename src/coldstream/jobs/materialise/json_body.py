"""Bodies of JSON objects into columns, without losing a field and without trusting a byte.

The quick way gives all bodies of a batch to Arrow's JSON reader at once, each in a line of its own
with its number in front, and believes the answer only if every line came back as one row with its
number and nothing else. Whatever is not that plain (a field that is new or does not fit, a body
that is no JSON, one that tries to look like two) is decided body by body in Python.

  * A body that is no JSON object gives an error, and its message goes to the dead letters.
  * A field that the table has no column for, or that does not fit its column, is rescued as the
    text that it has in the body. The driver may grow the table by the new fields and have the batch
    done again.
  * A field whose name no table can take (`schema.can_be_column`) is always rescued, and so is one
    that is nested more deeply than `MAX_DEPTH`.
"""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from coldstream.jobs.materialise.json_text import parse_object, texts_of
from coldstream.jobs.materialise.schema import (
    MAX_DEPTH,
    MAX_FIELDS,
    RESCUED_TYPE,
    RESERVED,
    can_be_column,
    grown,
)

_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1
_MAX_EXACT = 2**53  # from here on some whole numbers are no double
_MAX_REASON = 200
_NOTHING = pa.schema([])


@dataclass(frozen=True, slots=True)
class Parsed:
    """Bodies as columns.

    Attributes:
        columns: one array for each field of the schema that was asked for, as long as the input.
        rescued: map<string, string>, null where nothing had to be rescued.
        errors: why a body is no object, by its number; its row is null in every column.
        found: fields that had to be rescued because no column takes them; empty if none.
    """

    columns: tuple[pa.Array, ...]
    rescued: pa.Array
    errors: dict[int, str]
    found: pa.Schema


def parse_bodies(bodies: pa.Array, known: pa.Schema) -> Parsed:
    """Bodies as the columns of `known`.

    Args:
        bodies: binary, of any content; null counts as a body that is no JSON.
        known: fields that have a column.
    """
    quick = _quickly(bodies, known)
    return quick if quick is not None else _one_by_one(bodies, known)


def _quickly(bodies: pa.Array, known: pa.Schema) -> Parsed | None:
    """All at once; None where that might not be the truth."""
    count = len(bodies)
    if not len(known) or not count or bodies.null_count:
        return None
    try:
        bodies.cast(pa.string())  # Arrow's reader does not check UTF-8, this does
    except pa.ArrowInvalid:
        return None
    lines = b"".join(
        b'{"i":%d,"b":%b}\n' % (number, body) for number, body in enumerate(bodies.to_pylist())
    )
    schema = pa.schema([pa.field("i", pa.int64()), pa.field("b", pa.struct(list(known)))])
    try:
        table = arrow_json.read_json(
            io.BytesIO(lines),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=schema,
                newlines_in_values=True,
                unexpected_field_behavior="error",
            ),
        )
    except (pa.ArrowException, ValueError):
        return None
    if table.num_rows != count or table.column_names != ["i", "b"]:
        return None
    if table.column("i").combine_chunks() != pa.array(range(count), pa.int64()):
        return None
    rows = table.column("b").combine_chunks()
    if isinstance(rows, pa.ChunkedArray):
        rows = rows.chunk(0)
    if rows.null_count:
        return None  # the body null is no object
    columns = tuple(rows.flatten())
    if not all(_exact(column) for column in columns):
        return None
    return Parsed(columns, pa.nulls(count, RESCUED_TYPE), {}, pa.schema([]))


def _exact(column: pa.Array) -> bool:
    """Whether every double is the number that was written, not one near it or infinity."""
    kind = column.type
    if pa.types.is_list(kind):
        return _exact(column.flatten())
    if pa.types.is_struct(kind):
        return all(_exact(part) for part in column.flatten())
    if not pa.types.is_float64(kind):
        return True
    largest = pc.max(pc.abs(column)).as_py()
    return largest is None or largest < _MAX_EXACT


def _one_by_one(bodies: pa.Array, known: pa.Schema) -> Parsed:
    errors: dict[int, str] = {}
    columns: list[list[Any]] = [[] for _ in known]
    rescued: list[list[tuple[str, str]] | None] = []
    growth = _Growth(known)
    for number, body in enumerate(bodies.to_pylist()):
        text, document = "", {}
        try:
            text = _text_of(body)
            document = parse_object(text)
        except ValueError as exc:
            errors[number] = _printable(str(exc))[:_MAX_REASON]
        saved = []
        for field, column in zip(known, columns, strict=True):
            value, complete = _fitted(document.get(field.name), field.type)
            column.append(value)
            if not complete:
                saved.append(field.name)
        saved += [name for name in document if name not in growth.names]
        growth.add({name: document[name] for name in saved})
        texts = texts_of(text) if saved else {}
        rescued.append([(_printable(name), texts[name]) for name in saved] or None)
    arrays = tuple(
        pa.array(column, field.type) for field, column in zip(known, columns, strict=True)
    )
    return Parsed(arrays, pa.array(rescued, RESCUED_TYPE), errors, growth.found())


class _Growth:
    """What the table would be if it had columns for all that was rescued.

    Args:
        known: fields that have a column.
    """

    def __init__(self, known: pa.Schema) -> None:
        self.names = frozenset(known.names)
        self._known = known
        self._schema = known
        self._seen: set[tuple[str, pa.DataType]] = set()

    def add(self, saved: Mapping[str, Any]) -> None:
        """Fields of one body that had to be rescued."""
        for name, value in saved.items():
            if name not in self.names and not self._may_come(name):
                continue
            kind = _kind(value, MAX_DEPTH)
            if kind is not None and (name, kind) not in self._seen:
                self._seen.add((name, kind))
                self._schema = grown(self._schema, pa.schema([pa.field(name, kind)]))

    def found(self) -> pa.Schema:
        """Fields that are new, or that have grown inside."""
        return pa.schema(
            [
                field
                for field in self._schema
                if field.name not in self.names or field.type != self._known.field(field.name).type
            ]
        )

    def _may_come(self, name: str) -> bool:
        if name.lower() in RESERVED or not can_be_column(name):
            return False
        return len(self._schema) < MAX_FIELDS or self._schema.get_field_index(name) >= 0


def _text_of(body: bytes | None) -> str:
    """A body as text.

    Raises:
        ValueError: it is none; says why.
    """
    if body is None:
        raise ValueError("the message has no body of bytes")
    try:
        return str(body, "utf-8")
    except UnicodeDecodeError as exc:
        raise ValueError("the body is no UTF-8") from exc


def _fitted(value: Any, kind: pa.DataType) -> tuple[Any, bool]:
    """What of `value` a column of this type takes, and whether that is all of it."""
    if value is None:
        return None, True
    if pa.types.is_boolean(kind):
        return (value, True) if isinstance(value, bool) else (None, False)
    if pa.types.is_int64(kind):
        fits = type(value) is int and _MIN_INT <= value <= _MAX_INT
        return (value, True) if fits else (None, False)
    if pa.types.is_float64(kind):
        # A number without a point is one all the same, if a double holds it exactly.
        fits = type(value) in (int, float) and abs(value) <= sys.float_info.max
        fits = fits and float(value) == value
        return (float(value), True) if fits else (None, False)
    if pa.types.is_string(kind):
        return (value, True) if isinstance(value, str) and _is_text(value) else (None, False)
    if pa.types.is_struct(kind):
        return _fitted_struct(value, kind)
    if pa.types.is_list(kind):
        return _fitted_list(value, kind)
    return None, False


def _fitted_struct(value: Any, kind: pa.StructType) -> tuple[Any, bool]:
    if not isinstance(value, dict):
        return None, False
    parts = {field.name: _fitted(value.get(field.name), field.type) for field in kind}
    complete = value.keys() <= parts.keys() and all(whole for _, whole in parts.values())
    return {name: part for name, (part, _) in parts.items()}, complete


def _fitted_list(value: Any, kind: pa.ListType) -> tuple[Any, bool]:
    if not isinstance(value, list):
        return None, False
    parts = [_fitted(each, kind.value_type) for each in value]
    return [part for part, _ in parts], all(whole for _, whole in parts)


def _kind(value: Any, depth: int) -> pa.DataType | None:
    """The type of a column for `value`; None where its JSON text must do.

    Args:
        value: as JSON gives it.
        depth: objects and lists within each other that still get a type.
    """
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if _MIN_INT <= value <= _MAX_INT else None
    if isinstance(value, float):
        return pa.float64() if math.isfinite(value) else None
    if isinstance(value, str):
        return pa.string()
    if not depth:
        return None
    if isinstance(value, dict):
        return _struct_kind(value, depth - 1)
    if isinstance(value, list):
        return _list_kind(value, depth - 1)
    return None


def _struct_kind(value: Mapping[str, Any], depth: int) -> pa.DataType | None:
    kinds = {name: _kind(each, depth) for name, each in value.items() if can_be_column(name)}
    fields = [pa.field(name, kind) for name, kind in kinds.items() if kind is not None]
    return pa.struct(list(grown(_NOTHING, pa.schema(fields)))) if fields else None


def _list_kind(values: Sequence[Any], depth: int) -> pa.DataType | None:
    merged = _NOTHING
    for kind in dict.fromkeys(_kind(each, depth) for each in values):
        if kind is not None:
            merged = grown(merged, pa.schema([pa.field("e", kind)]))
    return pa.list_(merged.field(0).type) if len(merged) else None


def _is_text(value: str) -> bool:
    """Whether it can be written as UTF-8: JSON may spell half a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _printable(value: str) -> str:
    return value if _is_text(value) else value.encode(errors="backslashreplace").decode()
