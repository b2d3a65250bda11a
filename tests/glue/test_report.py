"""A job ends with one line and its metrics, and a failure is not swallowed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from coldstream.adapters.metrics import MemoryMetrics
from coldstream.errors import CorruptDataError, UnavailableError
from coldstream.jobs.report import reporting, script
from coldstream.ports import Metric


class FailingSink:
    def put(self, metrics: Iterable[Metric]) -> None:
        raise UnavailableError("no answer")


def ended(lines: list[str]) -> dict[str, Any]:
    (line,) = lines
    loaded: dict[str, Any] = json.loads(line)
    return loaded


def test_a_job_that_succeeds_writes_one_line_and_counts_once_for_all_and_once_by_name() -> None:
    sink, lines, times = MemoryMetrics(), list[str](), iter([10.0, 12.5, 13.0])

    with reporting("scrub", "jr_1", sink, lines.append, lambda: next(times)) as report:
        report.facts["table"] = "naïve"
        report.count("ScrubFindings", 3)

    assert ended(lines) == {
        "job": "scrub",
        "run_id": "jr_1",
        "ok": True,
        "seconds": 3.0,
        "table": "naïve",
    }
    assert sink.total("ScrubFindings") == sink.total("ScrubFindings", job="scrub") == 3
    assert sink.total("JobSeconds", job="scrub") == 2.5


def test_a_job_that_fails_says_where_in_its_line_and_raises() -> None:
    sink, lines = MemoryMetrics(), list[str]()

    def fail() -> None:
        with reporting("scrub", "", sink, lines.append) as report:
            report.facts["chunks"] = 7
            raise CorruptDataError("bad CRC", stream="__a_1", offset=42, key="k")

    with pytest.raises(CorruptDataError, match="bad CRC"):
        fail()

    document = ended(lines)
    assert (document["ok"], document["chunks"]) == (False, 7)
    assert document["error"] == {
        "kind": "corrupt_data",
        "reason": "bad CRC",
        "stream": "__a_1",
        "offset": 42,
        "key": "k",
    }
    assert sink.metrics == []


def test_metrics_that_cannot_be_sent_fail_the_job() -> None:
    lines: list[str] = []

    with pytest.raises(UnavailableError), reporting("scrub", "", FailingSink(), lines.append):
        pass

    assert ended(lines)["error"]["kind"] == "unavailable"


def test_a_bug_is_told_with_its_class() -> None:
    lines: list[str] = []

    with pytest.raises(KeyError), reporting("scrub", "", MemoryMetrics(), lines.append):
        raise KeyError("gone")

    assert ended(lines)["error"] == {"kind": "internal", "reason": "KeyError: 'gone'"}


def test_a_person_gets_one_line_and_glue_the_exception(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> None:
        raise CorruptDataError("bad CRC", stream="__a_1")

    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    with pytest.raises(SystemExit) as caught:
        script(main)
    assert caught.value.code == 1
    assert capsys.readouterr().err == "CorruptDataError: bad CRC (stream __a_1)\n"

    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with pytest.raises(CorruptDataError):
        script(main)


def test_a_job_that_succeeds_does_not_exit_by_an_exception() -> None:
    script(lambda: None)
