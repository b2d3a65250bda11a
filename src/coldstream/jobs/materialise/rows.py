"""The rows of files that are in a table already: read again with the table's present columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coldstream.jobs.materialise.ranges import Ranges

#: Where Arrow tells the id of a Parquet column.
ID = b"PARQUET:field_id"


def batches_of(
    file: pq.ParquetFile,
    schema: pa.Schema,
    *,
    rows: int | None = None,
    groups: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """A file's rows, a row group at a time or a batch of it.

    A column is found by its id, as every reader of Iceberg does: others may have given it another
    name since, or its name to another column. It is found by its name where file or schema has no
    ids. What the file has not is null.

    Args:
        file: to read.
        schema: of what is wanted; nothing else is read.
        rows: in a batch, at most; all of a row group by default.
        groups: the row groups to read; all by default.
    """
    fields = file.schema_arrow
    places = [_place(fields, each) for each in schema]
    names = [fields.field(at).name for at in places if at is not None]
    wanted = list(range(file.num_row_groups) if groups is None else groups)

    def found(part: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
        columns = [
            pa.nulls(part.num_rows, each.type)
            if at is None
            else with_type(_one(part.column(fields.field(at).name)), each.type, fields.field(at))
            for at, each in zip(places, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    if rows is not None:
        yield from map(found, file.iter_batches(rows, row_groups=wanted, columns=names))
        return
    for number in wanted:
        yield found(file.read_row_group(number, columns=names))


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _place(fields: Iterable[pa.Field], wanted: pa.Field) -> int | None:
    """The place of a field among those of a file; None where it has none like it."""
    known = list(fields)
    ids = [_id_of(each) for each in known]
    mine = _id_of(wanted)
    if mine is not None and any(each is not None for each in ids):
        return ids.index(mine) if mine in ids else None
    names = [each.name for each in known]
    return names.index(wanted.name) if wanted.name in names else None


def _id_of(field: pa.Field) -> bytes | None:
    found: bytes | None = (field.metadata or {}).get(ID)
    return found


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
    if not ranges:
        return pa.array(np.zeros(len(offsets), np.bool_))
    # Offsets of messages are below 2^63, and ends are not: MAX_OFFSET is an end, too.
    spans = np.minimum(np.array(ranges.spans, np.uint64), np.uint64(2**63 - 1)).astype(np.int64)
    values = offsets.to_numpy(zero_copy_only=False)
    at = np.searchsorted(spans[:, 0], values, side="right") - 1
    return pa.array((at >= 0) & (values < spans[at, 1]))


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
    found = batches_of(file, schema)
    return any(without_of(each, stream, offset, gone).num_rows < each.num_rows for each in found)


def with_type(column: pa.Array, kind: pa.DataType, known: pa.Field | None = None) -> pa.Array:
    """A column as a wider type, or one with other fields inside; what it has not is null.

    Args:
        column: of one chunk.
        kind: wanted.
        known: what the column's file says of it, by which fields inside are found, as in
            `batches_of`; by their names by default.
    """
    have = column.type if known is None else known.type
    if column.type == kind and (known is None or _same_ids(have, kind)):
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind)
    if pa.types.is_struct(kind):
        places = [_place(have, each) for each in kind]
        parts = [
            pa.nulls(len(column), each.type)
            if at is None
            else with_type(pc.struct_field(column, [at]), each.type, known and have.field(at))
            for at, each in zip(places, kind, strict=True)
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(kind):
        values = with_type(column.values, kind.value_type, known and have.value_field)
        return pa.ListArray.from_arrays(column.offsets, values, kind, mask=column.is_null())
    if pa.types.is_map(kind):
        keys = with_type(column.keys, kind.key_type, known and have.key_field)
        items = with_type(column.items, kind.item_type, known and have.item_field)
        offsets, missing = column.offsets, column.is_null()
        return pa.MapArray.from_arrays(offsets, keys, items, kind, mask=missing)
    return column.cast(kind)


def _same_ids(have: pa.DataType, kind: pa.DataType) -> bool:
    """Whether all that lies inside two equal types is the same."""
    pairs = [(have.field(n), kind.field(n)) for n in range(kind.num_fields)]
    return all(
        (None in (_id_of(mine), _id_of(theirs)) or _id_of(mine) == _id_of(theirs))
        and _same_ids(mine.type, theirs.type)
        for mine, theirs in pairs
    )
