"""Settings of every test, and who runs it: the lanes of `make test`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

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

HERE = Path(__file__).parent
#: Folders in the order in which their tests begin: what takes long must not come last.
_FIRST = ("workflows", "spark", "glue", "local", "simulation", "exhaustive", "property", "infra")
#: Where tests that talk to the embedded AWS also start a JVM.
_WITH_SPARK = ("spark", "glue")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put each test into a lane; pytest-xdist runs all of a lane in one process.

    So of two workers one owns the embedded AWS, one the embedded AWS with a JVM, and whoever has
    time takes the next file of those that need neither.
    """
    items.sort(key=lambda item: _rank(_folder(item)))
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_lane(item)))


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(HERE).parts[0]


def _rank(folder: str) -> int:
    return _FIRST.index(folder) if folder in _FIRST else len(_FIRST)


def _lane(item: pytest.Item) -> str:
    if item.get_closest_marker("emulator") is None:
        return item.path.relative_to(HERE).as_posix()
    return "spark" if _folder(item) in _WITH_SPARK else "aws"
