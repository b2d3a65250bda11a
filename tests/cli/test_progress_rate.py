"""What a progress line says of how fast it goes."""

from __future__ import annotations

import pytest

from coldstream.cli.progress import ProgressLine


@pytest.mark.parametrize(("resumes", "rate"), [(False, "4,500"), (True, "0")])
def test_what_comes_in_one_piece_counts_unless_an_earlier_run_has_done_it(
    resumes: bool, rate: str, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    with ProgressLine(0, 9000, "messages", resumes=resumes, clock=lambda: now[0]) as line:
        now[0] = 2.0
        line.tell(9000, 9000)
    assert f"offset 9000 of 9000 (100%), 9,000 messages, {rate} messages/s" in (
        capsys.readouterr().err
    )


def test_the_last_chunk_may_end_behind_what_was_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ProgressLine(0, 300, "messages") as line:
        line.tell(323, 323)
    assert "offset 323 of 323 (100%)" in capsys.readouterr().err
