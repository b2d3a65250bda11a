"""A table whose columns a person changes between two runs: its rows stay what its readers see."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType

from coldstream.jobs.materialise.commit import commit
from coldstream.jobs.materialise.compact import attempted
from coldstream.jobs.materialise.erase import erase_rows
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.iceberg.table import IcebergTable
from coldstream.jobs.materialise.latest.rule import Latest, LatestKey
from coldstream.jobs.materialise.maintain import Maintainer
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rules import TablePartition, TableRule
from coldstream.jobs.materialise.run import Runner
from coldstream.jobs.materialise.run_settings import RunSettings
from coldstream.jobs.materialise.schema import KEY_COLUMNS, columns_of
from coldstream.jobs.materialise.table import Append, Loaded
from coldstream.jobs.materialise.window_commit import Tables
from coldstream.jobs.materialise.write import FileLayout
from coldstream.osiris.offsets import OffsetSet
from coldstream_devkit.suites.table import COLUMNS, SCHEMA, STREAM, TableSite, rows, written
from tests.unit.jobs.test_iceberg import catalog, site_of
from tests.unit.jobs.test_materialise_run import ORDERS, Engine, Site
from tests.unit.jobs.test_shared_iceberg import _id

__all__ = ["catalog"]

Catalogs = Callable[[], SqlCatalog]
NAME = "db.t"
_ORDER = pa.struct([pa.field("sku", pa.string()), pa.field("count", pa.int64())])
WIDE = pa.schema(
    [
        *SCHEMA,
        pa.field("price", pa.string()),
        pa.field("sold", pa.string()),
        pa.field("order", _ORDER),
        pa.field("lines", pa.list_(_ORDER)),
        pa.field("by_day", pa.map_(pa.string(), _ORDER)),
    ]
)


def _values(offset: int) -> dict[str, Any]:
    order = {"sku": f"s{offset}", "count": offset}
    return {
        "price": f"p{offset}", "sold": f"q{offset}", "order": order,
        "lines": [order, {**order, "count": -offset}], "by_day": [("monday", order)],
    }  # fmt: skip


def _put(site: TableSite, loaded: Loaded, first: int, next_offset: int) -> None:
    known = rows(range(first, next_offset))
    values = [_values(offset) for offset in range(first, next_offset)]
    columns = [
        pa.array([each[field.name] for each in values], field.type)
        if field.name in values[0]
        else known.column(field.name)
        for field in loaded.schema
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=loaded.schema)
    append = Append(
        _id(), written(site, loaded, batch), {STREAM: Ranges.of([(first, next_offset)])}
    )
    commit(site.open(NAME), append, first_schema=SCHEMA, pause=lambda _: None)


@pytest.fixture
def site(tmp_path: Path, catalog: Catalogs) -> TableSite:
    made = site_of(tmp_path, catalog, shared=False)
    table = made.open(NAME)
    loaded = table.grow(table.load(SCHEMA), WIDE)
    _put(made, loaded, 0, 3)
    _put(made, table.load(SCHEMA), 3, 6)
    return made


def _renamed(*pairs: tuple[str, str]) -> Callable[[Catalogs], None]:
    def change(catalog: Catalogs) -> None:
        for old, new in pairs:
            with catalog().load_table(NAME).update_schema() as update:
                update.rename_column(old, new)

    return change


def _dropped(*names: str) -> Callable[[Catalogs], None]:
    def change(catalog: Catalogs) -> None:
        with catalog().load_table(NAME).update_schema() as update:
            for name in names:
                update.delete_column(name)

    return change


def _a_field_inside_is_another(catalog: Catalogs) -> None:
    for path in (("order",), ("lines", "element"), ("by_day", "value")):
        with catalog().load_table(NAME).update_schema() as update:
            update.delete_column((*path, "sku"))
        with catalog().load_table(NAME).update_schema() as update:
            update.add_column((*path, "sku"), LongType())


CHANGES = {
    "renamed": _renamed(("price", "cost")),
    "exchanged": _renamed(("price", "x"), ("sold", "price"), ("x", "sold")),
    "renamed inside": _renamed(
        ("order.sku", "id"), ("lines.element.sku", "id"), ("by_day.value.sku", "id")
    ),
    "dropped": _dropped("price", "order"),
    "another type inside": _a_field_inside_is_another,
}


def _again(kind: pa.DataType) -> Callable[[TableSite, Catalogs], None]:
    """A column that a person drops, and that a run adds again by itself."""

    def change(site: TableSite, catalog: Catalogs) -> None:
        CHANGES["dropped"](catalog)
        table = site.open(NAME)
        table.grow(table.load(SCHEMA), pa.schema([*SCHEMA, pa.field("price", kind)]))

    return change


ALL: dict[str, Callable[[TableSite, Catalogs], None]] = {
    **{name: (lambda _, catalog, change=each: change(catalog)) for name, each in CHANGES.items()},
    "dropped and added again": _again(pa.string()),
    "dropped and added again with another type": _again(pa.int64()),
}


def _maintain(site: TableSite) -> None:
    def layout_of(now: Loaded) -> FileLayout:
        return FileLayout(now.location, now.schema, TablePartition.DAY, COLUMNS)

    done = Maintainer(
        site.open(NAME),
        SCHEMA,
        layout_of,
        lambda pieces, layout: [attempted(each, layout, StoredFiles(), _id) for each in pieces],
        _id,
    ).maintain(keep_seconds=None, now_ms=0, target_bytes=2**28)
    assert done.merged == 2


def _rows(catalog: Catalogs) -> pa.Table:
    """As any reader of Iceberg has them."""
    return catalog().load_table(NAME).scan().to_arrow()


def _seen(catalog: Catalogs) -> list[dict[str, Any]]:
    return list(_rows(catalog).sort_by("offset").to_pylist())


@pytest.mark.parametrize("change", ALL)
def test_files_of_before_and_after_are_merged_and_no_value_changes(
    site: TableSite,
    catalog: Catalogs,
    change: str,
) -> None:
    ALL[change](site, catalog)
    before = _seen(catalog)

    _maintain(site)

    assert _seen(catalog) == before


@pytest.mark.parametrize("change", ALL)
def test_one_row_is_erased_and_no_value_of_another_changes(
    site: TableSite,
    catalog: Catalogs,
    change: str,
) -> None:
    ALL[change](site, catalog)
    before = _seen(catalog)

    erase_rows(
        site.open(NAME), SCHEMA, STREAM, OffsetSet.of([(1, 2)]), new_id=_id, pause=lambda _: None
    )

    assert _seen(catalog) == [each for each in before if each["offset"] != 1]


@pytest.mark.parametrize("change", ["renamed", "dropped"])
def test_a_table_of_the_latest_keeps_its_values_and_is_filled_again(
    tmp_path: Path,
    catalog: Catalogs,
    change: str,
) -> None:
    rule = TableRule(".*", NAME, body="json", latest=Latest(LatestKey.parse("body.id"), 1))
    ids = count()
    site = Site({ORDERS: [b'{"id":"1","price":"ten","other":"x"}']}, rule)

    class Store(StoredFiles):
        clock = SimpleNamespace(tick=lambda: None)

    def table(name: str, columns: Any, buckets: Any = None) -> IcebergTable:
        return IcebergTable(
            catalog(), name, location=f"file://{tmp_path}/w/{name}", partition=rule.partition,
            columns=columns, files=StoredFiles(), new_id=lambda: f"{next(ids):016x}",
            buckets=buckets,
        )  # fmt: skip

    def run() -> None:
        store: Any = Store()
        tables = Tables(
            table(NAME, columns_of("json"), rule.buckets), table(f"{NAME}_dead", KEY_COLUMNS)
        )
        Runner(
            Engine(site.bodies, store, ids), lambda: f"{next(ids):016x}", lambda _: None,
            lambda _: None,
        ).fill(rule, tables, [site.now(ORDERS)], RunSettings())  # fmt: skip

    def of(key: str) -> dict[str, Any]:
        (found,) = [each for each in _rows(catalog).to_pylist() if each["_key"] == key]
        return {name: value for name, value in found.items() if not name.startswith("_")}

    run()
    with catalog().load_table(NAME).update_schema() as update:
        if change == "renamed":
            update.rename_column("price", "cost")
        else:
            update.delete_column("price")
    kept = of("1")
    site.bodies[ORDERS].append(b'{"id":"2","price":7}')
    run()

    assert {name: of("1")[name] for name in kept} == kept
    assert of("1")["price"] is None
    assert of("2")["price"] == 7
