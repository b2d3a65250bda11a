"""dbt-athena takes the page's model, and what it sends to Athena does what the page says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dbt.conftest import MODEL, SOURCES, Dbt, check_freshness, dbt_process, write_project
from tests.dbt.history import REFRESHED, STEPS
from tests.dbt.small_athena import SmallAthena, small_athena
from tests.support.shop_orders import ShopOrders

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def athena() -> Iterator[SmallAthena]:
    with small_athena() as made:
        yield made


@pytest.fixture(scope="module")
def dbt(
    python_dbt: Path, athena: SmallAthena, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Dbt]:
    profile = {
        "type": "athena",
        "database": "awsdatacatalog",
        "schema": "shop",
        "region_name": "us-east-1",
        "s3_staging_dir": "s3://results/staging/",
        "s3_data_dir": "s3://results/tables/",
        "poll_interval": 0.1,
    }
    environment = {
        "AWS_ENDPOINT_URL": athena.uri,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
    project = tmp_path_factory.mktemp("dbt") / "project"
    write_project(project, profile, sources=SOURCES, model=MODEL)
    with dbt_process(python_dbt, project, environment) as made:
        yield made


class Shop:
    """The tables of the job where Athena finds them."""

    def __init__(self, path: Path, athena: SmallAthena) -> None:
        self._orders = ShopOrders(path)
        self._athena = athena

    def take_in(self, stream: str, queue: str, of: bytes) -> None:
        self._orders.take_in(stream, [of], queue=queue)
        for name in ("orders", "orders_dead_letters"):
            table = self._orders.catalog.load_table(f"shop.{name}")
            self._athena.put(name, table.scan().to_arrow())


@pytest.fixture
def shop(athena: SmallAthena, tmp_path: Path) -> Shop:
    athena.clear()
    return Shop(tmp_path, athena)


def latest(athena: SmallAthena) -> dict[tuple[str, str], str]:
    rows = athena.rows("orders_latest")
    found = {(row["queue"], row["message_id"]): row["body"].decode() for row in rows}
    assert len(found) == len(rows)
    return found


def test_what_dbt_sends_keeps_the_latest_of_each_key(
    dbt: Dbt, athena: SmallAthena, shop: Shop
) -> None:
    for step in STEPS:
        for each in step.taken:
            shop.take_in(*each)
        dbt.run("run")
        assert latest(athena) == step.rows, step.says
    dbt.run("run", "--full-refresh")

    assert latest(athena) == REFRESHED


def test_each_run_but_the_first_is_one_merge_that_deletes_and_never_inserts_what_is_deleted(
    dbt: Dbt, athena: SmallAthena, shop: Shop
) -> None:
    for each in STEPS[0].taken:
        shop.take_in(*each)

    dbt.run("run")
    dbt.run("run")

    first, *later = [" ".join(query.split()) for query in athena.queries]
    latest_, rows = ('"awsdatacatalog"."shop"."orders_latest', '__dbt_tmp"')
    assert first.startswith(f"create table {latest_}\" with ( table_type='iceberg',")
    (merge,) = [query for query in later if query.startswith("merge ")]
    assert merge.startswith(f'merge into {latest_}" as target using {latest_}{rows} as src on')
    keys = ("vhost", "queue", "message_id")
    assert " and ".join(f"target.{key} = src.{key}" for key in keys) in merge
    assert "when matched and (length(src.body) = 0) then delete when matched then update" in merge
    assert "when not matched and length(src.body) > 0 then insert" in merge


def test_a_source_is_stale_when_nothing_has_come_in_and_nobody_misses_dead_letters(
    dbt: Dbt, shop: Shop
) -> None:
    check_freshness(dbt, shop.take_in)
