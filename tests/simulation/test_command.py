"""The simulator as a command: what it is asked for is what it does, or it says why not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from coldstream_devkit.simulation import run
from tests.support.interrupts import heeds_ctrl_c


@pytest.mark.parametrize(
    "arguments",
    [
        "--seeds 0",
        "--seeds -5",
        "--processes 0",
        "--actions -5",
        "--first -1",
        "--trace -1",
        "--json --trace 3",
        "--json --mutants",
        "--seeds 5 --mutants",
        "--seeds 5 --trace 3",
        "--mutants --trace 3",
        "--mutants --mutant no_fence",
    ],
)
def test_options_that_ask_for_nothing_or_exclude_each_other_are_usage_errors(
    arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        run.main(arguments.split())

    assert caught.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_a_few_seeds_are_played_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--seeds", "2", "--processes", "1", "--actions", "5"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("seeds 2 violations 0 ")


def test_ctrl_c_ends_all_processes_by_one_word() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", run.__name__, "--seeds", "1000000", "--processes", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heeds_ctrl_c,
    ) as running:
        # The forks are done, or are what is interrupted; how long imports take nobody knows.
        while not psutil.Process(running.pid).children():
            time.sleep(0.05)
        os.killpg(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=60)

    assert (running.returncode, said) == (130, "interrupted\n")
