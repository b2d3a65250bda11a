"""What a body of Protobuf stands for, counted on its wire before Google's library makes it.

Two bytes are a message within another one, and stand for all its fields without presence: a body of
200 KB made 159 MB of JSON, and took 1.4 GB. Only bodies that are large enough for their schema to
be a danger are walked through: that is done in Python.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from coldstream.bodies.room import A_VALUE, Room, room_of
from coldstream.errors import CorruptDataError

#: What a message counts for beside its fields, and what one of an unknown number does.
_A_MESSAGE = _UNKNOWN = 4 * A_VALUE
#: Messages within one another; the library takes as many.
_MAX_DEPTH = 100
_VARINT, _FIXED64, _BYTES, _BEGIN, _END, _FIXED32 = range(6)
_WIRES = {
    FieldDescriptor.TYPE_DOUBLE: _FIXED64,
    FieldDescriptor.TYPE_FIXED64: _FIXED64,
    FieldDescriptor.TYPE_SFIXED64: _FIXED64,
    FieldDescriptor.TYPE_FLOAT: _FIXED32,
    FieldDescriptor.TYPE_FIXED32: _FIXED32,
    FieldDescriptor.TYPE_SFIXED32: _FIXED32,
    FieldDescriptor.TYPE_STRING: _BYTES,
    FieldDescriptor.TYPE_BYTES: _BYTES,
    FieldDescriptor.TYPE_MESSAGE: _BYTES,
    FieldDescriptor.TYPE_GROUP: _BEGIN,
}
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}
#: Bytes of varints that are not their last ones.
_GOING_ON = bytes(range(0x80, 0x100))


class _NoMessageError(Exception):
    """The bytes are no message; the library says why."""


@dataclass(frozen=True, slots=True)
class _OnWire:
    """A field, each time that it is there.

    Attributes:
        wire: type that it has there.
        cost: of one value.
        inside: its message, if it is one.
        name: length of its name.
        packed: whether several of it may be in one.
    """

    wire: int
    cost: int
    inside: Descriptor | None
    name: int
    packed: bool


@dataclass(slots=True)
class _Shape:
    """A message.

    Attributes:
        cost: of one without any bytes.
        fields: by number.
    """

    cost: int = _A_MESSAGE
    fields: dict[int, _OnWire] = field(default_factory=dict)


class Sizes:
    """Counts bodies.

    Args:
        limit: bytes of JSON that one may stand for, about, beyond its own bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._shapes: dict[Descriptor | None, _Shape] = {None: _Shape()}
        self._harmless: dict[Descriptor, int] = {}

    def check(self, body: bytes, message: Descriptor) -> None:
        """See that a body does not stand for too much.

        Raises:
            CorruptDataError: it does.
        """
        harmless = self._harmless.get(message)
        if harmless is None:
            left = room_of(self._limit) - self._shape(message).cost
            harmless = self._harmless[message] = 2 * left // self._worst(message)
        if len(body) > harmless:
            walk = _Walk(body, self._shape, Room(self._limit))
            try:
                walk.message(0, len(body), message, 0, 0)
            except _NoMessageError:
                return

    def _worst(self, message: Descriptor) -> int:
        """What two bytes of a body can count for at most; a field has a byte of its own first."""
        found: set[Descriptor] = set()
        waiting, longest, worst = [message], 0, 0
        while waiting:
            each = waiting.pop()
            if each in found:
                continue
            found.add(each)
            shape = self._shape(each)
            worst = max(worst, shape.cost)
            for one in shape.fields.values():
                longest = max(longest, one.name + 1)
                if one.inside is not None:
                    waiting.append(one.inside)
                    worst = max(worst, one.cost + self._shape(one.inside).cost)
                else:
                    worst = max(worst, 2 * one.cost if one.packed else one.cost)
        return max(worst, _UNKNOWN + longest * min(_MAX_DEPTH, len(found)))

    def _shape(self, message: Descriptor | None) -> _Shape:
        shape = self._shapes.get(message)
        if shape is None:
            assert message is not None
            shape = self._shapes[message] = _shape_of(message)
            if message.GetOptions().map_entry:  # an entry without its value has an empty one
                inside = shape.fields[2].inside
                shape.cost += 0 if inside is None else self._shape(inside).cost
        return shape


def _shape_of(message: Descriptor) -> _Shape:
    shape = _Shape()
    for each in message.fields:
        shape.fields[each.number] = _on_wire(each)
        shape.cost += A_VALUE
        if not each.has_presence:
            shape.cost += len(each.name)
            if each.enum_type is not None and not each.is_repeated:
                shape.cost += _longest(each)
    if message.is_extendable:
        for each in message.file.pool.FindAllExtensions(message):
            shape.fields[each.number] = _on_wire(each)
    return shape


def _on_wire(each: Any) -> _OnWire:
    wire = _WIRES.get(each.type, _VARINT)
    cost = A_VALUE if each.is_repeated else 0
    if each.has_presence:
        cost += A_VALUE + len(each.name)
    if each.enum_type is not None:
        # One that the schema does not have may be kept as an unknown field.
        cost += max(_longest(each), _UNKNOWN)
    packed = bool(each.is_repeated) and wire in (_VARINT, _FIXED32, _FIXED64)
    return _OnWire(wire, cost, each.message_type, len(each.name), packed)


def _longest(each: Any) -> int:
    return max(len(value.name) for value in each.enum_type.values)


class _Walk:
    """Goes through a body once.

    Args:
        body: all of it.
        shape: gives that of a message.
        room: for all that it stands for.
    """

    def __init__(self, body: bytes, shape: Any, room: Room) -> None:
        self._body = body
        self._shape = shape
        self._take = room.take

    def message(
        self, at: int, end: int, message: Descriptor | None, path: int, depth: int, group: int = 0
    ) -> int:
        """Count a message; where it ends.

        Args:
            at: where it begins.
            end: where it must end.
            message: None of one that the schema does not have.
            path: length of the names that lead there.
            depth: messages that it is within.
            group: its number, if it ends by that.
        """
        if depth > _MAX_DEPTH:
            raise CorruptDataError(f"messages of the body lie more than {_MAX_DEPTH} deep")
        shape: _Shape = self._shape(message)
        self._take(shape.cost)
        while at < end:
            key, at = self._varint(at, end)
            number, wire = key >> 3, key & 7
            if wire == _END:
                if number != group:
                    raise _NoMessageError
                return at
            one = shape.fields.get(number)
            begin, at = self._skipped(at, end, wire)
            known = one is not None and (wire == one.wire or (wire == _BYTES and one.packed))
            if not known:
                self._take(_UNKNOWN + path)
                if wire == _BEGIN:
                    at = self.message(at, end, None, path, depth + 1, number)
                continue
            assert one is not None
            if one.inside is None:
                self._take(one.cost * (1 if wire == one.wire else self._packed(begin, at, one)))
                continue
            self._take(one.cost)
            below = path + one.name + 1
            if wire == _BEGIN:
                at = self.message(at, end, one.inside, below, depth + 1, number)
            else:
                self.message(begin, at, one.inside, below, depth + 1)
        if group:
            raise _NoMessageError
        return at

    def _skipped(self, at: int, end: int, wire: int) -> tuple[int, int]:
        """Where what a value has begins and ends; of a group, both where it begins."""
        begin = at
        if wire == _VARINT:
            _, at = self._varint(at, end)
        elif wire == _BYTES:
            size, begin = self._varint(at, end)
            at = begin + size
        elif wire in _WIDTHS:
            at += _WIDTHS[wire]
        elif wire != _BEGIN:
            raise _NoMessageError
        if at > end:
            raise _NoMessageError
        return begin, at

    def _packed(self, begin: int, end: int, one: _OnWire) -> int:
        """How many values there are in one."""
        if one.wire != _VARINT:
            return (end - begin) // _WIDTHS[one.wire]
        return len(self._body[begin:end].translate(None, _GOING_ON))

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        body, value, shift = self._body, 0, 0
        while at < end and shift < 70:
            byte = body[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
        raise _NoMessageError
