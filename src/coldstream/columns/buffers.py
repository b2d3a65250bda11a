"""Memory for the columns of a batch, made once and used again, and Arrow arrays over it."""

from __future__ import annotations

import ctypes
import sys

import coldstream_kernel as kernel
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_PROBE = [np.empty(1, np.uint8)]
#: What Python counts where only its pool's list knows an array.
_NOBODY = sys.getrefcount(_PROBE[0])
#: Arrays of one name: so many batches are under way at once, where who has them is done in turn.
_KEPT = 4


class Pool:
    """Arrays by name that grow when they must.

    Args:
        most: arrays above this size are not kept, so that one large message does not hold on to its
            memory for ever, bytes.
        reuse: the same memory every time; otherwise only what no batch holds any more.
    """

    def __init__(self, most: int, *, reuse: bool) -> None:
        self._most = most
        self._reuse = reuse
        self._arrays: dict[str, list[NDArray[np.uint8]]] = {}

    def take(self, name: str, size: int) -> NDArray[np.uint8]:
        """Bytes of any content."""
        if size > self._most:
            return np.empty(size, np.uint8)
        known = self._arrays.setdefault(name, [])
        for number in range(len(known)):
            # What Arrow has of an array keeps a view of it, whose base is the array.
            if self._reuse or sys.getrefcount(known[number]) == _NOBODY:
                if len(known[number]) < size:
                    known[number] = np.empty(size, np.uint8)
                return known[number][:size]
        made = np.empty(max(size, 64), np.uint8)
        known.append(made)
        del known[:-_KEPT]  # who holds the oldest has held it longest, and may go on
        return made[:size]

    def zeros(self, name: str, size: int) -> NDArray[np.uint8]:
        """Bytes that are zero."""
        array = self.take(name, size)
        array[:] = 0
        return array


def bitmap_bytes(rows: int) -> int:
    """Bytes of a validity bitmap."""
    return (rows + 7) // 8


class TextColumn:
    """A string or binary column that the kernel fills.

    Args:
        pool: of memory.
        name: of the column.
        rows: values at most.
        capacity: bytes at most.
        nullable: whether it has a bitmap, all null at first.
    """

    def __init__(
        self, pool: Pool, name: str, rows: int, capacity: int, *, nullable: bool = True
    ) -> None:
        self.offsets = pool.take(f"{name}.offsets", 4 * (rows + 1))
        self.offsets[:4] = 0
        self.data = pool.take(f"{name}.data", capacity)
        self.valid = pool.zeros(f"{name}.valid", bitmap_bytes(rows)) if nullable else None
        self.struct = kernel.Text(
            offsets=self.offsets.ctypes.data,
            data=self.data.ctypes.data,
            valid=None if self.valid is None else self.valid.ctypes.data,
            used=0,
            capacity=capacity,
        )

    def array(self, kind: pa.DataType, rows: int, used: int | None = None) -> pa.Array:
        """What the kernel has put in, as Arrow."""
        size = self.struct.used if used is None else used
        valid = None if self.valid is None else pa.py_buffer(self.valid)
        buffers = [valid, pa.py_buffer(self.offsets), pa.py_buffer(self.data[:size])]
        return pa.Array.from_buffers(kind, rows, buffers)


class NumberColumn:
    """An int64 or timestamp column that the kernel fills; all null at first."""

    def __init__(self, pool: Pool, name: str, rows: int) -> None:
        self.values = pool.take(f"{name}.values", 8 * rows)
        self.valid = pool.zeros(f"{name}.valid", bitmap_bytes(rows))
        self.struct = kernel.Number(values=self.values.ctypes.data, valid=self.valid.ctypes.data)

    def array(self, kind: pa.DataType, rows: int) -> pa.Array:
        """What the kernel has put in, as Arrow."""
        buffers = [pa.py_buffer(self.valid), pa.py_buffer(self.values)]
        return pa.Array.from_buffers(kind, rows, buffers)


class HeaderColumn:
    """The struct `header` that the kernel fills; all null at first."""

    def __init__(self, pool: Pool, rows: int) -> None:
        self.valid = pool.zeros("header.valid", bitmap_bytes(rows))
        self.fields = [NumberColumn(pool, f"header.{name}", rows) for name in kernel.HEADER_FIELDS]

    def array(self, kind: pa.StructType, rows: int) -> pa.Array:
        """What the kernel has put in, as Arrow."""
        children = [
            column.array(pa.int64(), rows).cast(field.type)
            for column, field in zip(self.fields, kind, strict=True)
        ]
        return pa.Array.from_buffers(kind, rows, [pa.py_buffer(self.valid)], children=children)


class MapColumn:
    """A map<string, string> column that the kernel fills; all null at first.

    Args:
        pool: of memory.
        name: of the column.
        rows: values at most.
        size: bytes of all messages, from which follows how much room entries need.
    """

    def __init__(self, pool: Pool, name: str, rows: int, size: int) -> None:
        # A key has two bytes at least (but one that is 0), a value one. As text they grow to twice
        # that at most: 9 bytes of a number have 20 digits, 17 of a UUID 36, and `false` is 5.
        entries = size // 3 + rows
        self.offsets = pool.take(f"{name}.offsets", 4 * (rows + 1))
        self.offsets[:4] = 0
        self.valid = pool.zeros(f"{name}.valid", bitmap_bytes(rows))
        self.keys = TextColumn(pool, f"{name}.keys", entries, 2 * size, nullable=False)
        self.values = TextColumn(pool, f"{name}.values", entries, 2 * size)
        self.struct = kernel.Map(
            offsets=self.offsets.ctypes.data,
            valid=self.valid.ctypes.data,
            keys=self.keys.struct,
            values=self.values.struct,
            used=0,
            capacity=entries,
        )

    def array(self, kind: pa.MapType, rows: int) -> pa.Array:
        """What the kernel has put in, as Arrow."""
        used = self.struct.used
        keys = self.keys.array(kind.key_type, used, self.struct.keys.used)
        values = self.values.array(kind.item_type, used, self.struct.values.used)
        entries = pa.StructArray.from_arrays(
            [keys, values], fields=[kind.key_field, kind.item_field]
        )
        buffers = [pa.py_buffer(self.valid), pa.py_buffer(self.offsets)]
        return pa.Array.from_buffers(kind, rows, buffers, children=[entries])


def identifier_bytes(size: int) -> int:
    """What `size` bytes of identifiers become at most as text: 9 bytes of a number have 20 digits.

    UUIDs and Base64 grow by less.
    """
    return size * 9 // 4 + 1


def pointer(column: TextColumn | NumberColumn | MapColumn | None) -> object:
    """For the kernel: where a column's struct is; null for none."""
    return None if column is None else ctypes.pointer(column.struct)
