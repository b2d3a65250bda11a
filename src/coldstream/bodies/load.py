"""A rule's or a query's words about bodies, made into `BodySteps` by the driver."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace

from coldstream.bodies.apply import transcoder
from coldstream.bodies.registry import open_registry
from coldstream.bodies.steps import BodySteps, BodyType
from coldstream.errors import InvalidInputError


def loaded(steps: BodySteps, subject: str, read: Callable[[str], bytes]) -> BodySteps:
    """Steps whose schema is at hand, and checked.

    Args:
        steps: whose schema may be the path or URL of a file; that of Avro may be text as well.
        subject: of the registry whose newest schema bodies become; "" for none.
        read: gives what is in a file.

    Raises:
        InvalidInputError: there is no such schema, or it is none.
        NotFoundError, UnavailableError, PermissionDeniedError: from a bucket or a registry.
    """
    if subject and (not steps.registry or steps.schema):
        raise InvalidInputError("a subject is one of a schema registry, in the place of a schema")
    schema = steps.schema
    if subject:
        found = open_registry(steps.registry).latest(subject)
        if found.kind != steps.kind.upper() or found.references:
            raise InvalidInputError(
                f"subject {subject[:200]!r} is of {found.kind} and has {len(found.references)}"
                f" references; one of {steps.kind} without any is wanted, or its schema in a file"
            )
        schema = found.text
        if steps.kind is BodyType.PROTOBUF:
            schema = _set_of(schema)
    elif schema and steps.kind is BodyType.PROTOBUF:
        schema = base64.b64encode(read(schema)).decode("ascii")
    elif schema and not schema.lstrip().startswith(("{", "[")):
        schema = _text(read(schema))
    steps = replace(steps, schema=schema)
    transcoder(steps)
    return steps


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise InvalidInputError("the schema is no UTF-8") from exc


def _set_of(file: str) -> str:
    """A FileDescriptorProto as a set of one, both in base64: field 1 of a set is a file."""
    try:
        data = base64.b64decode(file)
    except ValueError as exc:
        raise InvalidInputError("the registry's Protobuf schema is no base64") from exc
    size, length = len(data), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return base64.b64encode(b"\x0a" + bytes(length) + data).decode("ascii")
