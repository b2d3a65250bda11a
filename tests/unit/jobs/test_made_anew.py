"""Rows and dead letters that are made anew, by a run that dies, is overtaken, or comes too late."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coldstream.errors import ConflictError, CorruptDataError, InvalidInputError
from coldstream.jobs.materialise import ranges
from coldstream.jobs.materialise.plan import BackfillWindow
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rule_fit import new_schema
from coldstream.jobs.materialise.rules import TableRule
from coldstream.jobs.materialise.run import Runner
from coldstream.jobs.materialise.run_settings import RunSettings
from coldstream.jobs.materialise.schema import dead_schema
from coldstream.jobs.materialise.state import MAX_TICKET, TableState, Ticket, parse_state
from coldstream.jobs.materialise.table import Append, AppendOutcome, Loaded
from coldstream.jobs.materialise.task_result import TaskResult, check_tiling
from coldstream.osiris.offsets import OffsetSet
from tests.unit.jobs.test_latest import IcebergSite, LatestSite
from tests.unit.jobs.test_materialise_run import BILLS, ORDERS, Clock, Killed, Site, Source
from tests.unit.jobs.test_runs_at_once import Strict, bodies

ALL = BackfillWindow(first=0, overwrite=True)


def found(site: Site) -> list[tuple[str, int]]:
    """Stream and offset of all rows and dead letters, doubles included."""
    rows, dead = site.content()
    return sorted([row[:2] for row in rows] + dead)


def runner_of(site: Site) -> Runner:
    return Runner(site.engine, lambda: f"{next(site.ids):016x}", lambda _: None, lambda _: None)


def every(site: Site) -> list[tuple[str, int]]:
    return sorted((stream, n) for stream, each in site.bodies.items() for n in range(len(each)))


def by_another_rule(before: type[Source], after: type[Source]) -> Site:
    """A table that one rule has filled, and that another one is to make anew."""
    site = Site({ORDERS: bodies(32)}, source=before)
    site.run()
    site.source = after
    site.store.clock = Clock()
    return site


@pytest.mark.parametrize("window_bytes", [1, 3], ids=["two windows", "one"])
@pytest.mark.parametrize(
    ("before", "after"), [(Strict, Source), (Source, Strict)], ids=["milder", "stricter"]
)
def test_after_an_overwrite_by_another_rule_that_is_killed_the_next_run_leaves_each_message_once(
    before: type[Source], after: type[Source], window_bytes: int
) -> None:
    whole = by_another_rule(before, after)
    whole.run(window=ALL, window_bytes=window_bytes)
    calls = whole.store.clock.calls
    assert calls > 10
    for kill_at in range(1, calls + 1):
        site = by_another_rule(before, after)
        site.store.clock = Clock(kill_at)
        with pytest.raises(Killed):
            site.run(window=ALL, window_bytes=window_bytes)
        site.store.clock = Clock()
        site.run()
        assert found(site) == every(site), f"killed at call {kill_at}"
        assert site.run().commits == 0, "and it owes nothing any more"


def overtaken(site: Site, window: BackfillWindow) -> None:
    """Overwrite, while the schedule's run comes between its dead letters and its rows."""
    tables = site.tables
    inner = tables.dead.append

    def append(loaded: Loaded, change: Append) -> AppendOutcome:
        done = inner(loaded, change)
        site.run()
        return done

    tables.dead.append = append  # type: ignore[method-assign]
    runner = runner_of(site)
    with pytest.raises(ConflictError, match="another run"):
        runner.fill(site.rule, tables, [site.now(ORDERS)], RunSettings(window))


def test_an_overwrite_that_a_run_of_other_offsets_overtakes_is_done_by_the_next_run() -> None:
    site = by_another_rule(Strict, Source)
    site.bodies[ORDERS] = bodies(64)
    overtaken(site, BackfillWindow(0, 32, overwrite=True))
    site.run()
    assert found(site) == every(site)


def dies_behind_its_dead_letters(site: Site) -> None:
    """Overwrite all, but for the rows of the first window."""
    tables = site.tables
    inner = tables.rows.append

    def dies(loaded: Loaded, change: Append) -> AppendOutcome:
        if change.covered:
            raise Killed
        return inner(loaded, change)

    tables.rows.append = dies  # type: ignore[method-assign]
    runner = runner_of(site)
    with pytest.raises(Killed):
        runner.fill(site.rule, tables, [site.now(ORDERS)], RunSettings(ALL))


def test_a_run_that_planned_to_pay_what_an_overwrite_paid_then_leaves_it_alone() -> None:
    site = by_another_rule(Strict, Source)
    dies_behind_its_dead_letters(site)
    engine = site.engine
    engine.source = Strict
    inner = engine.perform

    def meanwhile(*args: Any, **kwargs: Any) -> Any:
        results = inner(*args, **kwargs)
        engine.perform = inner  # type: ignore[method-assign]
        site.run(window=ALL)
        return results

    engine.perform = meanwhile  # type: ignore[method-assign]
    with pytest.raises(ConflictError, match="anew") as caught:
        site.run(engine)
    assert (caught.value.stream, caught.value.offset) == (ORDERS, 0)
    assert [n for _, n in site.content()[1]] == [5], "as the milder rule has it"


@pytest.mark.parametrize("taken", [3, 20, 40])
def test_what_retention_takes_of_an_overwrite_cut_short_is_told_and_no_row_of_it_goes(
    taken: int,
) -> None:
    site = by_another_rule(Strict, Source)
    dies_behind_its_dead_letters(site)
    before = {row for row in site.content()[0] if row[1] < taken}
    site.bodies[ORDERS] = bodies(50)
    site.first = taken

    report = site.run()

    assert report.lost_offsets == taken
    assert before <= set(site.content()[0])
    alive = [(ORDERS, n) for n in range(taken, 50)]
    assert [each for each in found(site) if each[1] >= taken] == alive
    assert (site.run().lost_offsets, site.run().commits) == (0, 0)


def test_an_overwrite_of_a_table_of_the_latest_that_is_killed_loses_nothing() -> None:
    def half_way() -> LatestSite:
        site = LatestSite({ORDERS: [b"a:1", b":nokey", b"c:1", b"broken"]})
        site.run()
        site.bodies[ORDERS][1] = b"b:1"  # as a milder rule reads it
        site.store.clock = Clock()
        return site

    whole = half_way()
    whole.run(window=ALL)
    for kill_at in range(1, whole.store.clock.calls + 1):
        site = half_way()
        site.store.clock = Clock(kill_at)
        with pytest.raises(Killed):
            site.run(window=ALL)
        site.store.clock = Clock()
        site.run()
        assert (ORDERS, "b") in site.latest() or (ORDERS, 1) in site.dead(), kill_at


def test_a_table_of_the_latest_that_an_overtaken_overwrite_forgot_is_read_from_its_beginning() -> (
    None
):
    site = LatestSite({ORDERS: [b"a:1", b":nokey", b"c:1", b"broken"]})
    site.run()
    site.bodies[ORDERS] = [b"a:1", b"b:1", b"c:1", b"broken", b"c:2", b"broken"]
    tables = site.tables
    inner = tables.dead.append
    late = site.engine
    perform = late.perform

    def meanwhile(*args: Any, **kwargs: Any) -> Any:
        results = perform(*args, **kwargs)
        late.perform = perform  # type: ignore[method-assign]
        runner = runner_of(site)
        with pytest.raises(ConflictError):
            runner.fill(site.rule, tables, [site.now(ORDERS)], RunSettings(ALL))
        return results

    def overtakes(loaded: Loaded, change: Append) -> AppendOutcome:
        inner(loaded, change)
        raise ConflictError("another run: so this one stops behind its dead letters")

    tables.dead.append = overtakes  # type: ignore[method-assign]
    late.perform = meanwhile  # type: ignore[method-assign]
    with pytest.raises(ConflictError, match="begun this stream anew"):
        site.run(late)
    site.run()
    assert set(site.latest()) == {(ORDERS, key) for key in "abc"}
    assert site.dead() == [(ORDERS, 3), (ORDERS, 5)]


@pytest.mark.parametrize("cut_off", [True, False])
def test_a_table_of_the_latest_that_a_killed_overwrite_forgot_is_made_anew_behind_retention(
    cut_off: bool,
) -> None:
    site = LatestSite({ORDERS: [*(b"k%d:1" % n for n in range(20)), b":nokey"]})
    site.run()
    if cut_off:
        site.bodies[ORDERS][15:] = [*(b"z%d:2" % n for n in range(15)), b":nokey"]
        site.ledger = site.ledger.claimed(2, 15)
    dies_behind_its_dead_letters(site)
    site.first = 5

    report = site.run(window=ALL)

    assert report.lost_offsets == 5
    assert {key for _, key in site.latest()} >= {f"k{n}" for n in range(5, 15)}
    assert site.run().commits == 0


def test_what_a_quicker_overwrite_has_made_of_a_cut_off_history_is_not_lost_for_a_later_one() -> (
    None
):
    site = Site({ORDERS: bodies(100)})
    site.run()
    new = [b"broken" if n == 65 else b"new" for n in range(60, 130)]
    site.bodies[ORDERS] = [*bodies(60), *new]
    site.ledger = site.ledger.claimed(2, 60)
    window = BackfillWindow(first=60, overwrite=True)
    tables, loads = site.tables, list[int]()
    inner = tables.rows.load

    def load(schema: Any) -> Loaded:
        loaded = inner(schema)
        loads.append(1)
        if len(loads) == 1:
            site.first = 0
            site.run(window=window)
            site.first = 90
        return loaded

    tables.rows.load = load  # type: ignore[method-assign]
    site.first = 90
    late = runner_of(site)
    with pytest.raises(ConflictError, match="another run"):
        late.fill(site.rule, tables, [site.now(ORDERS)], RunSettings(window))
    assert found(site) == every(site)


def test_a_state_whose_tickets_are_used_up_is_told_and_not_made_unreadable() -> None:
    site = Site({ORDERS: bodies(10)})
    site.run()
    table = site.tables.rows
    last = Append("forged", tickets={ORDERS: Ticket(MAX_TICKET)})
    table.append(table.load(new_schema(site.rule)), last)
    site.bodies[ORDERS] = bodies(40)
    with pytest.raises(CorruptDataError, match="no ticket is left") as caught:
        site.run()
    assert caught.value.stream == ORDERS
    state = table.load(new_schema(site.rule)).state
    assert parse_state(state.encode()) == state


def test_dead_letters_now_and_then_leave_no_ranges_that_grow_in_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ranges, "MAX_RANGES", 5)
    site = Site({ORDERS: []})
    for number in range(20):
        site.bodies[ORDERS] += [b"broken" if number % 2 else b"fine"]
        site.run()
    assert site.tables.dead.load(dead_schema()).state.of(ORDERS).spans == ((0, 20),)
    assert found(site) == every(site)


@pytest.mark.parametrize(
    "window", [BackfillWindow(first=0), BackfillWindow(first=20, overwrite=True)]
)
def test_what_retention_took_is_told_also_where_a_back_fill_is_the_first_to_meet_it(
    window: BackfillWindow,
) -> None:
    site = Site({ORDERS: bodies(40)})
    site.run()
    site.bodies[ORDERS] = bodies(100)
    site.first = 70
    assert site.run(window=window).lost_offsets == 30
    assert site.run().lost_offsets == 0


def test_what_retention_took_behind_a_history_that_was_cut_off_is_told() -> None:
    site = Site({ORDERS: bodies(100)})
    site.run()
    site.bodies[ORDERS] = [*bodies(60), *(b"new" for _ in range(60, 130))]
    site.ledger = site.ledger.claimed(2, 60)
    site.first = 110
    assert site.run(window=BackfillWindow(first=60, overwrite=True)).lost_offsets == 50
    assert [n for _, n in found(site)] == [*range(60), *range(110, 130)], "67 and 98 are gone, too"


def test_offsets_that_a_back_fill_passed_over_are_told_until_they_are_asked_for() -> None:
    site = Site({ORDERS: bodies(100)})
    assert site.run().holes == {}
    site.bodies[ORDERS] = bodies(150)
    assert site.run(window=BackfillWindow(first=120)).holes == {ORDERS: [[100, 120]]}
    assert site.run().holes == {ORDERS: [[100, 120]]}
    assert site.run(window=BackfillWindow(first=100)).holes == {}
    assert found(site) == every(site)


def test_a_stream_whose_manifest_is_damaged_is_told_and_stops_no_other() -> None:
    site = Site({ORDERS: bodies(20), BILLS: bodies(20)})
    site.run()
    site.bodies = {ORDERS: bodies(40), BILLS: bodies(40)}
    engine = site.engine
    inner: Callable[..., Any] = engine.pieces

    def pieces(stream: Any, wanted: Ranges) -> Any:
        if stream.stream == BILLS:
            raise CorruptDataError("a group is damaged", key="a/key")
        return inner(stream, wanted)

    engine.pieces = pieces  # type: ignore[method-assign]
    report = site.run(engine)
    assert list(report.unread) == [BILLS]
    assert "a group is damaged" in report.unread[BILLS]
    assert "a/key" in report.unread[BILLS]
    assert {n for stream, n in found(site) if stream == ORDERS} == set(range(40))
    site.run()
    assert found(site) == every(site)


def test_whatever_stops_a_table_erased_rows_go() -> None:
    site = Site({ORDERS: bodies(20)})
    site.run()
    site.bodies = {ORDERS: bodies(40)}
    site.erased = OffsetSet.of([(1, 2)])
    engine = site.engine

    def fails(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("what Spark raises where a worker has raised")

    engine.perform = fails  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="Spark"):
        site.run(engine)
    assert (ORDERS, 1) not in found(site)


def test_what_stops_a_table_is_told_also_where_erasure_stops_for_it(tmp_path: Path) -> None:
    site = IcebergSite({ORDERS: bodies(20)}, TableRule(".*", "db.t"), root=tmp_path, source=Source)
    site.run()
    site.rule = TableRule(".*", "db.t", body="json")
    site.erased = OffsetSet.of([(1, 2)])
    with pytest.raises(InvalidInputError, match="filled with another body"):
        site.run()


def test_a_hole_is_told_no_longer_than_it_can_be_filled() -> None:
    site = Site({ORDERS: bodies(100)})
    site.run()
    site.bodies[ORDERS] = bodies(150)
    site.run(window=BackfillWindow(first=120))
    site.first = 110
    assert site.run().holes == {ORDERS: [[110, 120]]}
    site.first = 130
    assert site.run().holes == {}


def test_two_tasks_that_tell_of_one_fragment_that_is_gone_ask_for_another_run() -> None:
    both = [
        TaskResult(ORDERS, covered=[(0, 50)], lost=[(0, 50)]),
        TaskResult(ORDERS, covered=[(0, 50)], lost=[(0, 50)]),
    ]
    with pytest.raises(ConflictError, match="run again") as caught:
        check_tiling(ORDERS, both, Ranges.of([(0, 50)]))
    assert (caught.value.stream, caught.value.offset) == (ORDERS, 0)
    with pytest.raises(ConflictError, match="run again"):  # the other one was of a window before
        check_tiling(ORDERS, both[1:], Ranges.of([(25, 50)]))


def test_what_a_table_owes_is_read_back_and_paid_by_what_covers_it() -> None:
    state = TableState().with_more({ORDERS: Ranges.of([(0, 9)])}, {})
    owing = state.with_more({}, {}, owes={ORDERS: Ranges.of([(2, 7)])})
    assert parse_state(owing.encode()) == owing
    paid = owing.with_more({ORDERS: Ranges.of([(2, 5)])}, {}, owes={})
    assert paid.owed == {ORDERS: Ranges.of([(5, 7)])}
    assert paid.with_more({}, {ORDERS: Ranges.of([(5, 7)])}).owed == {}
