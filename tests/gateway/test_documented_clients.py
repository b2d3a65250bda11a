"""The programs of docs/how-to/applications.md, run as they stand there, but for names and port."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from coldstream.gateway.users import parse_users
from tests.support.gateway import Gateway
from tests.support.tier import FIXTURES, Tier

PAGE = Path(__file__).parents[2] / "docs/how-to/applications.md"
JS = Path(__file__).parent / "js"
NAME = "plain-3.10.8"
_FENCE = re.compile(r"^```(python|javascript)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = _FENCE.findall(PAGE.read_text())


def run(command: Sequence[str | Path], port: int, program: str, **more: Path) -> list[str]:
    """The first lines of what a program prints, as many as there are messages."""
    told = program.replace("broker-1", "127.0.0.1").replace("5553", str(port))
    told = told.replace('"orders"', f'"{FIXTURES[NAME]["stream"]}"')
    with ExitStack() as ends:
        process = ends.enter_context(
            subprocess.Popen([*command, told], stdout=subprocess.PIPE, text=True, **more)  # type: ignore[call-overload]
        )
        ends.callback(process.kill)
        lines = iter(process.stdout.readline, "")
        return [next(lines, "") for _ in range(FIXTURES[NAME]["messages"])]


def test_in_each_program_one_line_changes() -> None:
    assert len(PROGRAMS) == 3
    for _, program in PROGRAMS:
        (line,) = [each for each in program.splitlines() if "5553" in each]
        assert "was 5552" in line


@pytest.mark.parametrize("number", [0, 1], ids=["rstream", "rbfly"])
def test_a_program_in_python_reads_it_all(number: int) -> None:
    tier = Tier()
    tier.add_fixture(NAME)
    with Gateway(tier, users=parse_users("app:secret:.*")) as gateway:
        lines = run([sys.executable, "-u", "-c"], gateway.port, PROGRAMS[number][1])
    assert all(lines)


@pytest.mark.slow
@pytest.mark.skipif(
    not shutil.which("node") or not (JS / "node_modules").is_dir(),
    reason="needs node, and make js-client",
)
def test_a_program_in_javascript_reads_it_all() -> None:
    tier = Tier()
    tier.add_fixture(NAME)
    with Gateway(tier, users=parse_users("app:secret:.*")) as gateway:
        lines = run(["node", "-e"], gateway.port, PROGRAMS[2][1], cwd=JS)
    assert all(lines)
