"""What the agent says on stderr: each thing once, nothing lost, and in bounded memory."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any

import pytest

from coldstream.agent.telling.progress import Progress, of_take_over
from coldstream.cli import agent_log
from coldstream.cli.agent_log import AgentLog
from coldstream.cli.agent_options import LogFormat
from coldstream.cli.agent_progress import AgentProgress, row_of
from coldstream.errors import UnavailableError


class Full(io.StringIO):
    """A stderr on a disk that is full, for a while."""

    full = False

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(28, "No space left on device")
        return super().write(text)


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch) -> Full:
    stream = Full()
    monkeypatch.setattr(agent_log, "sys", SimpleNamespace(stderr=stream))
    return stream


def line(format: LogFormat = LogFormat.TEXT) -> Any:  # noqa: A002 - the option's own word
    return AgentProgress(AgentLog(format, now=lambda: 1_790_000_000.5))


def test_each_error_notice_and_warning_is_said_once(stderr: Full) -> None:
    row, says = Progress("__a_1"), line()
    row.error = UnavailableError("no table")
    row.notices.append("a range is lost")

    for _ in range(5):
        says.show([row], ["a strange directory"])
    row.notices.append("another range is lost")
    says.show([row], ["a strange directory"])

    said = stderr.getvalue()
    for text in ("no table", "a range is lost", "another range is lost", "a strange directory"):
        assert said.count(text) == 1


def test_a_notice_in_the_json_log_has_its_stream_and_its_offset_as_fields(stderr: Full) -> None:
    row, says = Progress("__a_1"), line(LogFormat.JSON)
    row.notices.append(of_take_over("__a_1", 4100, 600.0))

    says.show([row])

    said = json.loads(stderr.getvalue().splitlines()[0])
    assert (said["event"], said["stream"], said["offset"]) == ("notice", "__a_1", 4100)


def test_what_could_not_be_written_is_said_later(stderr: Full) -> None:
    row, says = Progress("__a_1"), line()
    row.error = UnavailableError("no table")
    row.notices.append("a range is lost")
    stderr.full = True
    for _ in range(3):
        with pytest.raises(OSError):
            says.show([row], ["a strange directory"])

    stderr.full = False
    says.show([row], ["a strange directory"])

    for text in ("no table", "a range is lost", "a strange directory"):
        assert stderr.getvalue().count(text) == 1


def test_what_is_remembered_of_a_stream_is_bounded_and_goes_with_it(stderr: Full) -> None:
    says = line()
    for number in range(2000):
        row = Progress(f"__s_{number // 100}")
        row.error = UnavailableError(f"error {number}")
        row.notices.append(f"notice {number}")
        says.show([row], [f"warning {number}"])

    assert len(says._told) == 1
    assert all(len(each.errors) <= 8 for each in says._told.values())
    assert len(says._warned) == 64
    assert all(f"notice {number}\n" in stderr.getvalue() for number in range(2000))


def test_a_stream_that_comes_back_is_told_of_from_the_begin(stderr: Full) -> None:
    says, first, second = line(), Progress("__a_1"), Progress("__a_1")
    for number in range(3):
        first.notices.append(f"of the first life {number}")
    second.notices.append("of the second life")

    says.show([first])
    says.show([second])

    assert "of the second life" in stderr.getvalue()


def test_streams_without_progress_are_counted(stderr: Full) -> None:
    from coldstream.agent.telling.progress import Standstill

    row, says = Progress("__a_1"), line()
    row.standstill = Standstill(240.0, 12, "no table")

    says.end([row])

    assert "1 without progress" in stderr.getvalue()
    assert row_of(row)["standstill"] == {"seconds": 240.0, "offsets": 12, "reason": "no table"}


def test_a_json_log_has_the_place_of_an_error_in_fields_of_their_own(stderr: Full) -> None:
    row, says = Progress("__a_1", bytes=5, fragments=2), line(LogFormat.JSON)
    row.error = UnavailableError("no\ntable", stream="__a_1", offset=7, key="k")
    row.notices.append("a range is lost")

    says.show([row], ["a strange directory"])

    error, warning, notice, totals = map(json.loads, stderr.getvalue().splitlines())
    assert error == {
        "time": "2026-09-21T14:13:20.500Z",
        "level": "error",
        "event": "error",
        "message": "no\ntable",
        "stream": "__a_1",
        "offset": 7,
        "key": "k",
        "kind": "unavailable",
        "remedy": None,
    }
    assert (warning["event"], warning["stream"]) == ("warning", None)
    assert (notice["event"], notice["stream"], notice["level"]) == ("notice", "__a_1", "warning")
    assert (totals["event"], totals["bytes"], totals["failing"]) == ("progress", 5, 1)
