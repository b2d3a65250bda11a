"""Materialise against Spark writing the same rows, both from the same stream, in one run.

    make bench-materialise

Both sides plan and read by the data source's own code, on two cores. Spark's side is what anybody
would write: `spark.read.format("rabbitmq_stream")...write.parquet(...)` with zstd. Ours is the job:
an Iceberg table (a catalog in a file instead of Glue), Parquet with zstd written in the workers,
and the commit. Rows and columns are the same and are counted; sizes of the files are printed, as
the two zstd levels differ (Spark 3, ours 1). In turn, median of three rounds after one to warm up.
"""

from __future__ import annotations

import secrets
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

from bench.report import megabytes_per_second, quick, ratio
from bench.spark_streams import PREFIX, BenchStream, bench_stream
from coldstream.adapters.place import Place, connect
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.iceberg.table import FILE_IO, IcebergTable
from coldstream.jobs.materialise.rules import TableRule
from coldstream.jobs.materialise.run import Runner
from coldstream.jobs.materialise.run_settings import RunSettings
from coldstream.jobs.materialise.schema import KEY_COLUMNS, RAW_COLUMNS
from coldstream.jobs.materialise.spark_engine import SparkEngine, stream_now
from coldstream.jobs.materialise.window_commit import Tables
from coldstream.jobs.session import spark_session
from coldstream.spark import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 3
FRAGMENTS = 8
GOALS = {"s1k": 3.0, "s100": 4.0, "p100": 4.0}
BASE = Path("build/bench").resolve()
_PARTITION = 64 * 2**20


def by_spark(spark: SparkSession, stream: BenchStream, target: Path) -> float:
    """Seconds for Spark to write the rows."""
    began = time.perf_counter()
    frame = (
        spark.read.format("rabbitmq_stream")
        .option("endpoint", stream.endpoint)
        .option("stream", stream.stream)
        .option("columns", ",".join(RAW_COLUMNS))
        .option("partitionBytes", _PARTITION)
        .load()
    )
    frame.write.option("compression", "zstd").parquet(str(target))
    return time.perf_counter() - began


def by_job(spark: SparkSession, stream: BenchStream, target: Path) -> float:
    """Seconds for the job to fill an Iceberg table."""
    began = time.perf_counter()
    target.mkdir(parents=True)
    place = Place("", "", PREFIX, endpoint=stream.endpoint)
    catalog = SqlCatalog(
        "bench",
        uri=f"sqlite:///{target}/catalog.db",
        warehouse=f"file://{target}",
        **{"py-io-impl": FILE_IO},
    )

    def table(name: str) -> IcebergTable:
        return IcebergTable(
            catalog,
            name,
            location=f"file://{target}/{name}",
            partition=rule.partition,
            columns=KEY_COLUMNS,
            files=StoredFiles(),
            new_id=lambda: secrets.token_hex(8),
        )

    rule = TableRule(".*", "bench.rows")
    remote = connect(place)
    item = remote.catalog.get(stream.stream)
    assert item is not None
    runner = Runner(
        SparkEngine(spark, place, partition_bytes=_PARTITION),
        lambda: secrets.token_hex(16),
        lambda _: None,
        lambda _: None,
    )
    tables = Tables(table(rule.table), table(rule.dead_letters))
    report = runner.fill(rule, tables, [stream_now(remote, item)], RunSettings())
    seconds = time.perf_counter() - began
    assert (report.rows, report.dead_letters) == (stream.messages, 0)
    return seconds


def rows_and_bytes(target: Path) -> tuple[int, int]:
    """What the Parquet files below a directory hold."""
    files = [path for path in target.rglob("*.parquet") if not path.name.startswith(".")]
    rows = sum(pq.ParquetFile(path).metadata.num_rows for path in files)
    return rows, sum(path.stat().st_size for path in files)


def main() -> None:
    """Measure and print."""
    fragments, rounds = (1, 1) if quick(__doc__) else (FRAGMENTS, ROUNDS)
    spark = spark_session("bench materialise")
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    ratios = []
    for name, goal in GOALS.items():
        stream = bench_stream(BASE, name, fragments)
        times: dict[str, list[float]] = {"spark": [], "job": []}
        sizes: dict[str, int] = {}
        for _ in range(rounds + 1):
            for side, run in (("spark", by_spark), ("job", by_job)):
                target = Path(tempfile.mkdtemp(dir=BASE)) / side
                times[side].append(run(spark, stream, target))
                rows, sizes[side] = rows_and_bytes(target)
                assert rows == stream.messages, (side, rows)
                shutil.rmtree(target.parent)
        for side, each in times.items():
            speed = megabytes_per_second(stream.size, each[1:])
            sys.stdout.write(f"{name:5s} {side:6s} {speed}  {sizes[side]:,} bytes of Parquet\n")
        medians = {side: statistics.median(each[1:]) for side, each in times.items()}
        ratios.append((f"materialise-{name}-spark", medians["spark"] / medians["job"], goal))
    for label, value, goal in ratios:
        ratio(label, value, f">= {goal:g}")


if __name__ == "__main__":
    main()
