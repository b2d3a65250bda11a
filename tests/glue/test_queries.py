"""The saved queries, in Athena's dialect, answer from what fleet has really written.

DuckDB runs them here, after sqlglot has translated them; what neither knows of Athena stays for
Athena itself (docs/how-to/glue.md).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlglot

from coldstream.jobs.fleet import FleetSettings, _nothing_but_objects, perform
from coldstream.jobs.fleet_streams import gather, stream_rows
from coldstream.jobs.fleet_tables import STREAMS
from coldstream.jobs.snapshots import TableSnapshot, part_file
from coldstream.usecases.commit_runs import commit_runs
from tests.glue.conftest import Tier
from tests.glue.streams import DEEP, HOLED, STRAY, fragment, no_pause, upload
from tests.glue.test_fleet import unit

DAY_MS = 86_400_000
NOW_MS = int((datetime.now(UTC) + timedelta(days=3)).timestamp()) * 1000
QUERIES = Path(__file__).parents[2] / "infra" / "queries"
NAMES = sorted(path.stem for path in QUERIES.glob("*.sql"))


def saved(name: str) -> tuple[str, str]:
    """Title and text of a query."""
    from infra.warehouse import saved_query  # brings the CDK, which takes seconds

    return saved_query(QUERIES / f"{name}.sql")


def snapshot(tier: Tier, warehouse: Path, taken_ms: int) -> None:
    """What the driver and the workers write, without Spark between them."""
    settings = FleetSettings(
        TableSnapshot(f"file://{warehouse}/", taken_ms), objects=True, grace_ms=DAY_MS
    )
    units = [unit(tier, item.stream)[0] for item in tier.catalog.streams()]
    units.append(_nothing_but_objects(STRAY))
    counts = perform(tier.store, tier.prefix, units, 0, settings)
    empty = dict.fromkeys(("error", "last_commit_ms"))
    policies, _ = tier.policies.load()
    rows = stream_rows(
        tier.catalog.streams(), gather([{**empty, **each} for each in counts]), policies, taken_ms
    )
    with part_file(settings.snapshot, STREAMS, 0) as part:
        part.add(rows)


@pytest.fixture
def ask(tier: Tier, tmp_path: Path) -> Any:
    """Runs a saved query on two snapshots, eight days apart; gives rows as dictionaries."""
    snapshot(tier, tmp_path, NOW_MS - 8 * DAY_MS)
    upload(tier.context(), *(fragment(HOLED, n, n + 10) for n in (40,)))
    commit_runs(tier.context(), HOLED, pause=no_pause)
    snapshot(tier, tmp_path, NOW_MS)
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    for table in ("fleet_streams", "fleet_fragments", "fleet_objects"):
        database.execute(
            f"CREATE VIEW {table} AS SELECT * FROM read_parquet("
            f"'{tmp_path}/{table}/data/*/*.parquet')"
        )

    def run(name: str) -> list[dict[str, Any]]:
        _, text = saved(name)
        (translated,) = sqlglot.transpile(text, read="athena", write="duckdb")
        # By Arrow: DuckDB wants another package for times with a zone.
        found: list[dict[str, Any]] = database.sql(translated).to_arrow_table().to_pylist()
        return found

    yield run
    database.close()


def test_every_saved_query_is_tested_here() -> None:
    assert NAMES == ["age", "growth", "holes", "orphans", "skew"]


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_query_is_athenas_sql_and_says_what_it_answers(name: str) -> None:
    title, text = saved(name)

    assert title.startswith(name.capitalize())
    (parsed,) = sqlglot.parse(text, read="athena")
    assert parsed is not None
    assert not list(parsed.find_all(sqlglot.exp.Anonymous))


def test_growth_is_the_difference_to_the_snapshot_a_week_ago(ask: Any) -> None:
    by_name = {row["stream"]: row for row in ask("growth")}

    assert by_name[HOLED]["messages_in_a_week"] == 20
    assert by_name[HOLED]["fragments_in_a_week"] == 2
    assert by_name[HOLED]["bytes_in_a_week"] > 0
    assert by_name[DEEP]["bytes_in_a_week"] == 0
    assert next(iter(by_name)) == HOLED


def test_age_judges_each_stream_by_its_rule(ask: Any) -> None:
    verdicts = {row["stream"]: row["verdict"] for row in ask("age")}

    assert verdicts == {DEEP: "held", HOLED: "kept for ever"}


def test_skew_counts_small_fragments_and_no_holes(ask: Any) -> None:
    by_name = {row["stream"]: row for row in ask("skew")}

    assert (by_name[DEEP]["fragments"], by_name[DEEP]["percent_small"]) == (40, 100.0)
    assert by_name[HOLED]["fragments"] == 5
    assert by_name[HOLED]["smallest"] <= by_name[HOLED]["median"] <= by_name[HOLED]["largest"]


def test_holes_are_listed_with_their_queue(ask: Any) -> None:
    (hole,) = ask("holes")

    assert (hole["stream"], hole["queue"], hole["lost_offsets"]) == (HOLED, "holed", 5)


def test_orphans_are_old_and_neither_ahead_nor_referenced(ask: Any) -> None:
    found = ask("orphans")

    assert [(row["stream"], row["kind"], row["objects"]) for row in found] == [
        (HOLED, "fragment", 1)
    ]
