"""docs/reference/guards.md: no guard is without a row, and no row without a proof."""

from __future__ import annotations

import json
from pathlib import Path

from coldstream_devkit.guards_page import LEFT_TO_TESTS, render
from coldstream_devkit.simulation.mutants import MUTANTS

ROOT = Path(__file__).parents[2]
#: Which nothing notices, because other guards make up for it: correctness.md says why.
UNNOTICED = {"consolidate-first"}


def test_the_page_is_current() -> None:
    assert (ROOT / "docs/reference/guards.md").read_text() == render(), (
        "run: .venv/bin/python -m coldstream_devkit.guards_page > docs/reference/guards.md"
    )


def test_what_the_simulator_does_not_notice_is_left_to_tests_that_there_are() -> None:
    left = json.loads(LEFT_TO_TESTS.read_text())

    assert left.keys() == {name for name, mutant in MUTANTS.items() if mutant.seeds is None}
    assert {name for name, tests in left.items() if not tests} == UNNOTICED
    assert all((ROOT / test).is_file() for tests in left.values() for test in tests)
