"""A snapshot is visible when it is whole, and a table only ever gains columns."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from coldstream.errors import (
    AlreadyExistsError,
    InternalError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.jobs.snapshots import (
    TIME,
    GlueTables,
    Snapshot,
    SnapshotTable,
    column,
    hive_type,
    part_file,
    register,
)
from coldstream_devkit.emulator import Emulator

TABLE = SnapshotTable("t", "Rows", pa.schema([column("n", pa.int64(), "a number")]))


def snapshot(warehouse: str = "s3://w/", taken_ms: int = 1_700_000_000_999) -> Snapshot:
    return Snapshot(warehouse, taken_ms)


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": pa.array(numbers, pa.int64())})


def test_a_snapshot_is_called_by_its_time_so_that_the_newest_sorts_last() -> None:
    assert snapshot().id == "20231114T221320999Z"
    assert snapshot().directory(TABLE) == "s3://w/t/snapshot=20231114T221320999Z/"
    assert snapshot(taken_ms=10**12).id < snapshot().id
    assert "20231114T221320Z" > snapshot().id > "20231114T221319Z"  # as older versions called them


def test_a_file_has_all_rows_that_were_added(tmp_path: Path) -> None:
    with part_file(snapshot(f"file://{tmp_path}/"), TABLE, 3) as part:
        part.add(batch(1, 2))
        part.add(batch())
        part.add(pa.table({"n": [3]}))

    (path,) = tmp_path.rglob("*.parquet")
    assert path.name == "part-00003.parquet"
    assert pq.ParquetFile(path).read().to_pylist() == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_task_without_rows_or_that_fails_leaves_no_file(tmp_path: Path) -> None:
    place = snapshot(f"file://{tmp_path}/")

    def fail() -> None:
        with part_file(place, TABLE, 0) as part:
            part.add(batch(1))
            raise UnavailableError("gone")

    with part_file(place, TABLE, 1):
        pass
    with pytest.raises(UnavailableError):
        fail()

    assert list(tmp_path.rglob("*.*")) == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.int64(), "bigint"),
        (TIME, "timestamp"),
        (pa.list_(pa.string()), "array<string>"),
        (
            pa.list_(pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.bool_())])),
            "array<struct<a:int,b:boolean>>",
        ),
    ],
)
def test_types_have_the_names_that_athena_knows(kind: pa.DataType, name: str) -> None:
    assert hive_type(kind) == name


def test_a_type_that_no_table_has_is_our_bug() -> None:
    with pytest.raises(InternalError, match="uint64"):
        hive_type(pa.uint64())


@pytest.fixture
def database(emulator: Emulator) -> str:
    name = f"d{secrets.token_hex(6)}"
    emulator.client("glue").create_database(DatabaseInput={"Name": name})
    return name


@pytest.mark.emulator
def test_registering_twice_is_registering_once(emulator: Emulator, database: str) -> None:
    glue = emulator.client("glue")
    tables = GlueTables(client=glue, database=database)

    for _ in range(2):
        register(tables, snapshot(), [TABLE])
    register(tables, snapshot(taken_ms=1_800_000_000_000), [TABLE])

    table = glue.get_table(DatabaseName=database, Name="t")["Table"]
    partitions = glue.get_partitions(DatabaseName=database, TableName="t")["Partitions"]
    assert [each["Name"] for each in table["PartitionKeys"]] == ["snapshot"]
    assert sorted(each["Values"] for each in partitions) == [
        ["20231114T221320999Z"],
        ["20270115T080000000Z"],
    ]
    assert partitions[0]["StorageDescriptor"]["Location"].startswith("s3://w/t/snapshot=")


@pytest.mark.emulator
def test_two_runs_at_one_moment_never_hide_each_others_rows(
    emulator: Emulator, database: str
) -> None:
    tables = GlueTables(client=emulator.client("glue"), database=database)
    tables.register(TABLE, snapshot())

    with pytest.raises(AlreadyExistsError, match="20231114T221320999Z already, at s3://w/t/"):
        tables.register(TABLE, snapshot("s3://elsewhere/"))


@pytest.mark.emulator
def test_a_column_that_is_new_is_added_to_the_table(emulator: Emulator, database: str) -> None:
    glue = emulator.client("glue")
    tables = GlueTables(client=glue, database=database)
    wider = SnapshotTable("t", "Rows", TABLE.schema.append(column("more", TIME, "a time")))

    tables.register(TABLE, snapshot())
    tables.register(wider, snapshot(taken_ms=1_800_000_000_000))

    found = glue.get_table(DatabaseName=database, Name="t")["Table"]["StorageDescriptor"]
    assert [(each["Name"], each["Type"]) for each in found["Columns"]] == [
        ("n", "bigint"),
        ("more", "timestamp"),
    ]
    assert found["Columns"][1]["Comment"] == "a time"


@pytest.mark.emulator
def test_a_database_that_is_not_there_is_named(emulator: Emulator) -> None:
    tables = GlueTables(client=emulator.client("glue"), database="absent")

    with pytest.raises(NotFoundError, match=r"absent\.t"):
        tables.register(TABLE, snapshot())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ClientError({"Error": {"Code": "AccessDeniedException"}}, "x"), PermissionDeniedError),
        (ClientError({"Error": {"Code": "ThrottlingException"}}, "x"), UnavailableError),
        (EndpointConnectionError(endpoint_url="http://127.0.0.1"), UnavailableError),
    ],
)
def test_errors_of_glue_are_told_in_our_words(error: Exception, expected: type[Exception]) -> None:
    class Failing:
        def create_table(self, **_: Any) -> None:
            raise error

    with pytest.raises(expected):
        GlueTables(client=Failing(), database="d").register(TABLE, snapshot())


def test_without_a_catalog_nothing_is_registered() -> None:
    register(None, snapshot(), [TABLE])
