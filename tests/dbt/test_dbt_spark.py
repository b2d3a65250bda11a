"""dbt on Spark 3.5 with Iceberg: what docs/how-to/query-tables.md shows, run by run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dbt.conftest import (
    MODEL,
    SOURCES,
    SPARK_CONFIG,
    Dbt,
    check_freshness,
    dbt_process,
    write_project,
)
from tests.dbt.history import REFRESHED, STEPS
from tests.support.shop_orders import ShopOrders

pytestmark = pytest.mark.slow

CAST = 'cast("timestamp" as timestamp(6)) as "timestamp"'
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def for_spark(text: str) -> str:
    """As the page says to write it."""
    return text.replace(CAST, '"timestamp"').replace('"', "`")


class Shop:
    """The tables of the job where Spark finds them: those of a Hadoop catalog."""

    def __init__(self, path: Path, warehouse: Path) -> None:
        self._warehouse = warehouse
        self._orders = ShopOrders(path)
        self._version = 0
        self._publish()

    def take_in(self, stream: str, queue: str, of: bytes) -> None:
        self._orders.take_in(stream, [of], queue=queue)
        self._publish()

    def _publish(self) -> None:
        self._version += 1
        for name in ("orders", "orders_dead_letters"):
            metadata = self._warehouse / "shop" / name / "metadata"
            metadata.mkdir(parents=True, exist_ok=True)
            shutil.copy(self._orders.metadata(name), metadata / f"v{self._version}.metadata.json")
            (metadata / "version-hint.text").write_text(str(self._version))


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hadoop")


@pytest.fixture
def shop(tmp_path: Path, warehouse: Path) -> Shop:
    shutil.rmtree(warehouse)
    return Shop(tmp_path, warehouse)


@pytest.fixture(scope="module")
def dbt(
    python_dbt: Path, warehouse: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Dbt]:
    """One Spark for all tests."""
    root = python_dbt.parents[1]
    (jar,) = root.glob("lib/python*/site-packages/*/jars/iceberg-spark-runtime-3.5_2.12-*.jar")
    profile = {
        "type": "spark",
        "method": "session",
        "host": "none",
        "schema": "shop",
        "server_side_parameters": {
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.jars": str(jar),
            "spark.sql.extensions": EXTENSIONS,
            "spark.sql.defaultCatalog": "lake",
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": f"file://{warehouse}",
            # Else Spark would not look for some time whether the job has changed the table.
            "spark.sql.catalog.lake.cache-enabled": "false",
        },
    }
    project = tmp_path_factory.mktemp("dbt") / "project"
    statement = MODEL[MODEL.index("}}\n") + 3 :]
    model = SPARK_CONFIG + for_spark(statement)
    write_project(project, profile, sources=for_spark(SOURCES), model=model)
    with dbt_process(python_dbt, project, {}) as made:
        yield made


def latest(dbt: Dbt) -> dict[tuple[str, str], str]:
    rows = dbt.sql("SELECT queue, message_id, body FROM lake.shop.orders_latest")
    found = {(row["queue"], row["message_id"]): row["body"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_each_run_merges_what_is_new_and_takes_out_what_an_empty_body_deletes(
    dbt: Dbt, shop: Shop
) -> None:
    for step in STEPS:
        for each in step.taken:
            shop.take_in(*each)
        dbt.run("run")
        assert latest(dbt) == step.rows, step.says

    assert "merge into shop.orders_latest" in dbt.sent()
    dbt.run("run", "--full-refresh")
    assert latest(dbt) == REFRESHED


def test_a_source_is_stale_when_nothing_has_come_in_and_nobody_misses_dead_letters(
    dbt: Dbt, shop: Shop
) -> None:
    check_freshness(dbt, shop.take_in)
