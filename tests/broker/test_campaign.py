"""A short campaign: nodes and agents die for two minutes, and every message is there in the end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from coldstream_devkit.broker_release import FORKY, SYSTEM, Release

_SECONDS = 1500.0  # two minutes of it, and what comes before and behind them


@pytest.mark.slow
@pytest.mark.timeout(_SECONDS + 60)
def test_after_two_minutes_of_kills_the_tier_has_every_message(
    release: Release, tmp_path: Path
) -> None:
    suite = {SYSTEM: "system", FORKY: FORKY.suite}[release]
    words = ("--minutes", "2", "--seed", "14", "--failovers", "1000", "--release", suite)
    campaign = [sys.executable, "-m", "coldstream_devkit.campaign"]

    with subprocess.Popen(
        [*campaign, *words, "--directory", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            out, _ = process.communicate(timeout=_SECONDS)
        finally:
            process.terminate()  # it ends its nodes and agents then

    assert process.returncode == 0, out[-5000:]
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["agents killed"] > 0
    assert report["nodes killed"] > 0
    assert report["messages confirmed"] > 0
