"""The job around `run` and `maintain`: arguments, which stream goes where, one table after another.

A table that fails does not stop the others; the job fails at the end, and names them all.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from coldstream import deployment
from coldstream.adapters.place import Place, connect
from coldstream.clock import now_ms, pause
from coldstream.errors import ColdstreamError, InvalidInputError
from coldstream.jobs.arguments import (
    WAREHOUSE,
    Given,
)
from coldstream.jobs.materialise.choose import Chosen, Meant, choose
from coldstream.jobs.materialise.engine import StreamNow
from coldstream.jobs.materialise.failures import failed, mixed
from coldstream.jobs.materialise.iceberg.open_tables import open_tables
from coldstream.jobs.materialise.job_arguments import (
    DRY_RUN,
    EXPIRE,
    FILE_BYTES,
    FROM,
    MAINTAIN,
    OPTIMIZER_ROLE,
    OVERWRITE,
    PARTITION_BYTES,
    PLAN,
    ROW_GROUP_BYTES,
    TO,
    WINDOW_BYTES,
    rules_of,
)
from coldstream.jobs.materialise.plan import BackfillWindow
from coldstream.jobs.materialise.rules import TableRule
from coldstream.jobs.materialise.run import Runner
from coldstream.jobs.materialise.run_settings import RunSettings
from coldstream.jobs.materialise.spark_engine import SparkEngine, stream_deleted, stream_now
from coldstream.jobs.materialise.table_report import TableReport
from coldstream.jobs.materialise.upkeep import UpkeepSettings, check_upkeep, keep_up
from coldstream.jobs.materialise.window_commit import Tables
from coldstream.jobs.report import JobReport
from coldstream.jobs.streams import all_items
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.ports import MetricUnit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION = "Put streams into tables, exactly once; compact the tables and remove old rows."


def run(spark: SparkSession, place: Place, given: Given, report: JobReport) -> None:
    """Fill every table that a rule names.

    Raises:
        ColdstreamError: of the tables that failed; the others are done.
    """
    rules = rules_of(given, place)
    if given[PLAN] and given[MAINTAIN]:
        raise InvalidInputError("--plan is about columns: give --maintain --dry-run apart from it")
    upkeep = _upkeep(given)
    check_upkeep(rules, upkeep)
    window = BackfillWindow(given[FROM], given[TO], given[OVERWRITE])
    settings = RunSettings(
        window,
        given[WINDOW_BYTES],
        given[FILE_BYTES],
        dry_run=given[DRY_RUN] or given[PLAN],
        columns=given[PLAN],
        group_bytes=given[ROW_GROUP_BYTES],
        task_bytes=given[PARTITION_BYTES],
    )
    chosen = _chosen(rules, place, window)
    runner = Runner(
        SparkEngine(spark, place, partition_bytes=given[PARTITION_BYTES]),
        lambda: secrets.token_hex(16),
        partial(pause, first=0.2, most=30),
        lambda line: print(line, file=sys.stderr, flush=True),  # noqa: T201 - the run's log
    )
    errors: dict[str, ColdstreamError] = dict(chosen.unread)
    if errors:
        report.facts["unread"] = {stream: str(error) for stream, error in errors.items()}
    tables = report.facts.setdefault("tables", {})
    for table, mine in chosen.by_table().items():
        rule = next(rule for rule in rules if rule.table == table)
        try:
            pair = open_tables(rule, place, given[WAREHOUSE])
            done = _fill(runner, pair, mine, settings)
            tables[table] = asdict(done)
            if done.plan is None:
                del tables[table]["plan"]
            _count(report, table, done)
            errors |= {
                f"{table} {stream}": mixed(rule, stream, spans)
                for stream, spans in done.cut_off.items()
            }
            kept = keep_up(rule, pair, place, runner.engine, upkeep)
            if kept is not None:
                tables[table]["maintenance"] = kept
        except Exception as exc:  # noqa: BLE001 - whatever one table does, the others are filled
            errors[table] = failed(table, exc)
            tables.setdefault(table, {})["error"] = str(errors[table])
    errors |= runner.unread
    _report_lag(report, tables)
    if errors:
        raise next(iter(errors.values()))


def _upkeep(given: Given) -> UpkeepSettings:
    return UpkeepSettings(
        asked=given[MAINTAIN],
        expire_seconds=given[EXPIRE],
        file_bytes=given[FILE_BYTES],
        role=given[OPTIMIZER_ROLE],
        now_ms=now_ms(),
        dry_run=given[DRY_RUN],
        group_bytes=given[ROW_GROUP_BYTES],
        window_bytes=given[WINDOW_BYTES],
    )


def _chosen(rules: Sequence[TableRule], place: Place, window: BackfillWindow) -> Chosen:
    remote = connect(place)

    def look(item: CatalogItem) -> StreamNow:
        deleted = item.state is StreamState.DELETED
        return stream_deleted(item) if deleted else stream_now(remote, item)

    items, damaged = all_items(remote.catalog)
    # Whose they are nobody knows, so they may be anybody's.
    unread = {each.stream or f"an item of the table ({n})": each for n, each in enumerate(damaged)}
    return choose(rules, items, window, look, unread)


def _fill(
    runner: Runner,
    pair: Tables,
    rules: Sequence[tuple[TableRule, Meant]],
    settings: RunSettings,
) -> TableReport:
    """Streams of one table may have rules of their own."""
    whole, *others = [
        runner.fill(rule, pair, meant.streams, settings, named=meant.names) for rule, meant in rules
    ]
    for each in others:
        whole.add(each)
    return whole


def _report_lag(report: JobReport, tables: dict[str, Any]) -> None:
    """How far behind now the stalest stream's newest row is, among those that had new ones."""
    known = [each.get("oldest_last_ms") for each in tables.values()]
    times = [each for each in known if each is not None]
    if times:
        lag = time.time() - min(times) / 1000
        report.count(deployment.METRIC_MATERIALISE_LAG, max(0.0, lag), MetricUnit.SECONDS)


def _count(report: JobReport, table: str, done: TableReport) -> None:
    report.count(deployment.METRIC_ROWS_MATERIALISED, done.rows, table=table)
    report.count(deployment.METRIC_DEAD_LETTER_ROWS, done.dead_letters, table=table)
    report.count(deployment.METRIC_OFFSETS_LOST, done.lost_offsets, table=table)
    report.count(
        deployment.METRIC_BYTES_MATERIALISED, done.file_bytes, MetricUnit.BYTES, table=table
    )
