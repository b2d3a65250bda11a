"""Tables of plain Parquet files with a log of commits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import IO

import pyarrow as pa
import pytest

from coldstream.adapters.memory import MemoryObjectStore
from coldstream.errors import CorruptDataError, UnavailableError, UnknownOutcomeError
from coldstream.jobs.materialise.commit import commit
from coldstream.jobs.materialise.parquet import ParquetTable
from coldstream.jobs.materialise.rules import Partition
from coldstream.jobs.materialise.table import Append, Outcome, StoredFile
from coldstream_devkit.suites.table import COLUMNS, SCHEMA, TableSite, TableSuite, append_of


class StoreFiles:
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
            files=StoreFiles(store),
            new_id=lambda: f"{next(ids):016x}",
        )

    def rows(name: str) -> pa.Table:
        table = open_table(name)
        loaded = table.load(SCHEMA)
        batches = [b for f in table.files(loaded) for b in table.rows(loaded, f.path)]
        return pa.Table.from_batches(batches, loaded.schema)

    return TableSite(open_table, StoreFiles(store), rows)


class TestParquetTable(TableSuite):
    pass


def test_a_damaged_commit_is_told_with_its_key(site: TableSite, store: MemoryObjectStore) -> None:
    key = "db.t/_coldstream/999999999999.json"
    store.put(key, b"{", write_id="w")
    with pytest.raises(CorruptDataError) as caught:
        site.open("db.t").load(SCHEMA)
    assert caught.value.key == key


@dataclass
class _Readers:
    """What readers are shown; `fails` many times it cannot be."""

    fails: int = 0
    shown: int = 0
    columns: list[str] = field(default_factory=list)
    rows: int = 0
    published: int = 0
    meanwhile: Callable[[], object] | None = None

    def version(self) -> int:
        return self.shown

    def publish(self, schema: pa.Schema, files: Iterable[StoredFile], version: int) -> None:
        self.published += 1
        self.columns, self.rows = schema.names, sum(file.rows for file in files)
        if self.fails:
            self.fails -= 1
            raise UnavailableError("Glue gave an error")
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        self.shown = version


class _Counting(MemoryObjectStore):
    """A store that counts what is read."""

    reads = 0

    def get_all(self, key: str, *, limit: int) -> bytes:
        self.reads += 1
        return super().get_all(key, limit=limit)


class _Forgetful(MemoryObjectStore):
    """A store whose next commit lands, and nobody hears of it."""

    silent = False

    def put(self, key: str, body: memoryview | bytes, *, write_id: str) -> None:
        super().put(key, body, write_id=write_id)
        if self.silent and "_coldstream" in key:
            self.silent = False
            raise UnknownOutcomeError("no answer")


def _shown(store: MemoryObjectStore, readers: _Readers) -> ParquetTable:
    ids = count(10**7)
    return ParquetTable(
        store,
        "s3://tables/db.t",
        "db.t",
        partition=Partition.DAY,
        columns=COLUMNS,
        files=StoreFiles(store),
        new_id=lambda: f"{next(ids):016x}",
        shown=readers,
    )


def _fill(site: TableSite, table: ParquetTable, first: int, following: int) -> None:
    append = append_of(site, table.load(SCHEMA), first, following)
    commit(table, append, first_schema=SCHEMA, pause=lambda _: None)


def test_what_a_run_could_not_show_is_shown_by_one_that_has_nothing_to_add(
    site: TableSite, store: MemoryObjectStore
) -> None:
    readers = _Readers(fails=1)
    with pytest.raises(UnavailableError):
        _fill(site, _shown(store, readers), 0, 10)
    assert readers.shown == 0
    assert _shown(store, readers).load(SCHEMA).state.covered
    assert (readers.shown, readers.rows) == (1, 10)


def test_columns_that_a_run_added_and_died_are_shown_by_the_next(
    site: TableSite, store: MemoryObjectStore
) -> None:
    readers = _Readers()
    table = _shown(store, readers)
    _fill(site, table, 0, 10)
    table.grow(table.load(SCHEMA), pa.schema([*SCHEMA, pa.field("price", pa.float64())]))
    _shown(store, readers).load(SCHEMA)
    assert readers.columns == [*SCHEMA.names, "price"]


def test_what_is_shown_already_costs_one_look_and_no_more(
    site: TableSite, store: MemoryObjectStore
) -> None:
    readers = _Readers()
    _fill(site, _shown(store, readers), 0, 10)
    assert readers.published == 1
    table = _shown(store, readers)
    table.load(SCHEMA)
    table.load(SCHEMA)
    assert readers.published == 1


def test_a_commit_without_an_answer_is_shown_as_soon_as_it_is_known(site: TableSite) -> None:
    store, readers = _Forgetful(), _Readers()
    silent = TableSite(site.open, StoreFiles(store), site.rows)
    store.silent = True
    _fill(silent, _shown(store, readers), 0, 10)
    assert (readers.shown, readers.rows) == (1, 10)


def test_what_another_run_commits_while_we_show_ours_is_shown_too(
    site: TableSite, store: MemoryObjectStore
) -> None:
    readers = _Readers()
    readers.meanwhile = lambda: _fill(site, _shown(store, _Readers()), 10, 30)
    _fill(site, _shown(store, readers), 0, 10)
    assert (readers.shown, readers.rows) == (2, 30)


def test_the_files_of_a_long_log_are_found_without_reading_all_of_it(site: TableSite) -> None:
    store = _Counting()
    there = TableSite(site.open, StoreFiles(store), site.rows)
    table = _shown(store, _Readers())
    for number in range(0, 230, 2):
        _fill(there, table, number, number + 2)
        if number % 5 == 0:
            loaded = table.load(SCHEMA)
            oldest = min(table.files(loaded), key=lambda file: file.first_offset)
            kept = Append(f"kept-{number}", removes=[oldest.path])
            assert table.append(loaded, kept) is Outcome.LANDED
    loaded = table.load(SCHEMA)
    everything: dict[str, StoredFile] = {}
    for version in range(1, loaded.handle.version + 1):
        key = f"db.t/_coldstream/{10**12 - version:012d}.json"
        document = json.loads(store.get_all(key, limit=2**20))
        everything |= {each["path"]: StoredFile(**each) for each in document["added"]}
        for path in document["removed"]:
            del everything[path]
    store.reads = 0
    files = table.files(loaded)
    assert store.reads <= 50 < loaded.handle.version
    assert {file.path: file for file in files} == everything
