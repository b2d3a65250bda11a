"""Whether a table that is there already can take what a rule makes: its rule may have changed.

A table of bytes has other columns than one of fields, so neither becomes the other. A function of
the user's, or a declared schema, may have more columns than before; the table grows by them, and a
column becomes wider where Iceberg allows it. Another type than that is refused before anything is
read.
"""

from __future__ import annotations

import pyarrow as pa

from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.kinds import name_of, stored
from coldstream.jobs.materialise.latest.rule import key_column
from coldstream.jobs.materialise.rules import TableRule
from coldstream.jobs.materialise.schema import (
    NAME_COLUMNS,
    RESCUED,
    body_fields,
    columns_of,
    grown,
)
from coldstream.jobs.materialise.transform import first_schema

_CLASSES = (
    (pa.types.is_boolean,),
    (pa.types.is_integer,),
    (pa.types.is_floating,),
    (pa.types.is_string, pa.types.is_large_string),
    (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary),
    (pa.types.is_date,),
    (pa.types.is_time,),
)


def new_schema(rule: TableRule) -> pa.Schema:
    """The columns that a rule gives a new table.

    Raises:
        InvalidInputError: as `first_schema`; or the rule's order names none of them.
    """
    first = first_schema(rule.body, rule.schema, rule.columns)
    for name in rule.order:
        kind = first.field(name).type if name in first.names else pa.null()
        if (
            pa.types.is_nested(kind)
            or pa.types.is_null(kind)
            or isinstance(kind, pa.BaseExtensionType)
        ):
            raise InvalidInputError(
                f"order: {name[:80]!r} is no column of {rule.table} with one value a row, or nobody"
                " has declared it: fields of bodies need a schema"
            )
    if rule.latest is None:
        return first
    return pa.schema([pa.field(key_column(rule.body), pa.string()), *first])


def with_rule(rule: TableRule, present: pa.Schema, first: pa.Schema) -> pa.Schema:
    """The columns of a table, and those that its rule needs beside them.

    Args:
        rule: of the table.
        present: its columns now.
        first: those that the rule gives a new table.

    Raises:
        InvalidInputError: the table was filled by a rule of another kind, or a column has another
            type than the rule's function makes.
    """
    needed = [*columns_of(rule.body), *_REST.get(rule.body, ())]
    needed += [] if rule.latest is None else [key_column(rule.body)]
    lacking = [name for name in needed if name not in present.names]
    if lacking:
        raise InvalidInputError(
            f"the table {rule.table} has no column {lacking[0]}: it was filled with another body"
            f" than {rule.body}, or others have renamed or dropped that column. Go back to what it"
            " was, or fill a table of another name"
        )
    ours = {*NAME_COLUMNS, *rule.columns, *(f"_{name}" for name in rule.columns)}
    present = grown(present, pa.schema([each for each in first if each.name in ours]))
    for name in (name for name in first.names if name in ours and name not in NAME_COLUMNS):
        kind, right = present.field(name).type, first.field(name).type
        if kind != right:
            raise InvalidInputError(
                f"the column {name} of {rule.table} is {name_of(kind)}, and not {name_of(right)}:"
                " a field of its bodies was called so. Fill a table of another name"
            )
    if rule.body in _REST and rule.schema is None:
        return present
    maker, way_out = rule.body, "give the new one another name"
    if rule.schema is not None:
        maker, way_out = "the rule's schema", "fill a table of another name"
    own = body_fields(first)
    after = grown(present, own)
    for made in own:
        if made.name not in after.names:
            raise InvalidInputError(
                f"the table {rule.table} can have no column {made.name}, which {maker} has:"
                " there are too many, or one whose name differs in upper case only"
            )
        column = after.field(made.name)
        if not _takes(column.type, made.type):
            raise InvalidInputError(
                f"the column {made.name} of {rule.table} is {name_of(column.type)}, and {maker}"
                f" says {name_of(made.type)}: a column becomes wider (int to long, float to double,"
                f" a decimal with more digits) and nothing else, so {way_out}"
            )
    return after


#: What a table must have beside its keys.
_REST = {"raw": ("body",), "json": (RESCUED,)}


def _takes(column: pa.DataType, made: pa.DataType) -> bool:
    """Whether a column of one type is what a table has for values of the other.

    A kind of table may have had to make a type wider, so it need not be the same.
    """
    if pa.types.is_dictionary(made):
        made = made.value_type
    if column == made or pa.types.is_null(made):
        return True
    if pa.types.is_struct(column) and pa.types.is_struct(made):
        return all(
            column.get_field_index(each.name) >= 0
            and _takes(column.field(each.name).type, each.type)
            for each in made
        )
    if _is_list(column) and _is_list(made):
        return _takes(column.value_type, made.value_type)
    if column == pa.int64() and made == stored(pa.uint64()):
        return True  # a table that an earlier release made: what is too large is a dead letter
    if pa.types.is_integer(column) or pa.types.is_floating(column):
        same = pa.types.is_integer(column) == pa.types.is_integer(made)
        number = pa.types.is_integer(made) or pa.types.is_floating(made)
        return bool(same and number and column.bit_width >= made.bit_width)
    if pa.types.is_map(column) and pa.types.is_map(made):
        return _takes(column.key_type, made.key_type) and _takes(column.item_type, made.item_type)
    if pa.types.is_decimal(column) and pa.types.is_decimal(made):
        return bool(column.scale == made.scale and column.precision >= made.precision)
    if pa.types.is_timestamp(column) and pa.types.is_timestamp(made):
        return bool(column.tz) == bool(made.tz)
    return any(
        any(test(column) for test in tests) and any(test(made) for test in tests)
        for tests in _CLASSES
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )
