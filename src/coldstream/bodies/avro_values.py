"""What is made of single values of Avro: decimals, times and dates, and a count of all there is.

fastavro asks a function of ours for each value of a schema that has a logical type, with what it
was written by and what it is read by. All logical types are replaced by our own names, so nobody
else's values in this process are read so.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import fastavro.read

from coldstream.bodies.room import A_VALUE, Room

#: Our own names of logical types begin so.
_OURS = "coldstream-"
DECIMAL = f"{_OURS}decimal"
_COUNTED = f"{_OURS}counted"
#: Bytes of a decimal; a column has 16 at most.
_MAX_DECIMAL = 1024
#: Types of which one byte of a body can make more than a number.
_OF_MANY = ("record", "error", "array", "map", "enum")
#: Kind of time, and digits of a second (of a date: none) by a type and its logical one.
_TIMES: Mapping[tuple[str, str], tuple[str, int]] = MappingProxyType(
    {
        ("long", "timestamp-millis"): ("timestamp", 3),
        ("long", "timestamp-micros"): ("timestamp", 6),
        ("long", "timestamp-nanos"): ("timestamp", 9),
        ("long", "local-timestamp-millis"): ("local-timestamp", 3),
        ("long", "local-timestamp-micros"): ("local-timestamp", 6),
        ("long", "local-timestamp-nanos"): ("local-timestamp", 9),
        ("int", "time-millis"): ("time", 3),
        ("long", "time-micros"): ("time", 6),
        ("int", "date"): ("date", 0),
    }
)
_UNITS = {f"{_OURS}{logical}": unit for (_, logical), unit in _TIMES.items()}
_INSIDE = frozenset({"type", "fields", "items", "values"})
_here = threading.local()


def counting(room: Room, costs: dict[tuple[str, str], int]) -> None:
    """Count what this thread reads from now on.

    Args:
        room: for it.
        costs: of records, by the names that they have in the writer's and the reader's schema;
            filled, and to be given again with the same two schemas.
    """
    _here.room, _here.costs = room, costs


def plain(schema: Any) -> Any:
    """A schema with our own logical types in the place of others.

    Raises:
        ValueError: no decimal has such digits.
    """
    if isinstance(schema, list):
        return [plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: plain(each) if key in _INSIDE else each for key, each in schema.items()}
    kind, logical = found.get("type"), found.pop("logicalType", None)
    if not isinstance(kind, str):
        return found
    if logical == "decimal" and kind in ("bytes", "fixed"):
        digits = (found.get("precision"), found.get("scale", 0))
        if not all(type(each) is int for each in digits) or not 0 <= digits[1] <= digits[0]:
            raise ValueError(f"no decimal has a precision and a scale of {digits}"[:200])
        found["logicalType"] = DECIMAL
    elif isinstance(logical, str) and (kind, logical) in _TIMES:
        found["logicalType"] = f"{_OURS}{logical}"
    elif kind in _OF_MANY:
        found["logicalType"] = _COUNTED
    return found


def exact(data: bytes, writer: Mapping[str, Any] | None, reader: Any = None) -> Decimal | bytes:
    """A decimal with all digits that were sent; fastavro's own rounds to its precision.

    Bytes, where it is read as these.

    Raises:
        ValueError: it is longer than any number is: digits cost the square of the bytes.
    """
    if reader is not None and _kind(reader) in ("bytes", "fixed") and _logical(reader) != DECIMAL:
        return data
    if len(data) > _MAX_DECIMAL:
        raise ValueError(f"a decimal of {len(data)} bytes; it may have {_MAX_DECIMAL}")
    unscaled = int.from_bytes(data, "big", signed=True)
    _, digits, _ = Decimal(unscaled).as_tuple()
    scale = 0 if writer is None else writer.get("scale", 0)
    return Decimal((int(unscaled < 0), digits, -scale))


def _time(data: int, writer: Mapping[str, Any], reader: Any) -> int | float | str:
    """A time in the unit of the schema that it is read by: fastavro would keep the number.

    Text that no column of numbers takes, where it is no whole number of these units, or read as
    another kind of time.
    """
    if reader is None:
        return data
    wanted = _logical(reader)
    if wanted is None:
        return float(data) if _kind(reader) in ("float", "double") else data
    mine = writer["logicalType"]
    if wanted == mine:
        return data
    (kind, digits), (other, others) = _UNITS[mine], _UNITS[wanted]
    if kind != other:
        return f"{data} ({mine.removeprefix(_OURS)})"
    if others >= digits:
        made: int = data * 10 ** (others - digits)
        return made
    unit: int = 10 ** (digits - others)
    whole, rest = divmod(data, unit)
    return f"{Decimal(data) / unit:f}" if rest else whole


def words_of(error: Exception) -> str:
    """What fastavro says, without our names of logical types."""
    words = f"{type(error).__name__} {error}".replace(f"'logicalType': '{_COUNTED}', ", "")
    return words.replace(_OURS, "")


def _logical(schema: Any) -> Any:
    return schema.get("logicalType") if isinstance(schema, dict) else None


def _kind(schema: Any) -> Any:
    return schema["type"] if isinstance(schema, dict) else schema


def _record(data: dict[str, Any], writer: dict[str, Any], reader: Any) -> dict[str, Any]:
    costs, made = _here.costs, writer if reader is None else reader
    key = (writer["name"], made["name"])
    cost = costs.get(key)
    if cost is None:
        cost = costs[key] = _cost(writer, made)
    _here.room.take(cost)
    return data


def _cost(writer: Mapping[str, Any], reader: Mapping[str, Any]) -> int:
    """Of a record's names, and of the defaults of fields that it was written without."""
    written = {each["name"] for each in writer["fields"]}
    return sum(
        len(each["name"])
        + A_VALUE
        + (size_of(each.get("default")) if each["name"] not in written else 0)
        for each in reader["fields"]
    )


def size_of(value: Any) -> int:
    """Bytes of the JSON of a value, about."""
    if isinstance(value, dict):
        return sum(len(name) + A_VALUE + size_of(each) for name, each in value.items())
    if isinstance(value, list):
        return A_VALUE + sum(map(size_of, value))
    return A_VALUE + (len(value) if isinstance(value, str | bytes) else 0)


def _array(data: list[Any], writer: object, reader: object) -> list[Any]:
    del writer, reader
    _here.room.take(A_VALUE * (len(data) + 1))
    return data


def _map(data: dict[str, Any], writer: object, reader: object) -> dict[str, Any]:
    del writer, reader
    _here.room.take(2 * A_VALUE * (len(data) + 1))
    return data


def _enum(data: str, writer: object, reader: object) -> str:
    del writer, reader
    _here.room.take(len(data))
    return data


# Importing this module adds to fastavro's one table for the process; nobody else has our names.
_READERS: dict[str, Any] = fastavro.read.LOGICAL_READERS
_READERS |= {f"{kind}-{DECIMAL}": exact for kind in ("bytes", "fixed")}
_READERS |= {f"{kind}-{_OURS}{logical}": _time for kind, logical in _TIMES}
_READERS |= {
    f"{kind}-{_COUNTED}": made
    for kind, made in zip(_OF_MANY, (_record, _record, _array, _map, _enum), strict=True)
}
