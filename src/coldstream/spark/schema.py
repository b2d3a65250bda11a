"""The columns of a query: what is asked for by options or by a schema, and their Spark types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from coldstream.columns.schema import ALL, DEAR, DEFAULT, PROPERTIES, WHICH_STREAM, select
from coldstream.errors import InvalidInputError
from coldstream.spark.options import Options, Rows
from coldstream.spark.views import view_schema

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

#: What asks for all columns but those that are dear.
STAR = "*"


def default_columns(options: Options) -> tuple[str, ...]:
    """The columns that a query has if no schema is given.

    Raises:
        InvalidInputError: there is no such column.
    """
    if options.rows is not Rows.MESSAGES:
        chosen = None if options.columns == (STAR,) else options.columns
        return tuple(view_schema(options.rows, chosen).names)
    names = options.columns
    if names is None:
        names = (*WHICH_STREAM, *DEFAULT) if options.several else DEFAULT
    if names == (STAR,):
        names = ALL
    select(names)
    return names


def arrow_schema(rows: Rows, columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of columns."""
    return select(columns).schema if rows is Rows.MESSAGES else view_schema(rows, columns)


def spark_schema(rows: Rows, columns: Sequence[str]) -> StructType:
    """The Spark schema of columns.

    Raises:
        InvalidInputError: one is a VARIANT, and this Spark has none.
    """
    from pyspark.sql import types
    from pyspark.sql.pandas.types import from_arrow_schema

    variants = [name for name in columns if DEAR.get(name, ("", False))[1]]
    if variants and rows is Rows.MESSAGES and not hasattr(types, "VariantType"):
        (name, _), column = DEAR[variants[0]], variants[0]
        raise InvalidInputError(f"{column} is a VARIANT, which needs Spark 4: use {name}_json")
    return from_arrow_schema(arrow_schema(rows, columns))


def columns_of(rows: Rows, schema: StructType) -> tuple[str, ...]:
    """The columns that a Spark schema asks for; the struct `properties` may have fewer fields.

    Raises:
        InvalidInputError: there is no such column, or it is of another type.
    """
    names: list[str] = []
    for field in schema.fields:
        parts = getattr(field.dataType, "names", None)
        if rows is Rows.MESSAGES and field.name == "properties" and parts:
            if list(parts) == list(PROPERTIES):
                names.append(field.name)
            else:
                names += [f"properties.{part}" for part in parts]
        else:
            names.append(field.name)
    ours = spark_schema(rows, names)
    for asked, right in zip(schema.fields, ours.fields, strict=True):
        if _type(asked.dataType) != _type(right.dataType):
            raise InvalidInputError(
                f"column {asked.name} is {_type(right.dataType)}, not {_type(asked.dataType)}"
            )
    return tuple(names)


def _type(kind: DataType) -> str:
    """A type as people write it; says nothing about nulls."""
    return str(kind.simpleString())
