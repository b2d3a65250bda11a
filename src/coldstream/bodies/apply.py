"""The steps of `BodySteps`, done to the rows of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from coldstream.bodies.content import inflated
from coldstream.bodies.lines import csv_body, text_body
from coldstream.bodies.registry import open_registry
from coldstream.bodies.steps import BodySteps, BodyType
from coldstream.errors import CorruptDataError
from coldstream.osiris.amqp import BodyKind, decode_message

_ENCODING = "content_encoding"
#: Bytes of bodies after which a batch is cut: Arrow's offsets have 31 bits.
_MAX_BATCH = 256 * 2**20

Transcode = Callable[[bytes], bytes]


def needed(steps: BodySteps, columns: tuple[str, ...]) -> tuple[str, ...]:
    """The columns to decode so that steps can be done: those asked for, and what they need."""
    if "body" not in columns or not steps.inflate or "properties" in columns:
        return columns
    name = f"properties.{_ENCODING}"
    if name in columns:
        return columns
    # Next to its neighbours, because a struct stands where its first field is named.
    return (*columns, name)


def empty_bodies(batch: pa.RecordBatch, *, no_bytes: bool = True) -> list[bool]:
    """Which messages have no body, an empty one, or AMQP's null as its value.

    Args:
        batch: with `body`, `body_kind` and `raw`.
        no_bytes: whether a body that is there and has no bytes is an empty one.
    """
    bodies = batch.column("body")
    none = pc.is_null(bodies)
    empty = (
        pc.or_kleene(none, pc.equal(pc.binary_length(bodies), 0)) if no_bytes else none
    ).to_pylist()
    # The text "null" looks the same, so these few are asked themselves.
    value = pc.equal(batch.column("body_kind"), BodyKind.VALUE.value)
    null = pc.fill_null(pc.and_(value, pc.equal(bodies, b"null")), False)
    raw = batch.column("raw")
    for row in pc.indices_nonzero(null).to_pylist():
        empty[row] = decode_message(raw[row].as_py()).body is None
    return list(empty)


class BodyMaker:
    """Does steps; a batch's rows stay as many, and in order.

    Args:
        steps: to do.
        keep_empty: an empty body stays what it is, and so does AMQP's null. Protobuf without the
            head of a registry has no empty body: no bytes are a message of defaults.

    Raises:
        InvalidInputError: a schema is none.
    """

    def __init__(self, steps: BodySteps, *, keep_empty: bool = False) -> None:
        self._steps = steps
        self._keep_empty = keep_empty
        self._no_bytes = steps.kind is not BodyType.PROTOBUF or bool(steps.registry)
        self._transcode = transcoder(steps)

    def made(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """A batch with its bodies as they are wanted, in parts if these have become large.

        A body of which nothing can be made is null, and `error` says why; a message that has an
        error already is left alone.

        Args:
            batch: with the columns of `needed`; to keep empty bodies, also those of `empty_bodies`.
            schema: of what is wanted.

        Raises:
            UnavailableError, PermissionDeniedError: a registry does not answer.
        """
        if "body" not in schema.names:
            yield batch
            return
        given: list[bytes | None] = batch.column("body").to_pylist()
        errors, encodings = self._errors(batch), self._encodings(batch)
        kept = [False] * batch.num_rows
        if self._keep_empty:
            kept = empty_bodies(batch, no_bytes=self._no_bytes)
        bodies: list[bytes | None] = []  # of this part
        begin = size = 0
        for row, body in enumerate(given):
            if body is not None and errors[row] is None and not kept[row]:
                encoding = None if encodings is None else encodings[row]
                try:
                    body = self._one(body, encoding)
                    size += len(body)
                except CorruptDataError as exc:
                    body, errors[row] = None, exc.reason
            bodies.append(body)
            if size > _MAX_BATCH or row + 1 == len(given):
                part = batch.slice(begin, row + 1 - begin)
                made = _assembled(part, schema, bodies, errors[begin : row + 1])
                body, begin, size = None, row + 1, 0
                bodies.clear()  # all parts of a batch may be far more than there is memory
                yield made
                del made

    def _one(self, body: bytes, encoding: str | None) -> bytes:
        if encoding:
            body = inflated(body, encoding, self._steps.max_bytes)
        return body if self._transcode is None else self._transcode(body)

    def _errors(self, batch: pa.RecordBatch) -> list[str | None]:
        if "error" in batch.schema.names:
            found: list[str | None] = batch.column("error").to_pylist()
            return found
        return [None] * batch.num_rows

    def _encodings(self, batch: pa.RecordBatch) -> list[str | None] | None:
        if not self._steps.inflate:
            return None
        properties = batch.column("properties")
        column = pc.struct_field(properties, _ENCODING)
        return None if column.null_count == len(column) else column.to_pylist()


def _assembled(
    batch: pa.RecordBatch,
    schema: pa.Schema,
    bodies: list[bytes | None],
    errors: list[str | None],
) -> pa.RecordBatch:
    made = {"body": pa.array(bodies, pa.binary()), "error": pa.array(errors, pa.string())}
    columns = [
        made[field.name] if field.name in made else _narrowed(batch.column(field.name), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _narrowed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A struct without the fields that only the steps needed."""
    if column.type == kind:
        return column
    children = [pc.struct_field(column, field.name) for field in kind]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=column.is_null())


def transcoder(steps: BodySteps) -> Transcode | None:
    """What makes JSON of bodies; None where they stay what they are.

    Raises:
        InvalidInputError: a schema is none.
    """
    registry = open_registry(steps.registry) if steps.registry else None
    match steps.kind:
        case BodyType.AVRO:
            from coldstream.bodies.avro import AvroBodies

            return AvroBodies(steps.schema, registry, steps.max_bytes)
        case BodyType.PROTOBUF:
            from coldstream.bodies.protobuf import ProtobufBodies

            return ProtobufBodies(steps.schema, steps.message, registry, steps.max_bytes)
        case BodyType.JSON if registry is not None:
            return lambda body: registry.split(body, steps.max_bytes)[1]
        case BodyType.CSV:
            return lambda body: csv_body(body, steps.fields)
        case BodyType.TEXT:
            return text_body
    return None
