"""The table `shop.orders` of docs/how-to/query-tables.md, as the job's code writes it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from coldstream.jobs.materialise.commit import commit
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.iceberg.table import FILE_IO, IcebergTable
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rules import TablePartition
from coldstream.jobs.materialise.schema import (
    KEY_COLUMNS,
    RAW_COLUMNS,
    dead_schema,
    raw_schema,
)
from coldstream.jobs.materialise.table import Append
from coldstream.jobs.materialise.write import FileLayout, TableWriter
from coldstream.manifest.catalog import QueueName
from tests.support.tier import Tier
from tests.unit.columns.test_reference import listed, section, text
from tests.unit.spark.context import query

PAGE = (Path(__file__).parents[2] / "docs/how-to/query-tables.md").read_text()
NOON = 1_790_000_000_000  # 2026-09-21 14:13:20
HOUR = 3_600_000


def blocks(language: str) -> list[str]:
    """What the page shows in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def message(key: bytes, body: bytes) -> bytes:
    properties = section(0x73, listed(text(key.decode())))
    return properties + section(0x75, b"\xa0" + bytes([len(body)]) + body)


class ShopOrders:
    """A catalog in a file with the table and that of its dead letters, both empty."""

    def __init__(self, path: Path) -> None:
        self.catalog = SqlCatalog(
            "tests",
            uri=f"sqlite:///{path}/catalog.db",
            warehouse=f"file://{path}",
            **{"py-io-impl": FILE_IO},
        )
        self._ids = count(1)
        self._table = self._open(path, "orders")
        self._table.load(raw_schema())
        self._open(path, "orders_dead_letters").load(dead_schema())

    def take_in(self, stream: str, chunks: Sequence[bytes], *, queue: str = "orders") -> None:
        """One commit of all messages of a stream, which begins with them."""
        tier = Tier()
        tier.add(stream, [chunks], name=QueueName("c", "/", queue))
        loaded = self._table.load(raw_schema())
        rows = query(tier, stream=stream, columns=",".join(RAW_COLUMNS)).table().combine_chunks()
        schema = pa.schema([field.remove_metadata() for field in loaded.schema])
        (batch,) = rows.cast(schema).to_batches()
        layout = FileLayout(loaded.location, loaded.schema, TablePartition.DAY, KEY_COLUMNS)
        with TableWriter(layout, stream, StoredFiles(), self._id) as writer:
            written = [*writer.write(batch), *writer.close()]
        offsets = batch.column("offset").to_pylist()
        taken = Ranges.of([(offsets[0], offsets[-1] + 1)])
        append = Append(self._id(), written, {stream: taken})
        commit(self._table, append, first_schema=raw_schema(), pause=lambda _: None)

    def _open(self, path: Path, name: str) -> IcebergTable:
        return IcebergTable(
            self.catalog,
            f"shop.{name}",
            location=f"file://{path}/{name}",
            partition=TablePartition.DAY,
            columns=KEY_COLUMNS,
            files=StoredFiles(),
            new_id=self._id,
        )

    def _id(self) -> str:
        return f"{next(self._ids):016x}"

    def metadata(self, name: str) -> Path:
        """The file that says what a table is now."""
        location: Any = self.catalog.load_table(f"shop.{name}").metadata_location
        return Path(location.removeprefix("file://"))
