"""Jobs through a Spark Connect server: one that has an RDD otherwise, and one that fills tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from coldstream_devkit.emulator import Emulator
from tests.glue.in_process import MARKS, Site, deployed
from tests.glue.streams import DEEP, HOLED
from tests.support.spark_connect import ROOT, connect_server

pytestmark = [*MARKS, pytest.mark.slow]


@pytest.fixture(scope="module")
def site(emulator: Emulator) -> Iterator[Site]:
    with deployed(emulator, "connect/") as made:
        yield made


@pytest.fixture(scope="module")
def remote(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("connect") / "server.log"
    with connect_server(site.emulator.environment(), log) as made:
        yield made


def _job(site: Site, remote: str, name: str, **more: str) -> dict[str, Any]:
    kept = {each: os.environ[each] for each in ("HOME", "PATH") if each in os.environ}
    done = subprocess.run(
        [sys.executable, "-m", f"glue_jobs.{name}", *site.arguments(name, **more)],
        env={**kept, **site.emulator.environment(), "SPARK_REMOTE": remote},
        cwd=ROOT,
        capture_output=True,
        timeout=600,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def test_jobs_run_by_spark_connect(site: Site, remote: str) -> None:
    rebuilt = _job(site, remote, "rebuild", streams=f"{DEEP}|{HOLED}")
    assert (rebuilt["streams"], rebuilt["differences"]) == (2, {})
    scrubbed = _job(site, remote, "scrub", streams=f"{DEEP}|{HOLED}", task_bytes="3000")
    assert (scrubbed["fragments"], scrubbed["findings"]["damaged"]) == (43, 0)
    profiled = _job(site, remote, "profile_streams", streams=DEEP)
    assert (profiled["streams"], profiled["failed"]) == (1, [])
    walked = _job(site, remote, "fleet")
    assert walked["fragments"] == 44
    for rows in (400, 0):
        filled = _job(site, remote, "materialise", streams="deep", into="by_connect")
        (table,) = filled["tables"].values()
        assert (table["rows"], table["dead_letters"]) == (rows, 0)
