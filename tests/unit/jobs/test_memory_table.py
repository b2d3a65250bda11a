"""The table in memory, on which runs of materialise are killed, keeps the promise of the port."""

from __future__ import annotations

from collections import defaultdict
from itertools import count

import pyarrow as pa
import pytest

from coldstream.adapters.memory import MemoryObjectStore
from coldstream.jobs.materialise.rules import TablePartition
from coldstream_devkit.suites.table import COLUMNS, SCHEMA, SharedTableSuite, TableSite, TableSuite
from tests.support.memory_table import MemoryTable, StoreFiles, Version


@pytest.fixture
def site() -> TableSite:
    return _site(shared=False)


def _site(*, shared: bool) -> TableSite:
    ids = count(10**6)  # never those of the suite: a name is used once
    store = MemoryObjectStore()
    versions: defaultdict[str, list[Version]] = defaultdict(list)

    def open_table(name: str) -> MemoryTable:
        return MemoryTable(
            versions[name],
            store,
            f"s3://tables/{name}",
            partition=TablePartition.DAY,
            columns=COLUMNS,
            files=StoreFiles(store),
            new_id=lambda: f"{next(ids):016x}",
            shared=shared,
        )

    def rows(name: str) -> pa.Table:
        table = open_table(name)
        loaded = table.load(SCHEMA)
        batches = [b for f in table.files(loaded) for b in table.rows(loaded, f.path)]
        return pa.Table.from_batches(batches, loaded.schema)

    return TableSite(open_table, StoreFiles(store), rows, shared)


class TestMemoryTable(TableSuite):
    pass


class TestMemoryTableOfSharedFiles(SharedTableSuite):
    @pytest.fixture
    def site(self) -> TableSite:
        return _site(shared=True)
