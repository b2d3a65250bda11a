"""Columns that Arrow's JSON reader can read, and what they become: all bodies of a batch at once.

What has no JSON of its own (a date, a time) is read as the text or the number that it is written
as. Whether each value is one that `json_fit` takes is decided here by the same patterns and limits;
where that is in doubt `MisfitError` is raised, and the bodies are looked at one by one.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from coldstream.jobs.materialise.json_bodies.fit import DATE, TIME_NTZ, TIME_ZONED, TOO_FINE
from coldstream.jobs.materialise.kinds import TIMESTAMP, TIMESTAMP_NTZ, WORDS, stored
from coldstream.jobs.materialise.times import FIRST_US, LAST_US, within

_UNITS = {WORDS["timestamp_s"]: 10**6, WORDS["timestamp_ms"]: 10**3, WORDS["timestamp_us"]: 1}
_PATTERNS = {pa.date32(): DATE, TIMESTAMP: TIME_ZONED, TIMESTAMP_NTZ: TIME_NTZ}
#: Days since 1970 of the first and the last one of the years 1 to 9999.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
#: Of a decimal in 128 bits.
_DIGITS = 38


class MisfitError(Exception):
    """Not every value of a column is one that it can hold."""


def readable(known: pa.Schema) -> pa.Schema | None:
    """What the reader is to make of fields; None if it cannot read one of these types."""
    kinds = [_readable(each.type) for each in known]
    if None in kinds:
        return None
    return pa.schema([pa.field(each.name, kind) for each, kind in zip(known, kinds, strict=True)])


def _readable(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_struct(kind):
        fields = readable(pa.schema(list(kind)))
        return None if fields is None else pa.struct(list(fields))
    if pa.types.is_list(kind):
        value = _readable(kind.value_type)
        return None if value is None else pa.list_(value)
    if kind in _UNITS:
        return pa.int64()
    if kind in _PATTERNS:
        return pa.string()
    if pa.types.is_decimal128(kind):
        # The reader does not look at the precision. Where it multiplies beyond its bits unnoticed,
        # what comes out is larger than what was written: too large for a column of fewer digits.
        enough = kind.precision + kind.scale <= _DIGITS
        return pa.decimal128(_DIGITS, kind.scale) if enough else pa.decimal256(76, kind.scale)
    plain = pa.types.is_boolean(kind) or pa.types.is_string(kind) or pa.types.is_float64(kind)
    return kind if plain or kind in (pa.int32(), pa.int64()) else None


def holds_decimals(known: pa.Schema) -> bool:
    """Whether a field, or one inside of it, is a decimal."""
    return any(_holds_decimals(each.type) for each in known)


def _holds_decimals(kind: pa.DataType) -> bool:
    parts = [kind.field(number).type for number in range(kind.num_fields)]
    return pa.types.is_decimal128(kind) or any(map(_holds_decimals, parts))


def made_of(column: pa.Array, field: pa.Field) -> pa.Array:
    """A column as a table has it.

    Args:
        column: as it was read.
        field: as the rule declares it.

    Raises:
        MisfitError: a value does not fit, or one is missing that must be there.
    """
    if not field.nullable and column.null_count:
        raise MisfitError
    return _made(column, field.type)


def _made(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_struct(kind):
        present = column if not column.null_count else column.drop_null()
        for part, field in zip(present.flatten(), kind, strict=True):
            if not field.nullable and part.null_count:
                raise MisfitError
        parts = [_made(p, f.type) for p, f in zip(column.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(
            parts, fields=list(stored(kind)), mask=column.is_null() if column.null_count else None
        )
    if pa.types.is_list(kind):
        return _made_list(column, kind)
    if kind in _UNITS:
        return _from_number(column, _UNITS[kind])
    if kind in _PATTERNS:
        return _from_text(column, kind)
    if pa.types.is_decimal128(kind):
        return _from_decimal(column, kind)
    return column


def _made_list(column: pa.ListArray, kind: pa.ListType) -> pa.Array:
    if not kind.value_field.nullable and column.flatten().null_count:
        raise MisfitError
    inside = _made(column.values, kind.value_type)
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(column.offsets, inside, stored(kind), mask=mask)


def _from_number(column: pa.Array, unit: int) -> pa.Array:
    span = pc.min_max(column)
    low, high = span["min"].as_py(), span["max"].as_py()
    if low is not None and (low * unit < FIRST_US or high * unit > LAST_US):
        raise MisfitError
    return pc.multiply(column, unit).cast(TIMESTAMP)


def _from_decimal(column: pa.Array, kind: pa.Decimal128Type) -> pa.Array:
    try:
        return column.cast(kind)
    except pa.ArrowInvalid as error:  # too many digits in front of the point
        raise MisfitError from error


def _from_text(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pc.all(pc.match_substring_regex(column, f"^(?:{_PATTERNS[kind]})$")).as_py() is False:
        raise MisfitError
    try:
        made = pc.replace_substring_regex(column, TOO_FINE, r"\1").cast(kind)
    except pa.ArrowInvalid as error:  # there is no such day
        raise MisfitError from error
    if kind == pa.date32():
        span = pc.min_max(made.cast(pa.int32()))
        low, high = span["min"].as_py(), span["max"].as_py()
        inside = low is None or (low >= _FIRST_DAY and high <= _LAST_DAY)
    else:
        inside = within(made)
    if not inside:
        raise MisfitError
    return made
