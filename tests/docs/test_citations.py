"""What code and documents refer to is in the repository."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Papers of those who built this: no reader of the repository has them.
_ELSEWHERE = re.compile(r"\bDESIGN\b|\bfacts/|\bfacts about\b")
_DOCUMENT = re.compile(r"\bdocs/[\w/-]+\.md\b")


def _tracked() -> dict[str, str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout.split("\0")
    texts = {}
    for name in filter(None, listed):
        path = ROOT / name
        if path.is_file() and path != Path(__file__):
            texts[name] = path.read_bytes().decode(errors="replace")
    return texts


def test_nothing_cites_a_paper_that_is_not_in_the_repository() -> None:
    cited = {
        name: found for name, text in _tracked().items() if (found := _ELSEWHERE.findall(text))
    }
    assert not cited


def test_every_document_that_is_cited_exists() -> None:
    missing = {
        (name, document)
        for name, text in _tracked().items()
        for document in _DOCUMENT.findall(text)
        if not (ROOT / document).is_file()
    }
    assert not missing
