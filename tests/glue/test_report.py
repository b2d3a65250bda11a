"""A job ends with one line and its metrics, and a failure is not swallowed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from coldstream.adapters.metrics import MemoryMetrics
from coldstream.errors import CorruptDataError, NotFoundError, UnavailableError
from coldstream.jobs.report import raised_by_worker, reporting, script
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


def from_spark(text: str) -> Exception:
    """As PySpark raises what a worker raised: the class is Spark's, the text has all."""
    return type("PythonException", (Exception,), {"__module__": "pyspark.errors"})(text)


WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "fleet.py", line 5, in boom
coldstream.errors.CorruptDataError: inner

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "fleet.py", line 7, in boom
coldstream.errors.UnavailableError: S3 does not answer (stream __a_1, offset 5, key k/é)

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException
"""


def test_an_error_of_ours_in_a_worker_is_that_error_and_not_pages_of_calls() -> None:
    lines: list[str] = []

    with (
        pytest.raises(UnavailableError, match=r"^S3 does not answer \(stream __a_1, .*k/é\)$"),
        reporting("scrub", "", MemoryMetrics(), lines.append),
    ):
        raise from_spark(WORKER)

    assert ended(lines)["error"] == {
        "kind": "unavailable",
        "reason": "S3 does not answer (stream __a_1, offset 5, key k/é)",
    }


@pytest.mark.parametrize("before", ["x.PythonException: ", "[ERROR] Failed to generate: ", ""])
def test_an_error_of_ours_is_known_without_its_calls_too(before: str) -> None:
    text = f"{before}coldstream.errors.NotFoundError: no stream 'x' (stream a)\n SQLSTATE: 38000"

    error = raised_by_worker(from_spark(text))

    assert isinstance(error, NotFoundError)
    assert str(error) == "no stream 'x' (stream a)"


@pytest.mark.parametrize(
    "error",
    [
        from_spark("Traceback\nKeyError: 'gone'\n"),
        from_spark("Traceback\ncoldstream.errors.ErrorKind: x\n"),
        from_spark("Traceback\ncoldstream.errors.annotations: x\n"),
        ValueError(WORKER),
    ],
    ids=["a bug", "no error", "no class", "not by Spark"],
)
def test_any_other_error_of_a_task_stays_as_it_is(error: Exception) -> None:
    lines: list[str] = []

    with (
        pytest.raises(type(error)) as caught,
        reporting("scrub", "", MemoryMetrics(), lines.append),
    ):
        raise error

    assert caught.value is error
    assert ended(lines)["error"]["kind"] == "internal"


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


def interrupted() -> None:
    """As it comes out of PySpark: the JVM gets the signal, too, and calls to it fail."""
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        raise ValueError("the gateway is gone")  # noqa: B904 - the context is the point


@pytest.mark.parametrize("by_spark", [False, True])
def test_a_job_that_was_interrupted_is_never_told_as_done(
    by_spark: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[str] = []

    def main() -> None:
        with reporting("scrub", "", MemoryMetrics(), lines.append):
            if by_spark:
                interrupted()
            raise KeyboardInterrupt

    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    with pytest.raises(SystemExit) as caught:
        script(main)

    assert caught.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert not ended(lines)["ok"]
    assert ended(lines)["error"]["kind"] == "interrupted"
