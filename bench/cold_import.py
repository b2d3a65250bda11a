"""Cold import of the commit Lambda, in a fresh interpreter, against importing boto3 alone.

The goal of 600 ms is in the issue; the peer says how much of it is not ours to save.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.report import quick, ratio

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 7
GOAL_MS = 600


def seconds(code: str, path: str) -> float:
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": path, "AWS_DEFAULT_REGION": "us-east-1"},
    )
    return time.perf_counter() - began


def main() -> None:
    rounds = 1 if quick(__doc__) else ROUNDS
    path = f"{ROOT}:{ROOT / 'src'}"
    cases = {
        "interpreter alone": "pass",
        "import boto3": "import boto3",
        "import functions.commit_runs": "import functions.commit_runs",
    }
    for code in cases.values():
        seconds(code, path)  # writes bytecode, as a Lambda's snapshot of the bundle has it
    found = {name: [seconds(code, path) for _ in range(rounds)] for name, code in cases.items()}
    base = statistics.median(found["interpreter alone"])
    for name, times in found.items():
        print(f"  {name:30} {1000 * statistics.median(times):6.0f} ms")
    handler = statistics.median(found["import functions.commit_runs"]) - base
    ratio("cold-import", handler * 1000 / GOAL_MS, "<= 1.0")


if __name__ == "__main__":
    main()
