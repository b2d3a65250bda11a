"""Bodies of Avro as JSON, read by fastavro."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import fastavro.read

from coldstream.bodies.registry import Registry, Schema
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
        limit: bytes of a body.

    Raises:
        InvalidInputError: it is no schema, or one that we refuse; see `checked`.
    """

    def __init__(self, schema: str, registry: Registry | None, limit: int) -> None:
        self._reader = parsed(schema) if schema else None
        self._registry = registry
        self._limit = limit
        self._writers: dict[str, Any] = {}
        #: Why there is no schema of an id; nobody asks for it again.
        self._refused: dict[str, str] = {}

    def __call__(self, body: bytes) -> bytes:
        """The JSON of a body.

        Raises:
            CorruptDataError: it cannot be read by its schema, or bytes are left.
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
            value = fastavro.schemaless_reader(source, writer, reader)
        except Exception as exc:  # fastavro raises whatever the bytes lead it to
            words = f"{type(exc).__name__} {exc}"[:200]
            raise CorruptDataError(f"the body is no Avro of its schema: {words}") from exc
        left = len(body) - source.tell()
        if left:
            raise CorruptDataError(f"{left} bytes follow the Avro of the body")
        return json_of(value)


def _imported(schema: Schema) -> dict[str, str]:
    """The schemas that one needs, by name; those come first that the next ones need themselves."""
    found: dict[str, str] = {}
    for name, each in schema.references.items():
        found |= {n: text for n, text in _imported(each).items() if n not in found}
        found.setdefault(name, each.text)
    return found


def parsed(text: str, references: Mapping[str, str] | None = None) -> Any:
    """A schema as fastavro reads by it, without logical types but decimals.

    Args:
        text: of the schema.
        references: schemas that it names, by name; each behind those that it names itself.

    Raises:
        InvalidInputError: it is no schema, refers to itself, or has lists of what takes no bytes.
    """
    named: dict[str, Any] = {}
    try:
        for each in (references or {}).values():
            fastavro.parse_schema(_plain(json.loads(each)), named)
        made = fastavro.parse_schema(_plain(json.loads(text)), named)
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


def _plain(schema: Any) -> Any:
    """A schema whose times and dates stay the numbers that they are."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _plain(each) if key in _INSIDE else each for key, each in schema.items()}
    if found.pop("logicalType", None) == "decimal" and found.get("type") in ("bytes", "fixed"):
        digits = (found.get("precision"), found.get("scale", 0))
        if not all(type(each) is int for each in digits) or not 0 <= digits[1] <= digits[0]:
            raise ValueError(f"no decimal has a precision and a scale of {digits}"[:200])
        found["logicalType"] = _DECIMAL
    return found


def _exact(data: bytes, writer: Mapping[str, Any] | None, reader: object = None) -> Decimal:
    """A decimal with all digits that were sent; fastavro's own rounds to its precision.

    Raises:
        ValueError: it is longer than any number is: digits cost the square of the bytes.
    """
    del reader
    if len(data) > _MAX_DECIMAL:
        raise ValueError(f"a decimal of {len(data)} bytes; it may have {_MAX_DECIMAL}")
    unscaled = int.from_bytes(data, "big", signed=True)
    _, digits, _ = Decimal(unscaled).as_tuple()
    scale = 0 if writer is None else writer.get("scale", 0)
    return Decimal((int(unscaled < 0), digits, -scale))


#: Our own name of a logical type, so that nobody else's decimals in this process are read so.
_DECIMAL = "coldstream-decimal"
#: Bytes of a decimal; a column has 16 at most.
_MAX_DECIMAL = 1024
for _kind in ("bytes", "fixed"):
    fastavro.read.LOGICAL_READERS[f"{_kind}-{_DECIMAL}"] = _exact


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
            return _exact(data, schema) if schema.get("logicalType") == _DECIMAL else data
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


_INSIDE = frozenset({"type", "fields", "items", "values"})


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
