"""A table of the latest is a dictionary that was given the messages of a stream in order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from coldstream.errors import ConflictError, InternalError, InvalidInputError
from coldstream.jobs.materialise.declared.fields import parse_declared
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.iceberg.buckets import Buckets
from coldstream.jobs.materialise.iceberg.table import FILE_IO, IcebergTable
from coldstream.jobs.materialise.json_bodies.bodies import Misfits
from coldstream.jobs.materialise.latest.merge import MergePiece, MergeResult, plan_merge
from coldstream.jobs.materialise.latest.rule import Keyless, Latest, LatestKey
from coldstream.jobs.materialise.maintain import Kept, Maintainer
from coldstream.jobs.materialise.plan import BackfillWindow
from coldstream.jobs.materialise.rule_fit import new_schema
from coldstream.jobs.materialise.rules import TableRule
from coldstream.jobs.materialise.run_settings import RunSettings, layout_of
from coldstream.jobs.materialise.schema import columns_of
from coldstream.jobs.materialise.table import StoredFile, Table, WrittenFile
from coldstream.jobs.materialise.task_result import TaskResult
from coldstream.jobs.materialise.write import FileLayout
from coldstream.osiris.offsets import OffsetSet
from tests.unit.jobs.test_materialise_run import (
    BILLS,
    ORDERS,
    Clock,
    Killed,
    Site,
    Source,
    Store,
)

KEY = LatestKey.parse("properties.message_id")
RAW = TableRule(".*", "db.t", latest=Latest(KEY, buckets=3))


class KeyedSource(Source):
    """Messages that are written `key:body`; what has no key and what is broken as it is."""

    def _row(self, offset: int) -> dict[str, Any]:
        row = super()._row(offset)
        if row["error"] is None:
            key, _, body = (row["body"] or b"").partition(b":")
            row["body"] = body
            row["properties"] = {"message_id": key.decode()} if key else None
        return row


class LocalFiles(Store):
    """Files of tasks below a directory."""

    def save(self, path: str, content: IO[bytes], size: int) -> None:
        self.clock.tick()
        StoredFiles().save(path, content, size)
        self.clock.tick()

    def open(self, path: str, size: int) -> IO[bytes]:
        return StoredFiles().open(path, size)


@dataclass
class LatestSite(Site):
    """Streams of such messages, and a table of the latest of each key."""

    rule: TableRule = RAW
    source: type[Source] = KeyedSource

    def latest(self) -> dict[tuple[str, str], tuple[int, Any]]:
        """The table: offset and body by stream and key; no key is there twice."""
        stream, offset, _ = columns_of(self.rule.body)
        raw = self.rule.body == "raw"
        rows = self.rows().to_pylist()
        found = {
            (row[stream], row["key" if raw else "_key"]): (
                row[offset],
                row["body"] if raw else row["n"],
            )
            for row in rows
        }
        assert len(found) == len(rows)
        return found

    def dead(self) -> list[tuple[str, int]]:
        rows = self.rows(dead=True).select(["stream", "offset"]).to_pylist()
        return sorted((row["stream"], row["offset"]) for row in rows)


@dataclass
class IcebergSite(LatestSite):
    """The same with tables of Iceberg."""

    root: Path = field(kw_only=True)
    store: Store = field(default_factory=LocalFiles)

    @property
    def catalog(self) -> SqlCatalog:
        return SqlCatalog(
            "tests",
            uri=f"sqlite:///{self.root}/catalog.db",
            warehouse=f"file://{self.root}/warehouse",
            **{"py-io-impl": FILE_IO},
        )

    def table(
        self, name: str, columns: tuple[str, str, str], buckets: Buckets | None = None
    ) -> Table:
        return IcebergTable(
            self.catalog,
            name,
            location=f"file://{self.root}/warehouse/{name}",
            partition=self.rule.partition,
            columns=columns,
            files=StoredFiles(),
            new_id=lambda: f"{next(self.ids):016x}",
            buckets=buckets,
        )


Make = Callable[..., LatestSite]


@pytest.fixture(params=["memory", "iceberg"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    def made(*bodies: bytes, rule: TableRule = RAW) -> LatestSite:
        streams: dict[str, list[bytes | None]] = {ORDERS: list(bodies)}
        if request.param == "memory":
            return LatestSite(streams, rule)
        return IcebergSite(streams, rule, root=tmp_path)

    return made


def dictionary(bodies: dict[str, list[bytes | None]]) -> dict[tuple[str, str], tuple[int, Any]]:
    """What the table has to be."""
    found: dict[tuple[str, str], tuple[int, Any]] = {}
    for stream, messages in bodies.items():
        for offset, message in enumerate(messages):
            key, _, body = (message or b"").partition(b":")
            if message == b"broken" or not key:
                continue
            if body:
                found[stream, key.decode()] = (offset, body)
            else:
                found.pop((stream, key.decode()), None)
    return found


def random_messages(rng: random.Random, count: int, keys: int = 12) -> list[bytes | None]:
    def one() -> bytes:
        roll = rng.random()
        if roll < 0.04:
            return b"broken"
        if roll < 0.08:
            return b":nobody's"
        body = b"" if roll < 0.3 else b"%d" % rng.randrange(10**6)
        return b"k%d:%b" % (rng.randrange(keys), body)

    return [one() for _ in range(count)]


@pytest.mark.parametrize("seed", range(4))
def test_after_any_runs_the_table_is_the_dictionary(make: Make, seed: int) -> None:
    rng = random.Random(seed)
    site = make()
    site.bodies[BILLS] = []
    for _ in range(4):
        for stream in (ORDERS, BILLS):
            site.bodies[stream] += random_messages(rng, rng.choice((0, 3, 40)))
        report = site.run(window_bytes=rng.choice((1, 10**9)))
        assert site.latest() == dictionary(site.bodies)
    again = site.run()
    assert (again.rows, again.commits, again.planned) == (0, 0, {})
    expected = [
        (stream, n)
        for stream, messages in site.bodies.items()
        for n, each in enumerate(messages)
        if each == b"broken" or not (each or b"").partition(b":")[0]
    ]
    assert site.dead() == sorted(expected)
    assert report.dead_letters >= report.no_key


def test_a_table_that_begins_at_next_has_the_latest_of_what_comes_after_its_first_run(
    make: Make,
) -> None:
    site = make(b"a:1", b"b:1", rule=replace(RAW, start="next"))
    site.run()
    site.bodies[ORDERS] += [b"b:2", b"c:1", b"c:"]
    site.run()

    assert site.latest() == {(ORDERS, "b"): (2, b"2")}


def test_a_report_says_what_became_rows_and_how_many_had_no_key_or_deleted(make: Make) -> None:
    report = make(b"a:1", b"b:1", b"a:2", b":x", b"b:", b"c:").run()
    assert (report.rows, report.no_key, report.tombstones, report.dead_letters) == (1, 1, 2, 1)


def test_a_message_without_a_key_is_skipped_and_counted_where_the_rule_says_so(make: Make) -> None:
    rule = TableRule(".*", "db.t", latest=Latest(KEY, 3, Keyless.SKIP))
    site = make(b"a:1", b":x", b"broken", rule=rule)
    report = site.run()
    assert (report.rows, report.no_key, report.dead_letters) == (1, 1, 1)
    assert site.dead() == [(ORDERS, 2)]


def test_a_key_of_one_stream_is_not_that_of_another(make: Make) -> None:
    site = make(b"a:1", b"b:1")
    site.bodies[BILLS] = [b"a:2", b"b:"]
    site.run()
    assert site.latest() == {
        (ORDERS, "a"): (0, b"1"), (ORDERS, "b"): (1, b"1"), (BILLS, "a"): (0, b"2"),
    }  # fmt: skip


def test_a_run_that_is_killed_anywhere_and_run_again_gives_the_same_table() -> None:
    rng = random.Random(7)
    bodies = {ORDERS: random_messages(rng, 16), BILLS: random_messages(rng, 6)}
    later = {ORDERS: random_messages(rng, 18), BILLS: random_messages(rng, 5)}
    rule = TableRule(".*", "db.t", latest=Latest(KEY, buckets=2))

    def half_way() -> LatestSite:
        site = LatestSite({stream: list(each) for stream, each in bodies.items()}, rule)
        site.run(window_bytes=10**9)
        for stream, each in later.items():
            site.bodies[stream] += each
        site.store.clock = Clock()
        return site

    whole = half_way()
    whole.run(window_bytes=2)
    expected = whole.latest(), whole.dead()
    assert expected[0] == dictionary(whole.bodies)
    assert expected[1]
    calls = whole.store.clock.calls
    assert calls > 20
    for kill_at in range(1, calls + 1):
        site = half_way()
        site.store.clock = Clock(kill_at)
        with pytest.raises(Killed):
            site.run(window_bytes=2)
        site.store.clock = Clock()
        site.run()
        assert (site.latest(), site.dead()) == expected, f"killed at call {kill_at}"


def test_of_two_runs_at_once_one_stops_and_the_table_is_right(make: Make) -> None:
    site = make(*(b"k%d:%d" % (n % 5, n) for n in range(40)))
    engine = site.engine
    inner = engine.merge

    def meanwhile(pieces: Sequence[MergePiece], layout: FileLayout) -> list[MergeResult]:
        results = inner(pieces, layout)
        site.run()
        return results

    engine.merge = meanwhile  # type: ignore[method-assign]
    with pytest.raises(ConflictError) as caught:
        site.run(engine)
    assert caught.value.stream == ORDERS
    assert site.latest() == dictionary(site.bodies)


def _maintain(site: LatestSite) -> Kept:
    maintainer = Maintainer(
        site.tables.rows, new_schema(site.rule),
        lambda loaded: layout_of(site.rule, loaded, RunSettings()),
        site.engine.compact, lambda: f"{next(site.ids):016x}",
    )  # fmt: skip
    return maintainer.maintain(keep_seconds=None, now_ms=0, target_bytes=2**20)


def test_a_bucket_that_others_write_anew_while_a_run_merges_it_is_merged_again(make: Make) -> None:
    site = make(*(b"k%d:%d" % (n, n) for n in range(30)))
    site.run()
    site.bodies[ORDERS] += [b"k3:", b"k4:new"]
    site.erased = OffsetSet.of([(5, 6)])
    engine, other = site.engine, site.engine
    inner, merges = engine.merge, []
    other.pieces_left = 0  # it only erases

    def meanwhile(pieces: Sequence[MergePiece], layout: FileLayout) -> list[MergeResult]:
        results = inner(pieces, layout)
        if not merges:
            site.run(other, window=BackfillWindow(next_offset=30))
        merges.append(pieces)
        return results

    engine.merge = meanwhile  # type: ignore[method-assign]
    site.run(engine)
    expected = dictionary(site.bodies)
    del expected[ORDERS, "k5"]
    assert site.latest() == expected
    touched = {each.bucket for each in merges[0]}
    gone = RAW.buckets.of(pa.array(["k5"]))[0]  # type: ignore[union-attr]
    assert len(merges) == (2 if gone in touched else 1)


def test_erased_messages_have_no_row_and_their_key_comes_back_with_its_next_message(
    make: Make,
) -> None:
    site = make(b"a:1", b"b:1", b"a:2", b":x")
    site.run()
    site.erased = OffsetSet.of([(2, 4)])
    assert site.run().erased_rows == 2
    assert site.latest() == {(ORDERS, "b"): (1, b"1")}
    assert site.dead() == []
    site.bodies[ORDERS].append(b"a:3")
    assert site.run().erased_rows == 0
    assert site.latest() == {(ORDERS, "a"): (4, b"3"), (ORDERS, "b"): (1, b"1")}


def test_several_files_of_a_bucket_become_one_and_no_row_changes(make: Make) -> None:
    site = make(*(b"k%d:%d" % (n, n) for n in range(40)))
    site.run(target_bytes=1)
    site.bodies[ORDERS] += [b"k1:"]
    site.run(target_bytes=1)
    before = site.latest()
    assert before == dictionary(site.bodies)
    assert _maintain(site).into <= 3
    assert site.latest() == before
    assert len(site.tables.rows.files(site.tables.rows.load(new_schema(RAW)))) == 3


@pytest.mark.parametrize(
    "window",
    [
        BackfillWindow(first=0),
        BackfillWindow(first=10, overwrite=True),
        BackfillWindow(first=0, next_offset=20, overwrite=True),
    ],
)
def test_older_messages_are_never_filled_in_behind_newer_ones(window: BackfillWindow) -> None:
    site = LatestSite({ORDERS: [b"a:%d" % n for n in range(30)]})
    site.run()
    with pytest.raises(InvalidInputError, match="--from 0 --overwrite"):
        site.run(window=window)


def test_a_run_may_stop_before_the_end_and_the_next_one_goes_on_there(make: Make) -> None:
    site = make(b"a:1", b"b:1", b"a:", b"b:2")
    site.run(window=BackfillWindow(next_offset=2))
    assert site.latest() == {(ORDERS, "a"): (0, b"1"), (ORDERS, "b"): (1, b"1")}
    site.run()
    assert site.latest() == {(ORDERS, "b"): (3, b"2")}


def _cut_off(site: LatestSite) -> None:
    """Of 40 messages that the table has, those from 20 on were cut off and written anew."""
    site.bodies[ORDERS] = [b"k%d:%d" % (n % 8, n) for n in range(40)]
    site.run()
    site.bodies[ORDERS] = [*site.bodies[ORDERS][:20], b"k1:", b"k9:new"]
    site.ledger = site.ledger.claimed(2, 20)


def test_a_stream_whose_history_was_cut_off_is_left_alone_until_it_is_made_anew(
    make: Make,
) -> None:
    site = make()
    _cut_off(site)
    before = site.latest()
    assert site.run().cut_off == {ORDERS: [[20, 40]]}
    assert site.latest() == before

    site.run(window=BackfillWindow(first=0, overwrite=True))

    assert site.latest() == dictionary(site.bodies)
    assert site.run().planned == {}
    site.bodies[ORDERS] += [b"k9:", b"k3:later"]
    assert site.run().planned == {ORDERS: [[22, 24]]}
    assert site.latest() == dictionary(site.bodies)


def test_a_table_that_is_made_anew_and_dies_on_the_way_goes_on_without_being_told() -> None:
    site = LatestSite({})
    _cut_off(site)
    engine = site.engine
    engine.piece, engine.pieces_left = 4, 2
    with pytest.raises(Killed):
        site.run(engine, window=BackfillWindow(first=0, overwrite=True), window_bytes=1)
    assert set(site.latest().values()) == {(n, b"%d" % n) for n in range(8)}
    assert site.run().planned == {ORDERS: [[8, 22]]}
    assert site.latest() == dictionary(site.bodies)


def _made_anew_half(site: LatestSite) -> None:
    """Of a table that is made anew, the first two messages; then the run dies."""
    engine = site.engine
    engine.piece, engine.pieces_left = 2, 1
    with pytest.raises(Killed):
        site.run(engine, window=BackfillWindow(first=0, overwrite=True), window_bytes=1)


def test_rows_that_retention_takes_after_a_run_that_made_them_anew_died_stay(make: Make) -> None:
    site = make(*(b"k%d:%d" % (n, n) for n in range(12)))
    site.run()
    _made_anew_half(site)
    assert site.latest() == dictionary(site.bodies)
    site.first = 6
    assert site.run().lost_offsets == 4
    assert site.latest() == dictionary(site.bodies)
    assert site.run().planned == {}


def test_rows_that_are_still_to_be_made_anew_may_be_cut_off_too(make: Make) -> None:
    site = make(*(b"k%d:%d" % (n % 4, n) for n in range(12)))
    site.run()
    _made_anew_half(site)
    site.bodies[ORDERS] = [*site.bodies[ORDERS][:5], b"k3:new", b"k0:"]
    site.ledger = site.ledger.claimed(2, 5)
    assert site.run().cut_off == {ORDERS: [[5, 12]]}
    site.run(window=BackfillWindow(first=0, overwrite=True), window_bytes=1)
    assert site.latest() == dictionary(site.bodies)
    assert site.run().planned == {}


@pytest.mark.parametrize("found", [None, b"broken"], ids=["lost", "unreadable"])
def test_rows_of_messages_that_cannot_be_read_again_stay(make: Make, found: bytes | None) -> None:
    site = make(*(b"k%d:%d" % (n, n) for n in range(6)))
    site.run()
    before = site.latest()
    site.bodies[ORDERS][2:5] = [found] * 3
    site.run(window=BackfillWindow(first=0, overwrite=True))
    assert site.latest() == before


def test_a_row_goes_whose_message_makes_none_when_it_is_read_again(make: Make) -> None:
    site = make(*(b"k%d:%d" % (n, n) for n in range(6)))
    site.run()
    site.bodies[ORDERS][4] = b":no key"
    site.run(window=BackfillWindow(first=0, overwrite=True))
    assert site.latest() == dictionary(site.bodies)


def test_rows_of_messages_that_retention_took_stay_when_a_table_is_made_anew(make: Make) -> None:
    site = make(b"old:1", *(b"k%d:%d" % (n % 3, n) for n in range(1, 30)))
    site.run()
    site.first = 10
    site.run(window=BackfillWindow(first=0, overwrite=True))
    assert site.latest() == dictionary(site.bodies)


def test_a_run_that_goes_on_while_another_one_begins_anew_leaves_no_gap_and_no_old_value() -> None:
    site = LatestSite({ORDERS: [b"k%d:%d" % (n % 4, n) for n in range(20)]})
    site.run()
    site.bodies[ORDERS] += [b"k1:", b"k2:new"]
    engine, other = site.engine, site.engine
    other.pieces_left, other.piece = 2, 5
    inner = engine.merge

    def meanwhile(pieces: Sequence[MergePiece], layout: FileLayout) -> list[MergeResult]:
        results = inner(pieces, layout)
        if other.performed == 0:
            with pytest.raises(Killed):
                site.run(other, window=BackfillWindow(first=0, overwrite=True), window_bytes=1)
        return results

    engine.merge = meanwhile  # type: ignore[method-assign]
    with pytest.raises(ConflictError, match="begun this stream anew"):
        site.run(engine)
    assert site.run().planned == {ORDERS: [[10, 22]]}
    assert site.latest() == dictionary(site.bodies)


@pytest.mark.parametrize("first", [10, 25, 60])
def test_what_was_cut_off_and_is_gone_from_the_stream_has_no_row_and_is_lost(
    make: Make, first: int
) -> None:
    site = make()
    _cut_off(site)
    site.bodies[ORDERS] += [b"k%d:later" % (n % 3) for n in range(60)]
    site.first = first

    report = site.run(window=BackfillWindow(first=0, overwrite=True))

    kept = {key: row for key, row in dictionary(site.bodies).items() if row[0] >= first}
    old = {(ORDERS, f"k{n % 8}"): (n, b"%d" % n) for n in range(min(first, 20))}
    assert site.latest() == {
        **{key: row for key, row in old.items() if site.latest().get(key) == row}, **kept,
    }  # fmt: skip
    assert report.lost_offsets == {10: 0, 25: 5, 60: 40}[first]
    assert (site.run().planned, site.run().cut_off) == ({}, {})


JSON = TableRule(".*", "db.t", body="json", latest=Latest(KEY, buckets=2))


def test_fields_of_bodies_are_columns_and_a_body_that_is_none_changes_no_row(make: Make) -> None:
    site = make(b'a:{"n":1}', b'b:{"n":2}', b"a:no json", b"b:", rule=JSON)
    site.run()
    assert site.latest() == {(ORDERS, "a"): (0, 1)}
    assert site.dead() == [(ORDERS, 2)]
    site.bodies[ORDERS] += [b'c:{"n":3,"who":{"name":"x"},"_key":"mine"}', b'a:{"n":4}']
    report = site.run()
    assert report.columns_added == ["who"]
    rows = {row["_key"]: row for row in site.rows().to_pylist()}
    assert rows["c"]["who"] == {"name": "x"}
    assert dict(rows["c"]["_rescued"]) == {"_key": '"mine"'}
    assert (rows["a"]["n"], rows["a"]["who"], set(rows)) == (4, None, {"a", "c"})


def test_a_misfit_that_is_a_dead_letter_leaves_the_row_that_its_key_has(make: Make) -> None:
    rule = TableRule(
        ".*", "db.t", body="json", schema=parse_declared("n: int required"),
        misfits=Misfits.DEAD_LETTER, latest=Latest(LatestKey.parse("body.id"), buckets=2),
    )  # fmt: skip
    site = make(b':{"id":7,"n":1}', b':{"id":"7","n":"x"}', b":", b":[1]", rule=rule)
    report = site.run()
    assert site.latest() == {(ORDERS, "7"): (0, 1)}
    assert site.dead() == [(ORDERS, 1), (ORDERS, 2), (ORDERS, 3)]
    errors = site.rows(dead=True).sort_by("offset").column("error").to_pylist()
    assert errors == [
        'n is no int: "x"',
        "there is no key: body.id is missing, empty or longer than 1024 bytes",
        "the body is no JSON object but a list",
    ]
    assert report.no_key == 1


def test_a_plan_says_what_the_key_is_and_makes_nothing(make: Make) -> None:
    site = make(b'a:{"n":1}', b'b:{"n":2,"_key":1}', b":x", b"b:", rule=JSON)
    plan = site.run(dry_run=True, columns=True).plan
    assert not any(site.versions.values())
    assert (plan.messages, plan.rows, plan.dead_letters) == (4, 3, 1)
    assert (plan.latest, plan.no_key, plan.tombstones) == (
        "bucket[2] of properties.message_id", 1, 1,
    )  # fmt: skip
    columns = {each.name: each for each in plan.columns}
    assert columns["_key"].why.startswith("the name is one of ours")
    first = plan.columns[0]
    assert (first.name, first.type, first.why) == (
        "_key", "string", "the key: properties.message_id",
    )  # fmt: skip
    assert "bucket[2] of properties.message_id" in plan.told()


def test_readers_of_iceberg_find_a_key_in_the_files_of_its_bucket(tmp_path: Path) -> None:
    rule = TableRule(".*", "db.t", latest=Latest(KEY, buckets=8))
    keys = ["k7", "ключ", "日本", "\U0001f600", "x" * 1024]
    bodies: list[bytes | None] = [b"%b:1" % key.encode() for key in keys]
    bodies += [b"k%d:%d" % (n, n) for n in range(30)]
    site = IcebergSite({ORDERS: bodies}, rule, root=tmp_path)
    site.run()
    table = site.catalog.load_table("db.t")
    for key in keys:
        scan = table.scan(row_filter=f"key == '{key}'")
        assert len(list(scan.plan_files())) == 1
        assert scan.to_arrow().column("key").to_pylist() == [key]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (RAW, TableRule(".*", "db.t")),
        (TableRule(".*", "db.t"), RAW),
        (RAW, TableRule(".*", "db.t", latest=Latest(KEY, 4))),
        (RAW, TableRule(".*", "db.t", latest=Latest(LatestKey.parse("body.id"), 3))),
    ],
)
def test_a_table_that_was_made_by_another_kind_of_rule_is_refused(
    tmp_path: Path, one: TableRule, other: TableRule
) -> None:
    site = IcebergSite({ORDERS: [b"a:1"]}, one, root=tmp_path)
    site.run()
    site.rule = other
    with pytest.raises(InvalidInputError, match="is partitioned by"):
        site.run()


def test_what_the_driver_is_told_of_staged_files_is_short_whatever_columns_they_have() -> None:
    site = LatestSite({ORDERS: [b"k%d:%d" % (n, n) for n in range(30)]})
    engine, told = site.engine, []
    inner = engine.perform

    def asked(*args: Any, **kwargs: Any) -> list[tuple[TaskResult, ...]]:
        results = inner(*args, **kwargs)
        told.extend(chain.from_iterable(results))
        return results

    engine.perform = asked  # type: ignore[method-assign]
    site.run(engine)
    assert {each.footer for result in told for each in result.files} == {b""}
    assert site.latest() == dictionary(site.bodies)


def test_only_touched_buckets_are_written_anew() -> None:
    def file(stream: str, bucket: int, name: str) -> StoredFile:
        return StoredFile(name, 5, 1, stream, bucket, 0, 0)

    files = [file(ORDERS, 0, "a"), file(ORDERS, 1, "b"), file(ORDERS, 1, "c"), file(BILLS, 1, "d")]
    staged = [_written(ORDERS, 1, "e"), _written(ORDERS, 2, "f")]
    assert plan_merge(files, staged, {}) == (
        MergePiece(ORDERS, 1, (("b", 5), ("c", 5)), (("e", 5),)),
        MergePiece(ORDERS, 2, (), (("f", 5),)),
    )
    with pytest.raises(InvalidInputError, match="others have deleted"):
        plan_merge([replace(files[1], partly=True)], staged, {})
    with pytest.raises(InternalError, match="in no bucket"):
        plan_merge(files, [_written(ORDERS, None, "g")], {})


def _written(stream: str, bucket: int | None, name: str) -> WrittenFile:
    return WrittenFile(name, 5, 1, stream, bucket, 0, 0, b"")


def test_a_table_that_is_made_anew_rewrites_all_buckets_of_that_stream() -> None:
    site = LatestSite({ORDERS: [b"k%d:%d" % (n, n) for n in range(30)], BILLS: [b"a:1"]})
    site.run()
    before = {each.path for each in _files(site) if each.stream == BILLS}
    site.bodies[ORDERS] = [b"k1:new"]
    site.ledger = site.ledger.claimed(2, 1)
    del site.bodies[BILLS]
    site.run(window=BackfillWindow(first=0, overwrite=True))
    assert {each.path for each in _files(site) if each.stream == BILLS} == before
    assert site.latest() == {(ORDERS, "k1"): (0, b"new"), (BILLS, "a"): (0, b"1")}


def _files(site: LatestSite) -> list[StoredFile]:
    table = site.tables.rows
    return table.files(table.load(new_schema(site.rule)))
