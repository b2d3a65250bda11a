from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from coldstream.cli import describe, read, streams, verify
from coldstream.cli.connect import Remote
from coldstream.cli.main import app
from tests.unit.reader.tier import PREFIX, Tier

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the shell points at, tests do not."""
    for name in ("COLDSTREAM_BUCKET", "COLDSTREAM_TABLE", "COLDSTREAM_PREFIX"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def tier() -> Tier:
    return Tier()


@pytest.fixture
def run(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command line against the tier in memory."""

    def connect(**_: Any) -> Remote:
        return Remote(tier.store, tier.catalog, PREFIX)

    for module in (describe, read, streams, verify):
        monkeypatch.setattr(module, "connect", connect)

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(app, arguments)

    return invoke
