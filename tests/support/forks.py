"""Programs that fork: the process of the tests has threads, and must not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
IN_CHILD = """
import os
from coldstream.errors import ColdstreamError

def in_child(what):
    child = os.fork()
    if child == 0:
        try:
            print(what(), flush=True)
        except ColdstreamError as error:
            print(type(error).__name__, error.may_retry, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def printed(program: str, **environment: str) -> list[str]:
    """The lines that a program prints, which may call `in_child` with a function.

    Args:
        program: its text.
        environment: variables beside the path of modules.
    """
    path: Mapping[str, str] = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}:{ROOT / 'devkit/src'}"}
    done = subprocess.run(
        [sys.executable, "-c", IN_CHILD + program],
        capture_output=True, text=True, check=False, timeout=180, env={**path, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
