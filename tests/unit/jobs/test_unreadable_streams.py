"""A stream of which an object is damaged or lost is left out and told; all others are filled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import IO, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.columns.schema import select
from coldstream.errors import CorruptDataError, ErrorKind, NotFoundError
from coldstream.jobs.materialise.latest.rule import Latest, LatestKey
from coldstream.jobs.materialise.plan import BackfillWindow
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rule_fit import new_schema
from coldstream.jobs.materialise.rules import TableFiles, TableRule
from coldstream.jobs.materialise.run import Runner
from coldstream.jobs.materialise.run_settings import RunSettings
from coldstream.jobs.materialise.schema import READ_COLUMNS, columns_of
from coldstream.jobs.materialise.task import Part, perform_all
from coldstream.jobs.materialise.task_result import encode_results, parse_results
from coldstream.jobs.materialise.task_rows import TaskRules
from coldstream.osiris.body import BodyFormat
from coldstream.reader.gap import Gap
from tests.support.examples import examples
from tests.support.later import later_fragment, later_node
from tests.support.memory_table import StoreFiles
from tests.support.tier import chunk
from tests.unit.jobs.test_dead_bytes import _rules
from tests.unit.jobs.test_materialise_run import BILLS, ORDERS, Site, Source, Store
from tests.unit.jobs.tier_site import BROKEN, TierSite

CASES = "__cases_1745252105682952934"
ALL = (BILLS, CASES, ORDERS)
RAW = TableRule(".*", "db.t", body_format=BodyFormat.AMQP)
JSON = replace(RAW, body="json")
LATEST = replace(JSON, latest=Latest(LatestKey.parse("body.n"), buckets=2))
FILES = pytest.mark.parametrize("files", [TableFiles.OWN, TableFiles.SHARED], ids=["own", "shared"])
#: The fragment that gets lost has these offsets.
LOST = (30, 40)


def bodies(number: int, text: bytes = b'{"n": "%d"}') -> list[bytes]:
    return [BROKEN if n % 31 == 5 else text % n for n in range(number)]


def site_of(patch: pytest.MonkeyPatch, rule: TableRule = RAW) -> TierSite:
    """Three streams of 120 messages in 12 fragments each, with groups in the manifest."""
    site = TierSite({}, rule)
    for stream in ALL:
        site.add(stream, bodies(120))
    return site.patched(patch)


def harm(site: TierSite, how: str, stream: str = BILLS) -> tuple[str, bytes]:
    """Damage or lose an object of a stream; its key, and what it was."""
    key = site.fragment(stream, 3) if "fragment" in how else site.group(stream)
    before = site.tier.store.objects[key]
    if how == "a damaged group":
        site.tier.flip(key, 50)
    elif "later" in how:
        later = later_fragment if "fragment" in how else later_node
        site.tier.store.objects[key] = later(before)
    else:
        del site.tier.store.objects[key]
    return key, before


def heal(site: TierSite, harmed: tuple[str, bytes]) -> None:
    key, content = harmed
    site.tier.store.objects[key] = content


def in_order(site: TierSite) -> Any:
    """Rows and dead letters by stream and offset alone."""
    rows, dead = site.content()
    return [row[:2] for row in rows], dead


def expected(*streams: str, bills: int = 0) -> Any:
    """The same, as it must be: all of some streams, and so many of BILLS."""
    ends = {BILLS: bills} | dict.fromkeys(streams, 120)
    places = [(stream, n) for stream in sorted(ends) for n in range(ends[stream])]
    return [p for p in places if p[1] % 31 != 5], [p for p in places if p[1] % 31 == 5]


@FILES
@pytest.mark.parametrize("rule", [RAW, JSON], ids=["raw", "json"])
@pytest.mark.parametrize(
    "how",
    [
        "a damaged group",
        "a lost group",
        "a lost fragment",
        "a group of a later release",
        "a fragment of a later release",
    ],
)
def test_a_stream_that_a_worker_cannot_read_is_told_and_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, how: str, rule: TableRule, files: TableFiles
) -> None:
    site = site_of(monkeypatch, replace(rule, files=files))
    harmed = harm(site, how)

    for _ in range(2):
        report = site.run(window_bytes=10**9)

        assert list(report.unread) == [BILLS]
        assert harmed[0] in report.unread[BILLS]
        assert in_order(site) == expected(CASES, ORDERS)
        assert not site.covered(BILLS)
        assert not site.covered(BILLS, dead=True)

    heal(site, harmed)
    assert site.run(window_bytes=10**9).unread == {}
    assert in_order(site) == expected(*ALL)


def test_a_stream_with_offsets_that_no_column_can_hold_is_told_and_stops_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = site_of(monkeypatch)
    site.bodies["__far_1"] = []
    site.tier.add("__far_1", [[chunk(first, b"x") for first in (2**63 - 1, 2**63)]])

    report = site.run(window_bytes=10**9)

    assert list(report.unread) == ["__far_1"]
    assert "--to of the job materialise" in report.unread["__far_1"]
    assert in_order(site) == expected(*ALL)


def test_the_error_of_a_stream_keeps_its_kind_and_says_where(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = site_of(monkeypatch)
    damaged, _ = harm(site, "a damaged group")
    gone, _ = harm(site, "a lost fragment", CASES)
    runner = Runner(site.engine, lambda: f"{next(site.ids):016x}", lambda _: None, lambda _: None)

    runner.fill(site.rule, site.tables, [site.now(each) for each in ALL], RunSettings())

    bad, lost = runner.unread[BILLS], runner.unread[CASES]
    assert (bad.kind, bad.stream, bad.offset, bad.key) == (
        ErrorKind.CORRUPT_DATA, BILLS, 0, damaged,
    )  # fmt: skip
    assert (lost.kind, lost.stream, lost.offset, lost.key) == (
        ErrorKind.NOT_FOUND, CASES, LOST[0], gone,
    )  # fmt: skip


@FILES
@pytest.mark.parametrize("rule", [RAW, JSON], ids=["raw", "json"])
def test_what_windows_before_the_damage_have_taken_stays_and_the_next_run_goes_on_there(
    monkeypatch: pytest.MonkeyPatch, rule: TableRule, files: TableFiles
) -> None:
    site = site_of(monkeypatch, replace(rule, files=files))
    site.partition_bytes = 300
    harmed = harm(site, "a lost fragment")

    report = site.run(window_bytes=600, task_bytes=600)

    assert list(report.unread) == [BILLS]
    ((first, end),) = site.covered(BILLS)
    assert first == 0 < end <= LOST[0]
    assert in_order(site) == expected(CASES, ORDERS, bills=end)
    assert report.rows + report.dead_letters == 240 + end

    heal(site, harmed)
    site.run(window_bytes=600, task_bytes=600)
    assert in_order(site) == expected(*ALL)


def test_rows_that_are_to_be_made_anew_stay_where_the_stream_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = site_of(monkeypatch, replace(RAW, files=TableFiles.SHARED))
    site.run()
    before = site.content()
    harmed = harm(site, "a lost fragment")

    report = site.run(window=BackfillWindow(first=0, overwrite=True), window_bytes=10**9)

    assert (list(report.unread), report.rows) == ([BILLS], 232)
    assert site.content() == before
    assert site.covered(BILLS) == Ranges.of([(0, 120)])
    heal(site, harmed)
    assert site.run(window=BackfillWindow(first=0, overwrite=True)).rows == 348
    assert site.content() == before


def test_a_table_of_the_latest_keeps_what_it_has_of_a_stream_that_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = site_of(monkeypatch, LATEST)
    site.run()
    for stream in ALL:
        site.more(stream, [b'{"n": "7"}', b'{"n": "new"}'])
    last = site.fragment(BILLS, 12)
    content = site.tier.store.objects.pop(last)

    def keys() -> dict[str, int]:
        """How many keys each stream has, and where the newest row is."""
        found = site.rows().select(["_stream", "_offset"]).to_pylist()
        assert len({(row["_stream"], row["_offset"]) for row in found}) == len(found)
        return {each: max(r["_offset"] for r in found if r["_stream"] == each) for each in ALL}

    for window in (BackfillWindow(), BackfillWindow(first=0, overwrite=True)):
        assert list(site.run(window=window, window_bytes=10**9).unread) == [BILLS]
        assert keys() == {BILLS: 119, CASES: 121, ORDERS: 121}
        assert site.covered(BILLS) == Ranges.of([(0, 120)])
    heal(site, (last, content))
    assert site.run().unread == {}
    assert keys() == dict.fromkeys(ALL, 121)
    assert site.rows().num_rows == 3 * 117


def test_a_run_of_which_no_stream_can_be_read_ends_and_tells_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = site_of(monkeypatch, replace(JSON, files=TableFiles.SHARED))
    for stream in ALL:
        harm(site, "a lost group", stream)
    engine = site.engine

    report = site.run(engine, window_bytes=10**9)

    assert sorted(report.unread) == sorted(ALL)
    assert (report.commits, site.rows().num_rows, site.rows(dead=True).num_rows) == (0, 0, 0)
    assert len(engine.rounds) == 2, "the sample, and the window once"


def test_only_tasks_with_pieces_of_a_stream_that_is_left_out_are_done_again_and_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = site_of(monkeypatch, replace(RAW, files=TableFiles.SHARED))
    site.partition_bytes = 300
    for stream in (BILLS, CASES):
        harm(site, "a lost fragment", stream)
    engine = site.engine

    site.run(engine, window_bytes=10**9, task_bytes=1500)

    tasks, again = engine.rounds
    assert tasks > 3 * again
    assert in_order(site) == expected(ORDERS)


def test_a_look_at_columns_tells_of_streams_that_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = site_of(monkeypatch, JSON)
    harm(site, "a damaged group")

    report = site.run(dry_run=True, columns=True)

    assert list(report.unread) == [BILLS]
    assert report.plan.messages == 240
    assert "n" in [column.name for column in report.plan.columns]


def test_fields_of_a_stream_that_is_left_out_get_no_column(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = TierSite({}, JSON, partition_bytes=300).patched(monkeypatch)
    site.add(BILLS, [*bodies(115), *bodies(5, b'{"late": %d}')])
    site.add(ORDERS, bodies(120))
    harmed = harm(site, "a lost fragment")

    site.run(window_bytes=10**9)
    assert "late" not in site.rows().schema.names

    heal(site, harmed)
    site.run(window_bytes=10**9)
    assert site.rows().column("late").null_count == site.rows().num_rows - 5


@dataclass
class Breaking:
    """A source of a stream that gives some messages and then an error, where it has one."""

    stream: str
    error: Exception | None = None
    bytes_read = 0

    def raw(self, offsets: pa.Array) -> pa.Array:
        return pa.nulls(len(offsets), pa.binary())

    def batches(self, covered: list[tuple[int, int]], gaps: list[Gap]) -> Iterator[pa.RecordBatch]:
        del gaps
        schema = select(READ_COLUMNS).schema
        row = dict.fromkeys(schema.names) | {
            "stream": self.stream, "offset": 0, "timestamp": 0, "body": b"x", "raw": b"x",
            "body_kind": "data",
        }  # fmt: skip
        covered.append((0, 1))
        yield pa.RecordBatch.from_pylist([row], schema)
        if self.error is not None:
            raise self.error


def shared_rules() -> TaskRules:
    rules = _rules("raw")
    return replace(
        rules, rows=replace(rules.rows, shared=True), dead=replace(rules.dead, shared=True)
    )


def test_a_task_begins_anew_without_the_parts_of_a_stream_that_cannot_be_read() -> None:
    wrong = CorruptDataError("bad", key="k")
    parts = [
        Part("a", Breaking("a")),
        Part("b", Breaking("b")),
        Part("b", Breaking("b", wrong)),
        Part("c", Breaking("c", NotFoundError("gone", offset=9))),
        Part("d", Breaking("d")),
    ]
    ids = count()

    done = perform_all(
        parts, shared_rules(), StoreFiles(Store()), lambda: f"{next(ids):016x}", now_ms=0
    )

    told = parse_results(encode_results(done))
    assert [each.stream for each in told] == list("abbcd")
    assert [each.rows for each in told] == [1, 0, 0, 0, 1]
    assert [str(each.error) for each in told] == [
        "None", "bad (stream b, key k)", "bad (stream b, key k)", "gone (stream c, offset 9)",
        "None",
    ]  # fmt: skip
    assert [type(each.error) for each in told[1:4]] == [
        CorruptDataError, CorruptDataError, NotFoundError,
    ]  # fmt: skip
    assert [each.covered for each in told] == [[(0, 1)], [], [], [], [(0, 1)]]
    assert sum(file.rows for each in told for file in each.files) == 2


def test_what_is_lost_of_the_table_and_not_of_a_stream_stops_the_task() -> None:
    class NoBucket(StoreFiles):
        def save(self, path: str, content: IO[bytes], size: int) -> None:
            raise NotFoundError("the bucket of the table is gone", key=path)

    files = NoBucket(Store())
    with pytest.raises(NotFoundError, match="of the table"):
        perform_all([Part("a", Breaking("a"))], shared_rules(), files, lambda: "0", now_ms=0)


_RUNS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(ALL), st.integers(0, 80), max_size=3),
        st.integers(1, 12),
        st.integers(1, 12),
        st.sampled_from([None, None, 0, 30]),
    ),
    max_size=4,
)


@examples(0.5)
@given(runs=_RUNS, shared=st.booleans(), json=st.booleans())
def test_whatever_cannot_be_read_in_which_run_each_message_that_a_table_has_is_in_it_once(
    runs: list[tuple[dict[str, int], int, int, int | None]], shared: bool, json: bool
) -> None:
    harmed: dict[str, int] = {}

    class Harmed(Source):
        def batches(
            self, covered: list[tuple[int, int]], gaps: list[Gap]
        ) -> Iterator[pa.RecordBatch]:
            for batch in super().batches(covered, gaps):
                if harmed.get(self.stream, -1) in batch.column("offset").to_pylist():
                    raise NotFoundError("an object is gone")
                yield batch

    files = TableFiles.SHARED if shared else TableFiles.OWN
    site = Site({}, TableRule(".*", "db.t", body="json" if json else "raw", files=files))
    site.source = Harmed
    for stream in ALL:
        site.bodies[stream] = list(bodies(40 if stream == CASES else 80, b'{"n": "%d"}'))
        site.bodies[stream][35:38] = [b'{"n": "1", "more": 2}'] * 3
    for now, window_bytes, task_bytes, anew in [*runs, ({}, 3, 3, 0)]:
        harmed.clear()
        harmed.update(now)
        window = BackfillWindow(anew, None, overwrite=anew == 30)
        report = site.run(window=window, window_bytes=window_bytes, task_bytes=task_bytes)
        assert report.unread.keys() <= now.keys()
        state = site.tables.rows.load(new_schema(site.rule)).state
        places = [(s, n) for s in sorted(ALL) for each in state.of(s) for n in range(*each)]
        rows = site.rows().select(columns_of(site.rule.body)[:2]).to_pylist()
        assert sorted(tuple(row.values()) for row in rows) == [
            p for p in places if site.bodies[p[0]][p[1]] != BROKEN
        ]
        dead = site.rows(dead=True).select(["stream", "offset"]).to_pylist()
        assert sorted(tuple(row.values()) for row in dead) == [
            p for p in places if site.bodies[p[0]][p[1]] == BROKEN
        ]
    assert {s: state.of(s).spans for s in ALL} == {s: ((0, len(site.bodies[s])),) for s in ALL}
