"""Declared fields as an Avro schema of what is in the JSON of a body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.declared.checks import decimal_of, deeper, field_of, struct_of
from coldstream.jobs.materialise.kinds import WORDS

_AVRO_TYPES = {
    "boolean": "boolean", "int": "int", "long": "long", "float": "float", "double": "double",
    "string": "string", "enum": "string",
}  # fmt: skip
#: The JSON of a date is a number of days, so it is an int like others.
_AVRO_LOGICAL = {
    ("long", "timestamp-millis"): "timestamp_ms",
    ("long", "timestamp-micros"): "timestamp_us",
    ("string", "uuid"): "string",
}


class AvroSchema:
    """Types of an Avro schema, and those that were named on the way.

    Args:
        with_bytes: whether there may be bytes, which become text in base64.
    """

    def __init__(self, *, with_bytes: bool = False) -> None:
        self._types = _AVRO_TYPES | ({"bytes": "string", "fixed": "string"} if with_bytes else {})
        self._named: dict[str, Any] = {}
        self._space = ""

    def fields(self, record: Mapping[str, Any], path: str, depth: int) -> list[pa.Field]:
        """The fields of a record.

        Raises:
            InvalidInputError: no column has a type of one of them.
        """
        given = record.get("fields")
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise InvalidInputError(f"{path or 'the schema'}: the record has no fields")
        outer, self._space = self._space, self._name(record)
        found = []
        for each in given:
            if not isinstance(each, Mapping) or not isinstance(each.get("name"), str):
                raise InvalidInputError(f"{path or 'the schema'}: a field has no name")
            name = each["name"]
            kind, nullable = self._kind(each.get("type"), f"{path}.{name}".lstrip("."), depth)
            found.append(field_of(name, kind, required=not nullable and "default" not in each))
        self._space = outer
        return found

    def _kind(self, given: Any, path: str, depth: int) -> tuple[pa.DataType, bool]:
        if isinstance(given, list):
            others = [each for each in given if each != "null"]
            if len(others) != 1:
                raise InvalidInputError(f"{path}: a union of several types is no column's: {given}")
            return self._kind(others[0], path, depth)[0], len(others) < len(given)
        if isinstance(given, str):
            whole = self._named.get(f"{self._space}.{given}")
            given = self._named.get(given, {"type": given}) if whole is None else whole
        if not isinstance(given, Mapping):
            raise InvalidInputError(f"{path} has no type")
        return self._one(given, path, depth), False

    def _one(self, given: Mapping[str, Any], path: str, depth: int) -> pa.DataType:
        name, logical = given.get("type"), given.get("logicalType")
        if name == "record":
            return struct_of(self.fields(given, path, deeper(depth, path)), path)
        if name == "array":
            return pa.list_(self._kind(given.get("items"), path, deeper(depth, path))[0])
        if name == "map":
            value, _ = self._kind(given.get("values"), path, deeper(depth, path))
            return pa.map_(pa.string(), value)
        if name in ("bytes", "fixed") and logical == "decimal":
            digits = (given.get("precision"), given.get("scale", 0))
            if all(type(each) is int for each in digits):
                return decimal_of(*digits, path)  # type: ignore[arg-type]
        if isinstance(name, Mapping | list):
            return self._kind(name, path, deeper(depth, path))[0]
        self._name(given)
        word = _AVRO_LOGICAL.get((str(name), str(logical))) or self._types.get(str(name))
        if word is None:
            raise InvalidInputError(
                f"{path}: {str(name)[:80]!r} is no type that a body of JSON has"
            )
        return WORDS[word]

    def _name(self, given: Mapping[str, Any]) -> str:
        """Remember a type by its whole name and by the last part of it; the namespace within it."""
        name = given.get("name")
        if not isinstance(name, str):
            return self._space
        space, _, last = name.rpartition(".")
        space = space or str(given.get("namespace", self._space))
        self._named[last] = self._named[f"{space}.{last}"] = given
        return space
