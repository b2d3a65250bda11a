"""Values of the AMQP 1.0 type system: every primitive type, described types, arrays.

    a value is  format code u8 │ data          or   0x00 │ descriptor (a value) │ value

The high half of a format code says how wide the data is: 4x none, 5x 1, 6x 2, 7x 4, 8x 8, 9x 16
bytes; Ax and Bx a u8 or u32 size and that many bytes; Cx and Dx (lists and maps) and Ex and Fx
(arrays) a u8 or u32 size, a count of the same width and the elements. Source: OASIS AMQP 1.0,
part 1. Every size is checked before it is used, nesting is bounded, and so is what can be claimed
without bytes to show for it.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from coldstream.errors import CorruptDataError
from coldstream.osiris.chunk import Buffer

#: Values may lie in one another this deeply: far deeper than any that is meant, and so that the
#: functions that read them and make JSON of them stay well within Python's limit of calls.
MAX_DEPTH = 128
#: The elements of an array of nulls, booleans, zeros or empty lists have no bytes of their own, and
#: neither have the descriptors that an array says once for all its elements. So much of that may be
#: claimed in all, beside as many times the bytes that are there: a chunk has 65,535 messages.
FREE_CLAIM = 32
CLAIM_FOR_A_BYTE = 4


class Symbol(str):
    """A symbolic constant, told apart from a string.

    The specification has ASCII only; a broker makes symbols of content types and names of headers
    of AMQP 0.9.1, which are any text.
    """

    __slots__ = ()


class AmqpTimestamp(int):
    """Milliseconds since the Unix epoch, signed 64 bit."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Decimal:
    """An IEEE 754 decimal number as its 4, 8 or 16 bytes; `osiris.decimals` reads them."""

    raw: bytes


@dataclass(frozen=True, slots=True)
class Typed:
    """A value that is not composed, with the format code that it was sent with.

    A `ValueReader` gives these if it is told to: as Python values, an int, an uint and a timestamp
    are one.
    """

    code: int
    value: Value


@dataclass(frozen=True, slots=True)
class AmqpMap:
    """A map as (key, value) pairs in wire order.

    No dict, because keys may be of any type, and what are three keys to AMQP (true, 1, 1.0) is one
    to Python.
    """

    pairs: tuple[tuple[Value, Value], ...]


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor, which is mostly a `Symbol` or an integer."""

    descriptor: Value
    value: Value


#: Lists and arrays are tuples; integers of every width are int, characters and strings str.
Value: TypeAlias = (
    bool | int | float | str | bytes | uuid.UUID | Decimal | tuple["Value", ...] | AmqpMap
    | Described | Typed | None
)  # fmt: skip

_Parser: TypeAlias = Callable[[memoryview], Value]


def _unpack(letters: str) -> _Parser:
    unpack = struct.Struct(letters).unpack
    return lambda data: unpack(data)[0]


def _boolean(data: memoryview) -> bool:
    if data[0] > 1:
        raise CorruptDataError(f"a boolean of {data[0]}")
    return data[0] == 1


def _char(data: memoryview) -> str:
    code = int.from_bytes(data, "big")
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise CorruptDataError(f"{code:#x} is no character")
    return chr(code)


def _string(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as exc:
        raise CorruptDataError("a string that is not UTF-8") from exc


def _symbol(data: memoryview) -> Symbol:
    try:
        return Symbol(str(data, "utf-8"))
    except UnicodeDecodeError as exc:
        raise CorruptDataError("a symbol that is not UTF-8") from exc


_FIXED: dict[int, _Parser] = {
    0x40: lambda _: None,
    0x41: lambda _: True,
    0x42: lambda _: False,
    0x43: lambda _: 0,  # uint
    0x44: lambda _: 0,  # ulong
    0x45: lambda _: (),
    0x50: _unpack(">B"),  # ubyte
    0x51: _unpack(">b"),  # byte
    0x52: _unpack(">B"),  # smalluint
    0x53: _unpack(">B"),  # smallulong
    0x54: _unpack(">b"),  # smallint
    0x55: _unpack(">b"),  # smalllong
    0x56: _boolean,
    0x60: _unpack(">H"),  # ushort
    0x61: _unpack(">h"),  # short
    0x70: _unpack(">I"),  # uint
    0x71: _unpack(">i"),  # int
    0x72: _unpack(">f"),
    0x73: _char,
    0x74: lambda data: Decimal(bytes(data)),
    0x80: _unpack(">Q"),  # ulong
    0x81: _unpack(">q"),  # long
    0x82: _unpack(">d"),
    0x83: lambda data: AmqpTimestamp(int.from_bytes(data, "big", signed=True)),
    0x84: lambda data: Decimal(bytes(data)),
    0x94: lambda data: Decimal(bytes(data)),
    0x98: lambda data: uuid.UUID(bytes=bytes(data)),
}
_VARIABLE: dict[int, _Parser] = {
    0xA0: bytes,
    0xA1: _string,
    0xA3: _symbol,
    0xB0: bytes,
    0xB1: _string,
    0xB3: _symbol,
}
_WIDTHS = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_DESCRIBED = 0x00
_EMPTY_LIST = 0x45
_LISTS = frozenset({0xC0, 0xD0})
_MAPS = frozenset({0xC1, 0xD1})
_ARRAYS = frozenset({0xE0, 0xF0})


class ValueReader:
    """Reads values one after the other.

    Args:
        buf: to read; `position` is the byte after the last value that was read.
        typed: whether values that are not composed come as `Typed`; descriptors never do.
    """

    __slots__ = ("_claim", "_typed", "_view", "position")

    def __init__(self, buf: Buffer, *, typed: bool = False) -> None:
        self._typed = typed
        self._view = memoryview(buf)
        self._claim = FREE_CLAIM + CLAIM_FOR_A_BYTE * len(self._view)
        self.position = 0

    @property
    def left(self) -> int:
        """Bytes that were not read yet."""
        return len(self._view) - self.position

    def read(self) -> Value:
        """The next value.

        Raises:
            CorruptDataError: a type is not known, a size does not hold, a text is badly encoded,
                the nesting is deeper than `MAX_DEPTH`, or an array claims far more than its bytes.
        """
        end = len(self._view)
        return self._data(self._byte(end), end, 0)

    def read_descriptor(self) -> Value:
        """The descriptor with which a described value begins; its value comes next.

        Raises:
            CorruptDataError: as in `read`, or no described value begins here.
        """
        end = len(self._view)
        if self._byte(end) != _DESCRIBED:
            raise CorruptDataError("a section begins with the byte 0")
        typed, self._typed = self._typed, False
        try:
            return self._data(self._byte(end), end, 0)
        finally:
            self._typed = typed

    def element_codes(self) -> bytes:
        """The format code of each element of the list that begins here; empty if it has none.

        Raises:
            CorruptDataError: as in `read`, or no list begins here.
        """
        end = len(self._view)
        code = self._byte(end)
        if code == _EMPTY_LIST:
            return b""
        if code not in _LISTS:
            raise CorruptDataError(f"{code:#04x} begins no list")
        end, count = self._frame(code, end)
        codes = bytearray()
        for _ in range(min(count, end - self.position)):
            codes.append(self._byte(end))
            self._data(codes[-1], end, 1)
        return bytes(codes)

    def _data(self, code: int, end: int, depth: int) -> Value:
        """The data of a value whose format code was read."""
        if depth > MAX_DEPTH:
            raise CorruptDataError(f"values lie more than {MAX_DEPTH} deep in one another")
        fixed = _FIXED.get(code)
        if fixed is not None:
            value = fixed(self._take(_WIDTHS[code >> 4], end))
            return Typed(code, value) if self._typed and code != _EMPTY_LIST else value
        variable = _VARIABLE.get(code)
        if variable is not None:
            value = variable(self._take(self._unsigned(_size_width(code), end), end))
            return Typed(code, value) if self._typed else value
        if code == _DESCRIBED:
            descriptor = self._data(self._byte(end), end, depth + 1)
            return Described(descriptor, self._data(self._byte(end), end, depth + 1))
        if code in _ARRAYS:
            return self._array(code, end, depth)
        if code in _LISTS or code in _MAPS:
            return self._compound(code, end, depth)
        raise CorruptDataError(f"{code:#04x} is no AMQP type")

    def _compound(self, code: int, end: int, depth: int) -> Value:
        end, count = self._frame(code, end)
        # Every element has a byte at least: a count beyond that is refused before it costs.
        if count > end - self.position:
            raise CorruptDataError(f"{count} elements in {end - self.position} bytes")
        values = tuple([self._data(self._byte(end), end, depth + 1) for _ in range(count)])
        self._finish(end)
        if code in _LISTS:
            return values
        if count % 2:
            raise CorruptDataError(f"a map of {count} keys and values")
        return AmqpMap(tuple(zip(values[::2], values[1::2], strict=True)))

    def _array(self, code: int, end: int, depth: int) -> Value:
        end, count = self._frame(code, end)
        descriptors: list[Value] = []
        start = self.position
        element = self._byte(end)
        while element == _DESCRIBED:
            # Each descriptor puts the elements one level deeper.
            depth += 1
            descriptors.append(self._data(self._byte(end), end, depth + 1))
            element = self._byte(end)
        # Bytes that are said once and stand for every element.
        said = self.position - start - 1
        if _WIDTHS.get(element >> 4) == 0:
            said += 1
        elif count > end - self.position:
            raise CorruptDataError(f"{count} elements in {end - self.position} bytes")
        self._claim -= count * said
        if self._claim < 0:
            raise CorruptDataError(f"an array of {count} elements without bytes of their own")
        values = [self._data(element, end, depth + 1) for _ in range(count)]
        self._finish(end)
        for descriptor in reversed(descriptors):
            values = [Described(descriptor, value) for value in values]
        return tuple(values)

    def _frame(self, code: int, end: int) -> tuple[int, int]:
        """End and count of a list, map or array; the position is then at its content."""
        width = _size_width(code)
        size = self._unsigned(width, end)
        if size < width or size > end - self.position:
            raise CorruptDataError(f"a list, map or array of {size} bytes")
        end = self.position + size
        return end, self._unsigned(width, end)

    def _finish(self, end: int) -> None:
        if self.position != end:
            raise CorruptDataError(f"{end - self.position} bytes follow the last element")

    def _byte(self, end: int) -> int:
        return self._take(1, end)[0]

    def _unsigned(self, width: int, end: int) -> int:
        return int.from_bytes(self._take(width, end), "big")

    def _take(self, size: int, end: int) -> memoryview:
        start = self.position
        if size > end - start:
            raise CorruptDataError(f"a value of {size} bytes is cut after {end - start}")
        self.position = start + size
        return self._view[start : self.position]


def _size_width(code: int) -> int:
    """Bytes of the size: one for Ax, Cx and Ex, four for Bx, Dx and Fx."""
    return 4 if code >> 4 & 1 else 1
