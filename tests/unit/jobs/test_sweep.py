"""What goes of a table's files, and what must not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from coldstream.adapters.memory import MemoryObjectStore
from coldstream.errors import (
    CorruptDataError,
    InternalError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.jobs.materialise.commit import commit
from coldstream.jobs.materialise.rules import TablePartition
from coldstream.jobs.materialise.sweep import Swept, SweptTable, key_of, plan_sweep, sweep
from coldstream.jobs.materialise.table import Append, Loaded, Versions
from coldstream.ports import ObjectInfo
from coldstream_devkit.suites.table import (
    COLUMNS,
    SCHEMA,
    TableSite,
    append_of,
    offsets,
    rows,
    written,
)
from tests.support.memory_table import MemoryTable, StoreFiles, Version

_DAY_MS = 86_400_000
_IDS = count(10**8)


class _Clock:
    def __init__(self) -> None:
        self.ms = 100 * _DAY_MS

    def __call__(self) -> int:
        return self.ms


class _Site:
    """A table in memory in a store whose clock the test sets."""

    def __init__(self) -> None:
        self.clock = _Clock()
        self.store = MemoryObjectStore(clock_ms=self.clock)
        self.versions: list[Version] = []
        self.table = self.open()
        self.files = TableSite(lambda _: self.open(), StoreFiles(self.store), self.rows)

    def open(self) -> MemoryTable:
        return MemoryTable(
            self.versions,
            self.store,
            "s3://tables/shop/orders",
            partition=TablePartition.DAY,
            columns=COLUMNS,
            files=StoreFiles(self.store),
            new_id=lambda: f"{next(_IDS):016x}",
            clock_ms=self.clock,
        )

    def rows(self, name: str) -> pa.Table:
        del name
        loaded = self.table.load(SCHEMA)
        found = [b for f in self.table.files(loaded) for b in self.table.rows(loaded, f.path)]
        return pa.Table.from_batches(found, loaded.schema)

    def add(self, first: int, next_offset: int) -> None:
        append = append_of(self.files, self.table.load(SCHEMA), first, next_offset)
        commit(self.table, append, first_schema=SCHEMA, pause=lambda _: None)

    def replace(self) -> None:
        """All rows in new files."""
        loaded = self.table.load(SCHEMA)
        old = [each.path for each in self.table.files(loaded)]
        batch = self.rows("").combine_chunks().to_batches()[0]
        new = written(self.files, loaded, batch)
        self.table.append(loaded, Append(f"swap-{next(_IDS)}", new, removes=old))

    def sweep(self, days: int, **more: Any) -> SweptTable | None:
        before_ms = self.clock.ms - days * _DAY_MS
        return sweep(self.table, SCHEMA, self.opened, before_ms=before_ms, **more)

    def opened(self, bucket: str) -> tuple[MemoryObjectStore, MemoryObjectStore]:
        assert bucket == "tables"
        return self.store, self.store

    def keys(self, under: str = "shop/orders/data/") -> list[str]:
        return [row.key for row in self.store.list(under)]


@pytest.fixture
def site() -> _Site:
    return _Site()


def test_replaced_files_go_when_they_have_been_out_of_the_table_for_long_enough(
    site: _Site,
) -> None:
    site.add(0, 100)
    site.clock.ms += 30 * _DAY_MS
    site.replace()
    assert len(site.keys()) == 2
    site.clock.ms += 2 * _DAY_MS

    assert site.sweep(3) == SweptTable()  # written long ago, but replaced two days ago
    assert len(site.keys()) == 2
    site.clock.ms += 2 * _DAY_MS
    told = site.sweep(3, dry_run=True)
    assert len(site.keys()) == 2
    assert told == site.sweep(3)
    assert told is not None
    assert (told.files, told.bytes > 0) == (1, True)
    assert len(site.keys()) == 1
    assert offsets(site.files, "") == list(range(100))
    assert site.sweep(3) == SweptTable()


def test_files_of_a_run_that_died_go_and_those_of_one_under_way_stay(site: _Site) -> None:
    site.add(0, 100)
    dead = written(site.files, site.table.load(SCHEMA), rows(range(100, 200)))
    site.clock.ms += 4 * _DAY_MS
    alive = append_of(site.files, site.table.load(SCHEMA), 100, 200)

    told = site.sweep(3)

    assert told is not None
    assert told.files == len(dead)
    commit(site.table, alive, first_schema=SCHEMA, pause=lambda _: None)
    assert offsets(site.files, "") == list(range(200))


def test_where_others_keep_the_table_only_old_states_go_and_no_version_is_forgotten(
    site: _Site,
) -> None:
    site.add(0, 100)
    site.clock.ms += 30 * _DAY_MS
    site.replace()
    old = "shop/orders/coldstream/state-old.json"
    site.store.put(old, b"{}", write_id=old)
    written(site.files, site.table.load(SCHEMA), rows(range(100, 200)))
    site.clock.ms += 40 * _DAY_MS
    files, versions = site.keys(), len(site.versions)

    told = site.sweep(3, what=Swept.STATES)

    assert told is not None
    assert (told.versions, told.files) == (0, 1)
    assert (site.keys(), len(site.versions)) == (files, versions)
    assert old not in site.keys("shop/")


def test_nothing_but_files_of_this_table_is_looked_at(site: _Site) -> None:
    site.add(0, 100)
    others = [
        "shop/orders_dead_letters/data/x.parquet",
        "shop/orders/data/notes.txt",
        "shop/orders/metadata/x.parquet",
        "shop/orders2/data/x.parquet",
        "shop/orders/coldstream/other.json",
    ]
    for key in others:
        site.store.put(key, b"?", write_id=key)
    site.clock.ms += 400 * _DAY_MS

    assert site.sweep(3) == SweptTable()
    assert set(others) <= set(site.keys("shop/"))


def test_nothing_goes_when_nobody_can_say_what_the_table_needs(site: _Site) -> None:
    site.add(0, 100)
    site.replace()
    site.clock.ms += 10 * _DAY_MS

    class Damaged:
        def __getattr__(self, name: str) -> Any:
            return getattr(site.table, name)

        def forget(self, *_: Any, **__: Any) -> None:
            raise CorruptDataError("a manifest is gone")

    table: Any = Damaged()
    with pytest.raises(CorruptDataError):
        sweep(table, SCHEMA, site.opened, before_ms=site.clock.ms - 3 * _DAY_MS)
    assert len(site.keys()) == 2


def test_what_the_store_leaves_is_asked_for_again(site: _Site) -> None:
    site.add(0, 100)
    for _ in range(3):
        site.replace()
    site.clock.ms += 10 * _DAY_MS
    store = site.store

    class Slow:
        calls = 0

        def delete(self, keys: Sequence[str]) -> list[str]:
            self.calls += 1
            if self.calls == 3:
                raise UnavailableError("no answer")
            return store.delete(keys[:1])

    slow = Slow()
    before_ms = site.clock.ms - 3 * _DAY_MS
    with pytest.raises(UnavailableError):
        sweep(site.table, SCHEMA, lambda _: (store, slow), before_ms=before_ms)
    assert slow.calls == 3
    assert len(site.keys()) == 2
    told = sweep(site.table, SCHEMA, lambda _: (store, slow), before_ms=before_ms)
    assert told is not None
    assert told.files == 1
    assert len(site.keys()) == 1


def test_a_table_that_others_have_changed_is_left_for_the_next_time(site: _Site) -> None:
    site.add(0, 100)
    site.replace()
    site.clock.ms += 10 * _DAY_MS

    class Changed:
        name = "shop.orders"

        def __getattr__(self, name: str) -> Any:
            return getattr(site.table, name)

        def forget(self, *_: Any, **__: Any) -> None:
            return None

    table: Any = Changed()
    before_ms = site.clock.ms
    assert sweep(table, SCHEMA, site.opened, before_ms=before_ms) is None
    assert len(site.keys()) == 2


def test_a_whole_bucket_is_never_swept(site: _Site) -> None:
    class Rootless:
        def load(self, schema: pa.Schema) -> Loaded:
            loaded = site.table.load(schema)
            return Loaded(loaded.schema, loaded.state, "s3://tables", frozenset(), None)

    table: Any = Rootless()
    with pytest.raises(InternalError, match="s3://tables is no place"):
        sweep(table, SCHEMA, site.opened, before_ms=site.clock.ms)


def test_an_object_is_the_same_however_its_writer_calls_s3_and_the_bucket() -> None:
    keys = ("t/data/a#1.parquet", "t/data/b?.parquet", "t/data/c%3D.parquet", "t/d")
    needed = {
        key_of(f"s3a://w/{keys[0]}"),
        key_of(f"s3n://w/{keys[1]}"),
        key_of(f"s3://v/{keys[2]}"),
    }

    left = plan_sweep([ObjectInfo(key, 1, 0) for key in keys], needed, before_ms=1)

    assert [each.key for each in left] == ["t/d"]


def test_a_table_that_was_copied_to_another_bucket_keeps_its_files(site: _Site) -> None:
    site.add(0, 100)
    site.clock.ms += 10 * _DAY_MS

    class Copied:
        def __getattr__(self, name: str) -> Any:
            return getattr(site.table, name)

        def forget(self, *given: Any, **more: Any) -> Versions:
            versions = site.table.forget(*given, **more)
            assert versions is not None
            before = {each.replace("s3://tables/", "s3a://before/") for each in versions.needed}
            return Versions(versions.forgotten, before)

    table: Any = Copied()
    before_ms = site.clock.ms - 3 * _DAY_MS
    assert sweep(table, SCHEMA, site.opened, before_ms=before_ms) == SweptTable()
    assert len(site.keys()) == 1


def test_what_is_written_while_a_table_is_asked_is_not_looked_at(site: _Site) -> None:
    """By a run whose clock, or patience, is not what we think: its files look old at once."""
    site.add(0, 100)
    site.clock.ms += 10 * _DAY_MS

    class Busy:
        def __getattr__(self, name: str) -> Any:
            return getattr(site.table, name)

        def forget(self, *given: Any, **more: Any) -> Any:
            versions = site.table.forget(*given, **more)
            site.clock.ms -= 10 * _DAY_MS
            site.add(100, 200)
            site.clock.ms += 10 * _DAY_MS
            return versions

    table: Any = Busy()
    told = sweep(table, SCHEMA, site.opened, before_ms=site.clock.ms - 3 * _DAY_MS)

    assert told == SweptTable()
    assert offsets(site.files, "") == list(range(200))


def test_what_cannot_be_deleted_keeps_nothing_else(site: _Site) -> None:
    site.add(0, 100)
    for number in range(1500):
        key = f"shop/orders/data/s/{number:04d}.parquet"
        site.store.put(key, b"?", write_id=key)
    site.clock.ms += 10 * _DAY_MS
    store = site.store

    class Refusing:
        def delete(self, keys: Sequence[str]) -> list[str]:
            allowed = [key for key in keys if not key.endswith("0000.parquet")]
            if not allowed:
                raise PermissionDeniedError("S3 refused a delete", key=keys[0])
            return store.delete(allowed)

    before_ms = site.clock.ms - 3 * _DAY_MS
    with pytest.raises(PermissionDeniedError):
        sweep(site.table, SCHEMA, lambda _: (store, Refusing()), before_ms=before_ms)
    assert len(site.keys()) == 2


def test_more_than_one_page_of_files_goes(site: _Site) -> None:
    site.add(0, 100)
    for number in range(2500):
        key = f"shop/orders/data/s/{number:04d}.parquet"
        site.store.put(key, b"?", write_id=key)
    site.clock.ms += 4 * _DAY_MS

    told = site.sweep(3)

    assert told is not None
    assert told.files == 2500
    assert len(site.keys()) == 1
