"""A snapshot is visible when it is whole, and a table only ever gains columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
)

from coldstream.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.jobs import snapshots
from coldstream.jobs.materialise.iceberg.table import FILE_IO
from coldstream.jobs.snapshots import (
    SNAPSHOT_PROPERTY,
    TIME,
    SnapshotTable,
    SnapshotTables,
    TableSnapshot,
    check_target,
    column,
    part_file,
    register,
)

TABLE = SnapshotTable("t", "Rows", pa.schema([column("n", pa.int64(), "a number")]))


def snapshot(warehouse: str = "s3://w/", taken_ms: int = 1_700_000_000_999) -> TableSnapshot:
    return TableSnapshot(warehouse, taken_ms)


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": pa.array(numbers, pa.int64())})


def test_a_snapshot_is_called_by_its_time_so_that_the_newest_sorts_last() -> None:
    assert snapshot().id == "20231114T221320999Z"
    assert snapshot().directory(TABLE) == "s3://w/t/data/20231114T221320999Z/"
    assert snapshot(taken_ms=10**12).id < snapshot().id
    assert "20231114T221320Z" > snapshot().id > "20231114T221319Z"  # as older versions called them


def test_a_file_has_all_rows_that_were_added(tmp_path: Path) -> None:
    with part_file(snapshot(f"file://{tmp_path}/"), TABLE, 3) as part:
        part.add(batch(1, 2))
        part.add(batch())
        part.add(pa.table({"n": [3]}))

    (path,) = tmp_path.rglob("*.parquet")
    assert path.name == "part-00003.parquet"
    assert pq.ParquetFile(path).read().column("n").to_pylist() == [1, 2, 3]


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


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    catalog = SqlCatalog("tests", uri=f"sqlite:///{tmp_path}/catalog.db", **{"py-io-impl": FILE_IO})
    catalog.create_namespace("db")
    return catalog


def taken(
    tmp_path: Path, taken_ms: int, *numbers: int, table: SnapshotTable = TABLE, place: str = "w"
) -> TableSnapshot:
    """A snapshot whose file is written and in no table yet."""
    made = snapshot(f"file://{tmp_path}/{place}/", taken_ms)
    with part_file(made, table, 0) as part:
        rows = pa.Table.from_pylist([{"n": each} for each in numbers], table.schema)
        part.add(rows)
    return made


def rows(catalog: Catalog) -> list[tuple[str, int]]:
    found = catalog.load_table("db.t").scan().to_arrow().to_pylist()
    return sorted((row["snapshot"][:8], row["n"]) for row in found)


def test_adding_twice_is_adding_once(catalog: SqlCatalog, tmp_path: Path) -> None:
    for made in (taken(tmp_path, 10**12, 1, 2), taken(tmp_path, 2 * 10**12, 3)):
        for _ in range(2):
            register(SnapshotTables(catalog, "db"), made, [TABLE])

    assert rows(catalog) == [("20010909", 1), ("20010909", 2), ("20330518", 3)]
    assert len(catalog.load_table("db.t").snapshots()) == 2


def test_a_snapshot_without_rows_is_known_and_added_once(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    for _ in range(2):
        register(SnapshotTables(catalog, "db"), taken(tmp_path, 10**12), [TABLE])

    (commit,) = catalog.load_table("db.t").snapshots()
    assert commit.summary is not None
    said = commit.summary.additional_properties[SNAPSHOT_PROPERTY]
    assert said == taken(tmp_path, 10**12).id


def test_a_snapshot_that_another_run_adds_at_the_same_time_is_kept_and_ours_too(
    catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = taken(tmp_path, 10**12, 1), taken(tmp_path, 2 * 10**12, 2)
    tables = SnapshotTables(catalog, "db", pause=lambda _: None)
    tables.add(TABLE, taken(tmp_path, 10**11, 0))
    commit = snapshots._commit

    def late(*given: Any) -> None:
        monkeypatch.setattr(snapshots, "_commit", commit)
        tables.add(TABLE, theirs)
        commit(*given)

    monkeypatch.setattr(snapshots, "_commit", late)
    tables.add(TABLE, ours)

    assert [n for _, n in rows(catalog)] == [0, 1, 2]


def test_a_commit_that_landed_without_an_answer_is_not_done_again(
    catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, commit = taken(tmp_path, 10**12, 1), snapshots._commit

    def silent(*given: Any) -> None:
        monkeypatch.setattr(snapshots, "_commit", commit)
        commit(*given)
        raise CommitFailedException

    monkeypatch.setattr(snapshots, "_commit", silent)
    SnapshotTables(catalog, "db", pause=lambda _: None).add(TABLE, made)

    assert rows(catalog) == [("20010909", 1)]


def test_two_runs_at_one_moment_never_hide_each_others_rows(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    tables = SnapshotTables(catalog, "db")
    tables.add(TABLE, taken(tmp_path, 10**12, 1))

    with pytest.raises(AlreadyExistsError, match="20010909T014640000Z already, at file:"):
        tables.add(TABLE, taken(tmp_path, 10**12, 2, place="elsewhere"))


def test_a_column_that_is_new_is_added_to_the_table(catalog: SqlCatalog, tmp_path: Path) -> None:
    wider = SnapshotTable("t", "Rows", TABLE.schema.append(column("more", TIME, "a time")))
    tables = SnapshotTables(catalog, "db")

    tables.add(TABLE, taken(tmp_path, 10**12, 1))
    tables.add(wider, taken(tmp_path, 2 * 10**12, 2, table=wider))

    schema = catalog.load_table("db.t").schema()
    assert set(schema.column_names) == {"n", "snapshot", "more"}
    assert schema.find_field("more").doc == "a time"
    assert [n for _, n in rows(catalog)] == [1, 2]


def test_a_filter_finds_words_that_are_longer_than_parquet_tells_bounds_of(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    words = SnapshotTable("w", "Rows", pa.schema([column("words", pa.string(), "what is said")]))
    place = snapshot(f"file://{tmp_path}/warehouse/")
    long = "z" * 5000
    with part_file(place, words, 0) as part:
        for each in ("a", long, "b"):
            part.add(pa.table({"words": [each]}))
    register(SnapshotTables(catalog, "db"), place, [words])

    found = catalog.load_table("db.w").scan(row_filter=f"words == '{long}'").to_arrow()
    assert found.column("words").to_pylist() == [long]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ClientError({"Error": {"Code": "AccessDeniedException"}}, "x"), PermissionDeniedError),
        (ClientError({"Error": {"Code": "ThrottlingException"}}, "x"), UnavailableError),
        (EndpointConnectionError(endpoint_url="http://127.0.0.1"), UnavailableError),
        (NoSuchNamespaceError(), NotFoundError),
        (NoSuchIcebergTableError(), InvalidInputError),
    ],
)
def test_errors_of_glue_are_told_in_our_words(error: Exception, expected: type[Exception]) -> None:
    class Failing:
        def load_table(self, _: str) -> None:
            raise error

    catalog: Any = Failing()
    with pytest.raises(expected):
        SnapshotTables(catalog, "d").add(TABLE, snapshot())


def test_without_a_catalog_nothing_is_registered() -> None:
    register(None, snapshot(), [TABLE])


def test_a_target_that_would_not_take_the_tables_is_refused_before_the_work(
    catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotFoundError, match="no database for nowhere"):
        check_target(SnapshotTables(catalog, "nowhere"), [TABLE])
    check_target(SnapshotTables(catalog, "db"), [TABLE])
    assert catalog.list_tables("db") == [], "a check makes nothing"
    register(SnapshotTables(catalog, "db"), taken(tmp_path, 10**12, 1), [TABLE])
    check_target(SnapshotTables(catalog, "db"), [TABLE])
    check_target(None, [TABLE])

    def refused(name: str) -> None:
        raise NoSuchIcebergTableError(name)

    monkeypatch.setattr(catalog, "load_table", refused)
    with pytest.raises(InvalidInputError, match="not one of Iceberg"):
        check_target(SnapshotTables(catalog, "db"), [TABLE])
