"""A remote tier in memory, and what a query reads of it, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from coldstream.adapters.memory import MemoryPolicies
from coldstream.adapters.place import Place, Remote
from coldstream.columns.reference import decode_reference
from coldstream.columns.schema import COLUMNS, OF_STREAM, Origin, select
from coldstream.osiris.chunk import Chunk, iter_chunks
from coldstream.spark.options import Rows, parse_options
from coldstream.spark.plan import decode_split
from coldstream.spark.query import TaskWork, plan_query
from coldstream.spark.read import read_split
from coldstream.spark.schema import arrow_schema, default_columns
from coldstream.spark.window import Window
from tests.support.tier import PREFIX, Tier

#: All columns but those of the stream, and the bytes of messages as they came.
MESSAGE = tuple(name for name in COLUMNS if name not in (*OF_STREAM, "raw"))
WHERE = {"bucket": "b", "catalog": "t", "prefix": PREFIX}


@dataclass
class Query:
    """A query over a tier, planned once and read as often as one likes."""

    remote: Remote
    works: list[TaskWork]
    schema: pa.Schema

    def batches(self) -> list[list[pa.RecordBatch]]:
        """What each task gives; copied, because a task may reuse its buffers."""
        return [
            [copied(each) for each in read_split(w.task, decode_split(w.split), self.remote)]
            for w in self.works
        ]

    def table(self) -> pa.Table:
        found = [batch for batches in self.batches() for batch in batches]
        return pa.Table.from_batches(found, schema=self.schema)

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table().to_pylist()
        return rows


def copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return next(iter(pa.ipc.open_stream(sink.getvalue())))


def remote_of(tier: Tier) -> Remote:
    return Remote(tier.store, tier.catalog, MemoryPolicies(), Place("", "", PREFIX))


def query(tier: Tier, window: Window | None = None, **given: str) -> Query:
    """Plan a query with these options; small splits, so that fragments are cut.

    Without columns it asks for all that messages are made of.
    """
    options = parse_options({"partitionBytes": "3000", **WHERE, **given}, {})
    columns = default_columns(options)
    if "columns" not in given and options.rows is Rows.MESSAGES:
        columns = (*OF_STREAM, *MESSAGE) if options.several else MESSAGE
    works = plan_query(options, columns, window or Window(), remote_of(tier))
    return Query(remote_of(tier), works, arrow_schema(options.rows, columns))


def reference(
    chunks: Sequence[bytes] | Sequence[Chunk],
    names: Sequence[str] | None = None,
    *,
    stream: str = "",
    start: int = 0,
    end: int = 2**63,
) -> list[dict[str, Any]]:
    """What the plain decoder makes of chunks."""
    parsed = [each if isinstance(each, Chunk) else next(iter_chunks(each)) for each in chunks]
    batch = decode_reference(
        select(names or MESSAGE), parsed, origin=Origin(stream), start=start, end=end
    )
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


def without(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: row[name] for name in row if name not in names} for row in rows]
