"""Tables that get one partition a run: `<warehouse><table>/snapshot=<id>/part-<task>.parquet`.

Workers write the files, the driver registers the partition in the Glue Data Catalog when all of
them are there, so a query sees a snapshot whole or not at all. A file's name is that of its task
and is never overwritten: a task that Spark runs twice writes what it has written before.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from botocore.exceptions import BotoCoreError, ClientError

from coldstream.errors import (
    AlreadyExistsError,
    ColdstreamError,
    InternalError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.jobs.materialise.files import Files, StoredFiles

#: The column that every snapshot table is partitioned by; sorts by time.
PARTITION = "snapshot"
_COMPRESSION = "zstd"
_FORBIDDEN = frozenset(
    {"AccessDeniedException", "ExpiredTokenException", "UnrecognizedClientException"}
)
_EXISTS = "AlreadyExistsException"
_MISSING = "EntityNotFoundException"
_INPUT_FORMAT = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat"
_OUTPUT_FORMAT = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """A table, as all its snapshots have it.

    Attributes:
        name: in its database.
        about: a sentence on what a row is.
        schema: its columns without the partition's; the metadata "comment" of a field says what it
            is. Columns are only ever added, at the end.
    """

    name: str
    about: str
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Snapshot:
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
        return f"{self.warehouse}{table.name}/{PARTITION}={self.id}/"

    def files(self) -> StoredFiles:
        """Takes files below the warehouse."""
        return StoredFiles(region=self.region, endpoint=self.endpoint)


def column(name: str, kind: pa.DataType, comment: str) -> pa.Field:
    """A column with a comment that the catalog shows."""
    return pa.field(name, kind, metadata={"comment": comment})


TIME = pa.timestamp("us", "UTC")
#: The column by which tables of all jobs are joined.
STREAM = column("stream", pa.string(), "directory name")


class PartFile:
    """The file of one task in one table; rows are added batch by batch.

    Attributes:
        rows: added so far.
    """

    def __init__(self, table: SnapshotTable) -> None:
        self._schema = table.schema
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `part_file`
        self._writer = pq.ParquetWriter(
            self._file, table.schema, compression=_COMPRESSION, coerce_timestamps=None
        )
        self.rows = 0

    def add(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add rows, whose columns are those of the table in its order."""
        if batch.num_rows:
            rows = pa.table(batch) if isinstance(batch, pa.RecordBatch) else batch
            self._writer.write_table(rows.cast(self._schema))
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
def part_file(snapshot: Snapshot, table: SnapshotTable, task: int) -> Iterator[PartFile]:
    """A file that is saved at the end of the block, unless that fails or no row was added."""
    part = PartFile(table)
    try:
        yield part
        if part.rows:
            url = f"{snapshot.directory(table)}part-{task:05d}.parquet"
            part.save(snapshot.files(), url)
    finally:
        part.close()


class GlueTables:
    """Tables of a database in the Glue Data Catalog.

    Args:
        client: a boto3 Glue client.
        database: that exists.
    """

    def __init__(self, *, client: Any, database: str) -> None:
        self._client = client
        self._database = database

    def register(self, table: SnapshotTable, snapshot: Snapshot) -> None:
        """Make a snapshot visible; creates the table, and adds the columns that it lacks.

        Raises:
            AlreadyExistsError: a run with another warehouse has made a snapshot of this name.
            NotFoundError: there is no such database.
            PermissionDeniedError, UnavailableError: from Glue.
        """
        where = f"{snapshot.warehouse}{table.name}/"
        try:
            self._create_or_update(table, where)
            storage = self._storage(table, snapshot.directory(table))
            partition = {"Values": [snapshot.id], "StorageDescriptor": storage}
            place = {"DatabaseName": self._database, "TableName": table.name}
            if self._ignoring(
                _EXISTS, self._client.create_partition, **place, PartitionInput=partition
            ):
                return
            found = self._client.get_partition(**place, PartitionValues=[snapshot.id])["Partition"]
        except (ClientError, BotoCoreError) as exc:
            raise _translated(exc, f"{self._database}.{table.name}") from exc
        # A step that is run again finds its own; findings of another run must not hide ours.
        if found["StorageDescriptor"]["Location"] != storage["Location"]:
            raise AlreadyExistsError(
                f"{self._database}.{table.name} has a snapshot {snapshot.id} already, at "
                f"{found['StorageDescriptor']['Location']}; run the job again"
            )

    def _create_or_update(self, table: SnapshotTable, location: str) -> None:
        storage = self._storage(table, location)
        wanted = {
            "Name": table.name,
            "Description": table.about,
            "TableType": "EXTERNAL_TABLE",
            "Parameters": {"classification": "parquet", "EXTERNAL": "TRUE"},
            "PartitionKeys": [
                {"Name": PARTITION, "Type": "string", "Comment": "when it was taken, UTC"}
            ],
            "StorageDescriptor": storage,
        }
        arguments = {"DatabaseName": self._database, "TableInput": wanted}
        if self._ignoring(_EXISTS, self._client.create_table, **arguments):
            return
        found = self._client.get_table(DatabaseName=self._database, Name=table.name)["Table"]
        if found["StorageDescriptor"]["Columns"] != storage["Columns"]:
            self._client.update_table(**arguments)

    def _storage(self, table: SnapshotTable, location: str) -> dict[str, Any]:
        return {
            "Columns": [
                {
                    "Name": each.name,
                    "Type": hive_type(each.type),
                    "Comment": (each.metadata or {}).get(b"comment", b"").decode(),
                }
                for each in table.schema
            ],
            "Location": location,
            "InputFormat": _INPUT_FORMAT,
            "OutputFormat": _OUTPUT_FORMAT,
            "SerdeInfo": {"SerializationLibrary": _SERDE, "Parameters": {}},
        }

    def _ignoring(self, code: str, call: Any, **arguments: Any) -> bool:
        """Call; whether it did not fail with `code`."""
        try:
            call(**arguments)
        except ClientError as exc:
            if exc.response.get("Error", {}).get("Code") == code:
                return False
            raise
        return True


def register(
    tables: GlueTables | None, snapshot: Snapshot, written: Sequence[SnapshotTable]
) -> None:
    """Register a snapshot in all its tables; nothing where there is no catalog."""
    if tables is not None:
        for table in written:
            tables.register(table, snapshot)


def hive_type(kind: pa.DataType) -> str:
    """The type of a column in Hive's words, which Athena takes.

    Raises:
        InternalError: no column of ours has this type.
    """
    simple = {
        pa.int32(): "int",
        pa.int64(): "bigint",
        pa.float64(): "double",
        pa.bool_(): "boolean",
        pa.string(): "string",
        TIME: "timestamp",
    }
    if kind in simple:
        return simple[kind]
    if pa.types.is_list(kind):
        return f"array<{hive_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{each.name}:{hive_type(each.type)}' for each in kind)}>"
    raise InternalError(f"no type of a table in the catalog: {kind}")


def _translated(exc: Exception, what: str) -> ColdstreamError:
    code = (
        str(exc.response.get("Error", {}).get("Code", "")) if isinstance(exc, ClientError) else ""
    )
    if code == _MISSING:
        return NotFoundError(f"the catalog has no database for {what}")
    if code in _FORBIDDEN:
        return PermissionDeniedError(f"Glue refused to change {what}: {code}")
    return UnavailableError(f"Glue did not answer properly about {what}: {exc}")
