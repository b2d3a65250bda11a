from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from coldstream.adapters.memory import MemoryHeartbeats, MemoryPolicies, MemoryWorkflows
from coldstream.adapters.place import Place, Remote
from coldstream.cli import options, workflow
from coldstream.cli.main import app
from coldstream.deployment import WORKFLOWS
from coldstream.plans.policy import PolicySet, Rule
from coldstream.ports import Execution, ExecutionStatus
from tests.support.tier import PREFIX, Tier

Run = Callable[..., Result]
ARN_PREFIX = "arn:aws:states:eu-central-1:123456789012:stateMachine:coldstream-"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the shell points at, tests do not."""
    for name in ("BUCKET", "TABLE", "PREFIX", "WORKFLOW_ARN_PREFIX", "BRANCHING",
                 "FRAGMENT_BYTES", "GRACE_SECONDS", "UNDELETE_SECONDS"):  # fmt: skip
        monkeypatch.delenv(f"COLDSTREAM_{name}", raising=False)


@pytest.fixture
def tier() -> Tier:
    return Tier()


class Machines(MemoryWorkflows):
    """Machines that end after a few looks, as the test says."""

    def __init__(self) -> None:
        super().__init__(*WORKFLOWS)
        self.looks = 2
        self.end = Execution(ExecutionStatus.SUCCEEDED, {"reason": "r", "streams": 1})
        self.acts: Callable[[], None] = lambda: None

    def describe(self, workflow: str, name: str) -> Execution:
        found = super().describe(workflow, name)
        if found.status is not ExecutionStatus.RUNNING:
            return found
        self.looks -= 1
        if self.looks > 0:
            return found
        self.acts()
        self.executions[workflow, name] = self.end
        return self.end

    def names(self) -> list[str]:
        return [name for _, name in self.executions]


@pytest.fixture
def machines() -> Machines:
    return Machines()


@pytest.fixture
def policies() -> MemoryPolicies:
    return MemoryPolicies()


@pytest.fixture
def put_rules(policies: MemoryPolicies) -> Callable[..., None]:
    def put(*rules: Rule) -> None:
        assert policies.save(PolicySet(rules), policies.load()[1])

    return put


@pytest.fixture
def heartbeats() -> MemoryHeartbeats:
    return MemoryHeartbeats()


@pytest.fixture
def run(
    tier: Tier,
    machines: Machines,
    policies: MemoryPolicies,
    heartbeats: MemoryHeartbeats,
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Runs a command line against the tier in memory, with machines that never wait."""

    def connect(**_: Any) -> Remote:
        place = Place("b", "t", PREFIX)
        return Remote(tier.store, tier.catalog, policies, place, heartbeats)

    monkeypatch.setattr(options, "connect", connect)
    monkeypatch.setattr(workflow, "connect_workflows", lambda _: machines)
    monkeypatch.setattr(workflow, "sleep", lambda _: None)

    def invoke(*arguments: str, **settings: Any) -> Result:
        return CliRunner().invoke(app, arguments, **settings)

    return invoke
