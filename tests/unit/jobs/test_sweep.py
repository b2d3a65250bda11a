"""What goes of a table's files, and what must not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.update import RemoveSnapshotsUpdate

from coldstream.adapters.memory import MemoryObjectStore
from coldstream.errors import CorruptDataError, InternalError, UnavailableError
from coldstream.jobs.materialise.commit import commit
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.iceberg import FILE_IO, IcebergTable
from coldstream.jobs.materialise.iceberg_versions import forgettable
from coldstream.jobs.materialise.parquet import ParquetTable
from coldstream.jobs.materialise.rules import Partition
from coldstream.jobs.materialise.sweep import Swept, place, plan_sweep, sweep
from coldstream.jobs.materialise.table import Append, Loaded, Table
from coldstream.ports import ObjectInfo
from coldstream.testing.table_suite import (
    COLUMNS,
    SCHEMA,
    STREAM,
    TableSite,
    append_of,
    offsets,
    rows,
    written,
)
from tests.unit.jobs.iceberg_history import compact, current, set_back

_DAY_MS = 86_400_000
_IDS = count(10**8)


class _Clock:
    def __init__(self) -> None:
        self.ms = 100 * _DAY_MS

    def __call__(self) -> int:
        return self.ms


class _Files:
    """Files in the same store as the log."""

    def __init__(self, store: MemoryObjectStore) -> None:
        self._store = store

    def save(self, path: str, content: IO[bytes], size: int) -> None:
        key = path.removeprefix("s3://tables/")
        self._store.put(key, content.read(size), write_id=key)


class _Site:
    """A table of plain files in a store whose clock the test sets."""

    def __init__(self) -> None:
        self.clock = _Clock()
        self.store = MemoryObjectStore(clock_ms=self.clock)
        self.table = self.open()
        self.files = TableSite(lambda _: self.open(), _Files(self.store), self.rows)

    def open(self) -> ParquetTable:
        return ParquetTable(
            self.store,
            "s3://tables/shop/orders",
            "shop.orders",
            partition=Partition.DAY,
            columns=COLUMNS,
            files=_Files(self.store),
            new_id=lambda: f"{next(_IDS):016x}",
        )

    def rows(self, name: str) -> pa.Table:
        del name
        loaded = self.table.load(SCHEMA)
        found = [b for f in self.table.files(loaded) for b in self.table.rows(loaded, f.path)]
        return pa.Table.from_batches(found, loaded.schema)

    def add(self, first: int, following: int) -> None:
        append = append_of(self.files, self.table.load(SCHEMA), first, following)
        commit(self.table, append, first_schema=SCHEMA, pause=lambda _: None)

    def replace(self) -> None:
        """All rows in new files."""
        loaded = self.table.load(SCHEMA)
        old = [each.path for each in self.table.files(loaded)]
        batch = self.rows("").combine_chunks().to_batches()[0]
        new = written(self.files, loaded, batch)
        self.table.append(loaded, Append(f"swap-{next(_IDS)}", new, removes=old))

    def sweep(self, days: int, **more: Any) -> Swept | None:
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

    assert site.sweep(3) == Swept()  # written long ago, but replaced two days ago
    assert len(site.keys()) == 2
    site.clock.ms += 2 * _DAY_MS
    told = site.sweep(3, dry_run=True)
    assert len(site.keys()) == 2
    assert told == site.sweep(3)
    assert told is not None
    assert (told.files, told.bytes > 0) == (1, True)
    assert len(site.keys()) == 1
    assert offsets(site.files, "") == list(range(100))
    assert site.sweep(3) == Swept()


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
    logged = site.keys("shop/orders/_coldstream/")

    assert site.sweep(3) == Swept()
    assert set(others) <= set(site.keys("shop/"))
    assert site.keys("shop/orders/_coldstream/") == logged


def test_nothing_goes_when_a_commit_cannot_be_read(site: _Site) -> None:
    site.add(0, 100)
    site.replace()
    site.clock.ms += 10 * _DAY_MS
    (oldest,) = site.keys("shop/orders/_coldstream/")[-1:]
    site.store.objects[oldest] = b"{"

    with pytest.raises(CorruptDataError) as caught:
        site.sweep(3)
    assert caught.value.key == oldest
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


def test_an_object_is_the_same_however_its_writer_calls_s3() -> None:
    objects = [ObjectInfo(key, 1, 0) for key in ("t/data/a#1.parquet", "t/data/b?.parquet", "t/c")]
    needed = {place("s3a://w/t/data/a#1.parquet"), place("s3n://w/t/data/b?.parquet")}

    left = plan_sweep(objects, needed, bucket="w", before_ms=1)

    assert [each.key for each in left] == ["t/c"]


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


# Iceberg's versions.


@pytest.fixture
def catalog(tmp_path: Path) -> Callable[[], SqlCatalog]:
    return lambda: SqlCatalog(
        "tests",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        warehouse=f"file://{tmp_path}/warehouse",
        **{"py-io-impl": FILE_IO},
    )


@pytest.fixture
def iceberg(tmp_path: Path, catalog: Callable[[], SqlCatalog]) -> TableSite:
    def open_table(name: str) -> Table:
        return IcebergTable(
            catalog(),
            name,
            location=f"file://{tmp_path}/warehouse/{name}",
            partition=Partition.DAY,
            columns=COLUMNS,
            files=StoredFiles(),
            new_id=lambda: f"{next(_IDS):016x}",
        )

    return TableSite(open_table, StoredFiles(), lambda n: catalog().load_table(n).scan().to_arrow())


def _grow(site: TableSite, first: int) -> None:
    table = site.open("db.t")
    append = append_of(site, table.load(SCHEMA), first, first + 100)
    commit(table, append, first_schema=SCHEMA, pause=lambda _: None)


def test_a_version_counts_by_when_it_was_replaced_not_by_when_it_was_made(
    iceberg: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    for first in (0, 100, 200):
        _grow(iceberg, first)
    metadata = catalog().load_table("db.t").metadata
    first, second, third = (each.snapshot_id for each in metadata.snapshots)
    replaced = [each.timestamp_ms for each in metadata.snapshot_log][1:]

    assert forgettable(metadata, replaced[0]) == set()
    assert forgettable(metadata, replaced[0] + 1) == {first}
    assert forgettable(metadata, replaced[1] + 1) == {first, second}
    assert forgettable(metadata, 2**42) == {first, second}
    assert third == metadata.current_snapshot_id


def test_what_a_tag_or_a_branch_names_is_kept(
    iceberg: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    for first in (0, 100, 200, 300):
        _grow(iceberg, first)
    ids = [each.snapshot_id for each in catalog().load_table("db.t").metadata.snapshots]
    with catalog().load_table("db.t").manage_snapshots() as change:
        change.create_tag(ids[0], "year-end")
        change.create_branch(ids[1], "audit")

    table = iceberg.open("db.t")
    versions = table.forget(table.load(SCHEMA), 2**42)

    assert versions is not None
    assert versions.forgotten == 1
    left = catalog().load_table("db.t").metadata
    assert {each.snapshot_id for each in left.snapshots} == {ids[0], ids[1], ids[3]}
    assert set(left.refs) == {"main", "year-end", "audit"}
    for tagged in ids[:2]:
        scan = catalog().load_table("db.t").scan(snapshot_id=tagged)
        assert {each.file.file_path for each in scan.plan_files()} <= set(versions.needed)


def test_going_back_at_this_very_moment_loses_nothing(
    iceberg: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    for first in (0, 100, 200):
        _grow(iceberg, first)
    table = iceberg.open("db.t")
    loaded = table.load(SCHEMA)
    oldest = loaded.handle.metadata.snapshots[0].snapshot_id
    set_back(catalog(), "db.t", oldest)

    assert table.forget(loaded, 2**42) is None

    assert current(catalog(), "db.t") == oldest
    assert len(catalog().load_table("db.t").metadata.snapshots) == 3
    assert offsets(iceberg, "db.t") == list(range(100))


def test_without_the_guard_it_would(iceberg: TableSite, catalog: Callable[[], SqlCatalog]) -> None:
    """Why `forget` says what branches it has seen: pyiceberg drops a branch with its snapshot."""
    for first in (0, 100):
        _grow(iceberg, first)
    stale = catalog().load_table("db.t")
    oldest = stale.metadata.snapshots[0].snapshot_id
    set_back(catalog(), "db.t", oldest)

    removal = RemoveSnapshotsUpdate(**{"snapshot-ids": [oldest]})
    catalog().commit_table(stale, (), (removal,))

    assert catalog().load_table("db.t").current_snapshot() is None


def test_a_version_that_alone_says_what_the_table_has_is_kept(
    iceberg: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    for first in (0, 100):
        _grow(iceberg, first)
    table = iceberg.open("db.t")
    compact(catalog(), "db.t")  # by others; only its parent names the state
    handle = catalog().load_table("db.t")
    unnoted = Loaded(SCHEMA, table.load(SCHEMA).state, "", frozenset(), handle)
    with handle.transaction() as change:
        change.remove_properties("coldstream.snapshot")
    unnoted = Loaded(SCHEMA, unnoted.state, "", frozenset(), catalog().load_table("db.t"))

    versions = table.forget(unnoted, 2**42)

    assert versions is not None
    assert versions.forgotten == 0
    assert iceberg.open("db.t").load(SCHEMA).state.of(STREAM).spans == ((0, 200),)


def test_the_states_of_kept_versions_are_needed(
    iceberg: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    for first in (0, 100, 200):
        _grow(iceberg, first)
    snapshots = catalog().load_table("db.t").metadata.snapshots
    states = [
        each.summary.additional_properties["coldstream.state"] for each in snapshots if each.summary
    ]
    table = iceberg.open("db.t")

    whole = table.forget(table.load(SCHEMA), 0)
    rest = table.forget(table.load(SCHEMA), 2**42)

    assert whole is not None
    assert rest is not None
    assert set(states) <= set(whole.needed)
    assert set(states) & set(rest.needed) == {states[-1]}


def test_a_state_that_only_a_property_names_any_more_is_needed(
    iceberg: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    _grow(iceberg, 0)
    (ours,) = catalog().load_table("db.t").metadata.snapshots
    assert ours.summary is not None
    state = ours.summary.additional_properties["coldstream.state"]
    compact(catalog(), "db.t")  # by others: its summary names no state
    table = iceberg.open("db.t")

    versions = table.forget(table.load(SCHEMA), 2**42)

    assert versions is not None
    assert versions.forgotten == 1
    assert state in versions.needed
    assert iceberg.open("db.t").load(SCHEMA).state.of(STREAM).spans == ((0, 100),)
