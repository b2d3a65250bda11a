"""Other views of a stream than its messages: their columns, and rows of chunks and tracking data.

`metadata` has the rows of those that read no data. The column `offset` is always where a row
begins, and a row belongs to the window if that does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from coldstream.columns.reference import clamped_us
from coldstream.columns.schema import OF_STREAM, TIMESTAMP
from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.osiris.chunk import ChunkType
from coldstream.osiris.tracking import TrackingType, parse_tracking
from coldstream.spark.options import Rows
from coldstream.spark.query import PlannedStream
from coldstream.spark.stream_read import Damaged, Found, Lost, Sound

CHUNKS: Mapping[str, pa.DataType] = MappingProxyType(
    {
        **{name: pa.string() for name in OF_STREAM},
        "offset": pa.int64(),
        "next_offset": pa.int64(),
        "timestamp": TIMESTAMP,
        "epoch": pa.int64(),
        "kind": pa.string(),
        "entries": pa.int64(),
        "records": pa.int64(),
        "size": pa.int64(),
        "data_size": pa.int64(),
        "trailer_size": pa.int64(),
        "bloom_size": pa.int64(),
        "fragment": pa.string(),
        "error": pa.string(),
    }
)
TRACKING: Mapping[str, pa.DataType] = MappingProxyType(
    {
        **{name: pa.string() for name in OF_STREAM},
        "offset": pa.int64(),
        "timestamp": TIMESTAMP,
        "epoch": pa.int64(),
        "chunk_kind": pa.string(),
        "type": pa.string(),
        "reference": pa.string(),
        "value": pa.int64(),
        "chunk_id": pa.int64(),
        "error": pa.string(),
    }
)
FRAGMENTS: Mapping[str, pa.DataType] = MappingProxyType(
    {
        **{name: pa.string() for name in OF_STREAM},
        "offset": pa.int64(),
        "next_offset": pa.int64(),
        "min_timestamp": TIMESTAMP,
        "max_timestamp": TIMESTAMP,
        "kind": pa.string(),
        "size": pa.int64(),
        "records": pa.int64(),
        "epoch": pa.int64(),
        "uid": pa.string(),
        "key": pa.string(),
    }
)
STREAMS: Mapping[str, pa.DataType] = MappingProxyType(
    {
        "stream": pa.string(),
        "cluster": pa.string(),
        "vhost": pa.string(),
        "queue": pa.string(),
        "super_stream": pa.string(),
        "routing_key": pa.string(),
        "state": pa.string(),
        "first_offset": pa.int64(),
        "next_offset": pa.int64(),
        "offsets": pa.int64(),
        "first_timestamp": TIMESTAMP,
        "last_timestamp": TIMESTAMP,
        "fragments": pa.int64(),
        "size": pa.int64(),
        "epoch": pa.int64(),
        "version": pa.int64(),
        "root_key": pa.string(),
    }
)
INDEX: Mapping[str, pa.DataType] = MappingProxyType(
    {
        **{name: pa.string() for name in OF_STREAM},
        "offset": pa.int64(),
        "next_offset": pa.int64(),
        "timestamp": TIMESTAMP,
        "records": pa.int64(),
        "size": pa.int64(),
        "fragment": pa.string(),
        "error": pa.string(),
    }
)
VIEWS: Mapping[Rows, Mapping[str, pa.DataType]] = MappingProxyType(
    {
        Rows.CHUNKS: CHUNKS,
        Rows.TRACKING: TRACKING,
        Rows.FRAGMENTS: FRAGMENTS,
        Rows.STREAMS: STREAMS,
        Rows.INDEX: INDEX,
    }
)
#: Made row by row, which a petabyte's fragments are too many for: only where they are asked for.
DEAR = frozenset({(Rows.FRAGMENTS, "uid"), (Rows.FRAGMENTS, "key")})
_KINDS = tuple(kind.name.lower() for kind in ChunkType)
_ROWS = 8192
_MAX_INT64 = 2**63 - 1

Row = dict[str, Any]


def view_schema(rows: Rows, names: Sequence[str] | None) -> pa.Schema:
    """The columns of a view in the order asked for; all but dear ones by default.

    Raises:
        InvalidInputError: there is no such column, or one is named twice.
    """
    columns = VIEWS[rows]
    cheap = (name for name in columns if (rows, name) not in DEAR)
    chosen = tuple(cheap if names is None else names)
    for name in chosen:
        if name not in columns:
            raise InvalidInputError(
                f"there is no column {name[:80]!r}; there are {', '.join(columns)}"
            )
        if chosen.count(name) > 1:
            raise InvalidInputError(f"{name} is asked for twice")
    return pa.schema([(name, columns[name]) for name in chosen])


def chunk_rows(
    found: Iterator[Found], planned: PlannedStream, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """A row for each chunk, for each damaged chunk, and for each gap."""
    schema = view_schema(Rows.CHUNKS, names)
    yield from _batches(_chunks(found, planned), schema)


def tracking_rows(
    found: Iterator[Found], planned: PlannedStream, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """A row for each value that chunks track, for each damaged chunk, and for each gap."""
    schema = view_schema(Rows.TRACKING, names)
    yield from _batches(_tracking(found, planned), schema)


def _batches(rows: Iterator[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    waiting: list[Row] = []
    for row in rows:
        waiting.append(row)
        if len(waiting) == _ROWS:
            yield _batch(waiting, schema)
            waiting = []
    if waiting:
        yield _batch(waiting, schema)


def _batch(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array([row.get(each.name) for row in rows], each.type) for each in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _chunks(found: Iterator[Found], planned: PlannedStream) -> Iterator[Row]:
    for each in found:
        if not isinstance(each, Sound):
            yield from _told(each, planned)
            continue
        headers, sizes = each.checked.headers, np.diff(each.checked.bounds).tolist()
        fields = {name: headers[name].tolist() for name in headers.dtype.names or ()}
        for number, size in enumerate(sizes):
            offset = fields["chunk_id"][number]
            if not each.first <= offset < each.next_offset:
                continue
            yield {
                **planned.origin.columns(),
                "offset": offset,
                "next_offset": offset + fields["records"][number],
                "timestamp": clamped_us(fields["timestamp"][number]),
                "epoch": fields["epoch"][number],
                "kind": _KINDS[fields["chunk_type"][number]],
                "size": size,
                "fragment": each.piece.fragment.path if each.piece else None,
                **{
                    name: fields[name][number]
                    for name in ("entries", "records", "data_size", "trailer_size", "bloom_size")
                },
            }


def _tracking(found: Iterator[Found], planned: PlannedStream) -> Iterator[Row]:
    for each in found:
        if not isinstance(each, Sound):
            yield from _told(each, planned)
            continue
        headers = each.checked.headers
        if not (headers["chunk_type"].any() or headers["trailer_size"].any()):
            continue
        for chunk in each.checked:
            header = chunk.header
            if not each.first <= header.chunk_id < each.next_offset:
                continue
            row = {
                **planned.origin.columns(),
                "offset": header.chunk_id,
                "timestamp": clamped_us(header.timestamp),
                "epoch": header.epoch,
                "chunk_kind": _KINDS[header.chunk_type],
            }
            try:
                tracked = parse_tracking(chunk)
            except CorruptDataError as error:
                yield row | {"error": error.reason}
                continue
            for value in tracked:
                of_time = value.tracking_type is TrackingType.TIMESTAMP
                number = value.value if not of_time or value.value < 2**63 else value.value - 2**64
                yield row | {
                    "type": value.tracking_type.name.lower(),
                    "reference": value.name,
                    "value": min(number, _MAX_INT64),
                    "chunk_id": value.chunk_id and min(value.chunk_id, _MAX_INT64),
                }


def _told(each: Damaged | Lost, planned: PlannedStream) -> Iterator[Row]:
    """One row for a damaged chunk or a gap."""
    if isinstance(each, Lost):
        if each.row is not None:
            yield {
                **planned.origin.columns(),
                "offset": each.row.first_offset,
                "next_offset": each.row.next_offset,
                "timestamp": clamped_us(each.timestamp),
                "error": str(each.row),
            }
    elif each.first <= each.damage.first_offset:
        yield {
            **planned.origin.columns(),
            "offset": each.damage.first_offset,
            "next_offset": each.damage.next_offset,
            "timestamp": clamped_us(each.damage.timestamp),
            "error": each.damage.error.reason,
        }
