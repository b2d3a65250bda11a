"""Bodies of JSON objects into columns, without losing a field and without trusting a byte.

The quick way gives all bodies of a batch to Arrow's JSON reader at once, each in a line of its own
with its number in front, and believes the answer only if every line came back as one row with its
number and nothing else. Whatever is not that plain (a field that is new or does not fit, a body
that is no JSON, one that tries to look like two) is decided body by body in Python.

  * A body that is no JSON object gives an error, and its message goes to the dead letters.
  * A field that the table has no column for, or that does not fit its column, is rescued as the
    text that it has in the body. The driver may grow the table by the new fields and have the batch
    done again, unless the rule declares what the fields are: then these are all columns, and the
    rule says whether a body with one that does not fit is rescued, or an error, too.
  * A field whose name no table can take (`schema.can_be_column`) is always rescued, and so is one
    that is nested more deeply than `MAX_DEPTH`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from coldstream.jobs.materialise.json_bodies.arrow_columns import (
    MisfitError,
    holds_decimals,
    made_of,
    readable,
)
from coldstream.jobs.materialise.json_bodies.fit import fitter, kind_of, printable
from coldstream.jobs.materialise.json_bodies.text import LONG_TEXT, parse_object, texts_of
from coldstream.jobs.materialise.kinds import name_of, stored, without_values
from coldstream.jobs.materialise.rows import with_type
from coldstream.jobs.materialise.schema import (
    MAX_DEPTH,
    MAX_FIELDS,
    RESCUED_TYPE,
    RESERVED,
    can_be_column,
    grown,
    lacking,
    merged,
)

_NEGATIVE_ZERO = -(2**63)  # the bits of a double
_MAX_EXACT = 2**53  # from here on some whole numbers are no double
#: A number by a power of ten of two digits, in quotes or not; or a text that may be one in escapes.
#: Arrow makes a decimal of it by a table that does not reach that far: 1e-41 became 0.
_POWERS = re.compile(rb'[:\[,]\s*"?[-+]?[0-9][0-9.]*[eE][-+]?[0-9]{2,}\s*[",\]}]|\\u00[2346]')
_MAX_REASON = 200
_MAX_SHOWN = 60


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


class Misfits(StrEnum):
    """What becomes of a body one of whose fields does not fit its column."""

    RESCUE = "rescue"
    DEAD_LETTER = "dead-letter"


def parse_bodies(
    bodies: pa.Array, known: pa.Schema, *, declared: bool = False, misfits: Misfits = Misfits.RESCUE
) -> Parsed:
    """Bodies as the columns of `known`.

    Args:
        bodies: binary, of any content; null counts as a body that is no JSON.
        known: fields that have a column, with types as a rule declares them (`declared`) or as the
            table has them; the columns come out as `kinds.stored` says.
        declared: whether there are no other columns, so that nothing is found.
        misfits: what becomes of a body with a value that does not fit, or without one that has to
            be there. A field without a column never makes an error.
    """
    quick = _quickly(bodies, known)
    if quick is not None:
        return quick
    return _one_by_one(bodies, known, declared=declared, misfits=misfits)


def _quickly(bodies: pa.Array, known: pa.Schema) -> Parsed | None:
    """All at once; None where that might not be the truth."""
    count = len(bodies)
    read = readable(known)
    if read is None or not len(known) or not count or bodies.null_count:
        return None
    try:
        bodies.cast(pa.string())  # Arrow's reader does not check UTF-8, this does
    except pa.ArrowInvalid:
        return None
    if pc.max(pc.binary_length(bodies)).as_py() > LONG_TEXT:
        return None  # it may have too many values
    lines = b"".join(
        b'{"i":%d,"b":%b}\n' % (number, body) for number, body in enumerate(bodies.to_pylist())
    )
    if holds_decimals(known) and _POWERS.search(lines):
        return None
    schema = pa.schema([pa.field("i", pa.int64()), pa.field("b", pa.struct(list(read)))])
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
    columns = rows.flatten()
    if not all(_exact(column) for column in columns):
        return None
    try:
        made = tuple(map(made_of, columns, known))
    except MisfitError:
        return None
    return Parsed(made, pa.nulls(count, RESCUED_TYPE), {}, pa.schema([]))


def _exact(column: pa.Array) -> bool:
    """Whether every double is the number that was written, not one near it, infinity or NaN.

    Arrow's reader takes `NaN` for a number, which JSON does not have, and `-0` for one that has a
    sign; a whole number has none.
    """
    kind = column.type
    if pa.types.is_list(kind):
        return _exact(column.flatten())
    if pa.types.is_struct(kind):
        return all(_exact(part) for part in column.flatten())
    if not pa.types.is_float64(kind):
        return True
    if pc.any(pc.equal(column.view(pa.int64()), _NEGATIVE_ZERO)).as_py():
        return False
    if pc.any(pc.is_nan(column)).as_py():  # the largest of all passes it over
        return False
    largest = pc.max(pc.abs(column)).as_py()
    return largest is None or largest < _MAX_EXACT


def _one_by_one(
    bodies: pa.Array, known: pa.Schema, *, declared: bool = False, misfits: Misfits = Misfits.RESCUE
) -> Parsed:
    errors: dict[int, str] = {}
    columns: list[list[Any]] = [[] for _ in known]
    rescued: list[list[tuple[str, str]] | None] = []
    names = frozenset(known.names)
    growth = None if declared else _Growth(known)
    fits = [fitter(field) for field in known]
    for number, body in enumerate(bodies.to_pylist()):
        text, document = "", {}
        try:
            text = _text_of(body)
            document = parse_object(text)
        except ValueError as exc:
            errors[number] = printable(str(exc))[:_MAX_REASON]
        amiss = []
        for name, fit, column in zip(known.names, fits, columns, strict=True):
            value, complete = fit(document.get(name))
            column.append(value)
            if not complete:
                amiss.append(name)
        saved = [name for name in amiss if name in document]
        saved += [name for name in document if name not in names]
        texts = texts_of(text) if saved else {}
        if amiss and misfits is Misfits.DEAD_LETTER:
            errors.setdefault(number, _misfit(known.field(amiss[0]), texts))
        if growth is not None:
            growth.add({name: document[name] for name in saved})
        rescued.append([(printable(name), texts[name]) for name in saved] or None)
    arrays = tuple(
        _array(column, stored(field.type)) for field, column in zip(known, columns, strict=True)
    )
    found = pa.schema([]) if growth is None else growth.found()
    return Parsed(arrays, pa.array(rescued, RESCUED_TYPE), errors, found)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    return with_type(pa.array(values, without_values(kind)), kind)


def _misfit(field: pa.Field, texts: Mapping[str, str]) -> str:
    if field.name not in texts:
        return f"the body has no {field.name}, which must be there"
    text = texts[field.name]
    shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
    return f"{field.name} is no {name_of(field.type)}: {shown}"[: 2 * _MAX_REASON]


class _Growth:
    """What the table would be if it had columns for all that was rescued.

    Args:
        known: fields that have a column.
    """

    def __init__(self, known: pa.Schema) -> None:
        self._names = frozenset(known.names)
        self._known = known
        self._new = pa.schema([])
        self._seen: set[tuple[str, pa.DataType]] = set()

    def add(self, saved: Mapping[str, Any]) -> None:
        """Fields of one body that had to be rescued."""
        for name, value in saved.items():
            if name not in self._names and not self._may_come(name):
                continue
            kind = kind_of(value, MAX_DEPTH)
            if kind is not None and (name, kind) not in self._seen:
                self._seen.add((name, kind))
                new = lacking(self._known, pa.schema([pa.field(name, kind)]))
                self._new = merged(self._new, new)

    def found(self) -> pa.Schema:
        """Fields that are new, or that have grown inside; their types take all that was seen."""
        whole = grown(self._known, self._new)
        return pa.schema(
            [
                field
                for field in whole
                if field.name not in self._names or field.type != self._known.field(field.name).type
            ]
        )

    def _may_come(self, name: str) -> bool:
        if name.lower() in RESERVED or not can_be_column(name):
            return False
        room = len(self._names) + len(self._new) < MAX_FIELDS
        return room or self._new.get_field_index(name) >= 0


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
