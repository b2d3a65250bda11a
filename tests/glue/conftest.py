"""A remote tier in memory for what the workers do, and the deployed app for the jobs themselves."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore, MemoryPolicies
from coldstream.remote.context import Context
from tests.glue.streams import fill

PREFIX = "rabbitmq/"


@dataclass(frozen=True)
class Tier:
    """A remote tier in memory."""

    store: MemoryObjectStore
    catalog: MemoryCatalog
    policies: MemoryPolicies
    prefix: str = PREFIX

    def context(self, seed: int = 1) -> Context:
        ids = random.Random(seed)
        return Context(self.store, self.catalog, self.prefix, lambda: ids.getrandbits(64))


@pytest.fixture
def tier() -> Tier:
    """The streams of `tests.glue.streams.fill`."""
    made = Tier(MemoryObjectStore(), MemoryCatalog(), MemoryPolicies())
    fill(made.context(), made.policies)
    return made


@pytest.fixture
def rows(tmp_path: Path) -> Callable[[str], list[dict[str, Any]]]:
    """Reads a table from below `tmp_path`."""

    def read(table: str) -> list[dict[str, Any]]:
        files = sorted((tmp_path / table).rglob("*.parquet"))
        found: list[dict[str, Any]] = pa.concat_tables(
            [pq.ParquetFile(path).read() for path in files]
        ).to_pylist()
        return found

    return read
