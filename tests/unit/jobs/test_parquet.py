"""Tables of plain Parquet files with a log of commits."""

from __future__ import annotations

from itertools import count
from typing import IO

import pyarrow as pa
import pytest

from coldstream.adapters.memory import MemoryObjectStore
from coldstream.errors import CorruptDataError
from coldstream.jobs.materialise.parquet import ParquetTable
from coldstream.jobs.materialise.rules import Partition
from coldstream.testing.table_suite import COLUMNS, SCHEMA, TableSite, TableSuite


class _StoreFiles:
    """Files in the same store as the log."""

    def __init__(self, store: MemoryObjectStore) -> None:
        self._store = store

    def save(self, path: str, content: IO[bytes], size: int) -> None:
        key = path.removeprefix("s3://tables/")
        self._store.put(key, content.read(size), write_id=key)


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
def site(store: MemoryObjectStore) -> TableSite:
    ids = count(10**6)  # never those of the suite: a name is used once

    def open_table(name: str) -> ParquetTable:
        return ParquetTable(
            store,
            f"s3://tables/{name}",
            name,
            partition=Partition.DAY,
            columns=COLUMNS,
            files=_StoreFiles(store),
            new_id=lambda: f"{next(ids):016x}",
        )

    def rows(name: str) -> pa.Table:
        table = open_table(name)
        loaded = table.load(SCHEMA)
        batches = [b for f in table.files(loaded) for b in table.rows(loaded, f.path)]
        return pa.Table.from_batches(batches, loaded.schema)

    return TableSite(open_table, _StoreFiles(store), rows)


class TestParquetTable(TableSuite):
    pass


def test_a_damaged_commit_is_told_with_its_key(site: TableSite, store: MemoryObjectStore) -> None:
    key = "db.t/_coldstream/999999999999.json"
    store.put(key, b"{", write_id="w")
    with pytest.raises(CorruptDataError) as caught:
        site.open("db.t").load(SCHEMA)
    assert caught.value.key == key
