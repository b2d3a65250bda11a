"""A table that a person drops, or whose columns he changes, while a run writes files for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import DoubleType, LongType

from coldstream.errors import ConflictError
from coldstream.jobs.materialise.commit import commit
from coldstream.jobs.materialise.iceberg.table import FILE_IO
from coldstream.jobs.materialise.table import Append, Loaded, Table
from coldstream_devkit.suites.table import SCHEMA, TableSite, append_of_grown
from tests.unit.jobs.test_iceberg import site_of

Catalogs = Callable[[], SqlCatalog]
NAME = "db.t"
WIDE = pa.schema([*SCHEMA, pa.field("price", pa.int64()), pa.field("sold", pa.int64())])


@pytest.fixture
def catalog(tmp_path: Path) -> Catalogs:
    def open_catalog() -> SqlCatalog:
        return SqlCatalog(
            "tests",
            uri=f"sqlite:///{tmp_path}/catalog.db",
            warehouse=f"file://{tmp_path}/warehouse",
            **{"py-io-impl": FILE_IO},
        )

    return open_catalog


@pytest.fixture
def site(tmp_path: Path, catalog: Catalogs) -> TableSite:
    return site_of(tmp_path, catalog, shared=False)


def made_again(site: TableSite, catalog: Catalogs) -> None:
    catalog().drop_table(NAME)
    other = site.open(NAME)
    other.grow(other.load(SCHEMA), pa.schema([*SCHEMA, WIDE.field("sold"), WIDE.field("price")]))


def made_again_with_the_same_columns(site: TableSite, catalog: Catalogs) -> None:
    catalog().drop_table(NAME)
    other = site.open(NAME)
    other.grow(other.load(SCHEMA), WIDE)


def dropped_whole(_: TableSite, catalog: Catalogs) -> None:
    catalog().drop_table(NAME)


def dropped_and_added(_: TableSite, catalog: Catalogs) -> None:
    with catalog().load_table(NAME).update_schema() as update:
        update.delete_column("price")
    with catalog().load_table(NAME).update_schema() as update:
        update.add_column("price", DoubleType())


def exchanged(_: TableSite, catalog: Catalogs) -> None:
    for old, new in (("price", "x"), ("sold", "price"), ("x", "sold")):
        with catalog().load_table(NAME).update_schema() as update:
            update.rename_column(old, new)


def dropped(_: TableSite, catalog: Catalogs) -> None:
    with catalog().load_table(NAME).update_schema() as update:
        update.delete_column("price")


def renamed(_: TableSite, catalog: Catalogs) -> None:
    with catalog().load_table(NAME).update_schema() as update:
        update.rename_column("price", "cost")


def _begun(site: TableSite) -> tuple[Table, Loaded, Append]:
    table = site.open(NAME)
    loaded = table.grow(table.load(SCHEMA), WIDE)
    return table, loaded, append_of_grown(site, loaded)


@pytest.mark.parametrize(
    "change",
    [
        made_again, made_again_with_the_same_columns, dropped_whole, dropped_and_added, exchanged,
        dropped, renamed,
    ],
)  # fmt: skip
def test_files_for_columns_that_are_others_by_now_become_part_of_no_table(
    site: TableSite, catalog: Catalogs, change: Callable[[TableSite, Catalogs], Any]
) -> None:
    table, _, append = _begun(site)
    change(site, catalog)

    with pytest.raises(ConflictError, match="run again"):
        commit(table, append, first_schema=SCHEMA, pause=lambda _: None)

    assert site.rows(NAME).num_rows == 0


def test_files_stay_good_when_a_person_adds_or_widens_a_column(
    site: TableSite, catalog: Catalogs
) -> None:
    table, _, append = _begun(site)
    with catalog().load_table(NAME).update_schema() as update:
        update.add_column("more", LongType())

    commit(table, append, first_schema=SCHEMA, pause=lambda _: None)

    assert site.rows(NAME).num_rows == 1
