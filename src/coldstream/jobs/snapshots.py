"""Iceberg tables to which a run adds its rows once: `<warehouse><table>/data/<snapshot>/part-*`.

Workers write the files, the driver makes all of them part of the table in one commit when they are
there, so a query sees a snapshot whole or not at all. A file's name is that of its task and is
never overwritten: a task that Spark runs twice writes what it has written before.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileType
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from coldstream.adapters.aws_errors import AWS_ERRORS, FORBIDDEN, code_of
from coldstream.errors import (
    AlreadyExistsError,
    ColdstreamError,
    InvalidInputError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.jobs.materialise.files import Files, StoredFiles

#: The last column of every table, by which its files are divided; sorts by time.
PARTITION = "snapshot"
_COMPRESSION = "zstd"
_MISSING = "EntityNotFoundException"
#: In the summary of the commit that a run makes.
SNAPSHOT_PROPERTY = "coldstream.snapshot"
_RETRIES = "commit.retry.num-retries"
_ATTEMPTS = 10
_PROPERTIES = {
    # pyiceberg would repeat a commit that landed without an answer; `add` looks first.
    _RETRIES: "0",
    "commit.manifest-merge.enabled": "true",
    "write.parquet.compression-codec": _COMPRESSION,
}


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """A table, as all its snapshots have it.

    Attributes:
        name: in its database.
        about: a sentence on what a row is.
        schema: its columns without `snapshot`; the metadata "doc" of a field says what it is.
            Columns are only ever added.
    """

    name: str
    about: str
    schema: pa.Schema

    @property
    def columns(self) -> pa.Schema:
        """All columns, as files have them."""
        return self.schema.append(column(PARTITION, pa.string(), "when it was taken, UTC"))


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """One run's place in all its tables.

    Attributes:
        warehouse: URL below which the tables have their files; ends in "/".
        taken_ms: when it was taken, ms since the Unix epoch.
        region: of the warehouse's bucket; "" for what the environment says.
        endpoint: URL of S3; "" for what the environment says.
    """

    warehouse: str
    taken_ms: int
    region: str = ""
    endpoint: str = ""

    @property
    def id(self) -> str:
        """The partition's value, to the millisecond: two runs in one second are two snapshots."""
        seconds, ms = divmod(self.taken_ms, 1000)
        return f"{datetime.fromtimestamp(seconds, UTC):%Y%m%dT%H%M%S}{ms:03d}Z"

    def directory(self, table: SnapshotTable) -> str:
        """URL of the table's files of this snapshot; ends in "/"."""
        return f"{self.warehouse}{table.name}/data/{self.id}/"

    def files(self) -> StoredFiles:
        """Takes files below the warehouse."""
        return StoredFiles(region=self.region, endpoint=self.endpoint)


def column(name: str, kind: pa.DataType, comment: str) -> pa.Field:
    """A column with a comment that the catalog shows."""
    return pa.field(name, kind, metadata={"doc": comment})


TIME = pa.timestamp("us", "UTC")
#: The column by which tables of all jobs are joined.
STREAM = column("stream", pa.string(), "directory name")


class PartFile:
    """The file of one task in one table; rows are added batch by batch.

    Attributes:
        rows: added so far.
    """

    def __init__(self, snapshot: TableSnapshot, table: SnapshotTable) -> None:
        self._schema = table.schema
        self._snapshot = snapshot.id
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `part_file`
        self._writer = pq.ParquetWriter(
            self._file, table.columns, compression=_COMPRESSION, coerce_timestamps=None
        )
        self.rows = 0

    def add(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add rows, whose columns are those of the table in its order, without `snapshot`."""
        if batch.num_rows:
            rows = pa.table(batch) if isinstance(batch, pa.RecordBatch) else batch
            which = pa.repeat(self._snapshot, rows.num_rows)
            self._writer.write_table(rows.cast(self._schema).append_column(PARTITION, which))
            self.rows += batch.num_rows

    def save(self, files: Files, url: str) -> None:
        """Finish the file and put it where `url` says."""
        self._writer.close()
        size = self._file.tell()
        self._file.seek(0)
        files.save(url, self._file, size)

    def close(self) -> None:
        """Let go of what was not saved."""
        self._writer.close()
        self._file.close()


@contextmanager
def part_file(snapshot: TableSnapshot, table: SnapshotTable, task: int) -> Iterator[PartFile]:
    """A file that is saved at the end of the block, unless that fails or no row was added."""
    part = PartFile(snapshot, table)
    try:
        yield part
        if part.rows:
            url = f"{snapshot.directory(table)}part-{task:05d}.parquet"
            part.save(snapshot.files(), url)
    finally:
        part.close()


class SnapshotTables:
    """Tables of a database in a catalog of Iceberg.

    Args:
        catalog: whose file access never deletes (`open_tables.glue_catalog`).
        database: that exists.
        pause: waits after attempt n of a commit.
    """

    def __init__(
        self, catalog: Catalog, database: str, pause: Callable[[int], None] | None = None
    ) -> None:
        self._catalog = catalog
        self._database = database
        self._pause = pause or (lambda attempt: time.sleep(random.uniform(0, 0.2 * 2**attempt)))

    def check(self, tables: Sequence[SnapshotTable]) -> None:
        """Refuse before a job's work what `add` would refuse after it; changes nothing.

        Raises:
            NotFoundError: there is no such database.
            InvalidInputError: a table of one of these names exists and is not one of ours.
            UnavailableError: no answer from Glue.
            PermissionDeniedError: from Glue.
        """
        name = self._database
        try:
            self._catalog.load_namespace_properties(self._database)
            for table in tables:
                name = f"{self._database}.{table.name}"
                with suppress(NoSuchTableError), _refusing_others(name):
                    self._catalog.load_table(name)
        except (*AWS_ERRORS, OSError, NoSuchNamespaceError) as exc:
            raise _translated(exc, name) from exc

    def add(self, table: SnapshotTable, snapshot: TableSnapshot) -> None:
        """Make the files of a snapshot part of its table, once; the table is made if need be.

        It is read again before every attempt: if our files are in it, an earlier attempt had landed
        and only its answer was lost. A snapshot without rows leaves a commit that names it, too.

        Raises:
            AlreadyExistsError: a run with another warehouse has made a snapshot of this name.
            InvalidInputError: a table of this name exists and is not one of ours.
            NotFoundError: there is no such database.
            UnavailableError: others changed the table all the time, or no answer from S3 or Glue.
            PermissionDeniedError: from Glue.
        """
        name = f"{self._database}.{table.name}"
        try:
            for attempt in range(1, _ATTEMPTS + 1):
                loaded = self._load(name, table, snapshot)
                paths = _paths(loaded, snapshot.directory(table))
                if _has(loaded, snapshot, paths):
                    return
                with suppress(CommitFailedException):
                    _commit(loaded, table, snapshot, paths)
                    return
                self._pause(attempt)
        except (*AWS_ERRORS, OSError, NoSuchNamespaceError) as exc:
            raise _translated(exc, name) from exc
        raise UnavailableError(f"{name} was changed by others {_ATTEMPTS} times in a row")

    def _load(self, name: str, table: SnapshotTable, snapshot: TableSnapshot) -> Table:
        with suppress(NoSuchTableError), _refusing_others(name):
            return self._catalog.load_table(name)
        with suppress(TableAlreadyExistsError, CommitFailedException):
            new = self._catalog.create_table_transaction(
                name,
                schema=table.columns,
                location=f"{snapshot.warehouse}{table.name}",
                properties={
                    **_PROPERTIES,
                    **_without_bounds(table.columns),
                    "Description": table.about,
                },
            )
            with new, new.update_spec() as spec:
                spec.add_identity(PARTITION)
        return self._catalog.load_table(name)


def check_target(tables: SnapshotTables | None, written: Sequence[SnapshotTable]) -> None:
    """Refuse a catalog that would not take the tables; nothing where there is none."""
    if tables is not None:
        tables.check(written)


def register(
    tables: SnapshotTables | None, snapshot: TableSnapshot, written: Sequence[SnapshotTable]
) -> None:
    """Add a snapshot to all its tables; nothing where there is no catalog."""
    if tables is not None:
        for table in written:
            tables.add(table, snapshot)


def _without_bounds(columns: pa.Schema) -> dict[str, str]:
    """Properties by which words have no bounds.

    Parquet leaves out those of a row group with a value above 4 KiB, and pyiceberg takes the bounds
    of the others for those of the file: a filter would not find its rows. Names are never as long.
    """
    short = {PARTITION, STREAM.name}
    return {
        f"write.metadata.metrics.column.{each.name}": "counts"
        for each in columns
        if pa.types.is_string(each.type) and each.name not in short
    }


@contextmanager
def _refusing_others(name: str) -> Iterator[None]:
    """Refuse a table that is not one of Iceberg."""
    try:
        yield
    except NoSuchIcebergTableError as exc:
        raise InvalidInputError(
            f"the table {name} is not one of Iceberg, as those of earlier releases were not:"
            " drop it (its files stay) and run the job again"
        ) from exc


def _paths(table: Table, directory: str) -> list[str]:
    """URLs of the files of a snapshot."""
    io = cast(PyArrowFileIO, table.io)
    scheme, place, path = io.parse_location(directory)
    found = io.fs_by_scheme(scheme, place).get_file_info(
        FileSelector(path.rstrip("/"), allow_not_found=True)
    )
    return sorted(directory + each.base_name for each in found if each.type == FileType.File)


def _has(table: Table, snapshot: TableSnapshot, paths: Sequence[str]) -> bool:
    """Whether the table has this snapshot, with or without rows."""
    wanted = f"{PARTITION} == '{snapshot.id}'"
    there = {task.file.file_path for task in table.scan(row_filter=wanted).plan_files()}
    if there - set(paths):
        raise AlreadyExistsError(
            f"{'.'.join(table.name())} has a snapshot {snapshot.id} already, at {min(there)};"
            " run the job again"
        )
    said = (each.summary for each in table.snapshots())
    return bool(there) or any(
        each is not None and each.additional_properties.get(SNAPSHOT_PROPERTY) == snapshot.id
        for each in said
    )


def _commit(
    loaded: Table, table: SnapshotTable, snapshot: TableSnapshot, paths: Sequence[str]
) -> None:
    with loaded.transaction() as change:
        names = set(loaded.schema().column_names)
        if not set(table.columns.names) <= names:
            with change.update_schema() as update:
                update.union_by_name(table.columns)
        said = {SNAPSHOT_PROPERTY: snapshot.id}
        if paths:
            change.add_files(list(paths), snapshot_properties=said, check_duplicate_files=False)
        else:
            with change.update_snapshot(snapshot_properties=said).fast_append():
                pass


def _translated(exc: Exception, what: str) -> ColdstreamError:
    code = code_of(exc)
    if code == _MISSING or isinstance(exc, NoSuchNamespaceError):
        return NotFoundError(f"the catalog has no database for {what}")
    if code in FORBIDDEN:
        return PermissionDeniedError(f"Glue refused to change {what}: {code}")
    return UnavailableError(f"no proper answer about {what}: {exc}")
