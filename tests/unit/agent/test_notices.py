"""What a notice, or an error, gives to whoever has to do something about it."""

from __future__ import annotations

from pathlib import Path

from coldstream.agent.disk.log import StreamLog
from coldstream.agent.telling.progress import Notices, of_truncation, translated
from coldstream.plans.claim import LocalChunk
from coldstream.plans.truncate import Truncation

STREAM = "__orders_1745252105682952932"


def test_a_truncation_names_the_stream_by_which_its_quarantine_is_found() -> None:
    evidence = LocalChunk(980, 990, 7)
    done = Truncation(7, 960, 0, 1035, False, evidence, 2, 81440, "some/key")
    notices = Notices()

    notices.append(of_truncation(STREAM, done))

    assert f"see `coldstream quarantine list {STREAM}`" in notices[0]
    assert notices[0].endswith(f"(stream {STREAM}, offset 960)")
    assert notices.since(0)[0].offset == 960


def test_a_file_that_may_not_be_read_says_who_may(tmp_path: Path) -> None:
    denied = translated(
        PermissionError(13, "Permission denied", "some.segment"), StreamLog(tmp_path)
    )
    busy = translated(OSError(5, "Input/output error", "some.segment"), StreamLog(tmp_path))

    assert "rabbitmq" in (denied.remedy or "")
    assert "coldstream doctor" in (denied.remedy or "")
    assert busy.remedy is None
