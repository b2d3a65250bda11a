"""Declared fields of a Protobuf message: what `bodies.protobuf` makes of its fields."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor

from coldstream.bodies.protobuf import TIMESTAMP, message_of
from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.declared.checks import checked, deeper, struct_of
from coldstream.jobs.materialise.kinds import WORDS, stored
from coldstream.jobs.materialise.schema import MAX_DEPTH

_WORDS = {
    FieldDescriptor.CPPTYPE_BOOL: "boolean",
    FieldDescriptor.CPPTYPE_INT32: "int",
    FieldDescriptor.CPPTYPE_INT64: "long",
    FieldDescriptor.CPPTYPE_UINT32: "long",
    FieldDescriptor.CPPTYPE_FLOAT: "float",
    FieldDescriptor.CPPTYPE_DOUBLE: "double",
    FieldDescriptor.CPPTYPE_ENUM: "string",
    FieldDescriptor.CPPTYPE_STRING: "string",  # bytes, too, in base64
}


def protobuf_fields(schema: str, message: str) -> pa.Schema:
    """The fields of a message.

    Args:
        schema: a FileDescriptorSet in base64.
        message: full name; "" for the first of its last file.

    Raises:
        InvalidInputError: there is no such message, or a field can be no column.
    """
    return checked(_fields(message_of(schema, message), "", MAX_DEPTH))


def _fields(descriptor: Any, path: str, depth: int) -> list[pa.Field]:
    return [
        pa.field(field.name, _kind(field, f"{path}.{field.name}".lstrip("."), depth))
        for field in descriptor.fields
    ]


def _kind(field: Any, path: str, depth: int) -> pa.DataType:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        value = _one(entry.fields_by_name["value"], path, deeper(depth, path))
        return pa.map_(pa.string(), value)
    if field.is_repeated:
        return pa.list_(_one(field, path, deeper(depth, path)))
    return _one(field, path, depth)


def _one(field: Any, path: str, depth: int) -> pa.DataType:
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            return WORDS["timestamp"]
        inside = _fields(field.message_type, path, deeper(depth, path))
        if not inside:
            raise InvalidInputError(f"{path}: a message without fields can be no column")
        return struct_of(inside, path)
    if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
        return stored(pa.uint64())
    return WORDS[_WORDS[field.cpp_type]]
