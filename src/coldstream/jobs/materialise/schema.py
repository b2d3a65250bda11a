"""The columns of the tables that materialise writes, and how they grow.

A table whose body stays bytes has the columns of `coldstream.columns`. A table whose body becomes
columns keeps what the stream adds to a message under names that begin with "_". A field of a body
that has such a name, or one that a catalog or a reader of tables cannot take, becomes no column.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from coldstream.columns.schema import COLUMNS, DEAR, select
from coldstream.jobs.materialise.kinds import common, wider

#: What of the decoder's columns goes into a table of raw bodies, in this order.
RAW_COLUMNS = (
    "stream", "vhost", "queue", "super_stream", "routing_key", "offset", "timestamp", "chunk_id",
    "epoch", "body_kind", "body", "properties", "application_properties", "message_annotations",
)  # fmt: skip
#: What the reader must give for any table.
READ_COLUMNS = (*RAW_COLUMNS, "raw", "error")
#: What a rule may ask for beside these.
EXTRA_COLUMNS = (
    *("publishers", "header", "delivery_annotations", "footer"),
    *(name for name, (_, variant) in DEAR.items() if not variant),
)
#: What could not go into a table.
DEAD_COLUMNS = (
    "stream", "vhost", "queue", "offset", "timestamp", "chunk_id", "epoch", "error", "raw",
)  # fmt: skip
#: In front of the fields of a body: our name, and the decoder's.
ENVELOPE: Mapping[str, str] = {
    "_stream": "stream",
    "_vhost": "vhost",
    "_queue": "queue",
    "_super_stream": "super_stream",
    "_routing_key": "routing_key",
    "_offset": "offset",
    "_timestamp": "timestamp",
    "_properties": "properties",
    "_application_properties": "application_properties",
}
#: Columns that a table of an older release gets beside those that it has.
NAME_COLUMNS = (
    *("vhost", "queue", "super_stream", "routing_key"),
    *("_vhost", "_queue", "_super_stream", "_routing_key"),
)
#: Columns of the decoder with stream, offset and time.
KEY_COLUMNS = ("stream", "offset", "timestamp")
#: Fields of a body that do not fit their column, as JSON text by name of the field.
RESCUED = "_rescued"
RESCUED_TYPE = pa.map_(pa.string(), pa.string())
#: Lower-case names that no field of a body gets: ours, those that we may need one day, those of the
#: columns that readers of Iceberg tables add by themselves, and those of partitions
#: (`iceberg_new`), beside which Iceberg allows no column.
RESERVED = frozenset(
    {
        RESCUED,
        *(f"_{name}" for name in COLUMNS),
        *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id"),
        *("_last_updated_sequence_number", "_change_type", "_change_ordinal"),
        "_commit_snapshot_id",
        *("_stream_identity", "_timestamp_hour", "_timestamp_day", "_key_bucket"),
    }
)
#: More columns than this are no table any more, nor are more fields in one column, at all depths:
#: publishers write maps as objects whose names are ids. What comes later goes to `_rescued`.
MAX_FIELDS = 1000
#: Fields of a table at all depths; each is a column of its own in a file.
MAX_LEAVES = 5_000
#: Glue takes no longer type of a column, written as Hive does.
_MAX_TYPE_BYTES = 131_072
#: Objects and lists within each other get types of their own down to this depth.
MAX_DEPTH = 8
#: Glue takes no longer ones.
_MAX_NAME_BYTES = 255
#: A path in Iceberg is names with dots between them; Hive writes a type as `struct<name:type,...>`.
_UNFIT = re.compile(r"[\x00-\x1f\x7f.`,:;<>\ud800-\udfff\ufffe\uffff]")


def raw_schema(extra: Sequence[str] = ()) -> pa.Schema:
    """Of a table of raw bodies; `extra` are some of `EXTRA_COLUMNS`."""
    return select((*RAW_COLUMNS, *extra)).schema


def dead_schema() -> pa.Schema:
    """Of a table of dead letters."""
    return select(DEAD_COLUMNS).schema


def envelope_schema(extra: Sequence[str] = ()) -> pa.Schema:
    """Of a table of fields, before it knows any field; `extra` are some of `EXTRA_COLUMNS`."""
    fields = [pa.field(ours, COLUMNS[theirs]) for ours, theirs in envelope(extra).items()]
    return pa.schema([*fields, pa.field(RESCUED, RESCUED_TYPE)])


def envelope(extra: Sequence[str]) -> dict[str, str]:
    """What stands in front of the fields of a body: our names, and the decoder's."""
    return {**ENVELOPE, **{f"_{name}": name for name in extra}}


def columns_of(body: str) -> tuple[str, str, str]:
    """Names of a table's columns with stream, offset and time, by what becomes of bodies."""
    if body == "raw":
        return KEY_COLUMNS
    names = {theirs: ours for ours, theirs in ENVELOPE.items()}
    stream, offset, time = (names[name] for name in KEY_COLUMNS)
    return stream, offset, time


def body_fields(schema: pa.Schema) -> pa.Schema:
    """The columns of a table that come from bodies."""
    return pa.schema([field for field in schema if field.name.lower() not in RESERVED])


def can_be_column(name: str) -> bool:
    """Whether Iceberg, Glue and Hive can all take a column, or a field of an object, so named."""
    return bool(name) and not _UNFIT.search(name) and len(name.encode()) <= _MAX_NAME_BYTES


def grown(schema: pa.Schema, found: pa.Schema) -> pa.Schema:
    """`schema` with the fields of `found` that it lacks, at its end, up to `MAX_FIELDS`.

    A column becomes wider where Iceberg allows it (`kinds.wider`) and is the same otherwise: what
    does not fit is rescued, so old files stay readable and a query that worked goes on working.
    Structs grow inside. To most readers `Id` and `id` are the same column, so whichever is there
    first stays the only one. A column that would become too large stays what it is
    (`MAX_FIELDS`, `MAX_LEAVES`).
    """
    return _union(schema, found, wider)


def merged(schema: pa.Schema, found: pa.Schema) -> pa.Schema:
    """The fields of two samples of bodies, which no table has yet: with a type that takes both."""
    return _union(schema, found, common)


_Merge = Callable[[pa.DataType, pa.DataType], pa.DataType]


def _union(schema: pa.Schema, found: pa.Schema, merge: _Merge) -> pa.Schema:
    """As `_fields_of_both`, within what a table has room for."""
    sizes = {field.name: _size(field.type) for field in schema}
    left = MAX_LEAVES - sum(1 + fields for fields, _ in sizes.values())

    def fits(name: str, kind: pa.DataType) -> bool:
        nonlocal left
        before = 1 + sizes[name][0] if name in sizes else 0
        fields, text = _size(kind)
        if 1 + fields > before and (
            fields > MAX_FIELDS or text > _MAX_TYPE_BYTES or 1 + fields - before > left
        ):
            return False
        sizes[name] = fields, text
        left -= 1 + fields - before
        return True

    return _fields_of_both(schema, found, merge, fits)


def _fields_of_both(
    schema: pa.Schema, found: pa.Schema, merge: _Merge, fits: Callable[[str, pa.DataType], bool]
) -> pa.Schema:
    fields = {field.name: field for field in schema}
    taken = {name.lower() for name in fields}
    # A table of an older release may have a column `a.b`, and a field b inside of `a` is that, too.
    dotted = {name.partition(".")[0] for name in fields if "." in name}
    for field in found:
        known = fields.get(field.name)
        if field.name in dotted:
            continue
        if known is not None:
            kind = _union_type(known.type, field.type, merge)
            if fits(field.name, kind):
                fields[field.name] = known.with_type(kind)
        elif (
            len(fields) < MAX_FIELDS
            and field.name.lower() not in taken
            and can_be_column(field.name)
            and fits(field.name, field.type)
        ):
            fields[field.name] = pa.field(field.name, field.type)
            taken.add(field.name.lower())
    return pa.schema(list(fields.values()))


def _size(kind: pa.DataType) -> tuple[int, int]:
    """How many fields a type has at all depths, and how many bytes its name in Hive at most.

    By the name that Arrow gives it, which is made at once, for this is asked for each body that has
    something new: `name: type` of each field, and one more of each list; longer than Hive's but for
    booleans. No name of a field has a sign of these in it.
    """
    if not pa.types.is_nested(kind):
        return 0, 0
    text = str(kind)
    fields = text.count(": ") - text.count("list<")
    return fields, len(text.encode()) + fields


def _union_type(known: pa.DataType, found: pa.DataType, merge: _Merge) -> pa.DataType:
    if pa.types.is_struct(known) and pa.types.is_struct(found):
        both = pa.schema(list(known)), pa.schema(list(found))
        return pa.struct(list(_fields_of_both(*both, merge, lambda *_: True)))
    if pa.types.is_list(known) and pa.types.is_list(found):
        return pa.list_(_union_type(known.value_type, found.value_type, merge))
    return merge(known, found)


def lacking(schema: pa.Schema, found: pa.Schema) -> pa.Schema:
    """The fields of `found` for which `schema` would have to grow, or become wider.

    Where it would have to grow inside of an object, only what is new in there.
    """
    new = []
    for field in found:
        at = schema.get_field_index(field.name)
        kind = field.type if at < 0 else _lacking_type(schema.field(at).type, field.type)
        if kind is not None:
            new.append(field.with_type(kind))
    return pa.schema(new)


def _lacking_type(known: pa.DataType, found: pa.DataType) -> pa.DataType | None:
    if pa.types.is_struct(known) and pa.types.is_struct(found):
        inside = lacking(pa.schema(list(known)), pa.schema(list(found)))
        return pa.struct(list(inside)) if len(inside) else None
    if pa.types.is_list(known) and pa.types.is_list(found):
        value = _lacking_type(known.value_type, found.value_type)
        return None if value is None else pa.list_(value)
    return None if wider(known, found) == known else found


def small(field: pa.Field) -> pa.Field:
    """A field with 32-bit offsets wherever it has 64-bit ones, as pyiceberg's have, ids and all.

    They are what the decoder and the JSON reader make; a batch is far from needing more.
    """
    return field.with_type(_small(field.type))


def _small(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(small(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([small(each) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(small(kind.key_field), small(kind.item_field))
    return kind
