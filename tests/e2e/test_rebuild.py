"""`coldstream rebuild --write` as a process that somebody ends while it waits."""

from __future__ import annotations

import secrets
import signal
from pathlib import Path

import pytest

from coldstream_devkit.generator import write_stream
from tests.e2e.conftest import Site


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGHUP,
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_a_rebuild_that_somebody_ends_leaves_the_stream_as_it_was(
    site: Site, tmp_path: Path, number: signal.Signals
) -> None:
    """The state it begins with stops commits: it stayed, and only a whole rebuild ended it."""
    stream = f"__rebuilt_{10**18 + secrets.randbelow(10**9)}"
    write_stream(tmp_path / stream, messages=100, chunk_messages=10)
    assert site.tier(tmp_path).returncode == 0

    process = site.start("rebuild", stream, "--write")
    assert process.stderr is not None
    while b"s to wait" not in (line := process.stderr.readline()):
        assert line, "it has ended"
    process.send_signal(number)
    _, said = process.communicate(timeout=120)

    assert process.returncode == 130
    assert b"the stream takes commits again" in said
    (row,) = (each for each in site.json("streams") if each["stream"] == stream)
    assert row["state"] == "live"
    again = site.run("rebuild", stream, "--write", "--wait", "0")
    assert again.returncode == 0, again.stderr.decode()
