"""Types of columns: which may become which, what two of them have in common, and their names.

The names are those of Iceberg and Hive: `long`, `decimal(12,2)`, `struct<a:long,b:string>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", "UTC")
TIMESTAMP_NTZ = pa.timestamp("us")

#: Types by the word that stands for them. Those with a unit are whole numbers in a body, and
#: `TIMESTAMP` in a table.
WORDS: Mapping[str, pa.DataType] = MappingProxyType(
    {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "date": pa.date32(),
        "timestamp": TIMESTAMP,
        "timestamp_ntz": TIMESTAMP_NTZ,
        "timestamp_s": pa.timestamp("s", "UTC"),
        "timestamp_ms": pa.timestamp("ms", "UTC"),
        # No table has it, and Arrow has no other type for microseconds.
        "timestamp_us": pa.timestamp("us", "Etc/UTC"),
        "binary": pa.binary(),
    }
)
#: What Iceberg takes for a zone.
_UTC = (None, "UTC", "+00:00", "Etc/UTC", "Z")
_FLAT = (
    pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal128,
    pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
    pa.types.is_fixed_size_binary, pa.types.is_date32,
)  # fmt: skip
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_NESTED = (pa.types.is_struct, pa.types.is_map, *_LISTS)
#: Numbers without a sign, and what holds all of them.
_UNSIGNED: Mapping[pa.DataType, pa.DataType] = MappingProxyType(
    {
        pa.uint8(): pa.int32(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
    }
)
_NAMES = {kind: word for word, kind in WORDS.items()}


def name_of(kind: pa.DataType) -> str:
    """A type in words; that of Arrow where Iceberg has none."""
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{each.name}:{name_of(each.type)}' for each in kind)}>"
    if pa.types.is_list(kind):
        return f"list<{name_of(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{name_of(kind.key_type)},{name_of(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _NAMES.get(kind, str(kind))


def stored(kind: pa.DataType) -> pa.DataType:
    """What a table has for values that a rule or a function declares as of this type.

    Everything in it may be null: a value that does not fit is. Iceberg has no numbers without a
    sign, so they have the next wider type with one: left to pyiceberg, uint32 is an int.
    """
    if kind in _UNSIGNED:
        return _UNSIGNED[kind]
    if pa.types.is_timestamp(kind):
        return TIMESTAMP if kind.tz else TIMESTAMP_NTZ
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, stored(each.type)) for each in kind])
    if any(has(kind) for has in _LISTS):
        return pa.list_(stored(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(stored(kind.key_type), stored(kind.item_type))
    return kind


def without_values(kind: pa.DataType) -> pa.DataType:
    """A type that a table has, with null in the place of what no value of JSON can be.

    That is what Python gives Arrow no values of: others may have given a table columns of UUIDs,
    and pyarrow makes no array of a type with one inside, not even of nothing. Names in JSON are
    text, so a map by anything else is no value, either.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return pa.null()
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(without_values(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(without_values(kind.value_type))
    if pa.types.is_map(kind):
        text = pa.types.is_string(kind.key_type)
        return pa.map_(kind.key_type, without_values(kind.item_type)) if text else pa.null()
    return kind


def unstorable(kind: pa.DataType) -> pa.DataType | None:
    """Itself, or the first type inside, that no column of Iceberg has; None if there is none."""
    if pa.types.is_dictionary(kind):
        return unstorable(kind.value_type)
    if pa.types.is_nested(kind) and not pa.types.is_union(kind):
        inside = (unstorable(kind.field(n).type) for n in range(kind.num_fields))
        odd = next((found for found in inside if found is not None), None)
        return odd if any(has(kind) for has in _NESTED) else kind
    if pa.types.is_timestamp(kind):
        return None if kind.unit != "ns" and kind.tz in _UTC else kind
    return None if kind == pa.time64("us") or any(has(kind) for has in _FLAT) else kind


def wider(known: pa.DataType, found: pa.DataType) -> pa.DataType:
    """What a column becomes where `found` is asked for: wider if Iceberg allows it, else `known`.

    Iceberg allows int to long, float to double, and a decimal with more digits in front of the
    point. Old files stay as they are. Types with others inside are no concern of this function.
    """
    if known == pa.int32() and found == pa.int64():
        return found
    if known == pa.float32() and found == pa.float64():
        return found
    decimals = pa.types.is_decimal128(known) and pa.types.is_decimal128(found)
    if decimals and known.scale == found.scale:
        return pa.decimal128(max(known.precision, found.precision), known.scale)
    return known


def common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The narrowest type that a new column can have for values of both types.

    Whole numbers and others become double, and what has nothing in common becomes text.
    """
    for narrow, wide in ((one, other), (other, one)):
        if wider(narrow, wide) == wide:
            return wide
    numbers = [
        each for each in (one, other) if pa.types.is_integer(each) or pa.types.is_floating(each)
    ]
    if len(numbers) == 2:
        whole = all(pa.types.is_integer(each) for each in numbers)
        return pa.int64() if whole else pa.float64()
    return pa.string()
