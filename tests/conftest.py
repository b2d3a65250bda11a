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

__all__ = ["emulator"]

# A time limit for an example is a timed assertion: it fails where the machine is busy.
# A test that wants more or fewer examples says how many times as many (`tests.support.examples`).
settings.register_profile("coldstream", deadline=None, max_examples=30)
settings.register_profile("slow", deadline=None, max_examples=100)
settings.load_profile("coldstream")

# Which test misses a guard? COLDSTREAM_MUTANT=NAME pytest ...: it must fail.
if mutant := os.environ.get("COLDSTREAM_MUTANT"):
    _without = applied(MUTANTS[mutant].patches())
    _without.__enter__()

#: Folders whose tests share a server, a server and a JVM, or a synthesised app: one process each.
_LANES = {
    "contract": "aws", "e2e": "aws", "local": "aws", "workflows": "workflows",
    "glue": "glue", "spark": "spark", "infra": "infra",
}  # fmt: skip
#: Takes as long as all else of its folder, where every write is tried.
_LONGEST = "tests/glue/test_killed_jobs.py"
#: Folders in the order in which they begin. Each worker takes two pieces of work at once, so small
#: ones follow the lanes; then what takes long, so that the workers end together.
_FIRST = (
    "e2e",
    "workflows",
    "glue",
    "spark",
    "functions",
    "simulation",
    "property",
    "exhaustive",
    "infra",
)


class Lanes(LoadScopeScheduling):
    """Gives a worker a lane as a whole; all other tests file by file."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return path if path == _LONGEST else _LANES.get(_folder(path), path)


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
    items.sort(key=lambda item: _rank(_folder(item.nodeid)))


def _folder(path: str) -> str:
    return path.removeprefix("tests/").partition("/")[0]


def _rank(folder: str) -> int:
    return _FIRST.index(folder) if folder in _FIRST else len(_FIRST)
