"""Iceberg tables on a catalog in a file: the same code as on the Glue catalog."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from coldstream.jobs.materialise.commit import commit
from coldstream.jobs.materialise.declared.fields import parse_declared
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.iceberg.table import FILE_IO, IcebergTable
from coldstream.jobs.materialise.json_bodies.bodies import parse_bodies
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rows import with_type
from coldstream.jobs.materialise.rules import TablePartition
from coldstream.jobs.materialise.table import Append, AppendOutcome, Table
from coldstream.jobs.materialise.transform import columns_declared
from coldstream_devkit.suites.table import (
    COLUMNS,
    SCHEMA,
    STREAM,
    SharedTableSuite,
    TableSite,
    TableSuite,
    append_of,
    offsets,
    written,
)
from coldstream_devkit.suites.table import rows as suite_rows


@pytest.fixture
def catalog(tmp_path: Path) -> Callable[[], SqlCatalog]:
    def open_catalog() -> SqlCatalog:
        return SqlCatalog(
            "tests",
            uri=f"sqlite:///{tmp_path}/catalog.db",
            warehouse=f"file://{tmp_path}/warehouse",
            **{"py-io-impl": FILE_IO},
        )

    return open_catalog


@pytest.fixture
def site(tmp_path: Path, catalog: Callable[[], SqlCatalog]) -> TableSite:
    return site_of(tmp_path, catalog, shared=False)


def site_of(tmp_path: Path, catalog: Callable[[], SqlCatalog], *, shared: bool) -> TableSite:
    """Tables on a catalog in a file."""
    ids = count(10**6)  # never those of the suite: a name is used once

    def open_table(name: str) -> Table:
        return IcebergTable(
            catalog(),
            name,
            location=f"file://{tmp_path}/warehouse/{name}",
            partition=TablePartition.DAY,
            columns=COLUMNS,
            files=StoredFiles(),
            new_id=lambda: f"{next(ids):016x}",
            shared=shared,
        )

    def rows(name: str) -> pa.Table:
        return catalog().load_table(name).scan().to_arrow()

    return TableSite(open_table, StoredFiles(), rows, shared)


class TestIcebergTable(TableSuite):
    pass


class TestIcebergTableOfSharedFiles(SharedTableSuite):
    @pytest.fixture
    def site(self, tmp_path: Path, catalog: Callable[[], SqlCatalog]) -> TableSite:
        return site_of(tmp_path, catalog, shared=True)


def test_a_json_table_has_its_fields_as_columns_and_rescues_none(site: TableSite) -> None:
    table = site.open("db.json")
    found = pa.schema(
        [
            pa.field("who", pa.string()),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("lines", pa.list_(pa.struct([("sku", pa.string()), ("n", pa.int64())]))),
        ]
    )
    loaded = table.grow(table.load(SCHEMA), pa.schema([*SCHEMA, *found]))
    body = b'{"who":"a","tags":["x"],"lines":[{"sku":"s","n":1}]}'
    known = pa.schema([loaded.schema.field(name) for name in found.names])
    parsed = parse_bodies(pa.array([body]), known)
    assert parsed.rescued.null_count == 1
    assert [column[0].as_py() for column in parsed.columns] == [
        "a", ["x"], [{"sku": "s", "n": 1}],
    ]  # fmt: skip


def test_a_table_of_iceberg_has_every_type_that_a_rule_can_declare(site: TableSite) -> None:
    declared = parse_declared(
        "b: boolean\ni: int\nl: long\nf: float\nd: double\np: decimal(12,2)\ns: string\n"
        "day: date\nt: timestamp\nn: timestamp_ntz\nms: timestamp_ms\nxs: list<decimal(9,1)>\n"
        "o: struct<a: int, at: timestamp>\nm: map<string, double>"
    )
    body = (
        b'{"b":true,"i":1,"l":2,"f":0.5,"d":0.1,"p":19.99,"s":[1],"day":"2026-11-24",'
        b'"t":"2026-11-24T08:00:00Z","n":"2026-11-24T08:00:00","ms":1500,"xs":[1.5],'
        b'"o":{"a":1,"at":"2026-11-24T08:00:00Z"},"m":{"k":1.5}}'
    )
    parsed = parse_bodies(pa.array([body]), declared, declared=True)
    assert parsed.rescued.null_count == 1
    table = site.open("db.json")
    first = pa.schema([*SCHEMA, *columns_declared(declared)])
    loaded = table.load(first)
    rows = suite_rows([0])
    made = dict(zip(declared.names, parsed.columns, strict=True))
    columns = [
        with_type(made[each.name] if each.name in made else rows.column(each.name), each.type)
        for each in loaded.schema
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=loaded.schema)
    append = Append("a", written(site, loaded, batch), {STREAM: Ranges.of([(0, 1)])})
    assert table.append(loaded, append) is AppendOutcome.LANDED
    found = site.rows("db.json").select(declared.names).to_pylist()
    assert found == [{name: column[0].as_py() for name, column in made.items()}]


def test_manifests_of_many_commits_become_few(
    site: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    table = site.open("db.t")
    table.load(SCHEMA)
    few = {"commit.manifest.min-count-to-merge": "4"}
    with catalog().load_table("db.t").transaction() as change:
        change.set_properties(few)
    for first in range(0, 100, 10):
        append = append_of(site, table.load(SCHEMA), first, first + 10)
        commit(table, append, first_schema=SCHEMA, pause=lambda _: None)
    there = catalog().load_table("db.t")
    snapshot = there.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(there.io)) < 5
    assert offsets(site, "db.t") == list(range(100))
    assert len(table.files(table.load(SCHEMA))) == 10


def test_a_new_table_says_the_order_of_its_rows_and_a_file_if_it_has_it(
    site: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    table = site.open("db.t")
    loaded = table.load(SCHEMA)
    files = [
        each for some in ([0, 1, 1, 2], [4, 3]) for each in written(site, loaded, suite_rows(some))
    ]
    append = Append("a", files, {STREAM: Ranges.of([(0, 5)])})
    assert table.append(loaded, append) is AppendOutcome.LANDED
    there = catalog().load_table("db.t")
    order = there.sort_order()
    names = [there.schema().find_column_name(each.source_id) for each in order.fields]
    assert names == ["stream", "offset"]
    said = {task.file.record_count: task.file.sort_order_id for task in there.scan().plan_files()}
    assert said == {4: order.order_id, 2: None}
