"""Rows into Parquet files below a table's location: what a worker does.

A file belongs to one stream and one unit of time (or one bucket of keys). Rows come in the order of
offsets and nearly in that of time, so few files are open at once. A file gets a name that nobody
else will ever use; if the task dies or is done twice, what it wrote is no part of any table.
Nothing here removes it: it stays below the table's location until `sweep` takes it.
"""

from __future__ import annotations

import io
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coldstream.jobs.materialise.buckets import Buckets
from coldstream.jobs.materialise.files import Files
from coldstream.jobs.materialise.rules import TablePartition
from coldstream.jobs.materialise.table import WrittenFile

_UNIT_US = {TablePartition.HOUR: 3_600_000_000, TablePartition.DAY: 86_400_000_000}
#: Files open at once; clocks that jump at a fail-over need two, more is a backlog of old events.
_MAX_OPEN = 4
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

    @property
    def unit_name(self) -> str:
        """What the numbers mean that divide a stream's files."""
        return self.partition if self.buckets is None else "bucket"

    @property
    def max_open(self) -> int:
        """Files open at once."""
        return _MAX_OPEN if self.buckets is None else max(_MAX_OPEN, self.buckets.count)


@dataclass(slots=True)
class _Open:
    """A file that is being written."""

    unit: int | None
    content: IO[bytes]
    writer: pq.ParquetWriter
    rows: int = 0
    first: int = 2**63
    last: int = -1
    in_order: bool = True


class TableWriter:
    """Writes the rows of one stream.

    Args:
        layout: of the table.
        stream: of all rows.
        files: where they go.
        new_id: gives a name that is used once.
    """

    def __init__(
        self, layout: FileLayout, stream: str, files: Files, new_id: Callable[[], str]
    ) -> None:
        self._layout = layout
        self._stream = stream
        self._files = files
        self._new_id = new_id
        self._directory = new_id()
        self._open: OrderedDict[int | None, _Open] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Drop what was not finished: a worker lives on after a task that failed."""
        for opened in self._open.values():
            with suppress(Exception):  # a value that it could not write makes closing fail, too
                opened.writer.close()
            opened.content.close()
        self._open.clear()

    def write(self, rows: pa.RecordBatch) -> Iterator[WrittenFile]:
        """Take rows in; gives the files that became full.

        Each batch becomes a row group, so batches should have tens of MB. Its memory may be reused
        afterwards.
        """
        for unit, part in by_unit(rows, self._layout):
            opened = self._file(unit)
            offsets = part.column(self._layout.columns[1]).to_numpy()
            rising = bool((offsets[1:] >= offsets[:-1]).all())
            opened.in_order &= rising and int(offsets[0]) >= opened.last
            opened.first = min(opened.first, int(offsets.min()))
            opened.last = max(opened.last, int(offsets.max()))
            opened.rows += part.num_rows
            opened.writer.write_batch(part)
            if opened.content.tell() >= self._layout.target_bytes:
                yield self._closed(unit)
            elif len(self._open) > self._layout.max_open:
                yield self._closed(next(iter(self._open)))

    def close(self) -> Iterator[WrittenFile]:
        """Finish all files."""
        while self._open:
            yield self._closed(next(iter(self._open)))

    def _file(self, unit: int | None) -> _Open:
        opened = self._open.get(unit)
        if opened is None:
            content = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it is saved
            opened = _Open(unit, content, _parquet(content, self._layout))
            self._open[unit] = opened
        self._open.move_to_end(unit)
        return opened

    def _closed(self, unit: int | None) -> WrittenFile:
        opened = self._open[unit]
        opened.writer.close()
        content = opened.content
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
                self._stream,
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
    elif layout.partition in _UNIT_US:
        times = rows.column(layout.columns[2]).cast(pa.int64()).to_numpy()
        units = np.floor_divide(times, _UNIT_US[layout.partition])
    else:
        yield None, rows
        return
    ends = [*(np.flatnonzero(np.diff(units)) + 1).tolist(), rows.num_rows]
    begin = 0
    for end in ends:
        yield int(units[begin]), rows.slice(begin, end - begin)
        begin = end


def attempt(rows: pa.RecordBatch, layout: FileLayout) -> None:
    """Write rows to nowhere; raises what writing them to a file would raise."""
    for _, part in by_unit(rows, layout):
        with _parquet(io.BytesIO(), layout) as writer:
            writer.write_batch(part)


def _parquet(content: IO[bytes], layout: FileLayout) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        content,
        layout.schema,
        compression="zstd",
        compression_level=layout.compression_level,
        # Bodies hardly ever repeat; trying costs more than it saves.
        use_dictionary=_dictionary_columns(layout.schema),
        write_statistics=True,
    )


def _dictionary_columns(schema: pa.Schema) -> list[str]:
    """Leaf columns whose values repeat: everything textual that is not a body."""
    flat: list[str] = []

    def walk(prefix: str, kind: Any) -> None:
        if pa.types.is_struct(kind):
            for each in kind:
                walk(f"{prefix}.{each.name}", each.type)
        elif pa.types.is_map(kind):
            flat.extend((f"{prefix}.key_value.key", f"{prefix}.key_value.value"))
        elif pa.types.is_string(kind):
            flat.append(prefix)

    for each in schema:
        walk(each.name, each.type)
    return flat
