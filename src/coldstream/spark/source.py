"""The data source `rabbitmq_stream` for Spark 4.1 and later (Python Data Source API).

Spark makes these objects again and again, in processes of its own, and carries them from one to the
other by pickle: they hold options, columns and windows, never a connection.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from coldstream.adapters.place import connect
from coldstream.spark.filters import expect_filters, filters_came, push
from coldstream.spark.options import Options, parse_options, refuse_for
from coldstream.spark.process import prepare
from coldstream.spark.query import plan_query
from coldstream.spark.saying import sentence_first
from coldstream.spark.schema import columns_of, default_columns, spark_schema
from coldstream.spark.streaming import BatchPartition, MicroBatchReader
from coldstream.spark.window import Window

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

NAME = "rabbitmq_stream"
#: What Spark runs to plan a read with filters to push down; without them it runs another module.
_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"


class RabbitmqStream(DataSource):
    """`spark.read.format("rabbitmq_stream")` and `spark.readStream.format("rabbitmq_stream")`."""

    @sentence_first()
    def __init__(self, options: dict[str, str]) -> None:
        prepare()
        self.options = options
        self._options = parse_options(options, os.environ)

    @classmethod
    def name(cls) -> str:
        """What `format` calls it."""
        return NAME

    @sentence_first()
    def schema(self) -> StructType:
        """The columns that the options ask for, or the default ones."""
        options = self._options
        return spark_schema(options.rows, default_columns(options))

    @sentence_first()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Of a batch read.

        Raises:
            InvalidInputError: an option or a column is not for this.
        """
        prepare()  # this process has this object from another one
        refuse_for(self._options, streaming=False, given=self.options)
        columns = columns_of(self._options.rows, schema)
        if not _pushing():
            # Spark refuses a reader that takes filters over while pushdown is switched off.
            return BatchReader(self._options, columns)
        expect_filters()
        if not self._options.push_filters:
            return BatchReader(self._options, columns)
        return FilteringReader(self._options, columns)

    # No `sentence_first`: PySpark hides an error of this one by one of its own (`reader` is not
    # bound), and what helps stands only in the traceback.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Of a streaming read.

        Raises:
            InvalidInputError: an option or a column is not for this.
        """
        refuse_for(self._options, streaming=True, given=self.options)
        return MicroBatchReader(self._options, columns_of(self._options.rows, schema))


class BatchReader(DataSourceReader):
    """Plans a batch query in the driver, reads its partitions in workers.

    Args:
        options: of the query.
        columns: that it asks for.
    """

    def __init__(self, options: Options, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._window = Window()

    @sentence_first()
    def partitions(self) -> list[InputPartition]:
        """The splits of the streams' manifests as they are now."""
        filters_came()
        remote = connect(self._options.place)
        return [
            BatchPartition(work)
            for work in plan_query(self._options, self._columns, self._window, remote)
        ]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one split; of none where there is nothing to read."""
        return partition.read() if isinstance(partition, BatchPartition) else iter(())


class FilteringReader(BatchReader):
    """The same for a query that has filters, where option `pushFilters` says so.

    Spark 4.1 keeps one plan for each `load()`, that of the filters that came last
    (`PythonDataSourceV2.setReadInfo`), and any other scan of the same DataFrame reads by it: one
    without filters, or another part of a union or a join. Its rows would be missing.
    """

    @sentence_first()
    def pushFilters(self, filters: list[Filter]) -> list[Any]:  # noqa: N802 - Spark's name
        """Take over what a window can say; the rest is Spark's."""
        filters_came()
        pushed = push(filters, self._options.rows)
        self._window &= pushed.window
        return pushed.left


def _pushing() -> bool:
    """Whether this process plans a read with filters to push down."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING in sys.modules or getattr(main, "name", None) == _PUSHING
