"""The tables that materialise writes without a JVM, read by Iceberg's own Java library."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from coldstream.jobs.materialise.commit import commit
from coldstream.jobs.materialise.compact import CompactPiece, CompactResult, compact
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.iceberg.table import FILE_IO, IcebergTable
from coldstream.jobs.materialise.maintain import Kept, Maintainer
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rules import TablePartition
from coldstream.jobs.materialise.table import Append, AppendOutcome
from coldstream.jobs.materialise.write import FileLayout
from coldstream_devkit.suites.table import (
    COLUMNS,
    OTHER,
    SCHEMA,
    STREAM,
    TableSite,
    append_of,
    mixed,
)
from tests.spark.conftest import ROOT
from tests.spark.test_spark35 import python35
from tests.support.sparks import of_spark

__all__ = ["python35"]


IDS = count()


def _catalog(tmp_path: Path) -> SqlCatalog:
    return SqlCatalog(
        "tests",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        warehouse=f"file://{tmp_path}",
        **{"py-io-impl": FILE_IO},
    )


def _table(
    catalog: SqlCatalog,
    tmp_path: Path,
    name: str = "db.rows",
    *,
    shared: bool = False,
    order: tuple[str, ...] = (),
) -> IcebergTable:
    return IcebergTable(
        catalog,
        name,
        location=f"file://{tmp_path}/warehouse/db/rows",
        partition=TablePartition.DAY,
        columns=COLUMNS,
        files=StoredFiles(),
        new_id=lambda: f"{next(IDS):016x}",
        shared=shared,
        order=order,
    )


def _filled(table: IcebergTable, *firsts: int) -> None:
    site = TableSite(lambda _: table, StoredFiles(), lambda _: table)  # type: ignore[arg-type, return-value]
    for first in firsts:
        append = append_of(site, table.load(SCHEMA), first, first + 130)
        commit(table, append, first_schema=SCHEMA, pause=lambda _: None)


def _by_spark(python35: Path, catalog: SqlCatalog, tmp_path: Path, *statements: str) -> Any:
    # A Hadoop catalog finds a table by the names of directory and files; ours is in SQLite.
    name = Path(catalog.load_table("db.rows").location()).name
    metadata = Path(catalog.load_table("db.rows").metadata_location.removeprefix("file://"))
    shutil.copy(metadata, metadata.with_name("v1.metadata.json"))
    metadata.with_name("version-hint.text").write_text("1")
    done = subprocess.run(
        [python35, "-m", "tests.spark.iceberg_35", f"file://{tmp_path}/warehouse", f"db.`{name}`",
         *statements],
        env={
            **of_spark(),
            "PYSPARK_PYTHON": str(python35),
            "PYTHONPATH": str(ROOT),
        },
        cwd=ROOT,
        capture_output=True,
        check=False,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_iceberg_for_spark_reads_prunes_and_knows_the_history_of_our_tables(
    python35: Path, tmp_path: Path
) -> None:
    catalog = _catalog(tmp_path)
    _filled(_table(catalog, tmp_path), 0, 130)

    found = _by_spark(python35, catalog, tmp_path)

    assert found["rows"] == [[n, str(n)] for n in range(260)]
    assert found["first_day"] == 100
    said = [each[f"coldstream.next-offset.{STREAM}"] for each in found["summaries"]]
    assert said == ["130", "260"]


@pytest.mark.slow
def test_rows_that_others_have_deleted_by_position_never_come_back(
    python35: Path, tmp_path: Path
) -> None:
    catalog = _catalog(tmp_path)
    _filled(_table(catalog, tmp_path), 0, 130, 260)
    metadata = Path(catalog.load_table("db.rows").metadata_location.removeprefix("file://"))
    _by_spark(
        python35, catalog, tmp_path,
        "ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')",
        "DELETE FROM {table} WHERE offset IN (5, 17, 140)",
    )  # fmt: skip
    newest = max(metadata.parent.glob("v*.metadata.json"), key=lambda each: int(each.name[1:-14]))
    catalog.register_table("db.after", f"file://{newest}")
    table = _table(catalog, tmp_path, "db.after")
    left = [n for n in range(390) if n not in (5, 17, 140)]

    def offsets() -> list[int]:
        rows = catalog.load_table("db.after").scan().to_arrow()
        return sorted(rows["offset"].to_pylist())

    loaded = table.load(SCHEMA)
    assert offsets() == left
    assert sum(each.partly for each in table.files(loaded)) == 2
    by_file = [
        offset
        for each in table.files(loaded)
        for batch in table.rows(loaded, each.path)
        for offset in batch.column("offset").to_pylist()
    ]
    assert sorted(by_file) == left

    assert _maintained(table).merged > 0
    assert offsets() == left

    erased = {STREAM: Ranges.of([(10, 20)])}
    assert table.append(table.load(SCHEMA), Append("e", replaces=erased)) is AppendOutcome.LANDED
    assert offsets() == [n for n in left if not 10 <= n < 20]


def _maintained(table: IcebergTable, **how: Any) -> Kept:
    def merged(pieces: Sequence[CompactPiece], layout: FileLayout) -> list[CompactResult]:
        return [compact(p, layout, StoredFiles(), lambda: f"{next(IDS):016x}") for p in pieces]

    maintainer = Maintainer(
        table, SCHEMA,
        lambda now: FileLayout(now.location, now.schema, TablePartition.DAY, COLUMNS, **how),
        merged, lambda: f"{next(IDS):032x}",
    )  # fmt: skip
    return maintainer.maintain(keep_seconds=None, now_ms=0, target_bytes=2**28)


@pytest.mark.slow
def test_iceberg_for_spark_reads_deletes_from_and_compacts_files_that_streams_share(
    python35: Path, tmp_path: Path
) -> None:
    catalog = _catalog(tmp_path)
    _filled(_table(catalog, tmp_path), 0)
    how: dict[str, Any] = {"shared": True, "order": ("body",)}
    table = _table(catalog, tmp_path, **how)
    site = TableSite(lambda _: table, StoredFiles(), lambda _: table, shared=True)  # type: ignore[arg-type, return-value]
    for spans in (
        {STREAM: (130, 160), OTHER: (1000, 1040)},
        {STREAM: (160, 190), OTHER: (1040, 1050)},
    ):
        append = mixed(site, table.load(SCHEMA), spans)
        commit(table, append, first_schema=SCHEMA, pause=lambda _: None)
    name = Path(catalog.load_table("db.rows").location()).name

    found = _by_spark(
        python35, catalog, tmp_path,
        "ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')",
        "DELETE FROM {table} WHERE offset IN (5, 140, 1003, 1049)",
        f"CALL x.system.rewrite_data_files(table => 'db.`{name}`',"
        " options => map('rewrite-all', 'true'))",
    )  # fmt: skip

    left = [n for n in [*range(190), *range(1000, 1050)] if n not in (5, 140, 1003, 1049)]
    assert found["rows"] == [[n, str(n)] for n in left]
    assert found["first_day"] == 99
    metadata = Path(catalog.load_table("db.rows").metadata_location.removeprefix("file://"))
    newest = max(metadata.parent.glob("v*.metadata.json"), key=lambda each: int(each.name[1:-14]))
    catalog.register_table("db.after", f"file://{newest}")
    table = _table(catalog, tmp_path, "db.after", **how)
    loaded = table.load(SCHEMA)
    assert {file.stream for file in table.files(loaded)} == {None}
    assert (loaded.state.of(STREAM).spans, loaded.state.of(OTHER).spans) == (
        ((0, 190),), ((1000, 1050),),
    )  # fmt: skip
    append = mixed(site, loaded, {STREAM: (190, 200), OTHER: (1050, 1060)})
    commit(table, append, first_schema=SCHEMA, pause=lambda _: None)
    _maintained(table, **how)
    gone = {OTHER: Ranges.of([(1000, 1010)]), STREAM: Ranges.of([(1000, 1060)])}
    assert table.append(table.load(SCHEMA), Append("e", replaces=gone)) is AppendOutcome.LANDED
    rows = catalog.load_table("db.after").scan().to_arrow()["offset"].to_pylist()
    left = [*left, *range(190, 200), *range(1050, 1060)]
    assert sorted(rows) == sorted(n for n in left if not 1000 <= n < 1010)
