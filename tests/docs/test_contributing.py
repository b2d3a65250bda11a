"""CONTRIBUTING.md: the files that it sends a newcomer to, and the folders of tests."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
PRODUCT = ROOT / "src/coldstream"


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_each_place_where_something_is_decided_is_there() -> None:
    named = re.findall(r"`([\w/]+(?:\.py|/))`", section("Where is it decided?"))

    assert len(named) > 15
    assert not [each for each in named if not any((at / each).exists() for at in (PRODUCT, ROOT))]


def test_every_folder_of_tests_is_in_the_table() -> None:
    folders = {
        each.name
        for each in (ROOT / "tests").iterdir()
        if each.is_dir() and not each.name.startswith(("_", "."))
    }

    assert folders == set(re.findall(r"`tests/(\w+)`", section("Tests").partition("\n\nTests ")[0]))
