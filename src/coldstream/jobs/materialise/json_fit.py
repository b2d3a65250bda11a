"""JSON values and columns: what a column takes of a value, and what column a value asks for.

A type says how its values are written, too:

  * `string` takes any value; what is no text as the JSON that its publisher wrote;
  * a decimal takes a number, or text that is one, if no digit is lost;
  * `date` and the two timestamps without a unit take text of RFC 3339 (`2026-11-24`,
    `2026-11-24T08:00:00.5+01:00`; without a zone for `timestamp_ntz`), digits beyond microseconds
    cut off; those with a unit take whole numbers since 1970;
  * whole numbers, other numbers and booleans take what JSON has for them, and no text.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from coldstream.jobs.materialise.json_text import Real, json_of
from coldstream.jobs.materialise.kinds import TIMESTAMP, TIMESTAMP_NTZ, WORDS
from coldstream.jobs.materialise.schema import can_be_column, grown, merged
from coldstream.jobs.materialise.times import FIRST_US, LAST_US

_BITS = {pa.int32(): 31, pa.int64(): 63}
_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1
_MAX_FLOAT32 = (2 - 2**-23) * 2.0**127
_UNITS = {WORDS["timestamp_s"]: 10**6, WORDS["timestamp_ms"]: 10**3, WORDS["timestamp_us"]: 1}
_NOTHING = pa.schema([])
_EXACT = Context(prec=60)
_MICROSECOND = timedelta(microseconds=1)

#: What text is a date, and a time with and without a zone; for Python and for Arrow.
DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = DATE + r"[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?"
TIME_NTZ = _TIME
TIME_ZONED = _TIME + r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#: Digits that microseconds have no place for.
TOO_FINE = r"(\.[0-9]{6})[0-9]+"
_TEXTS = {
    pa.date32(): re.compile(DATE),
    TIMESTAMP: re.compile(TIME_ZONED),
    TIMESTAMP_NTZ: re.compile(TIME_NTZ),
}
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_EPOCH = {True: datetime(1970, 1, 1, tzinfo=UTC), False: datetime(1970, 1, 1)}


def fitted(field: pa.Field, value: Any) -> tuple[Any, bool]:
    """What of `value` a column takes, as Arrow takes it, and whether that is all of it.

    Args:
        field: the column as a rule declares it, or as the table has it; one that may not be null
            does not take null.
        value: as `json_text.parse_object` gives it.
    """
    if value is None:
        return None, field.nullable
    return _fitted(value, field.type)


def _fitted(value: Any, kind: pa.DataType) -> tuple[Any, bool]:
    if pa.types.is_struct(kind):
        return _struct(value, kind)
    if pa.types.is_list(kind):
        return _list(value, kind)
    if pa.types.is_map(kind):
        return _map(value, kind)
    made = _leaf(value, kind)
    return made, made is not None


def _leaf(value: Any, kind: pa.DataType) -> Any:
    """The value of a column without others inside; None if it is none."""
    if pa.types.is_string(kind):
        return _text(value)
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else None
    if kind in _BITS:
        limit = 2 ** _BITS[kind]
        return value if type(value) is int and -limit <= value < limit else None
    if pa.types.is_floating(kind):
        return _real(value, _MAX_FLOAT32 if kind == pa.float32() else sys.float_info.max)
    if pa.types.is_decimal128(kind):
        return _decimal(value, kind)
    if kind in _UNITS:
        whole = type(value) is int and FIRST_US <= value * _UNITS[kind] <= LAST_US
        return value * _UNITS[kind] if whole else None
    if kind in _TEXTS:
        whole = isinstance(value, str) and _TEXTS[kind].fullmatch(value) is not None
        return _time(value, kind) if whole else None
    return None


def _text(value: Any) -> str | None:
    try:
        text = value if isinstance(value, str) else json_of(value)
    except RecursionError:  # it was nearly too deep to be read
        return None
    return text if is_text(text) else None


def _real(value: Any, limit: float) -> float | None:
    if type(value) is int:
        # A number without a point is one all the same, if a double holds it exactly.
        exact = abs(value) <= limit and int(float(value)) == value
        return float(value) if exact else None
    return float(value) if isinstance(value, float) and abs(value) <= limit else None


def _decimal(value: Any, kind: pa.Decimal128Type) -> Decimal | None:
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            return None
        text = value
    elif isinstance(value, Real) or type(value) is int:
        text = json_of(value)
    else:
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    # Before it is written out: an exponent may stand for any number of digits.
    if number and number.adjusted() >= kind.precision - kind.scale:
        return None
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    lost = -exponent - kind.scale
    if lost > 0 and any(digits[max(0, len(digits) - lost) :]):
        return None
    return number.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT) if number else Decimal(0)


def _time(text: str, kind: pa.DataType) -> date | int | None:
    """A date, or microseconds since 1970; None if there is no such day, or beyond the year 9999."""
    try:
        if kind == pa.date32():
            return date.fromisoformat(text)
        at = datetime.fromisoformat(re.sub(TOO_FINE, r"\1", text))
        return (at - _EPOCH[kind == TIMESTAMP]) // _MICROSECOND if _within(at, kind) else None
    except (ValueError, OverflowError):
        return None


def _within(at: datetime, kind: pa.DataType) -> bool:
    """Whether it is in the years 1 to 9999 in UTC as well; raises if not."""
    return kind != TIMESTAMP or at.astimezone(UTC).year > 0


def _struct(value: Any, kind: pa.StructType) -> tuple[Any, bool]:
    if not isinstance(value, dict):
        return None, False
    parts = {field.name: fitted(field, value.get(field.name)) for field in kind}
    complete = value.keys() <= parts.keys() and all(whole for _, whole in parts.values())
    return {name: part for name, (part, _) in parts.items()}, complete


def _list(value: Any, kind: pa.ListType) -> tuple[Any, bool]:
    if not isinstance(value, list):
        return None, False
    parts = [fitted(kind.value_field, each) for each in value]
    return [part for part, _ in parts], all(whole for _, whole in parts)


def _map(value: Any, kind: pa.MapType) -> tuple[Any, bool]:
    if not isinstance(value, dict):
        return None, False
    named = {name: each for name, each in value.items() if is_text(name)}
    parts = {name: fitted(kind.item_field, each) for name, each in named.items()}
    complete = len(named) == len(value) and all(whole for _, whole in parts.values())
    return [(name, part) for name, (part, _) in parts.items()], complete


def kind_of(value: Any, depth: int) -> pa.DataType | None:
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
    kinds = {name: kind_of(each, depth) for name, each in value.items() if can_be_column(name)}
    fields = [pa.field(name, kind) for name, kind in kinds.items() if kind is not None]
    return pa.struct(list(grown(_NOTHING, pa.schema(fields)))) if fields else None


def _list_kind(values: Sequence[Any], depth: int) -> pa.DataType | None:
    seen = _NOTHING
    for kind in dict.fromkeys(kind_of(each, depth) for each in values):
        if kind is not None:
            seen = merged(seen, pa.schema([pa.field("e", kind)]))
    return pa.list_(seen.field(0).type) if len(seen) else None


def is_text(value: str) -> bool:
    """Whether it can be written as UTF-8: JSON may spell half a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(value: str) -> str:
    """Text that can be written as UTF-8, whatever JSON spells."""
    return value if is_text(value) else value.encode(errors="backslashreplace").decode()
