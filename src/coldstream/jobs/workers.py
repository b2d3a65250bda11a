"""Tasks in the workers of a Spark session, of either kind."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")
_RESULTS = "number bigint, result binary"


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is a client of Spark Connect, which has no RDD and no JVM of its own."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def in_workers(spark: SparkSession, tasks: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """What the work makes of each task, in their order; each task is one of Spark's.

    Args:
        spark: the session.
        tasks: that pickle.
        work: that pickles; its results do, too.
    """
    if not tasks:
        return []
    if not is_connect(spark):
        found: list[R] = spark.sparkContext.parallelize(tasks, len(tasks)).map(work).collect()
        return found
    # Every worker gets all tasks here: a client has no other way to hand each its own.
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    rows = numbers.mapInArrow(partial(_results, tasks, work), _RESULTS).collect()
    # As Spark's own RDDs carry it: from our workers, by Spark's own channel.
    results: dict[int, Any] = {row.number: pickle.loads(row.result) for row in rows}  # noqa: S301
    return [results[number] for number in range(len(tasks))]


def _results(
    tasks: Sequence[T], work: Callable[[T], R], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            result = pickle.dumps(work(tasks[number]))
            columns = [pa.array([number]), pa.array([result], pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, ["number", "result"])
