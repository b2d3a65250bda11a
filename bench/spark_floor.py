"""What Spark itself takes for rows from Python: a source that has its rows ready and does nothing.

The Python Data Source API carries rows into the JVM one Arrow batch after the other, and the JVM
takes them out row by row. No source can be faster than this one, which gives the same batch again
and again: as many rows, columns, batches and partitions as the real one, without a read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from coldstream.adapters.place import connect
from coldstream.spark.options import parse_options
from coldstream.spark.plan import decode_split
from coldstream.spark.process import prepare as prepare_process
from coldstream.spark.query import plan_query
from coldstream.spark.read import read_split
from coldstream.spark.window import Window

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

NAME = "bench_floor"


def prepare(path: Path, given: dict[str, str], columns: str, window: Window) -> dict[str, str]:
    """Write down the longest batch of a real read; options for `Floor` to give as many rows."""
    options = parse_options({**given, "columns": columns}, {})
    remote = connect(options.place)
    works = plan_query(options, tuple(columns.split(",")), window, remote)
    rows = 0
    longest: pa.RecordBatch | None = None
    for work in works:
        for batch in read_split(work.task, decode_split(work.split), remote):
            rows += batch.num_rows
            if longest is None or batch.num_rows > longest.num_rows:
                # A batch is only valid until the next one is asked for.
                longest = pa.ipc.read_record_batch(batch.serialize(), batch.schema)
    assert longest is not None
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, longest.schema) as writer:
        writer.write_batch(longest)
    return {"path": str(path), "rows": str(rows), "partitions": str(len(works))}


class Floor(DataSource):
    """`spark.read.format("bench_floor")` with the options of `prepare`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        prepare_process()
        with pa.OSFile(self.options["path"]) as file:
            return from_arrow_schema(pa.ipc.open_file(file).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        prepare_process()
        return _Reader(dict(self.options))


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """All of them are taken over, as the source does: the rows are those that pass."""
        del filters
        return []

    def partitions(self) -> list[InputPartition]:
        rows, count = int(self._options["rows"]), int(self._options["partitions"])
        return [InputPartition(rows * (n + 1) // count - rows * n // count) for n in range(count)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        prepare_process()
        with pa.OSFile(self._options["path"]) as file:
            batch = pa.ipc.open_file(file).get_batch(0)
        left: int = partition.value
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows
