"""`make demo LIVE=1` from its start to its end, short; and ended half-way."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coldstream_devkit.broker_release import Release

SECONDS = 800  # for all of it, on a machine that does other things


@pytest.fixture
def place(base: Path) -> Path:
    """Where the demo puts what it makes."""
    made = base / secrets.token_hex(4)
    made.mkdir()
    return made


@pytest.fixture
def demo(place: Path, release: Release) -> Iterator[subprocess.Popen[str]]:
    """The demo, begun."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "coldstream_devkit.demo.live", "--publish", "6"),
            *("--every", "1", "--release", release.suite or "system"),
        ],
        env={**os.environ, "TMPDIR": str(place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=SECONDS)


def left(place: Path) -> list[str]:
    """Command lines of processes that name the directory, or work in it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            where = str((entry / "cwd").readlink())
        except OSError:
            continue  # it has just ended
        if str(place) in words or where.startswith(str(place)):
            found.append(words)
    return found


def test_every_confirmed_message_comes_back_identical_and_nothing_stays(
    demo: subprocess.Popen[str], place: Path
) -> None:
    out, _ = demo.communicate(timeout=SECONDS)

    assert demo.returncode == 0, out
    assert out.count("kill -9 of the agent") == out.count("kill -9 of the broker") == 2
    assert re.search(r"\(\d.*agent.* down", out), "last values are shown in parentheses"
    last = [line for line in out.splitlines() if re.match(r" *[\d.]+ s +\d", line)][-1]
    confirmed, *marks = [int(word.replace(",", "")) for word in last.split()[2:]]
    assert len(marks) == 5
    assert len(set(marks)) == 1
    assert 0 < confirmed <= marks[0]
    assert out.splitlines()[-1] == f"{confirmed:,} of {confirmed:,} confirmed messages identical"
    share = re.search(r"(\d+) % of the stream is in S3 only", out)
    assert share is not None
    assert int(share[1]) >= 90
    assert re.search(r"messages from the first to the live tail in .* MB from S3, .* MB from", out)
    assert not left(place)
    assert not list(place.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_interrupts_it_finds_nothing_running_afterwards(
    demo: subprocess.Popen[str],
    place: Path,
    number: signal.Signals,
    wait_for: Callable[[Callable[[], Any]], Any],
) -> None:
    assert demo.stdout is not None
    assert any("kill -9 of the broker" in line for line in demo.stdout)
    assert left(place)
    demo.send_signal(number)
    time.sleep(0.1)
    demo.send_signal(number)  # impatience changes nothing
    out, _ = demo.communicate(timeout=SECONDS)

    assert demo.returncode == 130, out
    assert "logs are in" in out
    wait_for(lambda: not left(place))
