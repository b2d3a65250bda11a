"""What a rule says of bodies, made into three things: kind of table, its fields, and `BodySteps`.

Bodies of Avro, Protobuf, CSV and text are made JSON objects first, and then are what bodies of JSON
with declared fields are: rescued or dead letters where they do not fit, planned, and checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from coldstream.bodies.lines import TEXT_FIELD
from coldstream.bodies.load import loaded
from coldstream.bodies.steps import MAX_BODY_BYTES, BodySteps, BodyType
from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.declared.fields import avro_fields, of_document, parse_declared
from coldstream.quantities import parse_size

#: Words of a rule that this is about.
WORDS = ("body", "schema", "content_encoding", "max_body_bytes", "message", "registry", "subject")
#: What a rule calls bodies that become fields, beside "json".
DECODED = ("avro", "protobuf", "csv", "text")


@dataclass(frozen=True, slots=True)
class RuleBody:
    """What a rule says of bodies.

    Attributes:
        body: "raw", "json" or `module:function`.
        schema: the fields that are declared, None if none are.
        steps: what is done to bodies first.
    """

    body: str
    schema: pa.Schema | None
    steps: BodySteps


def rule_body(given: Mapping[str, Any], read: Callable[[str], str]) -> RuleBody:
    """What the words of a rule mean.

    Args:
        given: WORDS and what stands there.
        read: gives what is in a file; bytes that are no UTF-8 as surrogates.

    Raises:
        InvalidInputError: they mean nothing, or a schema is none.
        NotFoundError, UnavailableError, PermissionDeniedError: a registry, or a bucket.
    """
    body, schema = given.get("body", "raw"), given.get("schema")
    registry, subject = given.get("registry", ""), given.get("subject", "")
    kind = BodyType(body) if body in (*DECODED, "json") else BodyType.AS_IT_IS
    if kind is BodyType.JSON and not registry:
        kind = BodyType.AS_IT_IS
    if kind in (BodyType.AVRO, BodyType.PROTOBUF) and not (schema or subject):
        raise InvalidInputError(f"a body of {kind} needs a schema, or a subject of a registry")
    if subject and kind not in (BodyType.AVRO, BodyType.PROTOBUF):
        raise InvalidInputError("a subject is for bodies of avro or protobuf")
    encoding = given.get("content_encoding", "keep")
    if encoding not in ("keep", "decode"):
        raise InvalidInputError(f"content_encoding is keep or decode, not {encoding!r}")
    of_kind = kind in (BodyType.AVRO, BodyType.PROTOBUF)
    declared = None if of_kind or kind is BodyType.TEXT else _declared(schema, read)
    if kind is BodyType.TEXT and schema:
        raise InvalidInputError("a body of text has one field, text, and no schema")
    if kind is BodyType.CSV and declared is None:
        raise InvalidInputError("a body of csv needs a schema: lines of `name: type`, in order")
    steps = loaded(
        BodySteps(
            inflate=encoding == "decode",
            max_bytes=parse_size(given["max_body_bytes"])
            if given.get("max_body_bytes")
            else MAX_BODY_BYTES,
            kind=kind,
            schema=_text_of(schema) if of_kind and schema else "",
            message=given.get("message", ""),
            registry=registry,
            fields=_csv_fields(declared) if kind is BodyType.CSV and declared is not None else (),
        ),
        subject,
        lambda source: read(source).encode(errors="surrogateescape"),
    )
    match kind:
        case BodyType.AVRO:
            declared = avro_fields(json.loads(steps.schema))
        case BodyType.PROTOBUF:
            # Only who has such bodies needs the library to be there.
            from coldstream.jobs.materialise.declared.protobuf_message import protobuf_fields

            declared = protobuf_fields(steps.schema, steps.message)
        case BodyType.TEXT:
            declared = pa.schema([pa.field(TEXT_FIELD, pa.string())])
    return RuleBody("json" if body in DECODED else body, declared, steps)


def _declared(value: object, read: Callable[[str], str]) -> pa.Schema | None:
    return None if value is None else schema_of(value, read)


def schema_of(value: object, read: Callable[[str], str]) -> pa.Schema:
    """What a rule declares.

    Args:
        value: a JSON Schema or an Avro schema; or text: either of these, lines of `name: type`, or
            the path or s3:// URL of a file with one of the three.
        read: gives what is in a file.

    Raises:
        InvalidInputError: it is none of them; says why.
    """
    if isinstance(value, Mapping):
        return of_document(value)
    if not isinstance(value, str) or not value.strip():
        raise InvalidInputError("schema is no schema, and no name of a file with one")
    named = value.startswith("s3://") or ":" not in value
    return parse_declared(read(value) if named else value)


def _text_of(schema: object) -> str:
    if isinstance(schema, Mapping):
        return json.dumps(schema)
    if not isinstance(schema, str) or not schema.strip():
        raise InvalidInputError("schema is no schema, and no name of a file with one")
    return schema


def _csv_fields(declared: pa.Schema) -> tuple[tuple[str, str], ...]:
    found = []
    for field in declared:
        kind = field.type
        if pa.types.is_nested(kind):
            raise InvalidInputError(f"{field.name}: a field of csv is no list and no object")
        with_unit = pa.types.is_timestamp(kind) and (kind.unit != "us" or kind.tz == "Etc/UTC")
        number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or with_unit
        text = "text" if pa.types.is_string(kind) else "word"
        word = "boolean" if pa.types.is_boolean(kind) else "number" if number else text
        found.append((field.name, word))
    return tuple(found)
