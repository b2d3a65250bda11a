"""What docs/how-to/query-tables.md shows runs on a table that the job's code has written."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlglot
from pyiceberg import catalog as catalogs

from tests.support.shop_orders import HOUR, NOON, ShopOrders, blocks, message
from tests.support.tier import chunk

VIEWS = [block for block in blocks("sql") if "{{" not in block]
(MODEL, _) = (block for block in blocks("sql") if "{{" in block)
PYTHON = blocks("python")


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The catalog with the table shop.orders: 120 messages of ten keys, one of them deleted.

    The last ten were written by a broker whose clock is behind.
    """
    made = ShopOrders(tmp_path_factory.mktemp("warehouse"))
    wires = [message(b"k%d" % (n % 10), b"v%d" % n) for n in range(119)] + [message(b"k9", b"")]
    chunks = [
        chunk(0, *wires[:60], timestamp=NOON),
        chunk(60, *wires[60:110], timestamp=NOON + HOUR),
        chunk(110, *wires[110:], timestamp=NOON + HOUR - 5),
    ]
    made.take_in("__orders_1795227164559759047", chunks)
    return made.catalog


@pytest.fixture(scope="module")
def views(orders: Any) -> dict[str, list[dict[str, Any]]]:
    """What each view of the page gives, by its name."""
    return views_of(orders)


def views_of(catalog: Any) -> dict[str, list[dict[str, Any]]]:
    database = database_of(catalog)
    found = {}
    for text_ in VIEWS:
        database.execute(for_duckdb(text_))
        name = re.findall(r"VIEW (\w+) AS", text_)[0]
        found[name] = database.sql(f"SELECT * FROM {name}").to_arrow_table().to_pylist()
    return found


def database_of(catalog: Any) -> Any:
    database = catalog.load_table("shop.orders").scan().to_duckdb("orders")
    database.execute("SET TimeZone = 'UTC'")
    return database


def for_duckdb(query: str) -> str:
    (translated,) = sqlglot.transpile(query, read="athena", write="duckdb")
    # What Athena calls `length` of bytes; sqlglot cannot know that the column has bytes.
    return translated.replace("LENGTH(body)", "OCTET_LENGTH(body)")


def test_the_page_has_the_views_that_people_ask_for_first(views: dict[str, Any]) -> None:
    assert set(views) == {"orders_rate", "orders_sizes", "orders_lag", "orders_latest"}


def test_no_view_has_a_time_with_a_zone_of_which_athena_makes_no_column(
    views: dict[str, Any],
) -> None:
    times = [
        (name, column)
        for name, rows in views.items()
        for column, value in rows[0].items()
        if isinstance(value, datetime) and value.tzinfo is not None
    ]

    assert times == []


def test_the_rate_is_by_hour_and_queue(views: dict[str, Any]) -> None:
    rows = sorted(views["orders_rate"], key=lambda row: row["hour"])

    assert [(row["queue"], row["messages"]) for row in rows] == [("orders", 60), ("orders", 60)]
    assert [row["hour"].hour for row in rows] == [14, 15]
    assert sum(row["bytes"] for row in rows) == sum(len(f"v{n}") for n in range(119))


def test_sizes_and_lag_are_of_each_queue(views: dict[str, Any]) -> None:
    (sizes,), (lag,) = views["orders_sizes"], views["orders_lag"]

    assert (sizes["messages"], sizes["smallest"], sizes["largest"]) == (120, 0, 4)
    assert lag["last_offset"] == 119


def test_the_latest_of_each_key_is_one_row_and_a_deleted_key_none(views: dict[str, Any]) -> None:
    found = {row["message_id"]: row["body"] for row in views["orders_latest"]}

    assert found == {f"k{n}": f"v{110 + n}".encode() for n in range(9)}
    assert len(views["orders_latest"]) == 9


def test_streams_whose_queue_nobody_has_said_have_keys_of_their_own_none_of_which_is_null(
    tmp_path: Path,
) -> None:
    """A merge finds no row by a key that is null: it would insert it again with every run."""
    made = ShopOrders(tmp_path)
    for stream in ("__one_1795227164559759047", "__two_1795227164559759048"):
        made.take_in(stream, [chunk(0, message(b"k", stream.encode()), timestamp=NOON)], queue="")
    # As in the first run.
    query = re.sub(r"\{\{ config.*?\}\}|\{% if is_inc.*?endif %\}", "", MODEL, flags=re.DOTALL)
    query = re.sub(r"\{%.*?%\}", "", re.sub(r"\{\{.*?\}\}", "orders", query))

    latest = views_of(made.catalog)["orders_latest"]
    rows = database_of(made.catalog).sql(for_duckdb(query)).to_arrow_table().to_pylist()

    assert len(latest) == len(rows) == 2
    keys = {(row["vhost"], row["queue"], row["message_id"]) for row in rows}
    assert len(keys) == 2
    assert None not in {part for key in keys for part in key}


def test_what_the_page_shows_of_python_runs(orders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "load_catalog", lambda *_, **__: orders)
    with_duckdb, alone = PYTHON
    of_duckdb: dict[str, Any] = {}
    of_pyiceberg: dict[str, Any] = {}

    exec(with_duckdb, of_duckdb)
    exec(alone, of_pyiceberg)

    assert of_duckdb["found"].column("messages").to_pylist() == [60, 60]
    assert isinstance(of_duckdb["db"], duckdb.DuckDBPyConnection)
    assert (of_pyiceberg["files"], of_pyiceberg["days"]) == (1, 1)
    assert of_pyiceberg["rows"].column("offset").to_pylist() == list(range(100, 110))
