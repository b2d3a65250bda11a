"""Streams that share files, on real Spark: jobs that are killed, and jobs that run at once."""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import subprocess
import time

import pytest

from tests.glue.in_process import MARKS
from tests.glue.test_materialise import (  # noqa: F401 - the last two are fixtures
    ROOT,
    Site,
    _json,
    deployed,
    site,
)

pytestmark = [*MARKS, pytest.mark.slow]

_SMALL = ("--partition-bytes", "2000", "--window-bytes", "8000")


def job(queue: str) -> tuple[str, ...]:
    """Arguments for a table whose small streams share files."""
    streams = ("--streams", f"{queue}-.", "--into", "shared", "--body", "json")
    return (*streams, "--partition", "none", "--files", "shared")


def holds_each_once(site: Site, streams: list[str]) -> None:  # noqa: F811 - a fixture's name
    rows = site.rows("shared").select(["_stream", "_offset"]).to_pylist()
    dead = site.rows("shared_dead_letters").select(["stream", "offset"]).to_pylist()
    found = sorted(
        [(row["_stream"], row["_offset"]) for row in rows]
        + [(row["stream"], row["offset"]) for row in dead]
    )
    assert found == sorted((s, offset) for s in streams for offset, _ in site.messages(s))
    assert all(row["offset"] % 40 == 13 for row in dead)


def killed(site: Site, rng: random.Random, *arguments: str) -> bool:  # noqa: F811 - as above
    """Run the job and kill it with its Spark, some time after it has begun to work."""
    process = subprocess.Popen(
        site.command(*arguments), env=site.environment, cwd=ROOT,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    process.stderr.readline()
    time.sleep(rng.uniform(2, 14))
    alive = process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return alive


def test_jobs_that_are_killed_while_they_fill_and_merge_shared_files_leave_each_row_once(
    site: Site,  # noqa: F811 - a fixture
) -> None:
    queue, rng = f"killed-{secrets.token_hex(3)}", random.Random(7)
    streams = [site.stream(f"{queue}-{n}", 3, _json) for n in range(5)]
    ended = 0
    for number in range(4):
        maintain = ("--maintain",) if number % 2 else ()
        ended += killed(site, rng, *job(queue), *_SMALL, *maintain)
        for stream in streams:
            site.extend(stream, 3 + number, 1, _json)
    assert ended >= 2

    done = site.program(*job(queue), "--maintain")

    assert done.returncode == 0, done.stderr[-2000:]
    holds_each_once(site, streams)


def test_of_jobs_that_fill_shared_files_at_the_same_time_one_wins_and_each_row_is_there_once(
    site: Site,  # noqa: F811 - a fixture
) -> None:
    queue = f"at-once-{secrets.token_hex(3)}"
    streams = [site.stream(f"{queue}-{n}", 4, _json) for n in range(5)]
    assert site.program(*job(queue), *_SMALL).returncode == 0
    for stream in streams:
        site.extend(stream, 4, 3, _json)

    jobs = [
        subprocess.Popen(
            site.command(*job(queue), *more), env=site.environment, cwd=ROOT,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for more in (_SMALL, (), ("--maintain",))
    ]  # fmt: skip
    ends = [each.communicate(timeout=900) for each in jobs]

    said = [json.loads(out.splitlines()[-1]) for out, _ in ends]
    assert any(each["ok"] for each in said)
    for (_, words), each in zip(ends, said, strict=True):
        # Whoever comes too late says so, drops its files, and is to be run again.
        assert each["ok"] or "another run" in words, words[-2000:]
    done = site.program(*job(queue), "--maintain")
    assert done.returncode == 0, done.stderr[-2000:]
    holds_each_once(site, streams)
