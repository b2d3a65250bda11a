"""What Iceberg is told of a file that a worker wrote, out of its footer, and what it says of it.

Statistics only help a reader to skip files, so one that cannot be told is left out, and never
stands in the way of the file: a time beyond the year 9999 is none for Python, text may be no UTF-8.
A bound is told only if it holds for the whole file. Parquet leaves out the bounds of a row group
whose values are longer than 4 KiB; those of the other row groups would hide its rows from a filter.
"""

from __future__ import annotations

import io
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    DataFileStatistics,
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import FileScanTask, Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from coldstream.errors import ConflictError, InternalError
from coldstream.jobs.materialise.rows import ID
from coldstream.jobs.materialise.table import StoredFile, WrittenFile
from coldstream.names import MAX_OFFSET

#: How Iceberg writes the bounds of a long or a timestamp.
_LONG = struct.Struct("<q")
_COUNTS, _NONE = MetricsMode(MetricModeTypes.COUNTS), MetricsMode(MetricModeTypes.NONE)
_Plan = dict[int, StatisticsCollector]


def data_file(table: Table, written: WrittenFile, order: int | None) -> DataFile:
    """The entry of a manifest for a file.

    Args:
        table: that gets the file.
        written: the file.
        order: id of the table's order that a file in order has; None if it has none.
    """
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=written.path,
        file_format=FileFormat.PARQUET,
        partition=_partition(table.spec(), written),
        file_size_in_bytes=written.size,
        sort_order_id=order if written.in_order else None,
        spec_id=table.metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **_statistics(table, pq.read_metadata(io.BytesIO(written.footer))).to_serialized_dict(),
    )


def _partition(spec: PartitionSpec, written: WrittenFile) -> Record:
    """Where a file lies among the table's."""
    if written.stream is None and any(map(_is_stream, spec.fields)):
        raise InternalError("a file of several streams in a table of files by stream")
    return Record(
        *(written.stream if _is_stream(field) else written.time_unit for field in spec.fields)
    )


def _is_stream(field: PartitionField) -> bool:
    """Only streams divide a table of ours as they are; times and keys do by a transform."""
    return isinstance(field.transform, IdentityTransform)


def stored_file(
    task: FileScanTask, specs: Mapping[int, PartitionSpec], stream: int, offset: int, time: int
) -> StoredFile:
    """What a table knows of one of its files.

    Args:
        task: of a scan of all of the table.
        specs: how the table's files are, or were, divided, by id.
        stream: id of the column with the stream.
        offset: id of the column with the offset.
        time: id of the column with the time.
    """
    file = task.file
    place = {
        _is_stream(field): file.partition[at] for at, field in enumerate(specs[file.spec_id].fields)
    }
    least = file.lower_bounds.get(stream, b"").decode(errors="replace")
    low, high = file.lower_bounds.get(offset), file.upper_bounds.get(time)
    last = file.upper_bounds.get(offset)
    return StoredFile(
        path=file.file_path,
        size=file.file_size_in_bytes,
        rows=file.record_count,
        stream=place.get(True),
        time_unit=place.get(False),
        first_offset=0 if low is None else _LONG.unpack(low)[0],
        last_ms=None if high is None else _LONG.unpack(high)[0] // 1000,
        partly=bool(task.delete_files),
        last_offset=MAX_OFFSET - 1 if last is None else _LONG.unpack(last)[0],
        low_stream=place.get(True, least),
    )


def _statistics(table: Table, footer: pq.FileMetaData) -> DataFileStatistics:
    schema = table.schema()
    ids = parquet_path_to_id_mapping(schema)
    for path, field_id in _own_ids(footer.schema.to_arrow_schema()):
        if ids.get(path) != field_id:
            # Readers go by ids: they would show these values under another name, or none.
            name = ".".join(table.name())
            raise ConflictError(
                f"others changed the column {path} of {name} while it was being filled: run again"
            )
    plan = compute_statistics_plan(schema, table.metadata.properties)
    for field_id in _unbounded(footer, ids):
        plan[field_id] = replace(plan[field_id], mode=_COUNTS)
    if _told(footer, plan, ids) is None:
        for field_id in plan:
            alone = {each: replace(collector, mode=_NONE) for each, collector in plan.items()}
            alone[field_id] = plan[field_id]
            if _told(footer, alone, ids) is None:
                plan[field_id] = replace(plan[field_id], mode=_COUNTS)
    return data_file_statistics_from_parquet_metadata(footer, plan, ids)


def _own_ids(fields: Iterable[pa.Field], path: str = "") -> Iterator[tuple[str, int]]:
    """The leaf columns of a file, and the ids that it was written with; -1 where it has none."""
    for field in fields:
        name, kind = f"{path}{field.name}", field.type
        if pa.types.is_struct(kind):
            yield from _own_ids(kind, f"{name}.")
        elif pa.types.is_list(kind):
            yield from _own_ids([kind.value_field.with_name("element")], f"{name}.list.")
        elif pa.types.is_map(kind):
            entry = [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
            yield from _own_ids(entry, f"{name}.key_value.")
        else:
            yield name, int((field.metadata or {}).get(ID, -1))


def _told(footer: pq.FileMetaData, plan: _Plan, ids: dict[str, int]) -> DataFileStatistics | None:
    """The statistics of a file; None if a value is in the way."""
    try:
        found = data_file_statistics_from_parquet_metadata(footer, plan, ids)
        found.to_serialized_dict()
    except Exception:  # noqa: BLE001 - pyiceberg's; without bounds the file is as good
        return None
    return found


def _unbounded(footer: pq.FileMetaData, ids: dict[str, int]) -> set[int]:
    """Columns of which a row group has values and no bounds."""
    without: defaultdict[int, bool] = defaultdict(bool)
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for position in range(footer.num_columns):
            column = group.column(position)
            found = column.statistics if column.is_stats_set else None
            whole = found is not None and (found.has_min_max or found.num_values == 0)
            without[ids[column.path_in_schema]] |= not whole
    return {field_id for field_id, missing in without.items() if missing}
