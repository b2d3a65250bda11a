"""Spark reads streams like tables: batch and streaming, by the Python Data Source API or without.

    from coldstream.spark import register
    register(spark)
    spark.read.format("rabbitmq_stream").option("stream", "orders").load()

Nothing here imports Spark before it is used: planning (`plan`) and reading (`read`) do not need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["register", "stream_dataframe"]

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("rabbitmq_stream")` known to a session of Spark 4.1 or later.

    Also lets Spark push filters down to Python data sources, which it does not do by itself.

    Args:
        spark: the session.
    """
    from coldstream.spark.source import RabbitmqStream

    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(RabbitmqStream)


def stream_dataframe(spark: SparkSession, **options: str | int | bool) -> DataFrame:
    """The same table as `spark.read.format("rabbitmq_stream")`, in any Spark from 3.5 on (Glue 5).

    Args:
        spark: the session.
        options: those of the data source. There is no filter pushdown: give `startingOffset` and
            `endingOffset`.

    Raises:
        InvalidInputError: an option is not known, or says what it cannot mean.
        NotFoundError: a stream or a version does not exist.
    """
    from coldstream.spark.dataframe import dataframe

    return dataframe(spark, options)
