"""The Spark source against what one would do without it, side by side, on two cores.

    spark.read.parquet     the same rows, written by Spark with zstd: the best a table can be
    floor                  a Python source that has its rows ready: the best such a source can be
    binaryFile             fragments decoded by Python inside Spark: what one writes first, by row
                           or with numpy (`bench.spark_naive`)

Both sides read files of this machine (`bench.spark_data`). Rounds alternate, the median counts.
`--quick` takes small streams: its figures mean nothing, but everything runs. Each part is one
function that takes the world and prints its ratios; add others to PARTS.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import spark_floor, spark_naive
from bench import synthetic_stream as synthetic
from bench.memory import peak
from bench.report import ratio
from bench.scale import alone
from bench.spark_data import Made, make, make_all_groups, make_petabyte
from coldstream.adapters.directory import DirectoryStore
from coldstream.adapters.place import connect
from coldstream.fragment import Buffer
from coldstream.spark import register
from coldstream.spark.options import parse_options
from coldstream.spark.plan import decode_split
from coldstream.spark.query import plan_query
from coldstream.spark.read import read_split
from coldstream.spark.window import Intervals, Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is read: bytes of each stream, and of what the slow side gets, and fragments."""

    stream: int
    naive: int
    fragments: int


#: The naive side holds the rows of a fragment at once, in the JVM too: of 64 MiB in messages of 100
#: bytes Spark has died. Several give it both processors.
NAIVE_FRAGMENT = 8 * 2**20
FULL = Extent(stream=2**32, naive=64 * 2**20, fragments=2**24)
QUICK = Extent(stream=2**26, naive=2**23, fragments=2**14)


@dataclass(frozen=True, slots=True)
class Context:
    """What every part works with."""

    spark: SparkSession
    work: Path
    extent: Extent
    streams: dict[str, Made]
    samples: dict[str, Made]


def session(work: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT / "src"), str(ROOT / "devkit" / "src"), str(ROOT)]
    )
    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.local.dir": str(work / "spark"),
    }
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    spark.dataSource.register(spark_floor.Floor)
    return spark


def source(context: Context, made: Made, columns: str) -> DataFrame:
    reader = context.spark.read.format("rabbitmq_stream").options(**made.options)
    return reader.options(columns=columns, pushFilters="true").load()  # for one query each


def alternate(sides: dict[str, Callable[[], Any]], unlike: Sequence[str] = ()) -> dict[str, float]:
    """Median seconds of each side, in turn; every side is run once before.

    All must say the same, but for those that have rows of their own.
    """
    answers = {name: run() for name, run in sides.items()}
    assert len({repr(answer) for name, answer in answers.items() if name not in unlike}) == 1
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(ROUNDS):
        names = list(sides) if number % 2 else list(reversed(sides))
        for name in names:
            began = time.perf_counter()
            sides[name]()
            seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(each) for name, each in seconds.items()}


def answer(load: Callable[[], DataFrame], condition: str, sums: list[str]) -> Any:
    return load().filter(condition).selectExpr(*sums).collect()


def against_parquet(context: Context) -> None:
    """Four queries over all rows of a stream and over the same rows in Parquet."""
    for label, made in context.streams.items():
        path = str(context.work / f"parquet-{label}")
        columns = "offset,timestamp,chunk_id,epoch,body_kind,body,error"
        source(context, made, columns).write.mode("overwrite").parquet(path)
        low, high = made.root.first_timestamp, made.root.last_timestamp
        since, until = low + (high - low) * 45 // 100, low + (high - low) * 55 // 100
        between = (
            f"timestamp >= timestamp_millis({since}) and timestamp < timestamp_millis({until})"
        )
        queries: dict[str, tuple[str, str, list[str]]] = {
            "count": ("offset", "true", ["count(*)"]),
            "project": ("offset,timestamp", "true", ["sum(offset)", "max(timestamp)"]),
            "filter": ("timestamp,body", between, ["count(*)", "sum(length(body))"]),
            "aggregate": (
                "offset,timestamp,body",
                "true",
                ["count(*)", "sum(length(body))", "max(timestamp)", "max(offset)"],
            ),
        }
        total = {"source": 0.0, "parquet": 0.0, "floor": 0.0}
        for name, (wanted, condition, sums) in queries.items():
            times = Intervals.of((since, until)) if name == "filter" else Intervals.of()
            sides: dict[str, Callable[[], DataFrame]] = {
                "source": partial(source, context, made, wanted),
                "parquet": partial(context.spark.read.parquet, path),
                "floor": floor(context, made, wanted, times),
            }
            took = alternate(
                {name: partial(answer, side, condition, sums) for name, side in sides.items()},
                unlike=("floor",),
            )
            print(
                f"  {label} {name:10} source {took['source']:6.2f} s  parquet "
                f"{took['parquet']:6.2f} s  floor {took['floor']:6.2f} s   "
                f"{made.size / 1e6 / took['source']:6.0f} MB/s, "
                f"{made.messages / 1e6 / took['source']:.2f} M rows/s"
            )
            goal = ">= 0.8" if name == "aggregate" else ">= 0.95"
            ratio(f"spark-{label}-floor-{name}", took["floor"] / took["source"], goal)
            total = {side: total[side] + took[side] for side in total}
        print("  " + label + " all four " + "  ".join(f"{k} {v:.2f} s" for k, v in total.items()))
        goal = ">= 1.2" if label == "1k" else ">= 1.0"
        ratio(f"spark-{label}-parquet", total["parquet"] / total["source"], goal)


def floor(context: Context, made: Made, columns: str, times: Intervals) -> Callable[[], DataFrame]:
    """As many such rows from a source that has them ready."""
    window = Window(times=times) if times else Window()
    options = spark_floor.prepare(context.work / "floor.arrow", made.options, columns, window)
    return context.spark.read.format(spark_floor.NAME).options(**options).load


def against_naive(context: Context) -> None:
    """The same aggregate by binaryFile and Python, over a sample; rates are compared."""
    for label, made in context.streams.items():
        sample = context.samples[label]

        def ours(made: Made = made) -> Any:
            frame = source(context, made, "offset,timestamp,body")
            return frame.selectExpr("count(*)", "sum(length(body))", "max(offset)").collect()

        wanted = tuple(ours(sample)[0])
        for way, (rows, goal) in spark_naive.WAYS.items():

            def naive(made: Made, rows: spark_naive.Rows = rows) -> Any:
                files = context.spark.read.format("binaryFile").load(str(made.data))
                return (
                    rows(files).selectExpr("count(*)", "sum(length(body))", "max(offset)").collect()
                )

            assert tuple(naive(sample)[0]) == wanted
            rates = []
            for run, each in ((naive, sample), (ours, made)) * 2:
                began = time.perf_counter()
                run(each)
                rates.append(each.size / (time.perf_counter() - began))
            slow, fast = max(rates[0::2]), max(rates[1::2])
            print(f"  {label} {way:24} {slow / 1e6:6.1f} MB/s, source {fast / 1e6:.0f} MB/s")
            ratio(f"spark-{label}-{way.replace(' ', '-')}", fast / slow, f">= {goal}")


class CountingStore(DirectoryStore):
    """Counts what is read of fragments."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.bytes = self.requests = 0

    def get(self, key: str, start: int, end: int) -> Buffer:
        self.bytes, self.requests = self.bytes + end - start, self.requests + 1
        return super().get(key, start, end)

    def get_suffix(self, key: str, length: int) -> bytes:
        self.bytes, self.requests = self.bytes + length, self.requests + 1
        return super().get_suffix(key, length)


def slice_of_time(context: Context) -> None:
    """What a hundredth of a stream by time costs in bytes."""
    for label, made in context.streams.items():
        options = parse_options({**made.options, "columns": "offset,timestamp,body"}, {})
        low, high = made.root.first_timestamp, made.root.last_timestamp
        since = low + (high - low) * 37 // 100
        window = Window(times=Intervals.of((since, since + (high - low) // 100)))
        store = CountingStore(str(made.bucket))
        remote = replace(connect(options.place), store=store)
        works = plan_query(options, options.columns or (), window, remote)
        rows = sum(
            batch.num_rows
            for work in works
            for batch in read_split(work.task, decode_split(work.split), remote)
        )
        print(
            f"  {label} {rows / made.messages:.4f} of the rows: {store.bytes / 1e6:.1f} of "
            f"{made.size / 1e6:.0f} MB in {store.requests} requests"
        )
        ratio(f"spark-{label}-slice-bytes", store.bytes / made.size, "<= 0.015")


def plan_alone(given: dict[str, str], window: Window) -> tuple[int, float, int]:
    """In a process of its own: number of partitions, seconds, and bytes of memory it took."""
    options = parse_options({**given, "columns": "offset"}, {})
    remote = connect(options.place)
    before, began = peak(), time.perf_counter()
    works = plan_query(options, ("offset",), window, remote)
    return len(works), time.perf_counter() - began, peak() - before


def planning(context: Context) -> None:
    """A petabyte's partitions, all the way through Spark's own planning."""
    fragments = 2**24
    end = synthetic.first_offset(fragments)
    first, next_offset = end // 2, end // 2 + end // 100
    window = Window(offsets=Intervals.of((first, next_offset)))
    made = make_petabyte(context.work / "petabyte", fragments, window)
    for name, asked, test in (
        ("whole", Window(), "true"),
        ("pruned", window, f"offset >= {first} and offset < {next_offset}"),
    ):
        works, seconds, grown = alone(plan_alone, made.options, asked)
        began = time.perf_counter()
        count = source(context, made, "offset").filter(test).rdd.getNumPartitions()
        whole = time.perf_counter() - began
        gateway = context.spark.sparkContext._jvm
        assert gateway is not None
        jvm = gateway.java.lang.Runtime.getRuntime()
        used = jvm.totalMemory() - jvm.freeMemory()
        assert count == works
        print(
            f"  {made.size / 2**50:.2f} PiB {name}: {count:,} partitions, plan {seconds:.2f} s and "
            f"{grown / 1e6:.0f} MB, with Spark {whole:.1f} s, JVM heap {used / 1e6:.0f} MB"
        )
        ratio(f"spark-plan-{name}-seconds", whole, "<= 15")


def metadata(context: Context) -> None:
    """A petabyte by stream and hour, from the catalog's items and from the manifest's fragments."""
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    fragments = context.extent.fragments
    made = make_petabyte(context.work / "metadata", fragments, Window())
    make_all_groups(made.bucket, made)
    reader = context.spark.read.format("rabbitmq_stream").options(**made.options)
    hour = F.date_trunc("hour", "min_timestamp").alias("hour")

    def streams() -> Any:
        return reader.option("table", "streams").load().agg(F.sum("size")).collect()[0][0]

    def by_hour() -> Any:
        frame = reader.option("table", "fragments").load()
        hours = (
            frame.groupBy("stream", hour)
            .agg(
                F.count("*").alias("fragments"),
                F.sum("records").alias("records"),
                F.sum("size").alias("size"),
                F.min("offset"),
                F.max("next_offset"),
                F.min("min_timestamp"),
                F.max("max_timestamp"),
            )
            .collect()
        )
        assert sum(row["fragments"] for row in hours) == fragments
        return sum(row["size"] for row in hours)

    for name, ask, goal in (("streams", streams, 5), ("fragments", by_hour, 60)):
        seconds = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            assert ask() == made.size
            seconds.append(time.perf_counter() - began)
        print(f"  {made.size / 2**50:.3f} PiB, {fragments:,} fragments, {name}: {seconds}")
        ratio(f"spark-metadata-{name}-seconds", statistics.median(seconds), f"<= {goal}")


PARTS: dict[str, Callable[[Context], None]] = {
    "parquet": against_parquet,
    "binaryfile": against_naive,
    "slice": slice_of_time,
    "plan": planning,
    "metadata": metadata,
}


def streams(work: Path, extent: Extent, sizes: Iterable[tuple[str, int]]) -> Iterator[Any]:
    for label, size in sizes:
        each = size + 12
        yield (
            label,
            make(
                work / "big",
                f"__bench_{label}_1",
                messages=extent.stream // each,
                message_size=size,
            ),
            make(
                work / "few",
                f"__few_{label}_1",
                messages=extent.naive // each,
                message_size=size,
                fragment=NAIVE_FRAGMENT,
            ),
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="small streams")
    options.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all by default")
    given = options.parse_args()
    extent = QUICK if given.quick else FULL
    work = Path(tempfile.mkdtemp(prefix="coldstream-bench-spark-"))
    try:
        began = time.perf_counter()
        made = list(streams(work, extent, (("1k", 1024), ("100", 100))))
        context = Context(
            session(work),
            work,
            extent,
            {label: big for label, big, _ in made},
            {label: few for label, _, few in made},
        )
        for name in given.parts or PARTS:
            print(f"{name}: {PARTS[name].__doc__}")
            PARTS[name](context)
        context.spark.stop()
        print(f"in {time.perf_counter() - began:.0f} s")
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
