"""`coldstream rename` as a process over the deployed app: twice at once, killed, and run again."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest

from coldstream_devkit.generator import write_stream
from tests.e2e.conftest import Site


@pytest.mark.slow  # processes; the rule by itself: tests/cli
def test_a_name_is_corrected_once_however_often_and_by_whomever_it_is_asked(
    site: Site, tmp_path: Path
) -> None:
    number = 10**18 + secrets.randbelow(10**9)
    stream, queue = f"__or_d{number}_{number}", f"or.d{number}"
    write_stream(tmp_path / stream, messages=100, chunk_messages=10)
    done = site.tier(tmp_path)
    assert done.returncode == 0, done.stderr.decode()

    def named() -> tuple[str, int]:
        (row,) = (each for each in site.json("streams") if each["stream"] == stream)
        return row["queue"], row["next"]

    killed = site.start("rename", stream, queue, "--yes")
    killed.kill()
    killed.communicate(timeout=120)
    both = [site.start("rename", stream, queue, "--yes", "--json") for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err.decode()
        assert json.loads(out)["new"] == f"//{queue}"

    assert named() == (queue, 100)
    assert site.run("rename", stream, "another", "--yes").returncode == 2
    assert site.run("rename", "//nothing", queue, "--yes").returncode == 66
    again = site.tier(tmp_path)
    assert again.returncode == 0, again.stderr.decode()
    assert named() == (queue, 100), "an agent does not take it back"
    read = site.run("read", f"//{queue}", "--output", "json")
    assert (read.returncode, len(read.stdout.splitlines())) == (0, 100)
