"""Times that every reader of tables can hold: those from year 1 to year 9999.

A stream's times are 64 bits of milliseconds, and a broker with a bad clock writes any of them. Far
times overflow a partition of hours, and readers stop at one: Python beyond the year 9999, Trino
beyond 73326. So a table has the nearest time that all can hold; how many is told.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

#: The first and the last millisecond of the years 1 to 9999, and the same in microseconds.
MIN_MS, MAX_MS = -62_135_596_800_000, 253_402_300_799_999
FIRST_US, LAST_US = MIN_MS * 1000, MAX_MS * 1000 + 999


def bounded(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    """A batch whose times, those of a struct's fields among them, are within these years.

    Args:
        batch: with times in microseconds.

    Returns:
        The batch, the very same if nothing had to be done, and how many times were moved.
    """
    made = [_bounded(column) for column in batch.columns]
    moved = sum(count for _, count in made)
    if not moved:
        return batch, 0
    columns = [column for column, _ in made]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema), moved


def within(column: pa.Array) -> bool:
    """Whether all times of a column in microseconds are."""
    span = pc.min_max(column.cast(pa.int64()))
    low, high = span["min"].as_py(), span["max"].as_py()
    return low is None or (low >= FIRST_US and high <= LAST_US)


def _bounded(column: pa.Array) -> tuple[pa.Array, int]:
    if pa.types.is_struct(column.type):
        made = [_bounded(part) for part in column.flatten()]
        moved = sum(count for _, count in made)
        if not moved:
            return column, 0
        parts = [part for part, _ in made]
        fields = list(column.type)
        return pa.StructArray.from_arrays(parts, fields=fields, mask=column.is_null()), moved
    if not pa.types.is_timestamp(column.type) or within(column):
        return column, 0
    us = column.cast(pa.int64())
    early, late = pc.less(us, FIRST_US), pc.greater(us, LAST_US)
    near = pc.if_else(early, FIRST_US, pc.if_else(late, MAX_MS * 1000, us))
    return near.cast(column.type), pc.sum(pc.or_(early, late)).as_py() or 0
