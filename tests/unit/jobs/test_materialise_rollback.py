"""A run on Iceberg tables that somebody has rolled back: what is missing comes back, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from coldstream.jobs.materialise.engine import Task, TaskPiece
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.iceberg.table import IcebergTable
from coldstream.jobs.materialise.plan import BackfillWindow
from coldstream.jobs.materialise.schema import KEY_COLUMNS, columns_of
from coldstream.jobs.materialise.task import perform
from coldstream.jobs.materialise.task_result import TaskResult
from coldstream.jobs.materialise.task_rows import TaskRules
from coldstream.jobs.materialise.window_commit import Tables
from tests.unit.jobs.iceberg_history import compact, current, set_back
from tests.unit.jobs.test_iceberg import catalog
from tests.unit.jobs.test_materialise_run import (
    BILLS,
    ORDERS,
    Engine,
    Site,
    Source,
    _bodies,
    _expected,
)

__all__ = ["catalog"]

_ROWS, _DEAD = "db.t", "db.t_dead_letters"


class _Disk(Engine):
    """Tasks in this process that write to a disk."""

    def perform(
        self, tasks: Sequence[Task], rules: TaskRules, row_limit: int | None = None
    ) -> list[tuple[TaskResult, ...]]:
        def done(piece: TaskPiece) -> TaskResult:
            source = Source(piece.stream, self.bodies[piece.stream], piece.span)
            return perform(
                piece.stream, source, rules, StoredFiles(), lambda: f"{next(self.ids):016x}",
                now_ms=0, row_limit=row_limit,
            )  # fmt: skip

        return [(done(piece),) for (piece,) in tasks]


@dataclass
class _Iceberg(Site):
    """Streams, and Iceberg tables of them."""

    catalog: Callable[[], SqlCatalog] = field(kw_only=True)
    warehouse: Path = field(kw_only=True)

    def iceberg(self, name: str, columns: tuple[str, str, str]) -> IcebergTable:
        return IcebergTable(
            self.catalog(), name, location=f"file://{self.warehouse}/{name}",
            partition=self.rule.partition, columns=columns, files=StoredFiles(),
            new_id=lambda: f"{next(self.ids):016x}",
        )  # fmt: skip

    @property
    def tables(self) -> Tables:
        rows = self.iceberg(_ROWS, columns_of(self.rule.body))
        return Tables(rows, self.iceberg(_DEAD, KEY_COLUMNS))

    @property
    def engine(self) -> Engine:
        return _Disk(self.bodies, self.store, self.ids)

    def rows(self, dead: bool = False) -> pa.Table:
        return self.catalog().load_table(_DEAD if dead else _ROWS).scan().to_arrow()


@pytest.fixture
def site(catalog: Callable[[], SqlCatalog], tmp_path: Path) -> _Iceberg:
    """A stream, and no table yet."""
    bodies: dict[str, list[bytes | None]] = {ORDERS: _bodies(40)}
    return _Iceberg(bodies, catalog=catalog, warehouse=tmp_path / "warehouse")


def _two_runs(site: _Iceberg) -> dict[str, int]:
    site.run(window_bytes=10**9)
    early = {name: current(site.catalog(), name) for name in (_ROWS, _DEAD)}
    site.bodies[ORDERS] = _bodies(75)
    site.bodies[BILLS] = _bodies(10)
    site.run(window_bytes=10**9)
    return early


@pytest.mark.parametrize("back", [(_ROWS,), (_ROWS, _DEAD)])
@pytest.mark.parametrize("compacted", [False, True])
def test_after_a_rollback_a_run_fills_what_is_missing_without_doubles(
    site: _Iceberg, back: Sequence[str], compacted: bool
) -> None:
    early = _two_runs(site)
    for name in back:
        set_back(site.catalog(), name, early[name])
        if compacted:
            compact(site.catalog(), name)
    assert site.rows().num_rows == 38
    report = site.run(window_bytes=10**9)
    assert report.planned == {ORDERS: [[40, 75]], BILLS: [[0, 10]]}
    assert site.content() == _expected(site.bodies)
    assert site.run().planned == {}


def test_dead_letters_that_were_rolled_back_alone_come_back_by_an_overwrite(
    site: _Iceberg,
) -> None:
    early = _two_runs(site)
    set_back(site.catalog(), _DEAD, early[_DEAD])
    assert site.run().planned == {}
    assert site.content() != _expected(site.bodies)
    overwrite: dict[str, Any] = {"window": BackfillWindow(first=0, overwrite=True)}
    site.run(window_bytes=10**9, **overwrite)
    assert site.content() == _expected(site.bodies)
