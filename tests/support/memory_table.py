"""A table that materialise fills, in memory: its versions are a list, its files are in a store."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from coldstream.adapters.memory import MemoryObjectStore
from coldstream.jobs.materialise.files import Files
from coldstream.jobs.materialise.iceberg.buckets import Buckets
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rows import batches_of, holds, without_of
from coldstream.jobs.materialise.rules import TablePartition
from coldstream.jobs.materialise.schema import grown
from coldstream.jobs.materialise.state import TableState
from coldstream.jobs.materialise.table import (
    Append,
    AppendOutcome,
    Loaded,
    StoredFile,
    Versions,
    WrittenFile,
)
from coldstream.jobs.materialise.write import FileLayout, TableWriter


class StoreFiles:
    """Files in the bucket `tables`, which is a store in memory."""

    def __init__(self, store: MemoryObjectStore) -> None:
        self._store = store

    def save(self, path: str, content: IO[bytes], size: int) -> None:
        key = path.removeprefix("s3://tables/")
        self._store.put(key, content.read(size), write_id=key)

    def open(self, path: str, size: int) -> IO[bytes]:
        return io.BytesIO(self._store.get_all(path.removeprefix("s3://tables/"), limit=size))


@dataclass(frozen=True)
class Version:
    """A table at one moment.

    Attributes:
        schema: its columns.
        state: what it has of which stream.
        files: by path.
        appended: ids of all appends so far.
        made_ms: when, ms since the Unix epoch.
    """

    schema: pa.Schema
    state: TableState = field(default_factory=TableState)
    files: Mapping[str, StoredFile] = field(default_factory=dict)
    appended: frozenset[str] = frozenset()
    made_ms: int = 1


class MemoryTable:
    """The `Table` port on a list of versions.

    Args:
        versions: shared by all clients of the table; empty before the first load.
        store: has the files.
        location: URL of the table, `s3://tables/path`.
        partition, columns, files, new_id, buckets, shared: as of `IcebergTable`.
        clock_ms: says when a version is made.
        tick: called before each change and after each new version; a test may kill there, or let
            others go on.
    """

    def __init__(
        self,
        versions: list[Version],
        store: MemoryObjectStore,
        location: str,
        *,
        partition: TablePartition,
        columns: tuple[str, str, str],
        files: Files,
        new_id: Callable[[], str],
        buckets: Buckets | None = None,
        shared: bool = False,
        clock_ms: Callable[[], int] = lambda: 1,
        tick: Callable[[], object] = lambda: None,
    ) -> None:
        self.name = urlsplit(location).path.removeprefix("/").replace("/", ".")
        self._versions = versions
        self._store = store
        self._location = location
        self._partition = partition
        self._columns = columns
        self._files = files
        self._new_id = new_id
        self._buckets = buckets
        self._shared = shared
        self._clock_ms = clock_ms
        self._tick = tick

    def load(self, first_schema: pa.Schema) -> Loaded:
        if not self._versions:
            self._versions.append(Version(first_schema, made_ms=self._clock_ms()))
        now = self._versions[-1]
        return Loaded(now.schema, now.state, self._location, now.appended, len(self._versions) - 1)

    def peek(self) -> Loaded | None:
        return self.load(self._versions[-1].schema) if self._versions else None

    def grow(self, loaded: Loaded, schema: pa.Schema) -> Loaded:
        self._tick()
        now = self._versions[-1]
        wider = grown(now.schema, schema)
        if not wider.equals(now.schema):
            self._publish(replace(now, schema=wider))
        return self.load(schema)

    def append(self, loaded: Loaded, append: Append) -> AppendOutcome:
        self._tick()
        before = self._versions[loaded.handle]
        files = dict(before.files)
        if not files.keys() >= set(append.removes):
            return AppendOutcome.CONFLICT
        for path in append.removes:
            del files[path]
        kept: list[WrittenFile] = []
        for file in self._holding(files, append.replaces):
            del files[file.path]
            kept += self._other_rows(loaded, file, append.replaces)
        files |= {each.path: self._stored(each) for each in (*append.files, *kept)}
        if loaded.handle != len(self._versions) - 1:
            return AppendOutcome.CONFLICT
        appended = before.appended | {append.id}
        self._publish(Version(before.schema, append.on(before.state), files, appended))
        return AppendOutcome.LANDED

    def forget(self, loaded: Loaded, before_ms: int, *, dry_run: bool = False) -> Versions | None:
        kept = [
            version
            for number, version in enumerate(self._versions)
            if number + 1 == len(self._versions) or self._versions[number + 1].made_ms >= before_ms
        ]
        return Versions(0, {path for version in kept for path in version.files})

    def files(self, loaded: Loaded) -> list[StoredFile]:
        return list(self._versions[loaded.handle].files.values())

    def count(self, loaded: Loaded, stream: str, ranges: Ranges) -> int:
        found = 0
        for file in self._holding(self._versions[loaded.handle].files, {stream: ranges}):
            for batch in self.rows(loaded, file.path):
                left = without_of(batch, *self._columns[:2], {stream: ranges})
                found += batch.num_rows - left.num_rows
        return found

    def rows(self, loaded: Loaded, path: str) -> Iterator[pa.RecordBatch]:
        data = self._store.get_all(urlsplit(path).path.removeprefix("/"), limit=2**30)
        yield from batches_of(pq.ParquetFile(pa.BufferReader(data)), loaded.schema)

    def _publish(self, version: Version) -> None:
        self._versions.append(replace(version, made_ms=self._clock_ms()))
        self._tick()

    def _stored(self, file: WrittenFile) -> StoredFile:
        return StoredFile(
            path=file.path,
            size=file.size,
            rows=file.rows,
            stream=file.stream,
            time_unit=file.time_unit,
            first_offset=file.first_offset,
            last_offset=file.last_offset,
            last_ms=_latest(pq.read_metadata(io.BytesIO(file.footer)), self._columns[2]),
            low_stream=file.stream or "",
        )

    def _holding(
        self, files: Mapping[str, StoredFile], replaces: Mapping[str, Ranges]
    ) -> Sequence[StoredFile]:
        """Files that hold rows of these offsets."""
        return [file for file in files.values() if self._holds(file, replaces)]

    def _holds(self, file: StoredFile, gone: Mapping[str, Ranges]) -> bool:
        if not any(gone.values()):
            return False
        data = self._store.get_all(urlsplit(file.path).path.removeprefix("/"), limit=2**30)
        return holds(pq.ParquetFile(pa.BufferReader(data)), *self._columns[:2], gone)

    def _other_rows(
        self, loaded: Loaded, file: StoredFile, gone: Mapping[str, Ranges]
    ) -> list[WrittenFile]:
        layout = FileLayout(
            self._location, loaded.schema, self._partition, self._columns, buckets=self._buckets,
            shared=self._shared,
        )  # fmt: skip
        writer = TableWriter(layout, file.stream, self._files, self._new_id)
        written: list[WrittenFile] = []
        for batch in self.rows(loaded, file.path):
            written += writer.write(without_of(batch, *self._columns[:2], gone))
        return [*written, *writer.close()]


def _latest(metadata: pq.FileMetaData, column: str) -> int | None:
    """The highest time in a file, from its statistics, ms."""
    names = [metadata.schema.column(n).path for n in range(metadata.num_columns)]
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    found = [group.column(names.index(column)).statistics for group in groups]
    highest = [each.max for each in found if each is not None and each.has_min_max]
    return max(
        (pa.scalar(t, pa.timestamp("us", "UTC")).value // 1000 for t in highest), default=None
    )
