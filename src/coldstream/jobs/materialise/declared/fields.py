"""The columns that a rule declares for the bodies of its streams: three ways to write them down.

    order_id: long required        JSON Schema: {"type": "object", "properties": {…}}
    price: decimal(12,2)           Avro:        {"type": "record", "fields": […]}
    placed_at: timestamp
    lines: list<struct<sku: string, n: int>>

All three say what is in the JSON of a body; `json_fit` says how a value of a type is written. They
become an Arrow schema whose types are those of `kinds.WORDS`; a field that may not be null must be
there. What of JSON Schema is about values and not about types (`minimum`, `pattern`) is not looked
at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.declared.avro_schema import AvroSchema
from coldstream.jobs.materialise.declared.checks import checked
from coldstream.jobs.materialise.declared.json_schema import JsonSchema
from coldstream.jobs.materialise.declared.words import of_lines
from coldstream.jobs.materialise.schema import MAX_DEPTH

MAX_SCHEMA_CHARS = 2**20


def parse_declared(text: str) -> pa.Schema:
    """What a rule declares.

    Args:
        text: lines of `name: type`, or a JSON Schema or an Avro schema as JSON.

    Raises:
        InvalidInputError: it is none of them, or declares what cannot be a column; names the field.
    """
    if len(text) > MAX_SCHEMA_CHARS:
        raise InvalidInputError(f"the schema has more than {MAX_SCHEMA_CHARS} characters")
    if not text.lstrip().startswith("{"):
        return of_lines(text)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidInputError(f"the schema is no JSON: {exc}") from exc
    return of_document(document)


def avro_fields(document: Mapping[str, Any]) -> pa.Schema:
    """The fields of an Avro schema of bodies that are Avro; `bodies.avro` makes JSON of them.

    Raises:
        InvalidInputError: it is no record, or a field can be no column; names the field.
    """
    if not isinstance(document, Mapping) or document.get("type") != "record":
        raise InvalidInputError("an Avro schema of bodies is a record")
    return checked(AvroSchema(with_bytes=True).fields(document, "", MAX_DEPTH))


def of_document(document: Mapping[str, Any]) -> pa.Schema:
    """A JSON Schema or an Avro schema, as `parse_declared` takes it, read already."""
    if document.get("type") == "record":
        return checked(AvroSchema().fields(document, "", MAX_DEPTH))
    if "properties" in document or "$ref" in document:
        kind, _ = JsonSchema(document).kind(document, "", MAX_DEPTH + 1)
        if pa.types.is_struct(kind):
            return checked(list(kind))
    raise InvalidInputError(
        "the schema is neither a JSON Schema of an object with properties nor an Avro record"
    )
