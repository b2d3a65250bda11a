"""The tables that materialise writes without a JVM, read by Iceberg's own Java library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from itertools import count
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from coldstream.jobs.materialise.commit import commit
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.iceberg import FILE_IO, IcebergTable
from coldstream.jobs.materialise.rules import TablePartition
from coldstream_devkit.suites.table import COLUMNS, SCHEMA, STREAM, TableSite, append_of
from tests.spark.conftest import ROOT
from tests.spark.test_spark35 import python35

__all__ = ["python35"]


@pytest.mark.slow
def test_iceberg_for_spark_reads_prunes_and_knows_the_history_of_our_tables(
    python35: Path, tmp_path: Path
) -> None:
    catalog = SqlCatalog(
        "tests",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        warehouse=f"file://{tmp_path}",
        **{"py-io-impl": FILE_IO},
    )
    location, ids = tmp_path / "warehouse" / "db" / "rows", count()
    table = IcebergTable(
        catalog,
        "db.rows",
        location=f"file://{location}",
        partition=TablePartition.DAY,
        columns=COLUMNS,
        files=StoredFiles(),
        new_id=lambda: f"{next(ids):016x}",
    )
    site = TableSite(lambda _: table, StoredFiles(), lambda _: table)  # type: ignore[arg-type, return-value]
    for first in (0, 130):
        append = append_of(site, table.load(SCHEMA), first, first + 130)
        commit(table, append, first_schema=SCHEMA, pause=lambda _: None)
    # A Hadoop catalog finds a table by the names of directory and files; ours is in SQLite.
    name = Path(catalog.load_table("db.rows").location()).name
    metadata = Path(catalog.load_table("db.rows").metadata_location.removeprefix("file://"))
    shutil.copy(metadata, metadata.with_name("v1.metadata.json"))
    metadata.with_name("version-hint.text").write_text("1")

    done = subprocess.run(
        [python35, "-m", "tests.spark.iceberg_35", f"file://{tmp_path}/warehouse", f"db.`{name}`"],
        env={
            "HOME": os.environ["HOME"],
            "PATH": os.environ["PATH"],
            "PYSPARK_PYTHON": str(python35),
            "PYTHONPATH": str(ROOT),
        },
        cwd=ROOT,
        capture_output=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == [[n, str(n)] for n in range(260)]
    assert found["first_day"] == 100
    said = [each[f"coldstream.next-offset.{STREAM}"] for each in found["summaries"]]
    assert said == ["130", "260"]
