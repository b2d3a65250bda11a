"""A word that is empty, such as "$STREAM" that nobody set, never stands for all streams."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Machines, Run
from tests.support.tier import Tier, chunk

COMMANDS = (
    ["collect", "--delete"],
    ["collect"],
    ["consolidate"],
    ["consolidate", "--dry-run"],
    ["reconcile"],
    ["reconcile", "--dry-run"],
    ["retention", "run"],
    ["retention", "run", "--dry-run"],
    ["retention", "plan"],
    ["rebalance"],
    ["rebuild"],
    ["retention", "hold"],
    ["delete", "--yes"],
    ["quarantine", "drop", "--timeline", "7", "--yes"],
    ["read"],
    ["verify"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_empty_stream_is_a_usage_error_and_never_all_streams(
    command: list[str], tier: Tier, run: Run, machines: Machines
) -> None:
    tier.add("s", [[chunk(0, b"a")]])

    result = run(*command, "")

    assert result.exit_code == 2, result.output
    assert machines.names() == []
    assert "names no stream" in result.output
