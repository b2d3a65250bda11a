"""The rows of files that are in a table already: read again with the table's present columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coldstream.jobs.materialise.ranges import Ranges


def batches_of(
    file: pq.ParquetFile, schema: pa.Schema, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """A file's rows, a row group at a time.

    Columns are found by name: they are never renamed, and what the file has not is null.

    Args:
        file: to read.
        schema: of what is wanted.
        columns: names of those to read, where `schema` has few and none has others inside; all of
            the file's by default.
    """
    for number in range(file.num_row_groups):
        group = file.read_row_group(number, columns=None if columns is None else list(columns))
        found = [
            with_type(group.column(each.name).combine_chunks(), each.type)
            if each.name in group.column_names
            else pa.nulls(group.num_rows, each.type)
            for each in schema
        ]
        yield pa.RecordBatch.from_arrays(found, schema=schema)


def kept_of(
    batches: Iterable[pa.RecordBatch], gone: npt.NDArray[np.int64]
) -> Iterator[pa.RecordBatch]:
    """A file's rows but those at some positions.

    Args:
        batches: all of its rows.
        gone: positions in the file, rising.
    """
    begin = 0
    for batch in batches:
        kept = np.ones(batch.num_rows, np.bool_)
        first, last = np.searchsorted(gone, (begin, begin + batch.num_rows))
        kept[gone[first:last] - begin] = False
        begin += batch.num_rows
        yield batch if kept.all() else batch.filter(pa.array(kept))


def without(batch: pa.RecordBatch, column: str, ranges: Ranges) -> pa.RecordBatch:
    """The rows whose offset lies in none of `ranges`."""
    offsets = batch.column(column)
    gone = pa.array([False] * batch.num_rows)
    for first, next_offset in ranges:
        within = pc.and_(pc.greater_equal(offsets, first), pc.less(offsets, next_offset))
        gone = pc.or_(gone, within)
    return batch.filter(pc.invert(gone))


def holds(file: pq.ParquetFile, column: str, ranges: Ranges) -> bool:
    """Whether a file has a row whose offset lies in one of `ranges`; nothing else of it is read."""
    schema = pa.schema([(column, pa.int64())])
    found = batches_of(file, schema, [column])
    return any(without(batch, column, ranges).num_rows < batch.num_rows for batch in found)


def with_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column as a wider type, or one with more fields inside; those are null."""
    if column.type == kind:
        return column
    if pa.types.is_struct(kind):
        parts = [
            with_type(pc.struct_field(column, each.name), each.type)
            if column.type.get_field_index(each.name) >= 0
            else pa.nulls(len(column), each.type)
            for each in kind
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(kind):
        values = with_type(column.values, kind.value_type)
        return pa.ListArray.from_arrays(column.offsets, values, kind, mask=column.is_null())
    return column.cast(kind)
