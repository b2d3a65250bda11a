"""Settings of every test, and who runs it: the lanes of `make test`."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from coldstream_devkit.emulator import emulator
from coldstream_devkit.simulation.edits import applied
from coldstream_devkit.simulation.mutants import MUTANTS
from tests.support.sparks import begin_sooner

__all__ = ["emulator"]

# A time limit for an example is a timed assertion: it fails where the machine is busy.
# A test that wants more or fewer examples says how many times as many (`tests.support.examples`).
settings.register_profile("coldstream", deadline=None, max_examples=20)
settings.register_profile("slow", deadline=None, max_examples=100)
settings.load_profile("coldstream")

begin_sooner()

# Which test misses a guard? COLDSTREAM_MUTANT=NAME pytest ...: it must fail.
if mutant := os.environ.get("COLDSTREAM_MUTANT"):
    _without = applied(MUTANTS[mutant].patches())
    _without.__enter__()

#: Folders whose tests share a server, a server and a JVM, or a synthesised app: one process each.
_LANES = {
    "contract": "aws", "e2e": "aws", "local": "aws", "workflows": "workflows",
    "glue": "glue", "spark": "spark", "infra": "infra", "dbt": "dbt",
}  # fmt: skip
#: Takes as long as all else of its folder, where every write is tried.
_LONGEST = "tests/glue/test_killed_jobs.py"
#: One lane where little of each is done: another embedded AWS and JVM would cost more than it does.
_IN_PART = {"spark": "glue", _LONGEST: "glue"}
#: What begins first, in this order. The lanes take the longest and mostly wait; then come the files
#: that take more than some ten seconds, the longest first, so that the workers end together. Each
#: worker takes its next piece when it has two tests left, so none of these is the last.
_FIRST = (
    "spark",
    "glue",
    "e2e",
    "workflows",
    "infra",
    "dbt",
    "functions/test_steps.py",
    "simulation",
    "unit/usecases/test_consolidate.py",
    "unit/agent/test_faults.py",
    "unit/jobs/test_latest.py",
    "unit/jobs/test_materialise_run.py",
    "cli/test_agent_service.py",
    "unit/adapters/test_s3_send.py",
    "exhaustive",
    "property",
    "cli/test_endings.py",
    "unit/usecases/test_repair.py",
    "unit/jobs",
    "gateway",
    "functions",
)


class Lanes(LoadScopeScheduling):
    """Gives a worker a lane as a whole; all other tests file by file."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        scope = path if path == _LONGEST else _LANES.get(_folder(path), path)
        in_part = "not slow" in self.config.option.markexpr
        return _IN_PART.get(scope, scope) if in_part else scope


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Lanes | None:
    """In the place of `--dist loadfile`. (`loadgroup` does nothing on pytest 9.2.)"""
    return Lanes(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the garbage collector ten thousand tests and all modules: they are never garbage.

    With them a full look takes most of a second, and tests ask for many.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """At the end all goes: nanobind counts what is left as leaked."""
    gc.unfreeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first."""
    ranks = {path: _rank(path) for path in {_path(item) for item in items}}
    items.sort(key=lambda item: ranks[_path(item)])


def _path(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0].removeprefix("tests/")


def _folder(path: str) -> str:
    return path.removeprefix("tests/").partition("/")[0]


def _rank(path: str) -> int:
    """The place of a file, or else of its folder, in `_FIRST`."""
    found = [n for n, each in enumerate(_FIRST) if path == each or path.startswith(f"{each}/")]
    return min(found, default=len(_FIRST))
