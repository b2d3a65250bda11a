"""`stream_dataframe` on Spark 3.5, as on Glue 5: row for row what the data source gives on 4.1."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from coldstream.columns.schema import COLUMNS
from tests.spark.conftest import ROOT, SETTINGS, Site, Stream, collected
from tests.support.sparks import of_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.emulator, pytest.mark.slow]

PARQUET = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


#: Spark 3.5 has none.
WITHOUT_VARIANTS = tuple(name for name in COLUMNS if not name.endswith("_variant"))


@pytest.fixture(scope="session")
def python35() -> Path:
    """The Python of a virtual environment with Spark 3.5; made when it is not there."""
    subprocess.run(["make", "-s", "spark35"], cwd=ROOT, check=True, timeout=600)
    return ROOT / ".spark35" / "bin" / "python"


def test_spark_35_gives_the_rows_that_spark_41_gives(
    python35: Path, spark: SparkSession, site: Site, drawn: Stream, plain: Stream, tmp_path: Path
) -> None:
    everything = ",".join(WITHOUT_VARIANTS)
    tables = {
        "drawn": {"stream": "drawn", "columns": everything, "partitionBytes": "100k"},
        "both": {
            "stream": "drawn,plain",
            "columns": "*",
            "startingOffset": "1200",
            "partitionBytes": "150k",
        },
        "narrow": {"stream": "drawn", "columns": "properties.subject,offset", "maxPartitions": 3},
        "chunks": {"stream": "plain", "rows": "chunks"},
        "nothing": {"stream": "plain", "startingOffset": "next"},
    }
    given = {
        "settings": {**SETTINGS, **PARQUET},
        "tables": [(options, str(tmp_path / name)) for name, options in tables.items()],
    }

    done = subprocess.run(
        [python35, "-m", "tests.spark.read_with_35", json.dumps(given)],
        env={
            **of_spark(),
            "PYSPARK_PYTHON": str(python35),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            **site.environment,
        },
        cwd=ROOT,
        capture_output=True,
        timeout=600,
        check=False,
    )

    assert done.returncode == 0, done.stderr.decode()[-3000:]
    words, variant, version = done.stdout.decode().splitlines()
    assert version == "3.5.6"
    assert variant == "body_variant is a VARIANT, which needs Spark 4: use body_json"
    assert words == "no stream has the directory or queue name 'nobody'"
    for name, options in tables.items():
        source = spark.read.format("rabbitmq_stream").options(**options).load()
        order = [(key, "ascending") for key in ("stream", "offset") if key in source.columns]
        right = source.toArrow().sort_by(order)
        found = pq.read_table(tmp_path / name).cast(right.schema).sort_by(order)
        assert found.equals(right), name
    right = drawn.table(WITHOUT_VARIANTS)
    assert collected(
        spark.read.format("rabbitmq_stream").options(**tables["drawn"]).load(), right.schema
    ).equals(right)
