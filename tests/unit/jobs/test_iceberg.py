"""Iceberg tables on a catalog in a file: the same code as on the Glue catalog."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.iceberg import FILE_IO, IcebergTable
from coldstream.jobs.materialise.json_body import parse_bodies
from coldstream.jobs.materialise.rules import TablePartition
from coldstream.jobs.materialise.table import Table
from coldstream_devkit.suites.table import COLUMNS, SCHEMA, TableSite, TableSuite


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
        )

    def rows(name: str) -> pa.Table:
        return catalog().load_table(name).scan().to_arrow()

    return TableSite(open_table, StoredFiles(), rows)


class TestIcebergTable(TableSuite):
    pass


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
