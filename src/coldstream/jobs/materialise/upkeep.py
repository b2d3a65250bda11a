"""What keeps the tables of a rule in shape after a run: this job, or AWS Glue by one setting."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from coldstream.adapters.place import Place, client
from coldstream.clock import pause
from coldstream.errors import ColdstreamError, InvalidInputError
from coldstream.jobs.materialise.engine import Engine
from coldstream.jobs.materialise.iceberg.buckets import Buckets
from coldstream.jobs.materialise.iceberg.catalog_ref import TablePlace
from coldstream.jobs.materialise.iceberg.open_tables import open_bucket
from coldstream.jobs.materialise.iceberg.optimizers import (
    SNAPSHOT_DAYS,
    account_of,
    configurations,
    switch_on,
)
from coldstream.jobs.materialise.maintain import Maintainer
from coldstream.jobs.materialise.open_file import DEFAULT_GROUP_BYTES
from coldstream.jobs.materialise.rule_fit import new_schema
from coldstream.jobs.materialise.rules import Maintenance, TableRule
from coldstream.jobs.materialise.schema import KEY_COLUMNS, columns_of, dead_schema
from coldstream.jobs.materialise.sweep import MIN_AGE_SECONDS, Swept, sweep
from coldstream.jobs.materialise.table import Loaded, Table
from coldstream.jobs.materialise.window_commit import Tables
from coldstream.jobs.materialise.write import FileLayout

_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class UpkeepSettings:
    """How it is gone about.

    Attributes:
        asked: for, in this run: old rows are removed, and by `own` files merged.
        expire_seconds: after which what a table was may be forgotten; None for never, and by Glue
            for its own default.
        file_bytes: what a file should have.
        role: ARN of the role of Glue's optimisers; "" if there is none.
        now_ms: ms since the Unix epoch.
        dry_run: only say what would be done.
        group_bytes: of a row group, as rows are in memory.
        window_bytes: of files, that are merged before a commit.
    """

    asked: bool
    expire_seconds: int | None
    file_bytes: int
    role: str
    now_ms: int
    dry_run: bool
    group_bytes: int = DEFAULT_GROUP_BYTES
    window_bytes: int = 64 * 2**30


def check_upkeep(rules: Sequence[TableRule], settings: UpkeepSettings) -> None:
    """Refuse what could not be done, before anything is read.

    Raises:
        InvalidInputError: a role is missing, or `expire_seconds` is for no table, or one's files
            are not ours to delete.
    """
    own = [rule for rule in rules if rule.maintenance is Maintenance.OWN]
    if len(own) < len(rules):
        account_of(settings.role)
    if settings.expire_seconds is None:
        return
    if own and not settings.asked:
        raise InvalidInputError("--expire belongs to --maintain")
    for rule in own:
        if rule.catalog is not None and rule.catalog.place is TablePlace.CATALOG:
            raise InvalidInputError(
                f"{rule.table}: where the catalog gives tables their place, others may have files"
                " there: leave --expire to the catalog, or say place: warehouse"
            )


def keep_up(
    rule: TableRule, pair: Tables, place: Place, engine: Engine, settings: UpkeepSettings
) -> dict[str, Any] | None:
    """What was done to both tables of a rule; None if nothing was asked for.

    Args:
        rule: of the tables.
        pair: the tables.
        place: the account's services.
        engine: does the tasks.
        settings: how.

    Raises:
        ColdstreamError: from the tables, the bucket, or Glue. What was done stays.
    """
    by_glue = rule.maintenance is Maintenance.GLUE
    if not settings.asked and (settings.dry_run or not by_glue):
        return None
    both = (
        ("rows", pair.rows, new_schema(rule), columns_of(rule.body), rule.buckets, rule.order),
        ("dead_letters", pair.dead, dead_schema(), KEY_COLUMNS, None, ()),
    )
    done: dict[str, Any] = {}
    trouble: ColdstreamError | None = None
    for word, table, first, columns, buckets, order in both:
        told: dict[str, Any] = {}
        if settings.asked:
            layout = _layout(rule, columns, buckets, order, settings)
            try:
                told |= _kept(rule, table, first, layout, engine, settings)
            except ColdstreamError as error:  # a file that cannot be merged keeps no other
                trouble = trouble or error
            told |= _swept(rule, table, first, place, settings)
        if by_glue and not settings.dry_run:
            told["optimizers"] = _by_glue(table, first, place, settings)
        done[word] = told
    if trouble is not None:
        raise trouble
    return done


def _layout(
    rule: TableRule,
    columns: tuple[str, str, str],
    buckets: Buckets | None,
    order: tuple[str, ...],
    settings: UpkeepSettings,
) -> Callable[[Loaded], FileLayout]:
    def layout(loaded: Loaded) -> FileLayout:
        return FileLayout(
            loaded.location,
            loaded.schema,
            rule.partition,
            columns,
            settings.file_bytes,
            buckets=buckets,
            shared=rule.shared,
            group_bytes=settings.group_bytes,
            order=order,
        )

    return layout


def _kept(
    rule: TableRule,
    table: Table,
    first: pa.Schema,
    layout: Callable[[Loaded], FileLayout],
    engine: Engine,
    settings: UpkeepSettings,
) -> dict[str, Any]:
    maintainer = Maintainer(
        table,
        first,
        layout,
        engine.compact,
        lambda: secrets.token_hex(16),
        partial(pause, first=0.2, most=30),
        settings.window_bytes,
    )
    return asdict(
        maintainer.maintain(
            keep_seconds=rule.keep_seconds,
            now_ms=settings.now_ms,
            target_bytes=settings.file_bytes,
            compact=rule.maintenance is Maintenance.OWN,
            dry_run=settings.dry_run,
        )
    )


def _swept(
    rule: TableRule, table: Table, first: pa.Schema, place: Place, settings: UpkeepSettings
) -> dict[str, Any]:
    """By Glue only what it does not know: our own state objects. It has the snapshots."""
    expire, by_glue = settings.expire_seconds, rule.maintenance is Maintenance.GLUE
    if by_glue:
        expire = max(expire or 0, MIN_AGE_SECONDS)
    if expire is None:
        return {}
    swept = sweep(
        table,
        first,
        open_bucket(place),
        before_ms=settings.now_ms - expire * 1000,
        what=Swept.STATES if by_glue else Swept.ALL,
        dry_run=settings.dry_run,
    )
    return {"swept": None if swept is None else asdict(swept)}


def _by_glue(
    table: Table, first: pa.Schema, place: Place, settings: UpkeepSettings
) -> dict[str, str]:
    account = account_of(settings.role)
    days = SNAPSHOT_DAYS
    if settings.expire_seconds is not None:
        days = -(-settings.expire_seconds // _DAY_SECONDS)
    wanted = configurations(table.load(first).location, settings.role, days)
    return switch_on(client("glue", place), table.name, wanted, account)
