"""Rows into Parquet files below a table's location: what a worker does.

A file belongs to one stream and one unit of time (or one bucket of keys), or where streams share
files to one unit of time. Rows come in the order of offsets and nearly in that of time, so few
files are open at once. A file gets a name that nobody else will ever use; if the task dies or is
done twice, what it wrote is no part of any table. Nothing here removes it: it stays below the
table's location until `sweep` takes it.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coldstream.errors import InternalError
from coldstream.jobs.materialise.files import Files
from coldstream.jobs.materialise.iceberg.buckets import Buckets
from coldstream.jobs.materialise.open_file import (
    DEFAULT_GROUP_BYTES,
    OpenFile,
    parquet_writer,
)
from coldstream.jobs.materialise.rules import TablePartition
from coldstream.jobs.materialise.table import WrittenFile

#: A unit of time of a table's files, in microseconds.
UNIT_US = {TablePartition.HOUR: 3_600_000_000, TablePartition.DAY: 86_400_000_000}
#: Files open at once; clocks that jump at a fail-over need two, more is a backlog of old events.
_MAX_OPEN = 4
#: The same where one stream after the other goes through the same units of time: days of a year.
_MAX_OPEN_SHARED = 400
#: Bytes at which a file is closed, unless the job is told otherwise.
DEFAULT_FILE_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How a table's files are written.

    Attributes:
        location: URL of the table, without "/" at the end.
        schema: of the rows; fields carry their Iceberg ids where there are any.
        partition: by time.
        columns: names of the columns with stream, offset and time.
        target_bytes: bytes at which a file is closed.
        compression_level: of zstd.
        buckets: in the place of `partition`, where a table has one row a key.
        shared: whether streams share files, so that a file is of a unit of time only.
        group_bytes: of a row group, as rows are in memory.
        order: names of columns by which the rows of a file are sorted, then by stream and offset;
            as they come if there are none.
        footers: whether the driver is told the footer of each file, which commits need.
    """

    location: str
    schema: pa.Schema
    partition: TablePartition
    columns: tuple[str, str, str]
    target_bytes: int = DEFAULT_FILE_BYTES
    compression_level: int = 1
    buckets: Buckets | None = None
    footers: bool = True
    shared: bool = False
    group_bytes: int = DEFAULT_GROUP_BYTES
    order: tuple[str, ...] = ()

    @property
    def unit_name(self) -> str:
        """What the numbers mean that divide a stream's files."""
        return self.partition if self.buckets is None else "bucket"

    @property
    def sorted_by(self) -> tuple[str, ...]:
        """All columns by which a file's rows are sorted; none where they stay as they come."""
        return sorted_by(self.order, self.columns[:2]) if self.order else ()

    @property
    def max_open(self) -> int:
        """Files open at once."""
        if self.shared:
            return _MAX_OPEN_SHARED
        return _MAX_OPEN if self.buckets is None else max(_MAX_OPEN, self.buckets.count)


def sorted_by(order: tuple[str, ...], keys: tuple[str, ...]) -> tuple[str, ...]:
    """The columns of an order, and behind them those that tell rows apart: stream and offset."""
    return (*order, *(each for each in keys if each not in order))


class TableWriter:
    """Writes rows of one stream, or of any where they share files.

    A row group has `group_bytes` of the layout, as rows are in memory. All files that are open hold
    no more than two such groups together; then the largest becomes a smaller group.

    Args:
        layout: of the table.
        stream: of all rows; does not matter where streams share files.
        files: where they go.
        new_id: gives a name that is used once.
    """

    def __init__(
        self, layout: FileLayout, stream: str | None, files: Files, new_id: Callable[[], str]
    ) -> None:
        if stream is None and not layout.shared:
            raise InternalError("whose rows these files have is not known")
        self._layout = layout
        self._stream = None if layout.shared else stream
        self._files = files
        self._new_id = new_id
        self._directory = new_id()
        self._open: OrderedDict[int | None, OpenFile] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Drop what was not finished: a worker lives on after a task that failed."""
        for opened in self._open.values():
            opened.drop()
        self._open.clear()

    def write(self, rows: pa.RecordBatch) -> Iterator[WrittenFile]:
        """Take rows in, whose memory stays as it is; gives the files that became full."""
        stream, offset, _ = self._layout.columns
        group = min(self._layout.group_bytes, self._layout.target_bytes)
        for unit, part in by_unit(rows, self._layout):
            opened = self._file(unit)
            streams = part.column(stream) if self._layout.shared else None
            opened.hold(
                part,
                streams,
                part.column(offset).to_numpy(),
                part=2 * part.num_rows < rows.num_rows,
            )
            if opened.held_bytes >= group:
                opened.flush()
            if opened.size >= self._layout.target_bytes:
                yield self._closed(unit)
            elif len(self._open) > self._layout.max_open:
                yield self._closed(next(iter(self._open)))
            while sum(each.held_bytes for each in self._open.values()) > 2 * group:
                max(self._open.values(), key=lambda each: each.held_bytes).flush()

    def close(self) -> Iterator[WrittenFile]:
        """Finish all files."""
        while self._open:
            yield self._closed(next(iter(self._open)))

    def _file(self, unit: int | None) -> OpenFile:
        opened = self._open.get(unit)
        if opened is None:
            layout = self._layout
            opened = OpenFile(unit, layout.schema, layout.compression_level, layout.sorted_by)
            self._open[unit] = opened
        self._open.move_to_end(unit)
        return opened

    def _closed(self, unit: int | None) -> WrittenFile:
        opened = self._open[unit]
        content = opened.finish(min(self._layout.group_bytes, self._layout.target_bytes))
        size = content.tell()
        content.seek(0)
        footer = io.BytesIO()
        if self._layout.footers:
            pq.read_metadata(content).write_metadata_file(footer)
            content.seek(0)
        path = "/".join(
            (
                self._layout.location,
                "data",
                self._stream or "shared",
                *(() if unit is None else (f"{self._layout.unit_name}={unit}",)),
                self._directory,
                f"{opened.first:020d}-{opened.last:020d}-{self._new_id()}.parquet",
            )
        )
        self._files.save(path, content, size)
        del self._open[unit]
        content.close()
        return WrittenFile(
            path=path,
            size=size,
            rows=opened.rows,
            stream=self._stream,
            time_unit=unit,
            first_offset=opened.first,
            last_offset=opened.last,
            footer=footer.getvalue(),
            in_order=opened.in_order,
        )


def by_unit(
    rows: pa.RecordBatch, layout: FileLayout
) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """Neighbouring rows of one unit of time, or all of one bucket, as slices."""
    if not rows.num_rows:
        return
    if layout.buckets is not None:
        units = layout.buckets.of(rows.column(layout.buckets.column))
        if (np.diff(units) < 0).any():
            order = np.argsort(units, kind="stable")
            rows, units = rows.take(pa.array(order)), units[order]
    elif layout.partition in UNIT_US:
        times = rows.column(layout.columns[2]).cast(pa.int64()).to_numpy()
        units = np.floor_divide(times, UNIT_US[layout.partition])
    else:
        yield None, rows
        return
    ends = [*(np.flatnonzero(np.diff(units)) + 1).tolist(), rows.num_rows]
    begin = 0
    for end in ends:
        yield int(units[begin]), rows.slice(begin, end - begin)
        begin = end


def attempt(rows: pa.RecordBatch, layout: FileLayout) -> None:
    """Write rows to nowhere; raises what writing them to a file would raise.

    Also where there are none: a file may have a column that cannot be.
    """
    parts = [part for _, part in by_unit(rows, layout)] or [rows]
    for part in parts:
        with parquet_writer(io.BytesIO(), layout.schema, layout.compression_level) as writer:
            writer.write_batch(part)
