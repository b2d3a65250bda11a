"""A window may hold no chunk of a stream: chunks are larger than what a task is to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coldstream.errors import InternalError
from coldstream.jobs.materialise.latest.rule import Latest, LatestKey
from coldstream.jobs.materialise.plan import BackfillWindow
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rules import TableFiles, TableRule
from coldstream.jobs.materialise.task_result import TaskResult, check_tiling
from tests.unit.jobs.test_materialise_run import BILLS, ORDERS, Site, _bodies
from tests.unit.jobs.tier_site import TierSite

SHARED = TableRule(".*", "db.t", files=TableFiles.SHARED)
LATEST = TableRule(".*", "db.t", body="json", latest=Latest(LatestKey.parse("body.n"), buckets=2))


def bodies(count: int, size: int) -> list[bytes]:
    return [b'{"n": "%d", "x": "%s"}' % (n, b"x" * size) for n in range(count)]


def site_of(patch: pytest.MonkeyPatch, rule: TableRule | None = None) -> TierSite:
    """Chunks of 20 KB, of which a task is to read 4."""
    site = TierSite({}, rule or TableRule(".*", "db.t"), partition_bytes=4000)
    site.add(ORDERS, bodies(8, 20_000), a_chunk=1, chunks=2)
    site.add(BILLS, bodies(30, 100), a_chunk=1, chunks=5)
    return site.patched(patch)


@pytest.mark.parametrize("rule", [TableRule(".*", "db.t"), SHARED], ids=["own", "shared"])
def test_a_window_within_a_large_chunk_takes_nothing_and_the_next_one_goes_on(
    monkeypatch: pytest.MonkeyPatch, rule: TableRule
) -> None:
    site = site_of(monkeypatch, rule)
    for _ in range(2):
        report = site.run(window_bytes=4000, task_bytes=4000)
        assert site.content() == site.of(site.bodies)
    assert (report.rows, report.commits, report.planned) == (0, 0, {})


def test_a_window_below_the_first_offset_that_is_wanted_takes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = TierSite({}, partition_bytes=1000).patched(monkeypatch)
    site.add(ORDERS, bodies(100, 100), a_chunk=1, chunks=100)
    site.run(window=BackfillWindow(next_offset=60))
    assert site.covered(ORDERS) == Ranges.of([(0, 60)])

    site.run(window_bytes=1000)

    assert site.content() == site.of(site.bodies)


def test_rows_are_made_anew_also_where_the_first_window_takes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = site_of(monkeypatch)
    site.run(window_bytes=4000)
    site.run(window=BackfillWindow(first=1, overwrite=True), window_bytes=4000)
    assert site.content() == site.of(site.bodies)


def test_a_table_of_the_latest_begins_anew_with_the_first_window_that_takes_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = site_of(monkeypatch, LATEST)
    site.add(ORDERS + "0", [b"no key"] * 3)  # dead letters, so tickets are drawn
    expected = None
    for window in (BackfillWindow(), BackfillWindow(first=0, overwrite=True)):
        site.run(window_bytes=4000, window=window)
        found = site.rows().select(["_stream", "_offset", "n"]).to_pylist()
        ordered = sorted((row["_stream"], row["_offset"], row["n"]) for row in found)
        assert len(ordered) == 38
        assert expected in (None, ordered)
        expected = ordered


def test_what_no_window_has_read_is_found_in_the_last_one() -> None:
    site = Site({ORDERS: _bodies(60), BILLS: _bodies(16)})
    engine = site.engine
    inner: Callable[..., list[tuple[TaskResult, ...]]] = engine.perform

    def skipping(*args: Any, **kwargs: Any) -> Any:
        done = inner(*args, **kwargs)
        return [tuple(_nothing_of_orders(each) for each in task) for task in done]

    engine.perform = skipping  # type: ignore[method-assign]
    with pytest.raises(InternalError, match="did not read what was planned") as caught:
        site.run(engine, window_bytes=1)
    assert (caught.value.stream, caught.value.offset) == (ORDERS, 0)
    assert not any(stream == ORDERS for stream, *_ in site.content()[0])


def _nothing_of_orders(result: TaskResult) -> TaskResult:
    return TaskResult(ORDERS) if result.stream == ORDERS else result


def test_rows_of_offsets_that_nobody_has_read_stop_the_commit() -> None:
    for wrong in (TaskResult(ORDERS, rows=3), TaskResult(ORDERS, dead=1)):
        with pytest.raises(InternalError, match="rows of no offset"):
            check_tiling(ORDERS, [wrong], Ranges())
    check_tiling(ORDERS, [TaskResult(ORDERS)], Ranges())
