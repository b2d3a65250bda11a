"""Decoded messages into the rows of a table: pure functions over record batches.

Whatever comes in goes out: as a row, or as a dead letter with its reason. What a function of the
user's leaves out on purpose is the one exception, and it says so by returning fewer rows.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import pyarrow as pa
import pyarrow.compute as pc

from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.json_bodies.bodies import Misfits, parse_bodies
from coldstream.jobs.materialise.kinds import stored, unstorable
from coldstream.jobs.materialise.rows import with_type
from coldstream.jobs.materialise.schema import (
    DEAD_COLUMNS,
    EXTRA_COLUMNS,
    MAX_FIELDS,
    NAME_COLUMNS,
    RAW_COLUMNS,
    RESCUED,
    body_fields,
    dead_schema,
    envelope,
    envelope_schema,
    grown,
    raw_schema,
)

#: Given messages (the columns of READ_COLUMNS, none with an error), gives rows: `_offset` says of
#: which message each is. Its attribute `schema` names its columns beside `_offset`.
UserFunction = Callable[[pa.RecordBatch], pa.RecordBatch]

_MAX_REASON = 500


@dataclass(frozen=True, slots=True)
class Transformed:
    """What became of a batch.

    Attributes:
        rows: for the table, in the order of offsets.
        dead: for the table of dead letters.
        found: fields that rows have and the table has not; they were rescued meanwhile.
        no_key: how many messages have none, where a table has the latest of each key.
        tombstones: how many of `rows` only delete their key.
    """

    rows: pa.RecordBatch
    dead: pa.RecordBatch
    found: pa.Schema
    no_key: int = 0
    tombstones: int = 0


def first_schema(
    body: str, declared: pa.Schema | None = None, extra: Sequence[str] = ()
) -> pa.Schema:
    """The columns of a new table.

    Args:
        body: as in a rule.
        declared: fields of bodies, as in a rule.
        extra: columns that the rule asks for.

    Raises:
        InvalidInputError: the user's function cannot be found, or says no schema.
    """
    if body == "raw":
        return raw_schema(extra)
    if body == "json":
        return pa.schema([*envelope_schema(extra), *columns_declared(declared)])
    own = _schema_of(user_function(body), body)
    return pa.schema(
        [*(f for f in envelope_schema(extra) if f.name != RESCUED), *map(_column, own)]
    )


def columns_declared(declared: pa.Schema | None) -> list[pa.Field]:
    """What a table has for declared fields; none where nothing is declared."""
    return [] if declared is None else [pa.field(f.name, stored(f.type)) for f in declared]


def transform(
    batch: pa.RecordBatch,
    body: str,
    schema: pa.Schema,
    declared: pa.Schema | None = None,
    misfits: Misfits = Misfits.RESCUE,
) -> Transformed:
    """Messages into rows.

    Args:
        batch: with the columns READ_COLUMNS.
        body: as in a rule.
        schema: of the table.
        declared: fields of bodies, as in a rule.
        misfits: as in a rule.

    Raises:
        InvalidInputError: as `first_schema`.
    """
    failed = pc.is_valid(batch.column("error"))
    good = batch if not pc.any(failed).as_py() else batch.filter(pc.invert(failed))
    dead = batch.filter(failed).select(list(DEAD_COLUMNS))
    if body == "raw":
        return Transformed(_raw(good, schema), dead, _NOTHING_NEW)
    if body == "json":
        return _json(good, dead, schema, declared, misfits)
    return _by_user(good, dead, schema, body)


def refused(batch: pa.RecordBatch, schema: pa.Schema, reason: str | Sequence[str]) -> Transformed:
    """Messages of which no row can be made, as dead letters.

    Args:
        batch: as for `transform`.
        schema: of the table.
        reason: why, of all or of each; that of a message which has one already stays.
    """
    reasons = [reason] * batch.num_rows if isinstance(reason, str) else reason
    words = [each[:_MAX_REASON].encode(errors="backslashreplace").decode() for each in reasons]
    given = batch.column("error").to_pylist()
    dead = _dead(batch, [each or ours for each, ours in zip(given, words, strict=True)])
    return Transformed(_empty(schema), dead, _NOTHING_NEW)


def joined(first: Transformed, second: Transformed) -> Transformed:
    """What became of a batch whose halves were looked at one by one."""
    return Transformed(
        pa.concat_batches([first.rows, second.rows]) if second.rows.num_rows else first.rows,
        _joined(first.dead, second.dead),
        grown(first.found, second.found),
        first.no_key + second.no_key,
        first.tombstones + second.tombstones,
    )


_NOTHING_NEW = pa.schema([])


def _raw(good: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        good.column(name)
        if name in RAW_COLUMNS or name in _extra(good)
        else pa.nulls(good.num_rows, schema.field(name).type)
        for name in schema.names
    ]
    return _batch(columns, schema)


def _extra(good: pa.RecordBatch) -> list[str]:
    """What the rule has asked for beside the usual columns."""
    return [name for name in good.schema.names if name in EXTRA_COLUMNS]


def _json(
    good: pa.RecordBatch,
    dead: pa.RecordBatch,
    schema: pa.Schema,
    declared: pa.Schema | None,
    misfits: Misfits,
) -> Transformed:
    known = body_fields(schema) if declared is None else declared
    parsed = parse_bodies(
        good.column("body"), known, declared=declared is not None, misfits=misfits
    )
    # A table may have a wider type than its rule declares, and more fields inside.
    made = {
        name: with_type(column, schema.field(name).type)
        for name, column in zip(known.names, parsed.columns, strict=True)
    }
    made[RESCUED] = parsed.rescued
    made |= {ours: good.column(theirs) for ours, theirs in envelope(_extra(good)).items()}
    # A table of an older release may have columns that no field of a body gets any more, even one
    # that is called as one of ours is now, of whatever type.
    columns = [
        made[each.name]
        if each.name in made and (each.name not in NAME_COLUMNS or pa.types.is_string(each.type))
        else pa.nulls(good.num_rows, each.type)
        for each in schema
    ]
    rows = _batch(columns, schema)
    if parsed.errors:
        bad = pa.array([number in parsed.errors for number in range(good.num_rows)])
        dead = _joined(dead, _dead(good.filter(bad), list(parsed.errors.values())))
        rows = rows.filter(pc.invert(bad))
    return Transformed(rows, dead, parsed.found)


def _by_user(
    good: pa.RecordBatch, dead: pa.RecordBatch, schema: pa.Schema, body: str
) -> Transformed:
    function = user_function(body)
    own = _schema_of(function, body)

    def made(messages: pa.RecordBatch) -> pa.RecordBatch:
        return _with_envelope(_called(function, messages, own), messages, schema)

    try:
        rows = [made(good)] if good.num_rows else []
        failures: list[tuple[int, str]] = []
    except Exception:  # noqa: BLE001 - the user's function: each message has its own chance
        rows, failures = _row_by_row(made, good)
    for number, reason in failures:
        dead = _joined(dead, _dead(good.slice(number, 1), [reason]))
    whole = pa.Table.from_batches(rows, schema).combine_chunks().to_batches()
    return Transformed(whole[0] if whole else _empty(schema), dead, _NOTHING_NEW)


def _row_by_row(
    made: Callable[[pa.RecordBatch], pa.RecordBatch], good: pa.RecordBatch
) -> tuple[list[pa.RecordBatch], list[tuple[int, str]]]:
    """The same for one message at a time, so that one bad one does not take the others along."""
    results, failures = [], []
    for number in range(good.num_rows):
        try:
            results.append(made(good.slice(number, 1)))
        except Exception as exc:  # noqa: BLE001 - as above; the message becomes a dead letter
            failures.append((number, f"{type(exc).__name__}: {exc}"[:_MAX_REASON]))
    return results, failures


def _called(function: UserFunction, good: pa.RecordBatch, own: pa.Schema) -> pa.RecordBatch:
    result = function(good)
    wanted = pa.schema([pa.field("_offset", pa.int64()), *own])
    rows = pa.RecordBatch.from_arrays(
        [result.column(name).cast(wanted.field(name).type) for name in wanted.names], schema=wanted
    )
    known = pc.index_in(rows.column("_offset"), value_set=good.column("offset"))
    if known.null_count:
        raise ValueError("a row has an _offset that was not in the batch, or none")
    return rows


def _with_envelope(
    result: pa.RecordBatch, good: pa.RecordBatch, schema: pa.Schema
) -> pa.RecordBatch:
    at = pc.index_in(result.column("_offset"), value_set=good.column("offset"))
    ours = envelope(_extra(good))
    columns = [
        good.column(ours[name]).take(at) if name in ours else _own(result, name, schema)
        for name in schema.names
    ]
    return _batch(columns, schema)


def _own(result: pa.RecordBatch, name: str, schema: pa.Schema) -> pa.Array:
    if name in result.schema.names:
        return result.column(name)
    return pa.nulls(result.num_rows, schema.field(name).type)


def user_function(body: str) -> UserFunction:
    """The function that a rule names.

    Raises:
        InvalidInputError: there is none.
    """
    module, _, name = body.partition(":")
    try:
        function: UserFunction = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as exc:
        raise InvalidInputError(f"there is no function {body}: {exc}") from exc
    if not callable(function):
        raise InvalidInputError(f"{body} is no function")
    return function


def _schema_of(function: UserFunction, body: str) -> pa.Schema:
    schema = getattr(function, "schema", None)
    if not isinstance(schema, pa.Schema):
        raise InvalidInputError(f"{body} has no attribute `schema` with the columns that it makes")
    taken = [name for name in schema.names if name.startswith("_")]
    if taken:
        raise InvalidInputError(f"{body}: columns beginning with _ are ours, such as {taken[0]}")
    kept = grown(_NOTHING_NEW, schema).names
    if schema.names != kept:
        first = next(name for name, other in zip_longest(schema.names, kept) if name != other)
        raise InvalidInputError(
            f"{body}: {first!r} cannot be a column: a name has none of . ` , : ; < > and differs"
            f" from others not in upper case only; there are at most {MAX_FIELDS}"
        )
    for field in schema:
        if (kind := unstorable(_column(field).type)) is not None:
            raise InvalidInputError(
                f"{body}: the column {field.name} is of {kind}, which no table has"
            )
    return schema


def _column(field: pa.Field) -> pa.Field:
    """Of a table."""
    return field.with_type(stored(field.type))


def _dead(rows: pa.RecordBatch, reasons: list[str]) -> pa.RecordBatch:
    columns = [
        pa.array(reasons, pa.string()) if name == "error" else rows.column(name)
        for name in DEAD_COLUMNS
    ]
    return _batch(columns, dead_schema())


def _joined(first: pa.RecordBatch, second: pa.RecordBatch) -> pa.RecordBatch:
    if not first.num_rows:
        return second
    return pa.concat_batches([first, second])


def _batch(columns: list[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    cast = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(cast, schema=schema)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return _batch([pa.nulls(0, field.type) for field in schema], schema)
