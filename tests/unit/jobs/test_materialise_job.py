"""The job around the tables: what one of them does to the others, and which streams it looks at."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coldstream import deployment
from coldstream.adapters.place import Place
from coldstream.errors import (
    CorruptDataError,
    ErrorKind,
    InternalError,
    InvalidInputError,
    UnavailableError,
)
from coldstream.jobs.arguments import Given, parse
from coldstream.jobs.materialise import job
from coldstream.jobs.materialise.choose import Chosen, Meant
from coldstream.jobs.materialise.engine import StreamNow
from coldstream.jobs.materialise.job_arguments import ARGUMENTS, ROW_GROUP_BYTES, rules_of
from coldstream.jobs.materialise.plan import BackfillWindow
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rules import TableRule
from coldstream.jobs.materialise.spark_engine import SparkEngine
from coldstream.jobs.materialise.table_report import TableReport
from coldstream.jobs.report import JobReport
from coldstream.manifest.catalog import CatalogItem, QueueName, StreamState
from coldstream.manifest.root import Root
from coldstream.ports import CatalogPage
from coldstream.remote.roots import Snapshot

RULES = (TableRule("a.*", "db.first"), TableRule("b.*", "db.second"), TableRule("c.*", "db.third"))
THERE: Any = SimpleNamespace(bucket="b", table="t", prefix="", region="", endpoint="")


class PySparkError(Exception):
    """What Spark makes of the error of a worker."""


PySparkError.__module__ = "pyspark.errors"


def _run(monkeypatch: pytest.MonkeyPatch, wrong: Exception) -> tuple[JobReport, Exception]:
    """A job of three tables, of which the second fails."""

    def fill(runner: Any, pair: str, rules: Any, settings: Any) -> TableReport:
        if pair == "db.second":
            raise wrong
        return TableReport(pair, rows=7)

    chosen = Chosen({rule: Meant([StreamNow(rule.table, "x", 0, 1)]) for rule in RULES})
    monkeypatch.setattr(job, "_chosen", lambda *_: chosen)
    monkeypatch.setattr(job, "rules_of", lambda *_: RULES)
    monkeypatch.setattr(job, "open_tables", lambda rule, *_: rule.table)
    monkeypatch.setattr(job, "_fill", fill)
    report = JobReport("materialise")
    spark: Any = None
    with pytest.raises(Exception) as caught:
        job.run(spark, THERE, _given(), report)
    return report, caught.value


def _given() -> Given:
    argv = ["--warehouse", "s3://tables/", "--database", "db"]
    return parse("materialise", job.DESCRIPTION, ARGUMENTS, argv)


def test_an_error_that_nobody_foresaw_in_one_table_leaves_the_others_filled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = KeyError("_id")

    report, error = _run(monkeypatch, wrong)

    tables = report.facts["tables"]
    assert (tables["db.first"]["rows"], tables["db.third"]["rows"]) == (7, 7)
    assert tables["db.second"] == {"error": "db.second: KeyError: '_id'"}
    assert isinstance(error, InternalError)
    assert error.__cause__ is wrong
    assert "Traceback" in capsys.readouterr().err


def test_our_own_error_keeps_its_kind_also_from_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    _, own = _run(monkeypatch, UnavailableError("S3 is away"))
    told = PySparkError("Traceback ...\ncoldstream.errors.CorruptDataError: bad (key k)\n")
    report, workers = _run(monkeypatch, told)

    assert getattr(own, "kind", None) is ErrorKind.UNAVAILABLE
    assert getattr(workers, "kind", None) is ErrorKind.CORRUPT_DATA
    assert workers.__cause__ is told
    assert report.facts["tables"]["db.second"] == {"error": "bad (key k)"}


def _item(stream: str, state: StreamState) -> CatalogItem:
    queue = QueueName(queue=stream)
    return CatalogItem(stream, "t", first_offset=5, next_offset=50, name=queue, state=state)


def test_a_deleted_stream_is_looked_at_where_tables_go_on_and_left_alone_by_a_back_fill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    items = [_item("a", StreamState.LIVE), _item("b", StreamState.DELETED)]
    page = CatalogPage(tuple(items), None)
    remote = SimpleNamespace(catalog=SimpleNamespace(page=lambda *_: page))
    monkeypatch.setattr(job, "connect", lambda _: remote)
    monkeypatch.setattr(
        job, "stream_now", lambda _, item: StreamNow(item.stream, item.stream, 5, 50)
    )
    place = Place(bucket="b", table="t", prefix="", region="", endpoint="")

    plain = job._chosen(RULES, place, BackfillWindow())
    back_fill = job._chosen(RULES, place, BackfillWindow(first=0, overwrite=True))

    assert plain.rules[RULES[1]] == Meant([StreamNow("b", "b", 50, 50, deleted=True)], ["b"])
    assert list(back_fill.by_table()) == ["db.first"]
    assert back_fill.rules[RULES[1]] == Meant([], ["b"])


def test_a_damaged_item_of_the_table_stops_no_stream_and_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad = CorruptDataError("no item", stream="x")
    page = CatalogPage((_item("a", StreamState.LIVE),), None, (bad, CorruptDataError("none")))
    remote = SimpleNamespace(catalog=SimpleNamespace(page=lambda *_: page))
    monkeypatch.setattr(job, "connect", lambda _: remote)
    monkeypatch.setattr(job, "stream_now", lambda _, item: StreamNow(item.stream, "a", 5, 50))
    monkeypatch.setattr(job, "rules_of", lambda *_: RULES)
    monkeypatch.setattr(job, "open_tables", lambda rule, *_: rule.table)
    monkeypatch.setattr(job, "_fill", lambda _, pair, *__: TableReport(pair, rows=7))
    report, spark = JobReport("materialise"), cast(Any, None)

    with pytest.raises(CorruptDataError, match="no item"):
        job.run(spark, THERE, _given(), report)

    assert report.facts["tables"]["db.first"]["rows"] == 7
    assert sorted(report.facts["unread"].values()) == ["no item (stream x)", "none"]


def test_what_a_deleted_stream_takes_along_is_told_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = JobReport("materialise")
    done = TableReport("db.t", lost_offsets=20, deleted={"b": [[30, 50]]})
    whole = TableReport("db.t")
    whole.add(done)
    job._count(report, "db.t", whole)
    assert whole.deleted == {"b": [[30, 50]]}
    assert any(m.name == deployment.METRIC_OFFSETS_LOST and m.value == 20 for m in report.metrics)


@pytest.mark.parametrize(
    "words",
    [
        ("--start", "next"), ("--keep", "30d"), ("--partition", "hour"), ("--body", "json"),
        ("--latest", "body.k"), ("--misfits", "dead-letter"), ("--columns", "header"),
        ("--files", "shared"), ("--order", "body"), ("--schema", "n: int"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_word_of_a_rule_beside_a_document_of_rules_is_refused_and_not_ignored(
    words: tuple[str, str],
) -> None:
    """`--start next` was a full back-fill, and `--keep` kept everything."""
    rules = '{"version":1,"tables":[{"streams":"orders","table":"a.orders"}]}'
    argv = ["--warehouse", "s3://tables/", "--database", "db", "--rules", rules]
    place = Place(bucket="b", table="t", prefix="", region="", endpoint="")
    assert len(rules_of(parse("materialise", "", ARGUMENTS, argv), place)) == 1

    with pytest.raises(InvalidInputError, match=f"{words[0]}: with --rules each rule says that"):
        rules_of(parse("materialise", "", ARGUMENTS, [*argv, *words]), place)


def test_the_lag_is_that_of_the_stalest_table_also_at_the_beginning_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job.time, "time", lambda: 100.0)
    report = JobReport("materialise")

    job._report_lag(report, {"a": {"oldest_last_ms": 0}, "b": {"oldest_last_ms": 90_000}, "c": {}})

    assert {metric.value for metric in report.metrics} == {100.0}


@pytest.mark.parametrize("window", [(2**63 - 10, 2**63 + 5), (2**63 + 1, 2**63 + 5)])
def test_offsets_that_no_column_can_hold_are_never_taken_for_done(
    tmp_path: Path, window: tuple[int, int]
) -> None:
    low, high = 2**63 - 10, 2**63 + 10
    item = CatalogItem("__far_1", "t", first_offset=low, next_offset=high)
    snapshot = Snapshot(item, Root(low, high))
    stream = StreamNow("__far_1", "far", low, high, snapshot)
    spark: Any = None
    there = Place("", "", "rabbitmq/", endpoint=f"file://{tmp_path}")
    engine = SparkEngine(spark, there, partition_bytes=2**20)

    with pytest.raises(InvalidInputError, match="--to of the job materialise") as caught:
        engine.pieces(stream, Ranges.of([window]))
    assert (caught.value.stream, caught.value.offset) == ("__far_1", 2**63 - 1)

    assert engine.pieces(stream, Ranges.of([(low, 2**63 - 1)])) == []


@pytest.mark.parametrize("size", ["0", "1", "1023KiB", "2GiB", "64 TiB", "-1", "x"])
def test_a_row_group_with_which_no_worker_gets_on_is_refused_before_anything_is_read(
    size: str,
) -> None:
    argv = ["--warehouse", "s3://tables/", "--database", "db", "--row-group-bytes", size]

    with pytest.raises(InvalidInputError, match="row-group-bytes"):
        parse("materialise", "tables", ARGUMENTS, argv, environment={})


@pytest.mark.parametrize("size", ["0", "1023KiB", "5GiB", "1TiB"])
def test_a_file_that_s3_does_not_take_at_once_is_refused_before_anything_is_read(size: str) -> None:
    argv = ["--warehouse", "s3://tables/", "--database", "db", "--file-bytes", size]

    with pytest.raises(InvalidInputError, match="file-bytes: must be 1MiB to 4GiB"):
        parse("materialise", "tables", ARGUMENTS, argv, environment={})


@pytest.mark.parametrize(
    ("size", "bytes_"), [("1MiB", 2**20), ("1GiB", 2**30), ("64M", 64 * 2**20)]
)
def test_a_row_group_of_another_size_is_taken(size: str, bytes_: int) -> None:
    argv = ["--warehouse", "s3://tables/", "--database", "db", "--row-group-bytes", size]

    given = parse("materialise", "tables", ARGUMENTS, argv, environment={})

    assert given[ROW_GROUP_BYTES] == bytes_
