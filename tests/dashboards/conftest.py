"""The programs of Prometheus, and what an agent exports."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldstream.agent.telling.metrics import AgentMetrics
from coldstream.agent.telling.progress import Progress, Standstill
from coldstream.agent.telling.watermarks import Mark, Watermarks
from coldstream.errors import UnavailableError
from coldstream.manifest.catalog import QueueName
from tests.support.programs import program

ORDERS, CLICKS, UNNAMED = "__orders_1", "__clicks_2", "__c_3"
_NAMES = {ORDERS: QueueName("c", "/", "orders"), CLICKS: QueueName("c", "/", "clicks")}
_FIGURES = {
    "agent_held_bytes": 5.0,
    "agent_held_budget_bytes": 9.0,
    "agent_held_lacking_files": 4.0,
    "agent_held_dropped_segments": 1.0,
    "agent_uploads_in_flight": 2.0,
    "agent_longest_look_seconds": 0.5,
    "agent_uploads_allowed": 1.0,
    "agent_fragment_limit_bytes": 2**20,
    "agent_upload_bytes_per_second": 7e5,
    "agent_store_refusals": 6.0,
    "agent_store_refuses": 1.0,
}


def exported(*, writer: bool) -> AgentMetrics:
    """The real collector of an agent with three streams, one of them in every sort of trouble."""
    metrics = AgentMetrics(lambda: _FIGURES, _NAMES)
    bad = Progress(ORDERS, fragments=2, bytes=900)
    bad.error, bad.standstill = UnavailableError("x"), Standstill(180.0, 3, "why")
    bad.holes = [(1, 4)]
    bad.marks = Watermarks(Mark(70), Mark(60), Mark(50), Mark(40), Mark(40), writer, 7.5, 99, 12.0)
    bad.marks.read = True
    bad.marks.unproved_seconds = 400.0
    good = Progress(CLICKS)
    good.marks = Watermarks(writer=not writer, read=True)
    unnamed = Progress(UNNAMED, marks=Watermarks(read=True))
    metrics.reported([bad, good, unnamed])
    return metrics


@pytest.fixture(scope="session")
def promtool() -> Path:
    return program("promtool", "prometheus")


@pytest.fixture(scope="session")
def prometheus() -> Path:
    return program("prometheus", "prometheus")
