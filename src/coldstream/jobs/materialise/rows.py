"""The rows of files that are in a table already: read again with the table's present columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coldstream.jobs.materialise.ranges import Ranges


def batches_of(
    file: pq.ParquetFile,
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    *,
    rows: int | None = None,
    groups: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """A file's rows, a row group at a time or a batch of it.

    Columns are found by name: they are never renamed, and what the file has not is null.

    Args:
        file: to read.
        schema: of what is wanted.
        columns: names of those to read, where `schema` has few and none has others inside; all of
            the file's by default.
        rows: in a batch, at most; all of a row group by default.
        groups: the row groups to read; all by default.
    """
    names = None if columns is None else list(columns)
    wanted = list(range(file.num_row_groups) if groups is None else groups)
    if rows is not None:
        for batch in file.iter_batches(rows, row_groups=wanted, columns=names):
            found = {name: batch.column(name) for name in batch.schema.names}
            yield _with_schema(found, batch.num_rows, schema)
        return
    for number in wanted:
        group = file.read_row_group(number, columns=names)
        found = {name: group.column(name).combine_chunks() for name in group.column_names}
        yield _with_schema(found, group.num_rows, schema)


def _with_schema(found: Mapping[str, pa.Array], rows: int, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        with_type(found[each.name], each.type) if each.name in found else pa.nulls(rows, each.type)
        for each in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


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
    return batch.filter(pc.invert(_within(batch.column(column), ranges)))


def _within(offsets: pa.Array, ranges: Ranges) -> pa.Array:
    """Which offsets lie in one of `ranges`."""
    found = pa.array(np.zeros(len(offsets), np.bool_))
    for first, next_offset in ranges:
        within = pc.and_(pc.greater_equal(offsets, first), pc.less(offsets, next_offset))
        found = pc.or_(found, within)
    return found


def without_of(
    batch: pa.RecordBatch, stream: str, offset: str, gone: Mapping[str, Ranges]
) -> pa.RecordBatch:
    """The rows but those of some offsets of some streams.

    Args:
        batch: of rows.
        stream: name of its column with the stream.
        offset: name of its column with the offset.
        gone: offsets by stream.
    """
    streams = batch.column(stream)
    for name in pc.unique(streams).to_pylist() if batch.num_rows else ():
        if not gone.get(name):
            continue
        mine = pc.equal(streams, name)
        stays = pc.invert(_within(batch.column(offset), gone[name]))
        batch = batch.filter(pc.or_(pc.invert(mine), stays))
        streams = batch.column(stream)
    return batch


def holds(file: pq.ParquetFile, stream: str, offset: str, gone: Mapping[str, Ranges]) -> bool:
    """Whether a file has a row of some offsets of some streams; nothing else of it is read.

    Args:
        file: to read.
        stream, offset, gone: as for `without_of`.
    """
    schema = pa.schema([(stream, pa.string()), (offset, pa.int64())])
    found = batches_of(file, schema, schema.names)
    return any(without_of(each, stream, offset, gone).num_rows < each.num_rows for each in found)


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
