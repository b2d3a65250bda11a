"""What a progress line says of how fast it goes."""

from __future__ import annotations

import os
import pty
import sys
import termios

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


@pytest.mark.parametrize(("columns", "longest"), [(40, 39), (0, 82)])
def test_a_line_that_is_drawn_over_itself_never_reaches_into_a_second_row(
    monkeypatch: pytest.MonkeyPatch, columns: int, longest: int
) -> None:
    """The second row stayed, one more with each time that the line was drawn; 0 says nothing."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    now = [0.0]
    with os.fdopen(theirs, "w") as terminal, os.fdopen(ours, "rb", buffering=0) as screen:
        monkeypatch.setattr(sys, "stderr", terminal)
        with ProgressLine(0, 9_000_000, "messages", clock=lambda: now[0]) as line:
            now[0] = 2.0
            line.tell(4_500_000, 4_500_000)
        said = screen.read(4096)

    drawn = [each.rstrip(b"\r\n") for each in said.split(b"\r\x1b[K")[1:]]
    assert drawn
    assert {each[:20] for each in drawn} == {b"offset 4500000 of 90"}
    assert max(map(len, drawn)) == longest
