"""Declared fields as a JSON Schema: its types, `format` of dates, `required` and `$ref`s within."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.declared.checks import deeper, field_of, struct_of
from coldstream.jobs.materialise.kinds import WORDS
from coldstream.jobs.materialise.schema import MAX_DEPTH

_JSON_TYPES = {"boolean": "boolean", "integer": "long", "number": "double", "string": "string"}
_FORMATS = {"date": "date", "date-time": "timestamp"}


class JsonSchema:
    """Types of a JSON Schema.

    Args:
        document: the whole of it, for `$ref`.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def kind(self, given: Any, path: str, depth: int) -> tuple[pa.DataType, bool]:
        """A type, and whether null is one of its values.

        Raises:
            InvalidInputError: no column has such a type.
        """
        schema, nullable = self._plain(given, path)
        named = schema.get("type", "object" if "properties" in schema else None)
        kinds = [named] if isinstance(named, str) else named or []
        if not isinstance(kinds, list) or not all(isinstance(each, str) for each in kinds):
            raise InvalidInputError(f"{path or 'the schema'}: {str(named)[:80]!r} is no type")
        nullable |= "null" in kinds
        kinds = [each for each in kinds if each != "null"]
        if set(kinds) == {"integer", "number"}:
            kinds = ["number"]
        if len(kinds) != 1:
            raise InvalidInputError(
                f"{path or 'the schema'}: {named!r} is not one type; text takes any value, so say"
                ' {"type": "string"} where there are several'
            )
        if kinds[0] == "object":
            return self._object(schema, path, deeper(depth, path)), nullable
        if kinds[0] == "array":
            value, _ = self.kind(schema.get("items"), path, deeper(depth, path))
            return pa.list_(value), nullable
        if kinds[0] not in _JSON_TYPES:
            raise InvalidInputError(f"{path}: {str(kinds[0])[:80]!r} is no type of JSON Schema")
        word = _FORMATS.get(str(schema.get("format"))) if kinds[0] == "string" else None
        return WORDS[word or _JSON_TYPES[kinds[0]]], nullable

    def _object(self, schema: Mapping[str, Any], path: str, depth: int) -> pa.DataType:
        properties = schema.get("properties")
        if not properties and isinstance(schema.get("additionalProperties"), Mapping) and path:
            value, _ = self.kind(schema["additionalProperties"], path, depth)
            return pa.map_(pa.string(), value)
        if not isinstance(properties, Mapping):
            raise InvalidInputError(
                f"{path or 'the schema'} is an object without properties: text takes any value, so"
                ' say {"type": "string"}'
            )
        required = schema.get("required", [])
        if not isinstance(required, list):
            raise InvalidInputError(
                f"{path or 'the schema'}: required is a list of names, not {str(required)[:80]!r}"
            )
        fields = []
        for name, each in properties.items():
            kind, nullable = self.kind(each, f"{path}.{name}".lstrip("."), depth)
            fields.append(field_of(name, kind, required=name in required and not nullable))
        return pa.struct(fields) if not path else struct_of(fields, path)

    def _plain(self, given: Any, path: str) -> tuple[Mapping[str, Any], bool]:
        """A schema without references, and without an alternative that is null."""
        nullable = False
        for _ in range(MAX_DEPTH):
            if not isinstance(given, Mapping):
                raise InvalidInputError(f"{path or 'the schema'} has no type")
            several = given.get("anyOf", given.get("oneOf"))
            if "$ref" in given:
                given = self._named(str(given["$ref"]), path)
            elif isinstance(several, Sequence) and not isinstance(several, str):
                others = [each for each in several if each != {"type": "null"}]
                nullable |= len(others) < len(several)
                if len(others) != 1:
                    raise InvalidInputError(
                        f"{path} is one of several: text takes any value, so say"
                        ' {"type": "string"}'
                    )
                given = others[0]
            else:
                return given, nullable
        raise InvalidInputError(
            f"{path or 'the schema'} refers to others more than {MAX_DEPTH} deep"
        )

    def _named(self, reference: str, path: str) -> Any:
        found: Any = self._document
        head, *steps = reference.split("/")
        for step in steps:
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        if head != "#" or found is None:
            raise InvalidInputError(f"{path}: there is no {reference[:80]!r} in the schema")
        return found
