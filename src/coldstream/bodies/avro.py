"""Bodies of Avro as JSON, read by fastavro."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro

from coldstream.bodies.avro_values import DECIMAL, counting, exact, plain, words_of
from coldstream.bodies.registry import Registry, Schema
from coldstream.bodies.room import Room
from coldstream.errors import CorruptDataError, InvalidInputError, NotFoundError

_PRIMITIVE = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string", "enum", "fixed"}
)
#: Types of which any number takes no byte at all.
_FREE = frozenset({"null"})


class AvroBodies:
    """Makes JSON of bodies.

    Args:
        schema: by which they are read, as JSON; what they become, if a registry knows what they
            were written by. "" for what each was written by.
        registry: knows the schemas that bodies name; None if they name none.
        limit: bytes of a body; and of JSON, about, that it may stand for beyond these.

    Raises:
        InvalidInputError: it is no schema, or one that we refuse; see `checked`.
    """

    def __init__(self, schema: str, registry: Registry | None, limit: int) -> None:
        self._reader = parsed(schema) if schema else None
        self._registry = registry
        self._limit = limit
        self._writers: dict[str, Any] = {}
        self._costs: dict[int, dict[tuple[str, str], int]] = {}  # by the id of a writer's schema
        #: Why there is no schema of an id; nobody asks for it again.
        self._refused: dict[str, str] = {}

    def __call__(self, body: bytes) -> bytes:
        """The JSON of a body.

        Raises:
            CorruptDataError: it cannot be read by its schema, bytes are left, or it stands for too
                much.
            UnavailableError, PermissionDeniedError: the registry does not answer.
        """
        if self._registry is None:
            return self._read(body, self._reader, None)
        schema_id, rest = self._registry.split(body, self._limit)
        return self._read(rest, self._writer(schema_id), self._reader)

    def _writer(self, schema_id: str) -> Any:
        known = self._writers.get(schema_id)
        if schema_id in self._refused:
            raise CorruptDataError(self._refused[schema_id])
        if known is None:
            assert self._registry is not None
            try:
                found = self._registry.schema(schema_id)
                if found.kind != "AVRO":
                    raise InvalidInputError(f"it is a schema of {found.kind}")
                known = parsed(found.text, _imported(found))
            except (InvalidInputError, NotFoundError) as exc:
                self._refused[schema_id] = f"schema {schema_id}: {exc.reason}"
                raise CorruptDataError(self._refused[schema_id]) from exc
            self._writers[schema_id] = known
        return known

    def _read(self, body: bytes, writer: Any, reader: Any) -> bytes:
        source = BytesIO(body)
        try:
            counting(Room(self._limit), self._costs.setdefault(id(writer), {}))
            value = fastavro.schemaless_reader(source, writer, reader)
        except CorruptDataError:
            raise
        except Exception as exc:  # fastavro raises whatever the bytes lead it to
            words = words_of(exc)[:200]
            if self._is_cut(body, writer, reader):
                words = "it ends too early"
            raise CorruptDataError(f"the body is no Avro of its schema: {words}") from exc
        left = len(body) - source.tell()
        if left:
            raise CorruptDataError(f"{left} bytes follow the Avro of the body")
        return json_of(value)

    def _is_cut(self, body: bytes, writer: Any, reader: Any) -> bool:
        """Whether more bytes are wanted of a body that cannot be read than there are."""
        source = _Asked(body)
        with suppress(Exception):
            counting(Room(self._limit), self._costs.setdefault(id(writer), {}))
            fastavro.schemaless_reader(source, writer, reader)
        return source.too_far


class _Asked(BytesIO):
    """Bytes that know whether somebody has asked for more of them."""

    too_far = False

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.too_far |= size is not None and len(found) < size
        return found


def _imported(schema: Schema) -> dict[str, str]:
    """The schemas that one needs, by name; those come first that the next ones need themselves."""
    found: dict[str, str] = {}
    for name, each in schema.references.items():
        found |= {n: text for n, text in _imported(each).items() if n not in found}
        found.setdefault(name, each.text)
    return found


def parsed(text: str, references: Mapping[str, str] | None = None) -> Any:
    """A schema as fastavro reads by it, with the logical types of `avro_values`.

    Args:
        text: of the schema.
        references: schemas that it names, by name; each behind those that it names itself.

    Raises:
        InvalidInputError: it is no schema, refers to itself, or has lists of what takes no bytes.
    """
    named: dict[str, Any] = {}
    try:
        for each in (references or {}).values():
            fastavro.parse_schema(plain(json.loads(each)), named)
        made = fastavro.parse_schema(plain(json.loads(text)), named)
    except Exception as exc:  # as above; a schema may come from anywhere, too
        words = f"{type(exc).__name__}: {exc}"[:200]
        raise InvalidInputError(f"this is no Avro schema: {words}") from exc
    _check(made, named, (), {})
    room = iter(range(_MAX_DEFAULTS))
    try:
        for each in named.values():
            _set_defaults(each, named, room)
    except ValueError as exc:
        raise InvalidInputError(f"this is no Avro schema: a default has {exc}") from exc
    return made


#: Values that all defaults of a schema have together. What one leaves out has a default itself, so
#: a few records within one another could stand for any number.
_MAX_DEFAULTS = 100_000


def _set_defaults(record: Any, named: Mapping[str, Any], room: Iterator[int]) -> None:
    """Make defaults the values that they stand for: fastavro gives them as the schema's JSON."""
    for field in record.get("fields", ()):
        if "default" in field:
            field["default"] = _default(field["type"], field["default"], named, room)


def _default(schema: Any, value: Any, named: Mapping[str, Any], room: Iterator[int]) -> Any:
    """A default as it would be read: in JSON each character of text is a byte of bytes.

    Raises:
        ValueError: it, or those before it, have too many values, or one that is none.
    """
    if next(room, None) is None:
        raise ValueError(f"more than {_MAX_DEFAULTS} values, with all others")
    if isinstance(schema, list):
        fits = [each for each in schema if (each == "null") == (value is None)]
        return _default(fits[0], value, named, room) if fits else value
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    match schema["type"], value:
        case "bytes" | "fixed", str():
            data = value.encode("latin-1", "replace")
            return exact(data, schema) if schema.get("logicalType") == DECIMAL else data
        case "array", list():
            return [_default(schema["items"], each, named, room) for each in value]
        case "map", dict():
            kind = schema["values"]
            return {key: _default(kind, each, named, room) for key, each in value.items()}
        case "record" | "error", dict():
            whole = {f["name"]: f["default"] for f in schema["fields"] if "default" in f} | value
            return {
                f["name"]: _default(f["type"], whole[f["name"]], named, room)
                for f in schema["fields"]
                if f["name"] in whole
            }
        case ((dict() | list()), _):
            return _default(schema["type"], value, named, room)
    return value


def _check(
    schema: Any, named: Mapping[str, Any], above: tuple[str, ...], known: dict[str, bool]
) -> bool:
    """Whether a value of a schema takes at least a byte; `known` says it of records seen before.

    fastavro bounds neither the depth of what refers to itself nor lists of what takes no bytes, so
    a few bytes could take all stack, or all memory.

    Raises:
        InvalidInputError: there is such a thing.
    """
    if isinstance(schema, list):
        for each in schema:
            _check(each, named, above, known)
        return True
    if isinstance(schema, str):
        if schema in _PRIMITIVE:
            return schema not in _FREE
        if schema in above:
            raise InvalidInputError(f"the Avro schema {schema[:80]!r} refers to itself")
        if schema not in known:
            known[schema] = _check(named[schema], named, above, known)
        return known[schema]
    kind = schema["type"]
    if kind in ("array", "map"):
        inside = _check(schema["items" if kind == "array" else "values"], named, above, known)
        if kind == "array" and not inside:
            raise InvalidInputError("an Avro array of what takes no bytes has any length")
        return True
    if kind in ("record", "error"):
        below = (*above, schema["name"])
        if len(below) > 64:
            raise InvalidInputError("records lie more than 64 deep in one another")
        kinds = [each["type"] for each in schema["fields"]]
        # All fields are looked at, also behind the first one that takes a byte.
        sizes = [_check(each, named, below, known) for each in kinds]
        takes = any(sizes)
        if not takes and any(each not in _FREE for each in kinds if not isinstance(each, dict)):
            raise InvalidInputError("an Avro record of records that take no bytes has any size")
        known[schema["name"]] = takes
        return takes
    if kind == "fixed":
        return int(schema["size"]) > 0
    return _check(kind, named, above, known) if kind not in ("enum",) else True


def json_of(value: Any) -> bytes:
    """A decoded value as JSON: bytes as base64, decimals and what is no number as text."""
    try:
        text = json.dumps(
            value, default=_other, ensure_ascii=False, allow_nan=False, separators=_SEP
        )
    except ValueError:
        text = json.dumps(_finite(value), default=_other, ensure_ascii=False, separators=_SEP)
    return text.encode(errors="surrogateescape")


_SEP = (",", ":")


def _other(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"no JSON of a {type(value).__name__}")


def _finite(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {key: _finite(each) for key, each in value.items()}
        case list():
            return [_finite(each) for each in value]
    return value
