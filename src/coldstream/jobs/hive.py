"""What Glue, Athena and Hive call the types of columns."""

from __future__ import annotations

import pyarrow as pa

from coldstream.errors import InvalidInputError

_SIMPLE = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "large_string": "string",
    "binary": "binary",
    "large_binary": "binary",
    "date32[day]": "date",
}


def hive_type(kind: pa.DataType) -> str:
    """An Arrow type in Hive's words.

    Raises:
        InvalidInputError: they have no such type.
    """
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{each.name}:{hive_type(each.type)}' for each in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{hive_type(kind.key_type)},{hive_type(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{hive_type(kind.value_type)}>"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    name = _SIMPLE.get(str(kind))
    if name is None:
        raise InvalidInputError(f"no table of the Glue Data Catalog has a column of type {kind}")
    return name
