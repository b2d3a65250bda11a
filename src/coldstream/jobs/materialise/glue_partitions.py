"""Make a Parquet table readable by name: its files as partitions in the Glue Data Catalog.

A partition is (stream, unit of time, commit), so each commit has directories of its own, and files
that no commit names are in no partition. A commit's partitions appear after the commit, up to a
hundred in one request. When all are there, a parameter of the table says which commit they show:
what was not published when a run died is published by the next one, even if it has nothing to add.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
from botocore.exceptions import BotoCoreError, ClientError

from coldstream.errors import UnavailableError
from coldstream.jobs.hive import hive_type
from coldstream.jobs.materialise.table import StoredFile

_KEYS = ("p_stream", "p_time", "p_files")
_SERDE = {
    "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "OutputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
    "SerdeInfo": {
        "SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
    },
}
_BATCH = 100
#: Parameter of the table in Glue: the version of its log whose partitions are all there.
VERSION_PARAMETER = "coldstream.version"


class GluePartitions:
    """The Glue entry of one table.

    Args:
        client: boto3 `glue`.
        name: `database.table`.
        location: URL of the table.
    """

    def __init__(self, client: Any, name: str, location: str) -> None:
        self._client = client
        self._database, _, self._table = name.partition(".")
        self._location = location

    def version(self) -> int:
        """The version of the log that Glue was last told as a whole; 0 if none was.

        Raises:
            UnavailableError: Glue gave an error; the next run tries again.
        """
        try:
            said = self._described().get("Parameters", {}).get(VERSION_PARAMETER, "")
        except self._client.exceptions.EntityNotFoundException:
            return 0
        except (ClientError, BotoCoreError) as exc:
            raise UnavailableError(
                f"Glue does not say what it shows of {self._database}.{self._table}: {exc}"
            ) from exc
        return int(said) if said.isdecimal() else 0

    def publish(self, schema: pa.Schema, files: Iterable[StoredFile], version: int) -> None:
        """Make the catalog say what the table is: these columns, and partitions of these files.

        Args:
            schema: of the table.
            files: all that it has.
            version: of the log, whose files they are; remembered after everything else.

        Raises:
            UnavailableError: Glue gave an error; the next run tries again.
        """
        try:
            self._describe(schema)
            wanted = {self._values(file): file.path.rpartition("/")[0] for file in files}
            known = self._known()
            new = iter([each for each in wanted.items() if each[0] not in known])
            while batch := list(islice(new, _BATCH)):
                self._add(schema, batch)
            old = iter([each for each in known if each not in wanted])
            while gone := list(islice(old, 25)):
                self._client.batch_delete_partition(
                    DatabaseName=self._database,
                    TableName=self._table,
                    PartitionsToDelete=[{"Values": list(values)} for values in gone],
                )
            self._update(schema, self._described(), {VERSION_PARAMETER: str(version)})
        except (ClientError, BotoCoreError) as exc:
            raise UnavailableError(
                f"the table {self._database}.{self._table} is committed, but Glue does not show it"
                f" yet: {exc}"
            ) from exc

    def _values(self, file: StoredFile) -> tuple[str, str, str]:
        unit = "" if file.time_unit is None else str(file.time_unit)
        return file.stream, unit or "all", file.path.rpartition("/")[0].rpartition("/")[2]

    def _describe(self, schema: pa.Schema) -> None:
        table = self._input(schema)
        create = self._client.create_table
        try:
            create(DatabaseName=self._database, TableInput=table)
        except self._client.exceptions.EntityNotFoundException:
            with contextlib.suppress(self._client.exceptions.AlreadyExistsException):
                self._client.create_database(DatabaseInput={"Name": self._database})
            create(DatabaseName=self._database, TableInput=table)
        except self._client.exceptions.AlreadyExistsException:
            known = self._described()
            if known["StorageDescriptor"]["Columns"] != table["StorageDescriptor"]["Columns"]:
                self._update(schema, known, {})

    def _described(self) -> Mapping[str, Any]:
        answer = self._client.get_table(DatabaseName=self._database, Name=self._table)
        table: Mapping[str, Any] = answer["Table"]
        return table

    def _update(self, schema: pa.Schema, known: Mapping[str, Any], more: Mapping[str, str]) -> None:
        """Say the columns and parameters anew; parameters of others stay."""
        table = self._input(schema)
        table["Parameters"] = {**known.get("Parameters", {}), **table["Parameters"], **more}
        # Glue would keep every version of it, and has a limit on how many.
        self._client.update_table(DatabaseName=self._database, TableInput=table, SkipArchive=True)

    def _input(self, schema: pa.Schema) -> dict[str, Any]:
        return {
            "Name": self._table,
            "TableType": "EXTERNAL_TABLE",
            "Parameters": {"classification": "parquet", "EXTERNAL": "TRUE"},
            "PartitionKeys": [{"Name": name, "Type": "string"} for name in _KEYS],
            "StorageDescriptor": self._storage(schema, f"{self._location}/data"),
        }

    def _storage(self, schema: pa.Schema, location: str) -> dict[str, Any]:
        columns = [{"Name": each.name, "Type": hive_type(each.type)} for each in schema]
        return {**_SERDE, "Columns": columns, "Location": location}

    def _known(self) -> set[tuple[str, ...]]:
        pages = self._client.get_paginator("get_partitions").paginate(
            DatabaseName=self._database, TableName=self._table, ExcludeColumnSchema=True
        )
        return {tuple(each["Values"]) for page in pages for each in page["Partitions"]}

    def _add(self, schema: pa.Schema, batch: Sequence[tuple[tuple[str, ...], str]]) -> None:
        answer = self._client.batch_create_partition(
            DatabaseName=self._database,
            TableName=self._table,
            PartitionInputList=[
                {"Values": list(values), "StorageDescriptor": self._storage(schema, location)}
                for values, location in batch
            ],
        )
        for error in answer.get("Errors", ()):
            detail = error["ErrorDetail"]
            if detail["ErrorCode"] != "AlreadyExistsException":
                raise UnavailableError(f"Glue refused a partition: {detail['ErrorMessage']}")
