"""Bodies of Protobuf as JSON, read by Google's library.

A schema is a FileDescriptorSet, as `protoc --include_imports --descriptor_set_out` writes it, or
what a registry gives in its place. Field names stay as they are written in the schema. Numbers are
numbers, also those of 64 bits, which Protobuf's own JSON has as text.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from coldstream.bodies.protobuf_size import Sizes
from coldstream.bodies.registry import Registry, Schema
from coldstream.errors import CorruptDataError, InvalidInputError, NotFoundError

TIMESTAMP = "google.protobuf.Timestamp"
#: What every schema may import and none brings along.
_COMMON = (
    any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
)  # fmt: skip
_MAX_INDEXES = 64

T = TypeVar("T")


class ProtobufBodies:
    """Makes JSON of bodies.

    Args:
        schema: a FileDescriptorSet in base64; "" if a registry knows those of all bodies.
        message: full name of the message; "" for the first of the last file.
        registry: knows the schemas that bodies name; None if they name none. A body of another
            message than that is none, whatever its schema.
        limit: bytes of a body; and of JSON, about, that it may stand for beyond these.

    Raises:
        InvalidInputError: it is no such schema, or has no such message.
    """

    def __init__(self, schema: str, message: str, registry: Registry | None, limit: int) -> None:
        self._message = message_of(schema, message) if schema else None
        self._number = None if self._message is None else number_of(self._message)
        self._registry = registry
        self._limit = limit
        self._sizes = Sizes(limit)
        self._files: dict[str, Any] = {}
        self._names: dict[tuple[str | int, ...], str] = {}
        #: Why there is no schema of an id; nobody asks for it again.
        self._refused: dict[str, str] = {}

    def __call__(self, body: bytes) -> bytes:
        """The JSON of a body.

        Raises:
            CorruptDataError: it cannot be read by its schema, or stands for too much.
            UnavailableError, PermissionDeniedError: the registry does not answer.
        """
        descriptor = self._message
        if self._registry is not None:
            schema_id, body = self._registry.split(body, self._limit)
            if self._registry.indexed:
                indexes, body = message_indexes(body)
                if descriptor is None:
                    descriptor = self._written_by(schema_id, indexes)
                else:
                    self._check(descriptor, schema_id, indexes)
            else:
                body = self._of_number(body)
        assert descriptor is not None
        self._sizes.check(body, descriptor)
        made = message_factory.GetMessageClass(descriptor)()
        try:
            made.ParseFromString(body)
        except DecodeError as exc:
            raise CorruptDataError(f"the body is no Protobuf of its schema: {exc}") from exc
        return json.dumps(
            _Fields().all_of(made), ensure_ascii=False, separators=(",", ":")
        ).encode()

    def _written_by(self, schema_id: str, indexes: list[int]) -> Descriptor:
        def found(schema: Schema) -> Descriptor:
            file = self._files.get(schema_id)
            if file is None:
                file = self._files[schema_id] = file_of(schema)
            message = list(file.message_types_by_name.values())[indexes[0]]
            for index in indexes[1:]:
                message = message.nested_types[index]
            return message

        return self._of_schema(schema_id, indexes, found)

    def _check(self, descriptor: Descriptor, schema_id: str, indexes: list[int]) -> None:
        """See that a body is such a message: another one has the same numbers for other fields."""
        place: tuple[str | int, ...] = (schema_id, *indexes)
        name = self._names.get(place)
        if name is None:
            name = self._of_schema(schema_id, indexes, lambda schema: name_of(schema, indexes))
            self._names[place] = name
        if name != descriptor.full_name:
            raise CorruptDataError(f"the body is {name}, and no {descriptor.full_name}")

    def _of_number(self, body: bytes) -> bytes:
        """What follows the number of a message, which must be that of ours.

        Of the writer's file there is no more than source text, so nobody can look whose that is.
        """
        assert self._message is not None
        number, at = _unsigned(body, 0)
        if number != self._number:
            raise CorruptDataError(
                f"the body is message {number} of its file by name, and {self._message.full_name}"
                f" is {self._number} of the one that was given"
            )
        return body[at:]

    def _of_schema(self, schema_id: str, indexes: list[int], made: Callable[[Schema], T]) -> T:
        assert self._registry is not None
        if schema_id in self._refused:
            raise CorruptDataError(self._refused[schema_id])
        try:
            return made(self._registry.schema(schema_id))
        except (InvalidInputError, NotFoundError) as exc:
            self._refused[schema_id] = f"schema {schema_id}: {exc.reason}"
            raise CorruptDataError(self._refused[schema_id]) from exc
        except IndexError as exc:
            raise CorruptDataError(f"schema {schema_id} has no message {indexes}") from exc


def message_of(schema: str, name: str) -> Descriptor:
    """The message of a FileDescriptorSet in base64.

    Raises:
        InvalidInputError: it is none, or has no such message.
    """
    found = descriptor_pb2.FileDescriptorSet()
    try:
        found.ParseFromString(base64.b64decode(schema))
        pool = _pool()
        for file in found.file:
            _add(pool, file)
        if name:
            return pool.FindMessageTypeByName(name)
        last = pool.FindFileByName(found.file[-1].name)
        return next(iter(last.message_types_by_name.values()))
    except (DecodeError, ValueError, TypeError, IndexError, StopIteration) as exc:
        raise InvalidInputError(f"this is no Protobuf descriptor set: {exc}"[:300]) from exc
    except KeyError as exc:
        raise InvalidInputError(f"the Protobuf schema has no message {name[:200]!r}") from exc


def file_of(schema: Schema) -> Any:
    """The descriptor of a file that a registry gave, and of what it imports.

    Raises:
        InvalidInputError: it is none.
    """
    pool = _pool()
    try:
        return pool.FindFileByName(_added(pool, schema, "schema.proto"))
    except (DecodeError, ValueError, TypeError, KeyError) as exc:
        raise InvalidInputError(f"this is no Protobuf descriptor: {exc}"[:300]) from exc


def name_of(schema: Schema, indexes: list[int]) -> str:
    """The full name of a message of a file that a registry gave; what it imports does not matter.

    Raises:
        InvalidInputError: it is no such file.
        IndexError: it has no such message.
    """
    try:
        file = _file(schema)
    except (DecodeError, ValueError) as exc:
        raise InvalidInputError(f"this is no Protobuf descriptor: {exc}"[:300]) from exc
    names, inside = [file.package] if file.package else [], file.message_type
    for index in indexes:
        names.append(inside[index].name)
        inside = inside[index].nested_type
    return ".".join(names)


def _file(schema: Schema) -> descriptor_pb2.FileDescriptorProto:
    if schema.kind != "PROTOBUF":
        raise InvalidInputError(f"it is a schema of {schema.kind}")
    file = descriptor_pb2.FileDescriptorProto()
    file.ParseFromString(base64.b64decode(schema.text))
    return file


def _added(pool: descriptor_pool.DescriptorPool, schema: Schema, name: str) -> str:
    file = _file(schema)
    for imported, each in schema.references.items():
        _added(pool, each, imported)
    file.name = name
    _add(pool, file)
    return name


def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for module in _COMMON:
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        pool.Add(file)
    return pool


def _add(pool: descriptor_pool.DescriptorPool, file: descriptor_pb2.FileDescriptorProto) -> None:
    if file.name not in {module.DESCRIPTOR.name for module in _COMMON}:
        pool.Add(file)


def message_indexes(body: bytes) -> tuple[list[int], bytes]:
    """Which message of its file a body is, and what follows: zigzag varints, their count first.

    Raises:
        CorruptDataError: they are cut, or no path to a message.
    """
    count, at = _varint(body, 0)
    if not count:
        return [0], body[at:]
    if not 0 < count <= _MAX_INDEXES:
        raise CorruptDataError(f"the body has {count} message indexes")
    found = []
    for _ in range(count):
        index, at = _varint(body, at)
        if index < 0:
            raise CorruptDataError(f"the body has the message index {index}")
        found.append(index)
    return found, body[at:]


def number_of(descriptor: Descriptor) -> int:
    """The number of a message in Glue's way: its place among all of its file, by their names."""
    names: list[str] = []
    waiting = list(descriptor.file.message_types_by_name.values())
    while waiting:
        each = waiting.pop()
        names.append(each.full_name)
        waiting += each.nested_types
    return sorted(names).index(descriptor.full_name)


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value, at = _unsigned(body, at)
    return (value >> 1) ^ -(value & 1), at


def _unsigned(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for number, byte in enumerate(body[at : at + 5]):
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at + number + 1
    raise CorruptDataError("the message indexes of the body are cut")


class _Fields:
    """The fields of a message, and of those within it, as JSON has them.

    What the schema does not have, or has with another type, is kept by its number behind the names
    that lead there, `lines.10`: without it a row would show nothing of what a newer publisher says.
    """

    def __init__(self) -> None:
        self._unknown: dict[str, list[Any]] = {}

    def all_of(self, message: Message) -> dict[str, Any] | str:
        """The whole message."""
        found = self._object(message, "")
        if isinstance(found, dict):
            found |= {k: v[0] if len(v) == 1 else v for k, v in self._unknown.items()}
        return found

    def _object(self, message: Message, path: str) -> dict[str, Any] | str:
        """Those without presence always, the others if they are there."""
        if message.DESCRIPTOR.full_name == TIMESTAMP:
            try:
                return str(message.ToJsonString())
            except ValueError:
                return str(message)[:100]  # beyond the year 9999: a misfit, and to be seen as such
        found: dict[str, Any] = {}
        for field in message.DESCRIPTOR.fields:
            if field.has_presence and not message.HasField(field.name):
                continue
            value, inner = getattr(message, field.name), f"{path}{field.name}."
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                kind = field.message_type.fields_by_name["value"]
                names = field.message_type.fields_by_name["key"]
                found[field.name] = {
                    _key(self._value(names, k, inner)): self._value(kind, value[k], inner)
                    for k in value
                }
            elif _repeated(field):
                found[field.name] = [self._value(field, each, inner) for each in value]
            else:
                found[field.name] = self._value(field, value, inner)
        # The parser knows an extension that the set declares, and its message has no such field: it
        # is rescued by its number, like an undeclared one.
        for field, value in message.ListFields():
            if field.is_extension:
                values = list(value) if _repeated(field) else [value]
                known = self._unknown.setdefault(f"{path}{field.number}", [])
                known += [self._value(field, each, f"{path}{field.number}.") for each in values]
        for each in UnknownFieldSet(message):
            self._unknown.setdefault(f"{path}{each.field_number}", []).append(_plain(each.data))
        return found

    def _value(self, field: FieldDescriptor, value: Any, path: str) -> Any:
        if isinstance(value, Message):
            return self._object(value, path)
        if field.enum_type is not None:
            known: Mapping[int, Any] = field.enum_type.values_by_number
            return known[value].name if value in known else str(value)
        if isinstance(value, bytes):
            if field.type == FieldDescriptor.TYPE_STRING:  # of proto2, which does not look
                raise CorruptDataError(f"the text {field.name} of the body is no UTF-8")
            return base64.b64encode(value).decode("ascii")
        if isinstance(value, float) and not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return value


def _plain(data: Any) -> Any:
    """A value of an unknown type: a number, bytes in base64, or the fields of a group."""
    if isinstance(data, bytes):
        return base64.b64encode(data).decode("ascii")
    if isinstance(data, int):
        return data
    found: dict[str, list[Any]] = {}
    for each in data:
        found.setdefault(str(each.field_number), []).append(_plain(each.data))
    return {name: those[0] if len(those) == 1 else those for name, those in found.items()}


def _repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)
