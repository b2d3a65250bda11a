"""What the server is told on its command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """The server's settings.

    Attributes:
        state_dir: where everything it knows is kept.
        port: to listen on; 0 for a free one.
        python: interpreter of functions and jobs whose runtime has none of its own below.
        python_of_runtime: interpreter for each runtime such as "python3.13" or "glue6.0".
        snapshot_seconds: between two snapshots, the most that a crash can lose.
        skip: names of corrections to leave out.
        exit_with_parent: end when the process that started the server has ended.
    """

    state_dir: Path
    port: int
    python: str
    python_of_runtime: dict[str, str]
    snapshot_seconds: float
    skip: frozenset[str]
    exit_with_parent: bool


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="localaws", description="The embedded AWS of coldstream.")
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--port", type=int, default=4566)
    parser.add_argument(
        "--python", required=True, help="interpreter of Lambda functions and Glue jobs"
    )
    parser.add_argument(
        "--runtime", action="append", default=[], metavar="NAME=PYTHON", help="one for a runtime"
    )
    parser.add_argument("--snapshot-seconds", type=float, default=5.0)
    parser.add_argument("--skip", default="", help="corrections to leave out, with commas between")
    parser.add_argument("--exit-with-parent", action="store_true")
    given = parser.parse_args(arguments)
    return Options(
        state_dir=given.state_dir.resolve(),
        port=given.port,
        python=given.python,
        python_of_runtime=dict(one.split("=", 1) for one in given.runtime),
        snapshot_seconds=given.snapshot_seconds,
        skip=frozenset(name for name in given.skip.split(",") if name),
        exit_with_parent=given.exit_with_parent,
    )
