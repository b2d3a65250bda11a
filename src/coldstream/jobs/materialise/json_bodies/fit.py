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
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from functools import partial
from typing import Any

import pyarrow as pa

from coldstream.jobs.materialise.json_bodies.text import Real, json_of
from coldstream.jobs.materialise.kinds import TIMESTAMP, TIMESTAMP_NTZ, WORDS
from coldstream.jobs.materialise.schema import can_be_column, grown, merged
from coldstream.jobs.materialise.times import FIRST_US, LAST_US

_BITS = {pa.int32(): 31, pa.int64(): 63}
_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1
_FLOAT32 = struct.Struct("<f")
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
_DATE, _NTZ, _ZONED, _TOO_FINE = map(re.compile, (DATE, TIME_NTZ, TIME_ZONED, TOO_FINE))
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_NTZ = _EPOCH.replace(tzinfo=None)


#: What of a value a column takes, as Arrow takes it, and whether that is all of it.
Fit = Callable[[Any], tuple[Any, bool]]


def fitter(field: pa.Field) -> Fit:
    """What a column does with a value that `json_text.parse_object` gave.

    Args:
        field: the column as a rule declares it, or as the table has it; one that may not be null
            does not take null.
    """
    fit, nullable = _fit_of(field.type), field.nullable

    def fitted(value: Any) -> tuple[Any, bool]:
        return fit(value) if value is not None else (None, nullable)

    return fitted


def _fit_of(kind: pa.DataType) -> Fit:
    if pa.types.is_struct(kind):
        return partial(_struct, {field.name: fitter(field) for field in kind})
    if pa.types.is_list(kind):
        return partial(_list, fitter(kind.value_field))
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return partial(_map, fitter(kind.item_field))
    take = _leaf_of(kind)

    def fitted(value: Any) -> tuple[Any, bool]:
        made = take(value)
        return made, made is not None

    return fitted


def _leaf_of(kind: pa.DataType) -> Callable[[Any], Any]:
    """What a column without others inside makes of a value; None if it does not take it."""
    if pa.types.is_string(kind):
        return _text
    if pa.types.is_boolean(kind):
        return _boolean
    if kind in _BITS:
        return partial(_whole, 2 ** _BITS[kind])
    if pa.types.is_floating(kind):
        return partial(_real, _single if kind == pa.float32() else float)
    if pa.types.is_decimal128(kind):
        return partial(_decimal, kind.precision, kind.scale)
    if kind in _UNITS:
        return partial(_since_1970, _UNITS[kind])
    if kind == pa.date32():
        return _date
    if kind in (TIMESTAMP, TIMESTAMP_NTZ):
        return partial(_time, kind == TIMESTAMP)
    return _nothing


def _nothing(value: Any) -> None:
    """A type that no value of JSON has."""
    del value


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _whole(limit: int, value: Any) -> int | None:
    return value if type(value) is int and -limit <= value < limit else None


def _since_1970(unit: int, value: Any) -> int | None:
    fits = type(value) is int and FIRST_US <= value * unit <= LAST_US
    return value * unit if fits else None


def _text(value: Any) -> str | None:
    try:
        text = value if isinstance(value, str) else json_of(value)
    except RecursionError:  # it was nearly too deep to be read
        return None
    return text if is_text(text) else None


def _single(number: float) -> float:
    """The nearest number of 32 bits.

    Raises:
        OverflowError: there is none.
    """
    found: float = _FLOAT32.unpack(_FLOAT32.pack(number))[0]
    return found


def _real(nearest: Callable[[float], float], value: Any) -> float | None:
    """The nearest number that a column holds; a whole one only if that is the number itself."""
    whole = type(value) is int
    if not whole and not isinstance(value, float):
        return None
    try:
        made = nearest(float(value))
    except OverflowError:
        return None
    return made if math.isfinite(made) and (not whole or int(made) == value) else None


def _decimal(precision: int, scale: int, value: Any) -> Decimal | None:
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
    if number and number.adjusted() >= precision - scale:
        return None
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    lost = -exponent - scale
    if lost > 0 and any(digits[max(0, len(digits) - lost) :]):
        return None
    return number.quantize(Decimal(1).scaleb(-scale), context=_EXACT) if number else Decimal(0)


def _date(value: Any) -> date | None:
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return None
    try:
        return date.fromisoformat(value)
    except ValueError:  # there is no such day
        return None


def _time(zoned: bool, value: Any) -> int | None:
    """Microseconds since 1970; None if there is no such day, or beyond the year 9999."""
    if not isinstance(value, str) or not (_ZONED if zoned else _NTZ).fullmatch(value):
        return None
    try:
        at = datetime.fromisoformat(_TOO_FINE.sub(r"\1", value))
        # Also in UTC it must be a time, so this may raise as well.
        return ((at.astimezone(UTC) - _EPOCH) if zoned else (at - _EPOCH_NTZ)) // _MICROSECOND
    except (ValueError, OverflowError):
        return None


def _struct(fits: Mapping[str, Fit], value: Any) -> tuple[Any, bool]:
    if not isinstance(value, dict):
        return None, False
    parts = {name: fit(value.get(name)) for name, fit in fits.items()}
    complete = value.keys() <= parts.keys() and all(whole for _, whole in parts.values())
    return {name: part for name, (part, _) in parts.items()}, complete


def _list(fit: Fit, value: Any) -> tuple[Any, bool]:
    if not isinstance(value, list):
        return None, False
    parts = [fit(each) for each in value]
    return [part for part, _ in parts], all(whole for _, whole in parts)


def _map(fit: Fit, value: Any) -> tuple[Any, bool]:
    if not isinstance(value, dict):
        return None, False
    parts = {name: fit(each) for name, each in value.items() if is_text(name)}
    complete = len(parts) == len(value) and all(whole for _, whole in parts.values())
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
