"""Tasks in the workers of a Spark session, of either kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pydantic import TypeAdapter  # pyiceberg brings it

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")
_RESULTS = "number bigint, result string"


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is a client of Spark Connect, which has no RDD and no JVM of its own."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def in_workers(
    spark: SparkSession, tasks: Sequence[T], work: Callable[[T], R], result: type[R]
) -> list[R]:
    """What the work makes of each task, in their order; each task is one of Spark's.

    Args:
        spark: the session.
        tasks: that pickle.
        work: that pickles.
        result: type of what it gives: dataclasses, texts and numbers, which JSON can carry.

    Raises:
        pydantic.ValidationError: what a Spark Connect server answers is no such result.
    """
    if not tasks:
        return []
    if not is_connect(spark):
        found: list[R] = spark.sparkContext.parallelize(tasks, len(tasks)).map(work).collect()
        return found
    # Every worker gets all tasks here: a client has no other way to hand each its own.
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    rows = numbers.mapInArrow(partial(_results, tasks, work, result), _RESULTS).collect()
    # A server is somewhere in the network, so nothing of it is unpickled.
    read = TypeAdapter(result).validate_json
    results = {row.number: read(row.result) for row in rows}
    return [results[number] for number in range(len(tasks))]


def _results(
    tasks: Sequence[T],
    work: Callable[[T], R],
    result: type[R],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    write = TypeAdapter(result).dump_json
    for batch in batches:
        for number in batch.column(0).to_pylist():
            text = write(work(tasks[number])).decode()
            columns = [pa.array([number]), pa.array([text], pa.string())]
            yield pa.RecordBatch.from_arrays(columns, ["number", "result"])
