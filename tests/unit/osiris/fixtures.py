"""The files that real brokers wrote, and what is known about them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coldstream.osiris import Chunk, iter_chunks

DATA = Path(__file__).parents[2] / "data"
FIXTURES: dict[str, dict[str, Any]] = {
    each["path"]: each for each in json.loads((DATA / "fixtures.json").read_text())["streams"]
}


def segment_paths(name: str) -> list[Path]:
    return sorted((DATA / name).glob("*.segment"))


def chunks_of(name: str) -> Iterator[Chunk]:
    for path in segment_paths(name):
        yield from iter_chunks(path.read_bytes(), 8)
