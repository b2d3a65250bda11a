"""Addresses of messages to the columns that come from messages: one call of the kernel a batch.

The kernel leaves what is damaged or rare; `reference` decodes that, and its rows are put in place.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import coldstream_kernel as kernel
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coldstream.columns.buffers import (
    HeaderColumn,
    MapColumn,
    NumberColumn,
    Pool,
    TextColumn,
    bitmap_bytes,
    identifier_bytes,
    pointer,
)
from coldstream.columns.reference import DECODED, Row, dear_columns, message_columns
from coldstream.columns.schema import COLUMNS, Selection

#: Longest of the words that a column of kinds or types holds.
_WORD = 8
_WORDS = frozenset({"message_id_type", "correlation_id_type"})
_NUMBERS = frozenset({"absolute_expiry_time", "creation_time", "group_sequence"})
_IDENTIFIERS = frozenset({"message_id", "correlation_id"})
_MAPS = ("application_properties", "message_annotations", "delivery_annotations", "footer")


class Assembler:
    """Makes the columns of messages.

    Args:
        selection: columns; those of chunks are another module's.
        batch_bytes: bytes of a batch's messages, unless it is one message and larger.
        batch_rows: messages at most.
        reuse: see `Pool`.
        least_room: for the texts of a message, however small batches are, bytes. What does not fit
            is left to the plain decoder.
    """

    def __init__(
        self,
        selection: Selection,
        *,
        batch_bytes: int,
        batch_rows: int,
        reuse: bool,
        least_room: int = 64 * 2**10,
    ) -> None:
        self._selection = selection
        self._usual = max(batch_bytes, least_room)
        self._pool = Pool(3 * self._usual + 16 * batch_rows, reuse=reuse)
        self._names = [n for n in selection.names if n in DECODED or n == "raw"]
        self._decoded = not DECODED.isdisjoint(selection.names)

    def columns(
        self,
        messages: NDArray[np.uint64],
        lengths: NDArray[np.int32],
        wrong: Callable[[int], str | None],
        any_wrong: bool,
    ) -> dict[str, pa.Array]:
        """The columns of messages at these addresses.

        Args:
            messages: addresses.
            lengths: bytes.
            wrong: of a row that has no message: why.
            any_wrong: whether there is such a row.
        """
        rows, size = len(messages), int(lengths.sum(dtype=np.int64))
        made: dict[str, pa.Array] = {}
        left: NDArray[np.int64] = np.empty(0, np.int64)
        if self._decoded:
            left = self._decode(messages, lengths, rows, size, made)
            if self._selection.dear:
                self._dear(messages, lengths, left, made)
        elif any_wrong:
            left = np.array([row for row in range(rows) if wrong(row) is not None], np.int64)
        if "raw" in self._selection:
            made["raw"] = self._raw(messages, lengths, rows, size)
        if "error" in self._selection:
            made["error"] = pa.nulls(rows, pa.string())
        if len(left):
            self._patch(made, left, messages, lengths, rows, wrong)
        return made

    def _decode(
        self,
        messages: NDArray[np.uint64],
        lengths: NDArray[np.int32],
        rows: int,
        size: int,
        made: dict[str, pa.Array],
    ) -> NDArray[np.int64]:
        """Fill `made`; gives the rows that the kernel left."""
        pool, selection, schema = self._pool, self._selection, self._selection.schema
        kind = (
            TextColumn(pool, "body_kind", rows, _WORD * rows, nullable=False)
            if "body_kind" in selection
            else None
        )
        body = TextColumn(pool, "body", rows, size, nullable=False) if "body" in selection else None
        usual = min(size, self._usual)
        maps = {n: MapColumn(pool, n, rows, usual) for n in _MAPS if n in selection}
        parts: dict[str, TextColumn | NumberColumn] = {
            name: NumberColumn(pool, name, rows)
            if name in _NUMBERS
            else TextColumn(pool, name, rows, _capacity(name, rows, usual))
            for name in selection.properties
        }
        present = pool.zeros("properties", bitmap_bytes(rows)) if parts else None
        header = HeaderColumn(pool, rows) if "header" in selection else None
        left = pool.take("left", 8 * rows).view(np.int64)
        call = kernel.Columns(
            messages=messages.ctypes.data,
            lengths=lengths.ctypes.data,
            count=rows,
            format=kernel.FORMATS[selection.body_format],
            body_kind=pointer(kind),
            body=pointer(body),
            **{name: pointer(maps.get(name)) for name in _MAPS},
            properties=None if present is None else present.ctypes.data,
            left=left.ctypes.data,
        )
        if header is not None:
            call.header = header.valid.ctypes.data
            for number, field in enumerate(header.fields):
                call.headers[number] = ctypes.pointer(field.struct)
        for number, name in enumerate(kernel.PROPERTY_FIELDS):
            column = parts.get(name)
            if isinstance(column, NumberColumn):
                call.numbers[number] = ctypes.pointer(column.struct)
            elif column is not None:
                call.texts[number] = ctypes.pointer(column.struct)
        kernel.library().coldstream_columns(ctypes.byref(call))
        for name, text in (("body_kind", kind), ("body", body)):
            if text is not None:
                made[name] = text.array(schema.field(name).type, rows)
        if header is not None:
            made["header"] = header.array(schema.field("header").type, rows)
        for name, each in maps.items():
            made[name] = each.array(schema.field(name).type, rows)
        if present is not None:
            struct = schema.field("properties").type
            children = [parts[field.name].array(field.type, rows) for field in struct]
            made["properties"] = pa.Array.from_buffers(
                struct, rows, [pa.py_buffer(present)], children=children
            )
        return left[: call.left_count]

    def _dear(
        self,
        messages: NDArray[np.uint64],
        lengths: NDArray[np.int32],
        left: NDArray[np.int64],
        made: dict[str, pa.Array],
    ) -> None:
        """Fill in the columns that only the plain decoder makes; rows that were left come later."""
        skipped = frozenset(left.tolist())
        found: list[Row] = [
            {}
            if row in skipped
            else dear_columns(self._selection, ctypes.string_at(int(at), int(length)))
            for row, (at, length) in enumerate(zip(messages, lengths, strict=True))
        ]
        for name in self._selection.dear:
            made[name] = pa.array([row.get(name) for row in found], COLUMNS[name])

    def _raw(
        self, messages: NDArray[np.uint64], lengths: NDArray[np.int32], rows: int, size: int
    ) -> pa.Array:
        column = TextColumn(self._pool, "raw", rows, size, nullable=False)
        kernel.library().coldstream_raw(
            messages.ctypes.data, lengths.ctypes.data, rows, pointer(column)
        )
        return column.array(pa.binary(), rows)

    def _patch(
        self,
        made: dict[str, pa.Array],
        left: NDArray[np.int64],
        messages: NDArray[np.uint64],
        lengths: NDArray[np.int32],
        rows: int,
        wrong: Callable[[int], str | None],
    ) -> None:
        """Put the plain decoder's rows in the place of those that were left."""
        found: list[Row] = []
        for row in left.tolist():
            reason = wrong(row)
            if reason is not None:
                found.append({"error": reason})
                continue
            wire = ctypes.string_at(int(messages[row]), int(lengths[row]))
            found.append(message_columns(self._selection, wire))
        order = np.arange(rows)
        order[left] = rows + np.arange(len(left))
        at = pa.array(order)
        for name in self._names:
            kind: Any = self._selection.schema.field(name).type
            plain = pa.array([row.get(name) for row in found], kind)
            made[name] = pa.concat_arrays([made[name], plain]).take(at)


def _capacity(name: str, rows: int, size: int) -> int:
    """Bytes that a field of `properties` of messages of `size` bytes needs at most."""
    if name in _WORDS:
        return _WORD * rows
    return identifier_bytes(size) if name in _IDENTIFIERS else size
