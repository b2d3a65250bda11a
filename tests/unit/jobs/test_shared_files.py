"""Files of many small streams together: whatever is done to a table, each message is a row once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.adapters.place import Place
from coldstream.errors import ColdstreamError, InternalError, UnavailableError
from coldstream.jobs.materialise import upkeep
from coldstream.jobs.materialise.compact import CompactPiece, CompactResult, attempted
from coldstream.jobs.materialise.engine import TaskPiece
from coldstream.jobs.materialise.latest.rule import rule_latest
from coldstream.jobs.materialise.maintain import Kept
from coldstream.jobs.materialise.plan import BackfillWindow, task_windows, tasks_of
from coldstream.jobs.materialise.rules import TableFiles, TableRule
from coldstream.jobs.materialise.sweep import key_of, sweep
from coldstream.jobs.materialise.table import AppendOutcome, StoredFile
from coldstream.jobs.materialise.transform import first_schema
from coldstream.jobs.materialise.upkeep import UpkeepSettings, keep_up
from coldstream.jobs.materialise.write import FileLayout
from coldstream.osiris.offsets import OffsetSet
from tests.support.memory_table import MemoryTable
from tests.support.slow import slow
from tests.unit.jobs.test_materialise_run import (
    _DAY_US,
    BILLS,
    ORDERS,
    Clock,
    Engine,
    Killed,
    Site,
    _bodies,
    _expected,
    _maintain,
)

SHARED = TableRule(".*", "db.t", files=TableFiles.SHARED)


def stream(number: int) -> str:
    return f"__s{number:03d}_1745252105682952932"


def many(streams: int, messages: int) -> Site:
    return Site({stream(n): _bodies(messages) for n in range(streams)}, SHARED)


def files_of(site: Site) -> list[StoredFile]:
    table = site.tables.rows
    return table.files(table.load(first_schema(site.rule.body)))


def swept(site: Site) -> None:
    """Delete what no version of the table has but the present one."""
    both = site.store, site.store
    sweep(site.tables.rows, first_schema("raw"), lambda _: both, before_ms=2**50)


def filled(site: Site, **settings: Any) -> Any:
    return site.run(**{"window_bytes": 10**6, "task_bytes": 10**6} | settings)


def test_a_hundred_small_streams_become_one_file_a_day_and_each_knows_what_it_has() -> None:
    site = many(100, 45)
    report = filled(site)
    assert site.content() == _expected(site.bodies)
    # Three pieces a stream, two hundred pieces a task, days end at offset 40.
    assert len(files_of(site)) == 4
    assert report.commits == 1
    state = site.tables.rows.load(first_schema("raw")).state
    assert {name: state.of(name).spans for name in site.bodies} == dict.fromkeys(
        site.bodies, ((0, 45),)
    )
    assert filled(site).planned == {}


def test_rows_in_a_shared_file_are_in_the_order_of_stream_and_offset() -> None:
    site = many(7, 30)
    filled(site)
    table = site.tables.rows
    loaded = table.load(first_schema("raw"))
    (file,) = table.files(loaded)
    found = [
        (row["stream"], row["offset"])
        for batch in table.rows(loaded, file.path)
        for row in batch.select(["stream", "offset"]).to_pylist()
    ]
    assert found == sorted(found)


def test_streams_of_a_json_table_that_find_new_fields_are_done_again_together() -> None:
    rule = TableRule(".*", "db.t", body="json", files=TableFiles.SHARED)
    bodies: dict[str, list[bytes | None]] = {
        stream(n): [b'{"n": %d}' % i for i in range(20)] for n in range(5)
    }
    bodies[stream(3)] += [b'{"n": 1, "late": true}']
    site = Site(bodies, rule)
    filled(site, sample_rows=1)
    assert site.content()[0] == [
        (s, n, n if n < 20 else 1) for s in bodies for n in range(len(bodies[s]))
    ]
    assert site.rows().column("late").null_count == 100


def test_a_run_over_shared_files_that_is_killed_anywhere_and_run_again_makes_the_same_table() -> (
    None
):
    whole = many(4, 50)
    filled(whole, task_bytes=5, window_bytes=8)
    calls = whole.store.clock.calls
    expected = whole.content()
    assert expected == _expected(whole.bodies)
    for kill_at in range(1, calls + 1):
        site = many(4, 50)
        site.store.clock = Clock(kill_at)
        with pytest.raises(Killed):
            filled(site, task_bytes=5, window_bytes=8)
        site.store.clock = Clock()
        filled(site, task_bytes=5, window_bytes=8)
        assert site.content() == expected, f"killed at call {kill_at}"


@pytest.mark.parametrize("files", [TableFiles.SHARED, *slow([TableFiles.OWN])])
def test_compaction_that_is_killed_anywhere_changes_no_row_and_leaves_what_a_sweep_takes(
    files: TableFiles,
) -> None:
    def made() -> Site:
        site = Site({stream(n): _bodies(50) for n in range(3)}, replace(SHARED, files=files))
        site.run(task_bytes=2)
        site.store.clock = Clock()
        return site

    whole = made()
    expected = whole.content()
    kept = _maintain(whole, window_bytes=1)
    assert kept.merged > kept.into > 0
    calls = whole.store.clock.calls
    assert len(files_of(whole)) == (2 if files is TableFiles.SHARED else 6)
    for kill_at in range(1, calls + 1):
        site = made()
        site.store.clock = Clock(kill_at)
        with pytest.raises(Killed):
            _maintain(site, window_bytes=1)
        assert site.content() == expected, f"killed at call {kill_at}"
        site.store.clock = Clock()
        _maintain(site, window_bytes=1)
        assert site.content() == expected, f"killed at call {kill_at}"
        assert len(files_of(site)) == len(files_of(whole))
        swept(site)
        left = {row.key for row in site.store.list("db.t/data/")}
        assert left == {key_of(file.path) for file in files_of(site)}, f"killed at call {kill_at}"
        assert site.content() == expected


def test_more_files_than_a_task_opens_become_few_in_several_rounds() -> None:
    site = Site({stream(n): _bodies(3) for n in range(150)}, replace(SHARED, files=TableFiles.OWN))
    site.run(window_bytes=10**6)
    assert len(files_of(site)) == 150
    site.rule = SHARED
    kept = _maintain(site)
    assert kept == Kept(merged=153, into=4)
    assert len(files_of(site)) == 1
    assert site.content() == _expected(site.bodies)


class Failing(Engine):
    """One whose worker cannot read some files."""

    bad: frozenset[str] = frozenset()

    def compact(self, pieces: Sequence[CompactPiece], layout: FileLayout) -> list[CompactResult]:
        results = super().compact(pieces, layout)
        return [
            CompactResult((), UnavailableError("the store is away", key="k"))
            if piece.stream in self.bad
            else result
            for piece, result in zip(pieces, results, strict=True)
        ]


def test_a_task_that_fails_is_told_by_table_stream_and_offsets_and_others_are_done() -> None:
    site = Site({ORDERS: _bodies(30), BILLS: _bodies(30)})
    site.run()
    before = {file.path for file in files_of(site) if file.stream == ORDERS}
    engine = Failing(site.bodies, site.store, site.ids)
    engine.bad = frozenset({ORDERS})
    with pytest.raises(UnavailableError) as caught:
        _maintain(site, engine)
    assert (caught.value.stream, caught.value.offset) == (ORDERS, 0)
    words = str(caught.value)
    for part in ("db.t: 1 of 2 groups", ORDERS, "offsets 0 to 29", "the store is away"):
        assert part in words
    assert {file.path for file in files_of(site) if file.stream == ORDERS} == before
    assert len([file for file in files_of(site) if file.stream == BILLS]) == 1
    assert site.content() == _expected(site.bodies)


def test_groups_of_later_windows_are_merged_though_one_of_the_first_cannot_be() -> None:
    site = Site({ORDERS: _bodies(30), BILLS: _bodies(30)})
    site.run()
    engine = Failing(site.bodies, site.store, site.ids)
    engine.bad = frozenset({min(ORDERS, BILLS)})
    with pytest.raises(UnavailableError, match="1 of 2 groups"):
        _maintain(site, engine, window_bytes=1)
    assert len([file for file in files_of(site) if file.stream == max(ORDERS, BILLS)]) == 1


def test_a_file_that_is_damaged_makes_its_group_fail_and_no_other() -> None:
    site = Site({ORDERS: _bodies(30)})
    site.run()
    files = files_of(site)
    wrong = CompactPiece((replace(files[0], rows=files[0].rows + 1), *files[1:]))
    layout = FileLayout(
        "s3://tables/x", first_schema("raw"), site.rule.partition, ("stream", "offset", "timestamp")
    )
    result = attempted(wrong, layout, site.store, lambda: f"{next(site.ids):016x}")
    assert isinstance(result.error, InternalError)
    assert "the table says" in result.error.reason
    gone = CompactPiece((replace(files[0], path="s3://tables/nothing"), *files[1:]))
    assert isinstance(
        attempted(gone, layout, site.store, lambda: f"{next(site.ids):016x}").error, ColdstreamError
    )


def test_merged_files_stay_good_when_other_files_come_and_not_when_theirs_go() -> None:
    site = Site({ORDERS: _bodies(30), BILLS: _bodies(30)})
    site.run()
    engine = site.engine
    inner = engine.compact

    def meanwhile(pieces: Sequence[CompactPiece], layout: FileLayout) -> list[CompactResult]:
        results = inner(pieces, layout)
        engine.compact = inner  # type: ignore[method-assign]
        site.bodies[BILLS] += _bodies(40)[30:]
        site.erased = OffsetSet.of([(3, 4)])
        site.run()
        return results

    engine.compact = meanwhile  # type: ignore[method-assign]
    kept = _maintain(site, engine)
    assert kept.overtaken == 2
    assert kept.merged > kept.into
    rows, dead = _expected(site.bodies)
    assert site.content() == ([r for r in rows if r[:2] != (ORDERS, 3)], dead)


def test_a_commit_that_landed_and_was_told_as_refused_is_not_taken_for_overtaken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site({ORDERS: _bodies(30)})
    site.run()
    inner, told = MemoryTable.append, []

    def refused(*args: Any) -> AppendOutcome:
        told.append(inner(*args))
        return AppendOutcome.CONFLICT

    monkeypatch.setattr(MemoryTable, "append", refused)
    kept = _maintain(site)
    assert told == [AppendOutcome.LANDED]
    assert (kept.merged, kept.into, kept.overtaken) == (2, 1, 0)
    assert site.content() == _expected(site.bodies)


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("more"), st.integers(0, 4), st.integers(1, 30)),
        st.tuples(st.just("erase"), st.integers(0, 40), st.integers(1, 20)),
        st.tuples(st.just("overwrite"), st.integers(0, 40), st.integers(1, 40)),
        st.tuples(st.just("maintain"), st.sampled_from([200, 3000, 2**20]), st.just(0)),
        st.tuples(st.just("share"), st.just(0), st.just(0)),
    ),
    max_size=8,
)


@given(steps=_STEPS, shared=st.booleans(), task_bytes=st.integers(1, 20))
def test_whatever_is_done_to_a_table_each_message_is_a_row_once(
    steps: list[tuple[str, int, int]], shared: bool, task_bytes: int
) -> None:
    names = [ORDERS, *map(stream, range(4))]
    rule = SHARED if shared else replace(SHARED, files=TableFiles.OWN)
    site = Site({name: _bodies(10 * n) for n, name in enumerate(names)}, rule)
    erased: set[int] = set()
    filled(site, task_bytes=task_bytes)
    for step, one, two in steps:
        if step == "more":
            at = len(site.bodies[names[one]])
            site.bodies[names[one]] += _bodies(at + two)[at:]
        elif step == "erase":
            erased |= set(range(one, one + two))
            site.erased = OffsetSet.of([(n, n + 1) for n in sorted(erased)])
        elif step == "maintain":
            _maintain(site, target_bytes=one)
        elif step == "share":
            site.rule = SHARED
        window = BackfillWindow()
        if step == "overwrite":
            window = BackfillWindow(one, one + two, overwrite=True)
        filled(site, task_bytes=task_bytes, window=window)
        filled(site, task_bytes=task_bytes)
        rows, dead = _expected(site.bodies)
        gone = {(ORDERS, n) for n in erased}
        assert site.content() == (
            [row for row in rows if row[:2] not in gone],
            [each for each in dead if each not in gone],
        )


def test_rows_that_are_too_old_go_with_whole_files_whoever_they_are_of() -> None:
    site = many(3, 100)
    filled(site)
    kept = _maintain(site, keep_seconds=86_400, now_ms=3 * _DAY_US // 1000)
    assert kept.expired == 2
    rows, _ = _expected(site.bodies)
    assert site.content()[0] == [row for row in rows if row[1] >= 80]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 50)), max_size=30), st.integers(1, 100))
def test_tasks_have_every_piece_once_in_the_order_of_streams_and_no_more_bytes_than_said(
    sizes: list[tuple[int, int]], max_bytes: int
) -> None:
    pieces = [TaskPiece(stream(s), (n, n + 1), None, size) for n, (s, size) in enumerate(sizes)]
    tasks = tasks_of(pieces, shared=True, max_bytes=max_bytes)
    flat = [piece for task in tasks for piece in task]
    assert sorted(flat, key=lambda p: p.span) == pieces
    assert flat == sorted(flat, key=lambda p: (p.stream, p.span))
    for task in tasks:
        assert len(task) == 1 or sum(piece.size for piece in task) <= max_bytes
    assert tasks_of(pieces, shared=False, max_bytes=max_bytes) == [(piece,) for piece in pieces]


def test_a_window_has_no_more_tasks_and_pieces_than_every_worker_can_be_told() -> None:
    for pieces, most in ((1, 2000), (10, 2000), (200, 100)):
        tasks = [(("piece",) * pieces, 1) for _ in range(3000)]
        found = task_windows(tasks, 10**9)
        sizes = [len(window) for window in found]
        assert (max(sizes), sum(sizes)) == (most, 3000)


def test_a_table_of_the_latest_has_no_shared_files() -> None:
    latest = rule_latest({"latest": "properties.message_id"})
    with pytest.raises(ColdstreamError, match="latest"):
        TableRule(".*", "db.t", latest=latest, files=TableFiles.SHARED)


def test_a_table_whose_files_cannot_all_be_merged_is_swept_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_: Any) -> Any:
        raise UnavailableError("the store is away")

    def sweeping(rule: TableRule, table: Any, *_: Any) -> dict[str, Any]:
        swept_tables.append(table.name)
        return {}

    swept_tables: list[str] = []
    monkeypatch.setattr(upkeep, "_kept", failing)
    monkeypatch.setattr(upkeep, "_swept", sweeping)
    site = Site({ORDERS: _bodies(3)})
    settings = UpkeepSettings(
        asked=True, expire_seconds=2 * 86_400, file_bytes=1, role="", now_ms=0, dry_run=False
    )
    place = Place(bucket="b", table="t", prefix="")
    with pytest.raises(UnavailableError, match="away"):
        keep_up(site.rule, site.tables, place, site.engine, settings)
    assert swept_tables == ["db.t", "db.t_dead_letters"]
