"""Spark reads streams like tables: batch and streaming, by the Python Data Source API or without.

    from coldstream.spark import register
    register(spark)
    spark.read.format("rabbitmq_stream").options(stream="orders", columns="timestamp,body").load()

Nothing here imports Spark before it is used: planning (`plan`) and reading (`read`) do not need it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from coldstream.spark.query import TaskWork

__all__ = ["register", "stream_dataframe"]

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("rabbitmq_stream")` known to a session of Spark 4.1 or later.

    Also lets Spark push filters down to Python data sources, which it does not do by itself; ours
    takes them over where option `pushFilters` says so.

    Args:
        spark: the session.
    """
    from coldstream.spark.source import RabbitmqStream

    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(RabbitmqStream)


def stream_dataframe(spark: SparkSession, **options: str | int | bool) -> DataFrame:
    """The same table as `spark.read.format("rabbitmq_stream")`, in any Spark from 3.5 on (Glue 5).

    Row for row the same as the data source: the same plan in the driver, the same read in workers.
    The manifest is looked at now, not when the DataFrame is used: every use sees the same stream.

    Args:
        spark: the session.
        options: those of the data source. There is no filter pushdown: give `startingOffset` and
            `endingOffset`.

    Raises:
        InvalidInputError: an option is not known, or says what it cannot mean.
        NotFoundError: a stream or a version does not exist.
    """
    from coldstream.adapters.place import connect
    from coldstream.spark.options import parse_options, refuse_for
    from coldstream.spark.query import plan_query
    from coldstream.spark.schema import default_columns, spark_schema
    from coldstream.spark.window import Window

    given = {name: _text(value) for name, value in options.items()}
    parsed = parse_options(given, os.environ)
    refuse_for(parsed, streaming=False, given=given)
    columns = default_columns(parsed)
    works = plan_query(parsed, columns, Window(), connect(parsed.place))
    # One row a partition, whose number says which split the task is to read. The list of splits is
    # in the function, which Spark broadcasts when it is large; RDDs would do without, but Lake
    # Formation does not allow them.
    numbers = spark.range(0, len(works), 1, max(1, len(works)))
    return numbers.mapInArrow(_reading(works), spark_schema(parsed.rows, columns))


def _reading(
    works: list[TaskWork],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from coldstream.spark.read import read

        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read(works[number].task, works[number].split)

    return run


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
