"""docs/decisions/: the index is whole, and names of files are those that there are."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECISIONS = ROOT / "docs/decisions"
#: What went by the decision that names it.
GONE = {"jobs/rebuild_listing.py"}
PAGES = sorted(each for each in DECISIONS.iterdir() if each.name != "README.md")


@pytest.fixture(scope="module")
def files() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("no checkout")
    return [f"/{each}" for each in listed.stdout.splitlines()]


def test_the_index_has_a_line_for_each_decision_with_its_title() -> None:
    lines = [
        line for line in (DECISIONS / "README.md").read_text().splitlines() if line.startswith("* ")
    ]

    assert len(lines) == len(PAGES)
    for page, line in zip(PAGES, lines, strict=True):
        number, title = page.read_text().partition("\n")[0].removeprefix("# ").split(": ", 1)
        assert line.startswith(f"* [{number}]({page.name}): {title}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_decision_names_no_file_that_is_not_there(page: Path, files: list[str]) -> None:
    named = re.findall(r"`([\w/.-]*\w\.(?:py|c|sql|toml|asl\.json))`", page.read_text())

    missing = {each for each in named if not any(one.endswith(f"/{each}") for one in files)} - GONE

    assert not missing
