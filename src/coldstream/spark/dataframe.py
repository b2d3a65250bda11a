"""A stream as a DataFrame without the Python Data Source API: for Spark 3.5 (Glue 5).

Row for row the same as the data source: the same plan in the driver, the same read in workers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from coldstream.spark.connect import connect
from coldstream.spark.options import parse_options, refuse_for
from coldstream.spark.query import Work, plan_query
from coldstream.spark.read import read
from coldstream.spark.schema import default_columns, spark_schema
from coldstream.spark.window import Window

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def dataframe(spark: SparkSession, options: Mapping[str, str | int | bool]) -> DataFrame:
    """See `coldstream.spark.stream_dataframe`.

    The manifest is looked at now, not when the DataFrame is used: every use sees the same stream.
    """
    texts = {name: _text(value) for name, value in options.items()}
    parsed = parse_options(texts, os.environ)
    refuse_for(parsed, streaming=False, given=texts)
    columns = default_columns(parsed)
    works = plan_query(parsed, columns, Window(), connect(parsed.place))
    # One row a partition, whose number says which split the task is to read. The list of splits is
    # in the function, which Spark broadcasts when it is large; RDDs would do without, but Lake
    # Formation does not allow them.
    numbers = spark.range(0, len(works), 1, max(1, len(works)))
    return numbers.mapInArrow(_reading(works), spark_schema(parsed.rows, columns))


def _reading(works: list[Work]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read(works[number].task, works[number].split)

    return run


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
