"""What docs/how-to/query-tables.md shows runs on a table that the job's code has written."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from pyiceberg import catalog as catalogs
from pyiceberg.catalog.sql import SqlCatalog

from coldstream.jobs.materialise.commit import commit
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.iceberg import FILE_IO, IcebergTable
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rules import TablePartition
from coldstream.jobs.materialise.schema import KEY_COLUMNS, RAW_COLUMNS, raw_schema
from coldstream.jobs.materialise.table import Append
from coldstream.jobs.materialise.write import FileLayout, TableWriter
from coldstream.manifest.catalog import QueueName
from tests.support.tier import Tier, chunk
from tests.unit.columns.test_reference import listed, section, text
from tests.unit.spark.context import query

PAGE = (Path(__file__).parents[3] / "docs/how-to/query-tables.md").read_text()
VIEWS = [block for block in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL) if "{{" not in block]
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
NOON = 1_790_000_000_000  # 2026-09-21 14:13:20


def message(key: bytes, body: bytes) -> bytes:
    properties = section(0x73, listed(text(key.decode())))
    return properties + section(0x75, b"\xa0" + bytes([len(body)]) + body)


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The catalog with the table shop.orders: 120 messages of ten keys, one of them deleted."""
    path = tmp_path_factory.mktemp("warehouse")
    catalog = SqlCatalog(
        "tests",
        uri=f"sqlite:///{path}/catalog.db",
        warehouse=f"file://{path}",
        **{"py-io-impl": FILE_IO},
    )
    tier = Tier()
    wires = [message(b"k%d" % (n % 10), b"v%d" % n) for n in range(119)] + [message(b"k9", b"")]
    chunks = [
        chunk(0, *wires[:60], timestamp=NOON + 3_600_000),
        chunk(60, *wires[60:], timestamp=NOON),  # by a leader whose clock is behind
    ]
    tier.add("s", [chunks], name=QueueName("c", "/", "orders"))
    ids, files = count(1), StoredFiles()

    def new_id() -> str:
        return f"{next(ids):016x}"

    table = IcebergTable(
        catalog,
        "shop.orders",
        location=f"file://{path}/orders",
        partition=TablePartition.DAY,
        columns=KEY_COLUMNS,
        files=files,
        new_id=new_id,
    )
    loaded = table.load(raw_schema())
    rows = query(tier, stream="s", columns=",".join(RAW_COLUMNS)).table().combine_chunks()
    (batch,) = rows.cast(pa.schema([f.remove_metadata() for f in loaded.schema])).to_batches()
    layout = FileLayout(loaded.location, loaded.schema, TablePartition.DAY, KEY_COLUMNS)
    with TableWriter(layout, "s", files, new_id) as writer:
        written = [*writer.write(batch), *writer.close()]
    append = Append(new_id(), written, {"s": Ranges.of([(0, 120)])})
    commit(table, append, first_schema=raw_schema(), pause=lambda _: None)
    return catalog


@pytest.fixture(scope="module")
def views(orders: Any) -> dict[str, list[dict[str, Any]]]:
    """What each view of the page gives, by its name."""
    database = orders.load_table("shop.orders").scan().to_duckdb("orders")
    database.execute("SET TimeZone = 'UTC'")
    found = {}
    for text_ in VIEWS:
        (translated,) = sqlglot.transpile(text_, read="athena", write="duckdb")
        # What Athena calls `length` of bytes; sqlglot cannot know that the column has bytes.
        database.execute(translated.replace("LENGTH(body)", "OCTET_LENGTH(body)"))
        name = re.findall(r"VIEW (\w+) AS", text_)[0]
        found[name] = database.sql(f"SELECT * FROM {name}").to_arrow_table().to_pylist()
    return found


def test_the_page_has_the_views_that_people_ask_for_first(views: dict[str, Any]) -> None:
    assert set(views) == {"orders_rate", "orders_sizes", "orders_lag", "orders_latest"}


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
