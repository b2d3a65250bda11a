"""Messages into what a table of the latest needs of them: its key, and whether it deletes its key.

Pure functions over record batches. What a task writes has the table's columns and one more
(`staged_schema`); it is no part of the table yet (`latest_merge`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from coldstream.bodies.apply import empty_bodies
from coldstream.jobs.materialise.json_bodies.bodies import Misfits
from coldstream.jobs.materialise.json_bodies.fit import printable
from coldstream.jobs.materialise.json_bodies.text import json_of, parse_object
from coldstream.jobs.materialise.latest.rule import (
    MAX_KEY_BYTES,
    Keyless,
    Latest,
    LatestKey,
    Section,
    key_column,
)
from coldstream.jobs.materialise.schema import columns_of
from coldstream.jobs.materialise.transform import Transformed, joined, refused, transform

#: True in a row that only deletes its key. No column of a table can be called so.
TOMBSTONE = ":tombstone"
_MAX_REASON = 200
_INDEX = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a batch of messages.

    Attributes:
        values: text; null where a message has none.
        broken: why a body cannot be searched for one, by number of the message.
    """

    values: pa.Array
    broken: dict[int, str]


def staged_schema(schema: pa.Schema) -> pa.Schema:
    """Of what tasks write for a table with these columns."""
    return pa.schema([*schema, pa.field(TOMBSTONE, pa.bool_())])


def latest_rows(
    batch: pa.RecordBatch,
    latest: Latest,
    body: str,
    schema: pa.Schema,
    declared: pa.Schema | None = None,
    misfits: Misfits = Misfits.RESCUE,
) -> Transformed:
    """What becomes of messages: rows, rows that delete, dead letters.

    A message that becomes a dead letter changes nothing: its key keeps the row that it has.

    Args:
        batch: with the columns READ_COLUMNS.
        latest: as in a rule.
        body: as in a rule.
        schema: `staged_schema` of the table.
        declared: fields of bodies, as in a rule.
        misfits: as in a rule.

    Raises:
        InvalidInputError: as `transform`.
    """
    keys = keys_of(batch, latest.key)
    sound = pc.is_null(batch.column("error"))
    # A message that cannot be read has no body that could be searched.
    broken = pa.array([number in keys.broken for number in range(batch.num_rows)], pa.bool_())
    without = pc.and_(pc.and_(sound, pc.is_null(keys.values)), pc.invert(broken))
    deletes = pc.and_(pc.and_(sound, pc.is_valid(keys.values)), tombstones(batch))
    column = key_column(body)
    table = pa.schema([each for each in schema if each.name not in (column, TOMBSTONE)])

    plain = pc.invert(pc.or_(pc.or_(without, deletes), broken))
    done = transform(batch.filter(plain), body, table, declared, misfits)
    at = pc.index_in(done.rows.column(columns_of(body)[1]), value_set=batch.column("offset"))
    result = replace(done, rows=_keyed(done.rows, keys.values.take(at), schema, column))
    result = joined(
        result, _deleting(batch.filter(deletes), keys.values.filter(deletes), schema, body)
    )
    result = joined(result, refused(batch.filter(broken), schema, list(keys.broken.values())))
    if latest.keyless is Keyless.DEAD_LETTER:
        words = (
            f"there is no key: {latest.key} is missing, empty or longer than {MAX_KEY_BYTES} bytes"
        )
        result = joined(result, refused(batch.filter(without), schema, words))
    return replace(
        result, no_key=pc.sum(without).as_py() or 0, tombstones=pc.sum(deletes).as_py() or 0
    )


def keys_of(batch: pa.RecordBatch, key: LatestKey) -> Keys:
    """The keys of messages; none is empty, or longer than `MAX_KEY_BYTES` in UTF-8.

    Args:
        batch: with `properties`, `application_properties`, `body` and `error`.
        key: which value it is.
    """
    broken: dict[int, str] = {}
    match key.section:
        case Section.PROPERTIES:
            found = pc.struct_field(batch.column("properties"), key.path[0])
        case Section.APPLICATION_PROPERTIES:
            found = pc.map_lookup(batch.column("application_properties"), key.path[0], "first")
        case Section.BODY:
            texts: list[str | None] = []
            for number, body in enumerate(batch.column("body").to_pylist()):
                try:
                    texts.append(_value_at(body, key.path))
                except ValueError as exc:
                    texts.append(None)
                    broken[number] = printable(str(exc))[:_MAX_REASON]
            found = pa.array(texts, pa.string())
    length = pc.binary_length(found)
    fits = pc.and_(pc.greater(length, 0), pc.less_equal(length, MAX_KEY_BYTES))
    return Keys(pc.if_else(fits, found, pa.scalar(None, pa.string())), broken)


def _value_at(body: bytes | None, path: tuple[str, ...]) -> str | None:
    """The text, number or truth value at a path in a JSON body; None where there is none.

    Raises:
        ValueError: the body is no JSON object; says why.
    """
    if not body:
        return None
    try:
        found = parse_object(str(body, "utf-8"))
    except UnicodeDecodeError as exc:
        raise ValueError("the body is no UTF-8") from exc
    value: object = found
    for name in path:
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and _INDEX.fullmatch(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    if isinstance(value, str):
        value.encode()  # half of a surrogate pair is no text that a column takes
        return value
    return None if value is None or isinstance(value, dict | list) else json_of(value)


def tombstones(batch: pa.RecordBatch) -> pa.Array:
    """Which messages have no body, an empty one, or AMQP's null as its value."""
    return pa.array(empty_bodies(batch), pa.bool_())


def last_of(rows: pa.RecordBatch, key: str, offset: str) -> pa.RecordBatch:
    """The row with the highest offset of each key.

    Args:
        rows: of one stream.
        key: name of the column with the key.
        offset: name of the column with the offset.
    """
    if not rows.num_rows:
        return rows
    return rows.filter(pc.is_in(rows.column(offset), value_set=newest(rows, key, offset)))


def newest(rows: pa.RecordBatch | pa.Table, key: str, offset: str) -> pa.Array:
    """The highest offset of each key, in any order."""
    pairs = rows.select([key, offset])
    table = pairs if isinstance(pairs, pa.Table) else pa.Table.from_batches([pairs])
    highest = table.group_by(key).aggregate([(offset, "max")]).column(f"{offset}_max")
    return pa.array(highest.to_numpy(), pa.int64())


def _keyed(rows: pa.RecordBatch, keys: pa.Array, schema: pa.Schema, column: str) -> pa.RecordBatch:
    own = {column: keys, TOMBSTONE: pa.array([False] * rows.num_rows, pa.bool_())}
    columns = [own[name] if name in own else rows.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _deleting(batch: pa.RecordBatch, keys: pa.Array, schema: pa.Schema, body: str) -> Transformed:
    """Rows that have nothing but what says which key they delete, and when."""
    stream, offset, time = columns_of(body)
    own = {
        stream: batch.column("stream"),
        offset: batch.column("offset"),
        time: batch.column("timestamp"),
        key_column(body): keys,
        TOMBSTONE: pa.array([True] * batch.num_rows, pa.bool_()),
    }
    columns = [
        own[each.name].cast(each.type) if each.name in own else pa.nulls(batch.num_rows, each.type)
        for each in schema
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    return replace(refused(batch.slice(0, 0), schema, ""), rows=rows)
