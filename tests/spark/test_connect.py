"""The data source through a Spark Connect server: row for row what a session of its own gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.conftest import ROOT, Site, Stream
from tests.support.spark_connect import connect_server
from tests.support.sparks import of_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.emulator, pytest.mark.slow]


def test_spark_connect_gives_the_rows_that_a_session_of_its_own_gives(
    spark: SparkSession, site: Site, plain: Stream, tmp_path: Path
) -> None:
    with connect_server(site.environment, tmp_path / "server.log") as remote:
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.read_by_connect",
             json.dumps({"remote": remote, "to": str(tmp_path)})],
            env={
                **of_spark(),
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
                **site.environment,
            },
            cwd=ROOT,
            capture_output=True,
            timeout=600,
            check=False,
        )  # fmt: skip

    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert "no stream has the directory or queue name 'nobody'" in done.stdout.decode()
    frame = spark.read.format("rabbitmq_stream").options(stream="plain", columns="*").load()
    expected = frame.toArrow()
    for name in ("batch", "function", "streamed"):
        assert _rows(tmp_path / name).num_rows == expected.num_rows
        assert _offsets(tmp_path / name) == sorted(expected["offset"].to_pylist())
        found = _rows(tmp_path / name).sort_by("offset")["body"].to_pylist()
        assert found == expected.sort_by("offset")["body"].to_pylist()
    assert _offsets(tmp_path / "filtered") == list(range(100, 120))


def _rows(path: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(each) for each in sorted(path.glob("*.parquet"))])


def _offsets(path: Path) -> list[int]:
    return sorted(_rows(path)["offset"].to_pylist())
