"""A run of materialise, killed between any two of its calls and run again: the same table."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count
from typing import IO, Any

import pyarrow as pa
import pytest

from coldstream.adapters.memory import MemoryObjectStore
from coldstream.columns.schema import COLUMNS, select
from coldstream.errors import ConflictError, CorruptDataError, InternalError, InvalidInputError
from coldstream.jobs.materialise import task_rows
from coldstream.jobs.materialise.compact import (
    CompactPiece,
    CompactResult,
    attempted,
    encode_compacted,
    parse_compacted,
)
from coldstream.jobs.materialise.declared.fields import parse_declared
from coldstream.jobs.materialise.engine import StreamNow, Task, TaskPiece
from coldstream.jobs.materialise.iceberg.buckets import Buckets
from coldstream.jobs.materialise.json_bodies.bodies import Misfits
from coldstream.jobs.materialise.latest.merge import MergePiece, MergeResult, merge
from coldstream.jobs.materialise.maintain import Kept, Maintainer
from coldstream.jobs.materialise.plan import BackfillWindow
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rule_fit import new_schema
from coldstream.jobs.materialise.rules import TableRule
from coldstream.jobs.materialise.run import Runner
from coldstream.jobs.materialise.run_settings import RunSettings, layout_of
from coldstream.jobs.materialise.schema import KEY_COLUMNS, READ_COLUMNS, columns_of, dead_schema
from coldstream.jobs.materialise.state import TableState, Ticket, parse_state
from coldstream.jobs.materialise.survey import OTHERS, Survey
from coldstream.jobs.materialise.table import Loaded, Table
from coldstream.jobs.materialise.task import Part, perform_all
from coldstream.jobs.materialise.task_result import TaskResult, encode_results, parse_results
from coldstream.jobs.materialise.task_rows import TaskRules
from coldstream.jobs.materialise.transform import first_schema, transform
from coldstream.jobs.materialise.window_commit import Tables
from coldstream.jobs.materialise.write import FileLayout
from coldstream.manifest.ledger import Ledger
from coldstream.osiris.offsets import OffsetSet
from coldstream.reader.gap import Gap
from tests.support.memory_table import MemoryTable, Version
from tests.support.slow import slow

ORDERS = "__orders_1745252105682952932"
BILLS = "__bills_1745252105682952933"
_DAY_US = 86_400_000_000


class Killed(BaseException):
    """The driver dies here."""


@dataclass
class Clock:
    """Counts the calls to the world, and kills at one of them."""

    kill_at: int = -1
    calls: int = 0

    def tick(self) -> None:
        self.calls += 1
        if self.calls == self.kill_at:
            raise Killed


class Store(MemoryObjectStore):
    """A bucket on which the driver can die before and after every write."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()

    def put(self, key: str, body: Any, *, write_id: str, crc: int | None = None) -> None:
        self.clock.tick()
        super().put(key, body, write_id=write_id, crc=crc)
        self.clock.tick()

    def save(self, path: str, content: IO[bytes], size: int) -> None:
        key = path.removeprefix("s3://tables/")
        self.put(key, content.read(size), write_id=key)

    def open(self, path: str, size: int) -> IO[bytes]:
        return io.BytesIO(self.get_all(path.removeprefix("s3://tables/"), limit=size))


@dataclass
class Source:
    """The messages of a task."""

    stream: str
    bodies: Sequence[bytes | None]
    span: tuple[int, int]

    bytes_read = 0

    def raw(self, offsets: pa.Array) -> pa.Array:
        return pa.nulls(len(offsets), pa.binary())

    def batches(self, covered: list[tuple[int, int]], gaps: list[Gap]) -> Iterator[pa.RecordBatch]:
        first, next_offset = self.span
        for start in range(first, next_offset, 7):
            offsets = range(start, min(start + 7, next_offset))
            gaps += [Gap(n, n + 1) for n in offsets if self.bodies[n] is None]
            covered.append((offsets[0], offsets[-1] + 1))
            rows = [self._row(n) for n in offsets if self.bodies[n] is not None]
            yield pa.RecordBatch.from_pylist(rows, select(READ_COLUMNS).schema)

    def _row(self, offset: int) -> dict[str, Any]:
        body = self.bodies[offset]
        failed = body == b"broken"
        row: dict[str, Any] = dict.fromkeys(COLUMNS)
        row |= {
            "stream": self.stream,
            "offset": offset,
            "timestamp": offset // 40 * _DAY_US,
            "body": None if failed else body,
            "body_kind": None if failed else "data",
            "raw": body,
            "error": "no message" if failed else None,
        }
        return {name: row[name] for name in READ_COLUMNS}


@dataclass
class Engine:
    """Tasks in this process."""

    bodies: dict[str, list[bytes | None]]
    store: Store
    ids: Iterator[int] = field(default_factory=count)
    piece: int = 16
    performed: int = 0
    forgetful: bool = False
    pieces_left: int = 10**9
    source: type[Source] = Source

    def pieces(self, stream: StreamNow, ranges: Ranges) -> list[TaskPiece]:
        return [
            TaskPiece(
                stream.stream, (start, min(start + self.piece, next_offset)), stream.erased, 1
            )
            for first, next_offset in ranges
            for start in range(first, next_offset, self.piece)
        ]

    def perform(
        self, tasks: Sequence[Task], rules: TaskRules, row_limit: int | None = None
    ) -> list[tuple[TaskResult, ...]]:
        self.store.clock.tick()
        done = []
        for pieces in tasks:
            self.performed += len(pieces)
            if self.performed > self.pieces_left:
                raise Killed
            parts = [
                Part(
                    each.stream,
                    self.source(each.stream, self.bodies[each.stream], each.span),
                    erased=each.split,
                )
                for each in pieces
            ]
            results = perform_all(
                parts, rules, self.store, lambda: f"{next(self.ids):016x}", now_ms=0,
                row_limit=row_limit,
            )  # fmt: skip
            if self.forgetful:
                for result in results:
                    result.covered = result.covered[:0]
            done.append(parse_results(encode_results(results)))
        self.store.clock.tick()
        return done

    def merge(self, pieces: Sequence[MergePiece], layout: FileLayout) -> list[MergeResult]:
        self.store.clock.tick()
        ids = lambda: f"{next(self.ids):016x}"  # noqa: E731
        results = [merge(each, layout, self.store, ids) for each in pieces]
        self.store.clock.tick()
        return results

    def compact(self, pieces: Sequence[CompactPiece], layout: FileLayout) -> list[CompactResult]:
        self.store.clock.tick()
        ids = lambda: f"{next(self.ids):016x}"  # noqa: E731
        results = [attempted(each, layout, self.store, ids) for each in pieces]
        self.store.clock.tick()
        return [parse_compacted(encode_compacted(each)) for each in results]


@dataclass
class Site:
    """A bucket with streams and tables."""

    bodies: dict[str, list[bytes | None]]
    rule: TableRule = field(default_factory=lambda: TableRule(".*", "db.t"))
    store: Store = field(default_factory=Store)
    ids: Iterator[int] = field(default_factory=lambda: count(10**6))
    first: int = 0
    versions: dict[str, list[Version]] = field(default_factory=lambda: defaultdict(list))
    ledger: Ledger = field(default_factory=lambda: Ledger.of([(1, 0)]))
    erased: OffsetSet = field(default_factory=OffsetSet)
    source: type[Source] = Source

    def table(
        self, name: str, columns: tuple[str, str, str], buckets: Buckets | None = None
    ) -> Table:
        return MemoryTable(
            self.versions[name], self.store, f"s3://tables/{name}", partition=self.rule.partition,
            columns=columns, files=self.store, new_id=lambda: f"{next(self.ids):016x}",
            tick=lambda: self.store.clock.tick(), buckets=buckets, shared=self.rule.shared,
        )  # fmt: skip

    @property
    def tables(self) -> Tables:
        return Tables(
            self.table(self.rule.table, columns_of(self.rule.body), self.rule.buckets),
            self.table(self.rule.dead_letters, KEY_COLUMNS),
        )

    @property
    def engine(self) -> Engine:
        return Engine(self.bodies, self.store, self.ids, source=self.source)

    def run(self, engine: Engine | None = None, **settings: Any) -> Any:
        runner = Runner(
            engine or self.engine, lambda: f"{next(self.ids):016x}", lambda _: None, lambda _: None
        )
        streams = [self.now(s) for s in self.bodies]
        settings.setdefault("window_bytes", 3)
        return runner.fill(self.rule, self.tables, streams, RunSettings(**settings))

    def now(self, stream: str) -> StreamNow:
        return StreamNow(
            stream, stream, self.first, len(self.bodies[stream]), ledger=self.ledger,
            erased=self.erased if stream == ORDERS else OffsetSet(),
        )  # fmt: skip

    def rows(self, dead: bool = False) -> pa.Table:
        table = self.tables.dead if dead else self.tables.rows
        loaded = table.load(dead_schema() if dead else new_schema(self.rule))
        batches = [b for f in table.files(loaded) for b in table.rows(loaded, f.path)]
        return pa.Table.from_batches(batches, loaded.schema)

    def content(self) -> tuple[list[tuple[str, int, bytes]], list[tuple[str, int]]]:
        """All rows and all dead letters, in order, doubles included."""
        stream, offset, _ = columns_of(self.rule.body)
        body = "body" if self.rule.body == "raw" else "n"
        rows = self.rows().select([stream, offset, body]).to_pylist()
        dead = self.rows(dead=True).select(["stream", "offset"]).to_pylist()
        return (
            sorted((r[stream], r[offset], r[body]) for r in rows),
            sorted((r["stream"], r["offset"]) for r in dead),
        )


def _bodies(number: int) -> list[bytes | None]:
    return [b"broken" if n % 31 == 5 else b"%d" % n for n in range(number)]


def _expected(bodies: dict[str, list[bytes | None]]) -> Any:
    rows = [(s, n, b) for s, each in bodies.items() for n, b in enumerate(each) if b != b"broken"]
    dead = [(s, n) for s, each in bodies.items() for n, b in enumerate(each) if b == b"broken"]
    return sorted(rows), sorted(dead)


def test_every_message_is_a_row_or_a_dead_letter_once() -> None:
    site = Site({ORDERS: _bodies(150), BILLS: _bodies(20)})
    report = site.run()
    assert site.content() == _expected(site.bodies)
    assert (report.rows, report.dead_letters) == (164, 6)


@pytest.mark.parametrize("at_once", [False, True], ids=["later", "with new messages"])
def test_rows_and_dead_letters_of_erased_messages_go_whenever_a_run_finds_them(
    at_once: bool,
) -> None:
    site = Site({ORDERS: _bodies(60), BILLS: _bodies(20)})
    site.run()
    site.erased = OffsetSet.of([(5, 8), (40, 41)])
    if at_once:
        site.bodies[ORDERS] = _bodies(90)

    report = site.run()

    assert report.erased_rows == 4
    assert report.dead_letters == int(at_once)
    rows, dead = _expected(site.bodies)
    gone = [(ORDERS, n) for n in (5, 6, 7, 40)]
    assert site.content() == (
        [row for row in rows if row[:2] not in gone],
        [row for row in dead if row not in gone],
    )
    again = site.run()
    assert (again.erased_rows, again.rows, again.commits) == (0, 0, 0)


def test_messages_that_were_erased_before_become_neither_rows_nor_dead_letters() -> None:
    """They were written, counted and deleted: the count of dead letters has an alarm."""
    site = Site({ORDERS: _bodies(60), BILLS: _bodies(20)})
    site.erased = OffsetSet.of([(5, 8), (40, 41), (58, 60)])

    report = site.run()

    rows, dead = _expected(site.bodies)
    gone = [(ORDERS, n) for n in (5, 6, 7, 40, 58, 59)]
    kept = [row for row in rows if row[:2] not in gone], [row for row in dead if row not in gone]
    assert site.content() == kept
    assert (report.rows, report.dead_letters) == tuple(map(len, kept))
    assert report.erased_rows == 0
    assert site.run().commits == 0


@pytest.mark.parametrize("window_bytes", [1, 10**9])
def test_the_oldest_of_the_last_times_is_that_of_a_stream_and_not_of_a_window(
    window_bytes: int,
) -> None:
    """Of a run of several windows it was that of the first one: a lag of days, of no stream."""
    site = Site({ORDERS: _bodies(200), BILLS: _bodies(100)})

    assert site.run(window_bytes=window_bytes).oldest_last_ms == 99 // 40 * 86_400_000


def test_a_second_run_adds_what_is_new_and_nothing_else() -> None:
    site = Site({ORDERS: _bodies(50)})
    site.run()
    site.bodies[ORDERS] = _bodies(90)
    engine = site.engine
    assert site.run(engine).rows == 39
    assert engine.performed == 3
    assert site.content() == _expected(site.bodies)


@pytest.mark.parametrize("body", slow(["json", "raw"]))
def test_a_run_that_is_killed_anywhere_and_run_again_gives_the_same_table(body: str) -> None:
    bodies: dict[str, list[bytes | None]] = {ORDERS: _bodies(100), BILLS: _bodies(30)}
    if body == "json":
        for stream, each in bodies.items():
            fields = [b'{"n":"%d","f%d":1}' % (n, n // 60) for n in range(len(each))]
            bodies[stream] = [b if b == b"broken" else f for b, f in zip(each, fields, strict=True)]
    rule = TableRule(".*", "db.t", body=body)
    whole = Site(dict(bodies), rule)
    whole.run()
    expected = whole.content()
    calls = whole.store.clock.calls
    assert calls > 30
    for kill_at in range(1, calls + 1):
        site = Site(dict(bodies), rule)
        site.store.clock = Clock(kill_at)
        with pytest.raises(Killed):
            site.run()
        site.store.clock = Clock()
        site.run()
        assert site.content() == expected, f"killed at call {kill_at}"


def test_two_runs_at_once_put_nothing_in_twice() -> None:
    site = Site({ORDERS: _bodies(60)})
    engine = site.engine
    other: Callable[[], Any] = site.run
    inner = engine.perform

    def meanwhile(*args: Any, **kwargs: Any) -> list[tuple[TaskResult, ...]]:
        results = inner(*args, **kwargs)
        other()
        return results

    engine.perform = meanwhile  # type: ignore[method-assign]
    with pytest.raises(ConflictError) as caught:
        site.run(engine)
    assert caught.value.stream == ORDERS
    assert site.content() == _expected(site.bodies)


def test_a_task_that_does_not_tell_what_it_read_stops_the_commit() -> None:
    site = Site({ORDERS: _bodies(60)})
    engine = site.engine
    engine.forgetful = True
    with pytest.raises(InternalError, match="did not read what was planned"):
        site.run(engine)
    assert site.content() == ([], [])


def test_offsets_that_exist_nowhere_are_known_as_lost_and_told_as_dead_letters() -> None:
    bodies = _bodies(40)
    bodies[10] = bodies[11] = None
    site = Site({ORDERS: bodies})
    assert site.run().lost_offsets == 2
    rows, dead = site.content()
    assert [n for _, n, _ in rows] == [n for n in range(40) if n not in (5, 10, 11, 36)]
    assert [n for _, n in dead] == [5, 10, 11, 36]
    errors = site.rows(dead=True).column("error").to_pylist()
    assert any("offsets 10 to 10 were lost" in error for error in errors)
    state = site.tables.rows.load(first_schema("raw")).state
    assert state.lost[ORDERS].spans == ((10, 12),)
    assert state.of(ORDERS).spans == ((0, 40),)


def test_what_a_repair_brought_back_is_a_row_when_it_is_asked_for_and_lost_no_more() -> None:
    site = Site({ORDERS: _bodies(40)})
    hole, site.bodies[ORDERS][10:12] = site.bodies[ORDERS][10:12], [None, None]
    site.run()
    site.bodies[ORDERS][10:12] = hole

    site.run()
    assert 10 not in [n for _, n, _ in site.content()[0]]
    site.run(window=BackfillWindow(10, 12, overwrite=True))

    assert site.content() == _expected(site.bodies)
    assert site.tables.rows.load(first_schema("raw")).state.lost == {}


def test_what_retention_took_before_the_table_had_it_is_lost_and_counted_once() -> None:
    site = Site({ORDERS: _bodies(40)})
    site.run()
    site.bodies[ORDERS] = _bodies(100)
    site.first = 70
    assert site.run().lost_offsets == 30
    assert site.run().lost_offsets == 0
    assert [n for _, n, _ in site.content()[0]][-29:] == [*range(70, 98), 99]


def test_a_back_fill_closes_the_gap_before_a_table_that_began_late() -> None:
    site = Site({ORDERS: _bodies(100)}, TableRule(".*", "db.t", start="60"))
    site.run()
    assert len(site.content()[0]) == 38
    site.run(window=BackfillWindow(first=0, next_offset=100))
    assert site.content() == _expected(site.bodies)


def test_an_overwrite_makes_rows_and_dead_letters_of_its_range_anew() -> None:
    site = Site({ORDERS: _bodies(100)})
    site.run()
    site.bodies[ORDERS] = [b"new" if 30 <= n < 70 else b for n, b in enumerate(_bodies(100))]
    site.bodies[ORDERS][50] = b"broken"
    site.run(window=BackfillWindow(first=30, next_offset=70, overwrite=True))
    assert site.content() == _expected(site.bodies)


def cut_off_at_60(length: int) -> Site:
    """A table that is up to date with 100 messages, 40 of which were cut off and written anew."""
    site = Site({ORDERS: _bodies(100)})
    site.run()
    site.bodies[ORDERS] = [*_bodies(60), *(b"new" for _ in range(60, length))]
    site.ledger = site.ledger.claimed(2, 60)
    return site


@pytest.mark.parametrize("length", [60, 70, 130])
def test_rows_of_a_history_that_was_cut_off_are_told_and_nothing_is_mixed_with_them(
    length: int,
) -> None:
    site = cut_off_at_60(length)
    before = site.content()

    for window in (BackfillWindow(), BackfillWindow(), BackfillWindow(first=0, next_offset=length)):
        report = site.run(window=window)
        assert report.cut_off == {ORDERS: [[60, 100]]}
        assert (report.planned, report.commits) == ({}, 0)
    assert site.content() == before


def test_a_stream_that_was_cut_off_does_not_stop_the_others() -> None:
    site = cut_off_at_60(130)
    site.bodies[BILLS] = _bodies(20)

    report = site.run()

    assert list(report.cut_off) == [ORDERS]
    assert report.planned == {BILLS: [[0, 20]]}


def test_an_overwrite_from_the_cut_on_makes_the_rows_anew_and_the_table_goes_on() -> None:
    site = cut_off_at_60(130)

    report = site.run(window=BackfillWindow(first=60, overwrite=True))
    site.bodies[ORDERS] += [b"new"] * 20
    after = site.run()

    assert (report.cut_off, after.cut_off) == ({}, {})
    assert after.planned == {ORDERS: [[130, 150]]}
    assert site.content() == _expected(site.bodies)


def test_an_overwrite_that_would_leave_some_of_them_does_nothing() -> None:
    short, late = cut_off_at_60(99), cut_off_at_60(130)
    for site, first, next_offset in ((short, 60, None), (late, 70, None), (late, 60, 90)):
        report = site.run(
            window=BackfillWindow(first=first, next_offset=next_offset, overwrite=True)
        )

        assert report.cut_off == {ORDERS: [[60, 100]]}
        assert report.commits == 0


def test_an_overwrite_that_is_killed_half_way_is_asked_for_again() -> None:
    site = cut_off_at_60(130)
    engine = site.engine
    engine.pieces_left = 2

    with pytest.raises(Killed):
        site.run(engine, window=BackfillWindow(first=60, overwrite=True), window_bytes=1)
    (stale,) = site.run().cut_off[ORDERS]
    assert (60 < stale[0] < 100, stale[1]) == (True, 100)

    site.run(window=BackfillWindow(first=stale[0], overwrite=True))
    assert site.run().cut_off == {}
    assert site.content() == _expected(site.bodies)


def test_what_retention_has_taken_of_the_new_history_goes_from_the_table_too() -> None:
    site = cut_off_at_60(130)
    site.first = 80

    assert site.run().cut_off == {ORDERS: [[60, 100]]}
    site.run(window=BackfillWindow(first=60, overwrite=True))

    assert site.run().cut_off == {}
    rows = [(n, body) for _, n, body in site.content()[0]]
    assert [n for n, _ in rows] == [n for n in range(60) if n % 31 != 5] + [*range(80, 130)]
    assert {body for n, body in rows if n >= 60} == {b"new"}


def test_a_claim_that_cuts_nothing_off_changes_nothing() -> None:
    site = Site({ORDERS: _bodies(100)})
    site.run()
    site.ledger = site.ledger.claimed(2, 100)
    site.bodies[ORDERS] = _bodies(120)

    assert site.run().planned == {ORDERS: [[100, 120]]}
    assert site.run().cut_off == {}


def test_a_table_of_an_older_release_knows_no_epochs_and_learns_them() -> None:
    old = TableState({ORDERS: Ranges.of([(0, 100)])})
    ledger = Ledger.of([(1, 0), (2, 100), (3, 60)])
    assert old.cut_off(ORDERS, ledger) == Ranges()

    new = old.with_more({ORDERS: Ranges.of([(100, 120)])}, {}, {ORDERS: 2})

    assert new.cut_off(ORDERS, Ledger.of([(1, 0), (2, 100)])) == Ranges()
    assert new.cut_off(ORDERS, ledger) == Ranges.of([(60, 120)]), "what was there before, too"
    assert parse_state(new.encode()) == new
    assert parse_state(old.encode()) == old
    for wrong in ("[[0,[]]]", '[["1",[]]]', "[[1]]", "5"):
        broken = new.encode().replace(b"[[2,[[100,120]]]]", wrong.encode())
        with pytest.raises(CorruptDataError):
            parse_state(broken)


NEXT = TableRule(".*", "db.t", start="next")


def test_a_table_that_begins_at_next_has_all_that_comes_after_its_first_run() -> None:
    site = Site({ORDERS: _bodies(30), BILLS: []}, NEXT)
    assert site.run().planned == {}
    assert site.run().commits == 0, "there is nothing to write down any more"
    site.bodies |= {ORDERS: _bodies(50), BILLS: _bodies(4)}

    site.run()

    rows, _ = site.content()
    assert [row[:2] for row in rows if row[0] == ORDERS] == [
        (ORDERS, n) for n in range(30, 50) if n % 31 != 5
    ]
    assert [row[1] for row in rows if row[0] == BILLS] == list(range(4))
    assert site.run().planned == {}


def test_a_stream_that_comes_later_is_read_from_its_first_message_whatever_next_says() -> None:
    site = Site({ORDERS: _bodies(30)}, NEXT)
    site.run()
    site.bodies[BILLS] = _bodies(4)

    assert site.run().planned == {BILLS: [[0, 4]]}


def test_a_second_rule_of_a_table_begins_at_next_in_the_streams_that_are_its_own() -> None:
    site = Site({ORDERS: _bodies(30)})
    site.run()
    site.rule, site.bodies = NEXT, {BILLS: _bodies(20)}

    assert site.run().planned == {}
    site.bodies[BILLS] = _bodies(25)
    assert site.run().planned == {BILLS: [[20, 25]]}


def test_what_retention_took_after_a_table_had_begun_at_next_is_told_as_lost() -> None:
    site = Site({ORDERS: _bodies(30)}, NEXT)
    site.run()
    site.bodies[ORDERS], site.first = _bodies(60), 40

    assert site.run().lost_offsets == 10
    assert [row[1] for row in site.content()[0]] == list(range(40, 60))


def test_what_a_new_writer_puts_below_where_a_table_begins_at_next_is_read() -> None:
    site = Site({ORDERS: _bodies(30)}, NEXT)
    site.run()
    site.ledger = site.ledger.claimed(2, 20)
    site.bodies[ORDERS] = _bodies(40)

    assert site.run().planned == {ORDERS: [[20, 40]]}


def test_a_back_fill_of_a_table_that_begins_at_next_reads_what_was_before() -> None:
    site = Site({ORDERS: _bodies(30)}, NEXT)
    site.run()
    site.bodies[ORDERS] = _bodies(35)
    site.run()
    site.run(window=BackfillWindow(first=10))

    assert [row[1] for row in site.content()[0]] == list(range(10, 35))


def test_where_a_stream_begins_is_read_back_and_a_state_that_says_nonsense_is_refused() -> None:
    state = TableState().with_more({}, {}, {ORDERS: 3}, {ORDERS: 30, BILLS: 5})
    assert parse_state(state.encode()) == state
    later = state.with_more({}, {}, {}, {ORDERS: 90})
    assert later.begins == state.begins, "whoever was first has said it"
    taken = state.with_more({ORDERS: Ranges.of([(30, 40)])}, {})
    assert set(taken.begins) == {BILLS}
    for wrong in ("[30]", '["30",3]', "[-1,3]", "30", "null"):
        with pytest.raises(CorruptDataError):
            parse_state(state.encode().replace(b"[30,3]", wrong.encode()))


def test_a_ticket_is_read_back_and_a_state_with_one_that_is_none_is_refused() -> None:
    state = TableState().with_more({}, {}, tickets={ORDERS: Ticket(7, open=True)})
    assert parse_state(state.encode()) == state
    for wrong in ("[7]", "[0,true]", "[7,1]", "[-7,true]", "[true,true]", "[1e400,true]", "null"):
        with pytest.raises(CorruptDataError):
            parse_state(state.encode().replace(b"[7,true]", wrong.encode()))


def test_a_dry_run_says_what_it_would_do_and_does_nothing() -> None:
    site = Site({ORDERS: _bodies(40)})
    report = site.run(dry_run=True)
    assert report.planned == {ORDERS: [[0, 40]]}
    assert site.content() == ([], [])


def test_a_json_table_grows_by_the_fields_of_later_bodies_and_loses_none() -> None:
    bodies: list[bytes | None] = [json.dumps({"n": str(n)}).encode() for n in range(60)]
    site = Site({ORDERS: bodies}, TableRule(".*", "db.t", body="json"))
    site.run()
    late = {"n": "60", "price": 1.5, "tags": ["a"], "who": {"name": "x", "age": 3}}
    site.bodies[ORDERS] = [*bodies, json.dumps(late).encode()]
    report = site.run()
    assert report.columns_added == ["price", "tags", "who"]
    last = site.rows().sort_by("_offset").slice(60).to_pylist()[0]
    assert {name: last[name] for name in late} == late
    assert site.rows().column("_rescued").null_count == 61


def odd_ones_fail(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A user's function whose column may not be null, and that makes null of some messages."""
    numbers = [None if n % 10 == 3 else n for n in batch.column("offset").to_pylist()]
    return pa.RecordBatch.from_arrays(
        [batch.column("offset"), pa.array(numbers, pa.int64())],
        schema=pa.schema([("_offset", pa.int64()), pa.field("n", pa.int64(), nullable=False)]),
    )


def none_fails(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same of somebody who has not thought of a batch without a message."""
    if not batch.num_rows:
        raise ValueError("no message")
    return odd_ones_fail(batch)


odd_ones_fail.schema = none_fails.schema = pa.schema(  # type: ignore[attr-defined]
    [pa.field("n", pa.int64(), nullable=False)]
)


@pytest.mark.parametrize("function", ["odd_ones_fail", "none_fails"])
def test_a_row_that_no_file_takes_is_a_dead_letter_and_the_others_are_rows(function: str) -> None:
    site = Site({ORDERS: _bodies(100)}, TableRule(".*", "db.t", body=f"{__name__}:{function}"))
    report = site.run()
    dead = {row["offset"]: row["error"] for row in site.rows(dead=True).to_pylist()}
    bad = [n for n in range(100) if n % 10 == 3]
    broken = [n for n in range(100) if n % 31 == 5]
    assert sorted(dead) == sorted({*bad, *broken})
    assert "null" in dead[13]
    assert dead[5] == "no message"
    good = [n for n in range(100) if n not in dead]
    assert sorted(site.rows().column("n").to_pylist()) == good
    assert (report.rows, report.dead_letters) == (len(good), len(dead))


def test_a_mistake_of_ours_makes_no_dead_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: Any) -> Any:
        raise AttributeError("not a value's fault")

    monkeypatch.setattr(task_rows, "transform", wrong)
    site = Site({ORDERS: _bodies(40)})
    with pytest.raises(AttributeError):
        site.run()
    assert site.content() == ([], [])


def _prices(count: int) -> list[bytes | None]:
    return [
        json.dumps({"price": 20 if n == 0 else 19.99, "code": 7 if n % 2 else "A7"}).encode()
        for n in range(count)
    ]


def test_a_column_has_the_type_that_the_whole_sample_asks_for() -> None:
    site = Site({ORDERS: _prices(200)}, TableRule(".*", "db.t", body="json"))
    site.run(sample_rows=1)
    rows = site.rows().sort_by("_offset")
    assert rows.column("price").to_pylist() == [20.0] + [19.99] * 199
    assert rows.column("code").to_pylist() == ["A7", "7"] * 100
    assert rows.column("_rescued").null_count == 200


DECLARED = """
price: decimal(12,2) required
placed_at: timestamp
"""


def _declared(**more: Any) -> TableRule:
    schema = parse_declared(more.pop("text", DECLARED))
    return TableRule(".*", "db.t", body="json", schema=schema, **more)


def test_a_declared_table_has_these_columns_and_no_others() -> None:
    bodies: list[bytes | None] = [
        b'{"price":19.99,"placed_at":"2026-11-24T08:00:00+01:00"}',
        b'{"price":"5","extra":1}',
        b'{"price":0.001,"placed_at":"today"}',
    ]
    site = Site({ORDERS: bodies}, _declared())
    assert site.run().columns_added == []
    rows = site.rows().sort_by("_offset")
    assert rows.column("price").to_pylist() == [Decimal("19.99"), Decimal("5.00"), None]
    first, *rest = rows.column("placed_at").to_pylist()
    assert (first.isoformat(), rest) == ("2026-11-24T07:00:00+00:00", [None, None])
    assert [dict(each or ()) for each in rows.column("_rescued").to_pylist()] == [
        {}, {"extra": "1"}, {"price": "0.001", "placed_at": '"today"'},
    ]  # fmt: skip


def test_misfits_are_dead_letters_where_the_rule_says_so() -> None:
    bodies: list[bytes | None] = [
        b'{"price":1,"extra":1}', b'{"price":"x"}', b'{"placed_at":null}', b'{"price":null}',
        b'{"price":2,"placed_at":"2026-02-30T00:00:00Z"}',
    ]  # fmt: skip
    site = Site({ORDERS: bodies}, _declared(misfits=Misfits.DEAD_LETTER))
    site.run()
    assert site.rows().column("price").to_pylist() == [Decimal("1.00")]
    errors = site.rows(dead=True).sort_by("offset").column("error").to_pylist()
    assert errors == [
        'price is no decimal(12,2): "x"',
        "the body has no price, which must be there",
        "price is no decimal(12,2): null",
        'placed_at is no timestamp: "2026-02-30T00:00:00Z"',
    ]


def test_a_declared_column_becomes_wider_with_its_rule_and_new_ones_come() -> None:
    bodies: list[bytes | None] = [b'{"n":1,"price":1.5}']
    site = Site({ORDERS: bodies}, _declared(text="n: int\nprice: decimal(5,2)"))
    site.run()
    site.bodies[ORDERS] = [*bodies, b'{"n":3000000000,"price":12345.67,"who":"a"}']
    site.rule = _declared(text="n: long\nprice: decimal(12,2)\nwho: string")
    assert site.run().columns_added == ["who"]
    rows = site.rows().sort_by("_offset")
    assert rows.column("n").to_pylist() == [1, 3_000_000_000]
    assert rows.column("price").to_pylist() == [Decimal("1.50"), Decimal("12345.67")]
    assert rows.column("who").to_pylist() == [None, "a"]
    assert rows.column("_rescued").null_count == 2


@pytest.mark.parametrize("text", ["n: string", "n: int\nprice: decimal(12,4)", "n: double"])
def test_a_declared_column_that_the_table_has_otherwise_is_refused(text: str) -> None:
    site = Site({ORDERS: [b'{"n":1}']}, _declared(text="n: long\nprice: decimal(5,2)"))
    site.run()
    if text == "n: int\nprice: decimal(12,4)":
        match = r"price of db.t is decimal\(5,2\), and the rule's schema says decimal\(12,4\)"
    else:
        match = "n of db.t is long, and the rule's schema says"
    site.rule = _declared(text=text)
    for settings in ({}, {"dry_run": True}, {"dry_run": True, "columns": True}):
        with pytest.raises(InvalidInputError, match=match):
            site.run(**settings)


def test_a_narrower_declaration_than_the_table_has_still_fills_it() -> None:
    site = Site({ORDERS: [b'{"n":1}']}, _declared(text="n: long"))
    site.run()
    site.bodies[ORDERS] = [b'{"n":1}', b'{"n":2}']
    site.rule = _declared(text="n: int")
    site.run()
    assert sorted(site.rows().column("n").to_pylist()) == [1, 2]


def test_a_plan_says_of_every_column_what_and_why_and_makes_nothing() -> None:
    site = Site({ORDERS: _prices(200)}, TableRule(".*", "db.t", body="json"))
    plan = site.run(dry_run=True, columns=True).plan
    assert not any(site.versions.values())
    assert (plan.table, plan.messages, plan.rows, plan.dead_letters) == ("new", 120, 120, 0)
    told = {each.name: each for each in plan.columns}
    assert list(told)[:4] == ["_stream", "_vhost", "_queue", "_super_stream"]
    assert (told["_offset"].action, told["_offset"].why) == ("new", "of the message")
    price, code = told["price"], told["code"]
    assert (price.type, price.action, price.values, price.rescued) == ("double", "new", 120, 0)
    assert price.why == "sample: number 119, whole number 1"
    assert (code.type, code.rescued) == ("string", 0)

    site.run()
    site.bodies[ORDERS] += [b'{"price":"dear","Code":1,"_offset":5,"late":[1,2.5]}', b"no"]
    plan = site.run(dry_run=True, columns=True).plan
    told = {each.name: each for each in plan.columns if each.values is not None}
    assert (plan.table, plan.rows, plan.dead_letters) == ("there", 1, 1)
    assert "no JSON" in plan.reasons[0]
    assert (told["price"].action, told["price"].rescued) == ("kept", 1)
    assert told["price"].why == "the table has it; sample: text 1"
    assert (told["late"].action, told["late"].type) == ("new", "list<double>")
    assert (told["Code"].action, told["Code"].rescued) == ("rescued", 1)
    assert told["Code"].why == "another column has the name in other case; sample: whole number 1"
    assert told["_offset"].why == "the name is one of ours; sample: whole number 1"
    assert "late" not in site.rows().schema.names
    assert "price" in plan.told()


def test_a_plan_of_a_declared_table_tells_what_becomes_wider() -> None:
    site = Site({ORDERS: [b'{"n":1}']}, _declared(text="n: int"))
    site.run()
    site.bodies[ORDERS] += [b'{"n":5000000000,"who":"a","more":1}']
    site.rule = _declared(text="n: long\nwho: string")
    plan = site.run(dry_run=True, columns=True).plan
    told = {each.name: (each.action, each.type, each.why, each.rescued) for each in plan.columns}
    assert told["n"] == ("wider", "long", "it is int now; declared; sample: whole number 1", 0)
    assert told["who"] == ("new", "string", "declared; sample: text 1", 0)
    assert told["more"] == ("rescued", "", "not declared; sample: whole number 1", 1)
    assert site.rows().schema.field("n").type == pa.int32()


def test_names_without_end_make_no_survey_without_end() -> None:
    bodies = [
        json.dumps({f"{n}-{m}-{'x' * 10_000}": 1 for m in range(100)}).encode() for n in range(40)
    ]
    source = Source(ORDERS, bodies, (0, len(bodies)))
    survey = Survey()
    for batch in source.batches([], []):
        survey.add(batch, transform(batch, "json", first_schema("json")))
    for counts in (survey.kinds, survey.rescued):
        assert len(counts) == 2001
        assert max(map(len, counts)) == 255
    assert sum(survey.rescued.values()) == 4000
    assert survey.kinds[OTHERS] == {"whole number": 2000}


@pytest.mark.parametrize("body", ["raw", f"{__name__}:odd_ones_fail"])
def test_a_plan_of_other_bodies_has_their_columns(body: str) -> None:
    site = Site({ORDERS: _bodies(40)}, TableRule(".*", "db.t", body=body))
    plan = site.run(dry_run=True, columns=True).plan
    assert {each.action for each in plan.columns} == {"new"}
    assert plan.rows + plan.dead_letters == plan.messages > 0


def _maintain(
    site: Site, engine: Engine | None = None, window_bytes: int = 2**30, **settings: Any
) -> Kept:
    def layout(loaded: Loaded) -> FileLayout:
        return layout_of(site.rule, loaded, RunSettings())

    settings = {"keep_seconds": None, "now_ms": 0, "target_bytes": 2**20} | settings
    maintainer = Maintainer(
        site.tables.rows, first_schema(site.rule.body), layout, (engine or site.engine).compact,
        lambda: f"{next(site.ids):016x}", window_bytes=window_bytes,
    )  # fmt: skip
    return maintainer.maintain(**settings)


def test_small_files_become_one_a_day_with_the_same_rows() -> None:
    site = Site({ORDERS: _bodies(100)})
    site.run()
    before = site.content()
    kept = _maintain(site)
    assert (kept.merged, kept.into) == (8, 3)
    assert site.content() == before
    assert _maintain(site) == Kept()
    site.run()
    assert site.content() == before


@pytest.mark.parametrize("keep_seconds", [None, 86_400])
def test_maintenance_that_is_killed_anywhere_changes_no_row_that_should_stay(
    keep_seconds: int | None,
) -> None:
    bodies = {ORDERS: _bodies(100)}
    now = 3 * _DAY_US // 1000
    whole = Site(dict(bodies))
    whole.run()
    whole.store.clock = Clock()
    _maintain(whole, keep_seconds=keep_seconds, now_ms=now)
    expected = whole.content()
    assert len(expected[0]) == (96 if keep_seconds is None else 19)
    for kill_at in range(1, whole.store.clock.calls + 1):
        site = Site(dict(bodies))
        site.run()
        site.store.clock = Clock(kill_at)
        with pytest.raises(Killed):
            _maintain(site, keep_seconds=keep_seconds, now_ms=now)
        site.store.clock = Clock()
        _maintain(site, keep_seconds=keep_seconds, now_ms=now)
        assert site.content() == expected, f"killed at call {kill_at}"
