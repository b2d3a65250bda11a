"""dbt of its own environment, and a project of it with the very texts of the page."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from tests.dbt.history import STREAM
from tests.support.shop_orders import HOUR, blocks, message
from tests.support.sparks import of_spark
from tests.support.tier import chunk

ROOT = Path(__file__).parents[2]
WORDS = "words.txt"
(SOURCES,) = blocks("yaml")
MODEL, SPARK_CONFIG = (block for block in blocks("sql") if "{{" in block)


@pytest.fixture(scope="session")
def python_dbt() -> Path:
    """The Python of a virtual environment with dbt; made when it is not there."""
    subprocess.run(["make", "-s", "dbt"], cwd=ROOT, check=True, timeout=1200)
    return ROOT / ".dbt" / "bin" / "python"


def write_project(path: Path, profile: Mapping[str, Any], *, sources: str, model: str) -> None:
    """A project of one source and the model orders_latest. JSON is YAML, too."""
    project = {
        "name": "shop",
        "profile": "shop",
        "flags": {"send_anonymous_usage_stats": False, "warn_error_options": {"error": "all"}},
    }
    profiles = {"shop": {"target": "tests", "outputs": {"tests": dict(profile)}}}
    (path / "models").mkdir(parents=True)
    (path / "dbt_project.yml").write_text(json.dumps(project))
    (path / "profiles.yml").write_text(json.dumps(profiles))
    (path / "models/sources.yml").write_text(sources)
    (path / "models/orders_latest.sql").write_text(model)


@dataclass
class Dbt:
    """A process that runs dbt, one command after another.

    Attributes:
        process: tests/dbt/run_dbt.py.
        project: directory of the project.
    """

    process: subprocess.Popen[str]
    project: Path

    def run(self, *arguments: str) -> dict[str, list[str]]:
        """State and message of each node."""
        said = self._ask({"dbt": list(arguments)})
        assert said["success"], (said, self._words())
        results: dict[str, list[str]] = said["results"]
        return results

    def sent(self) -> str:
        """What the last run of the model has asked the engine for at last, in one line."""
        text = (self.project / "target/run/shop/models/orders_latest.sql").read_text()
        return " ".join(text.split())

    def sql(self, text: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._ask({"sql": text})
        return rows

    def _ask(self, what: dict[str, Any]) -> Any:
        asked, answers = _pipes(self.process)
        print(json.dumps(what), file=asked, flush=True)
        answer = answers.readline()
        assert answer, self._words()
        return json.loads(answer)

    def _words(self) -> str:
        return (self.project / WORDS).read_text()[-5000:]


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


@contextmanager
def dbt_process(python: Path, project: Path, environment: Mapping[str, str]) -> Iterator[Dbt]:
    with (
        (project / WORDS).open("w") as stderr,
        subprocess.Popen(
            [python, ROOT / "tests/dbt/run_dbt.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=project,
            env={**of_spark(), "PYSPARK_PYTHON": str(python), **environment},
        ) as process,
    ):
        yield Dbt(process, project)
        _pipes(process)[0].close()


def check_freshness(dbt: Dbt, take_in: Callable[[str, str, bytes], None]) -> None:
    """Three hours without a message are a warning, and one that has just come ends it."""
    now = int(time.time() * 1000)

    take_in(STREAM, "orders", chunk(0, message(b"a", b"a0"), timestamp=now - 3 * HOUR))
    stale = dbt.run("source", "freshness")
    take_in(STREAM, "orders", chunk(1, message(b"a", b"a1"), timestamp=now))
    fresh = dbt.run("source", "freshness")

    assert {name: state for name, (state, _) in stale.items()} == {"orders": "warn"}
    assert {name: state for name, (state, _) in fresh.items()} == {"orders": "pass"}
