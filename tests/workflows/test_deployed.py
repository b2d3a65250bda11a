"""The state machines of the deployed app, with the real steps."""

from __future__ import annotations

import json
import time

import pytest

from coldstream import deployment, names
from coldstream.plans.delete import reason
from coldstream.plans.policy import PolicySet
from coldstream.usecases.delete_stream import delete_stream
from tests.support.probe_stack import eventually
from tests.workflows.conftest import SCANNING
from tests.workflows.site import Site, total

pytestmark = pytest.mark.emulator


def test_every_workflow_has_its_machine_where_its_arn_says(site: Site) -> None:
    found = {one["stateMachineArn"] for one in site.machines.list_state_machines()["stateMachines"]}

    assert {site.arn(workflow) for workflow in deployment.WORKFLOWS} <= found


@pytest.mark.parametrize("workflow", ["rebalance", *SCANNING])
def test_a_stream_that_needs_nothing_is_left_as_it_is(site: Site, workflow: str) -> None:
    stream = site.stream()
    before = site.context.catalog.get(stream)

    site.run(workflow, stream, reason="test")

    assert site.context.catalog.get(stream) == before


@pytest.mark.parametrize("workflow", ["rebalance", *SCANNING])
def test_a_stream_that_could_not_be_done_is_told_by_the_machine(site: Site, workflow: str) -> None:
    work = [{"stream": "__gone_1"}, {"stream": site.stream()}]

    ended = site.ended(site.start(workflow, work=work, reason="test"))

    assert ended["status"] == "SUCCEEDED"
    assert total(json.loads(ended["output"])["failed"]) == 1


@pytest.mark.parametrize("workflow", ["rebalance", *SCANNING])
def test_a_machine_that_is_asked_in_other_words_than_its_own_fails_with_a_sentence(
    site: Site, workflow: str
) -> None:
    """It would do for real, and to all streams, what was to be a dry run."""
    document = {"work": [{"stream": site.stream()}], "dry-run": True}

    ended = site.ended(site.start(workflow, **document))

    assert ended["status"] == "FAILED"
    assert ended["error"] == f"InvalidInputError{deployment.ERROR_REPORTED}"
    assert "work, dry_run, reason, and not 'dry-run'" in json.loads(ended["cause"])["errorMessage"]


@pytest.mark.parametrize("workflow", SCANNING)
def test_a_scan_goes_over_all_streams(site: Site, workflow: str) -> None:
    site.stream()

    output = site.run(workflow)

    assert output["streams"] >= (1 if workflow in ("collect", "reconcile") else 0)


def test_a_tombstone_starts_the_deletion_and_the_objects_go(site: Site) -> None:
    stream = site.stream()

    delete_stream(
        site.context, stream, PolicySet(), now_ms=time.time_ns() // 1_000_000, undelete_ms=1000
    )

    item = site.context.catalog.get(stream)
    assert item is not None
    name = deployment.execution_name("delete", stream, reason(item))
    arn = site.execution("delete", name)

    def running() -> set[str]:
        page = site.machines.list_executions(stateMachineArn=site.arn("delete"))
        return {one["executionArn"] for one in page["executions"]}

    assert eventually(lambda: arn in running())
    gone = eventually(
        lambda: not site.context.store.list(names.stream_prefix(site.context.prefix, stream)),
    )
    assert gone
    # It waits now before it looks once more.
    assert site.machines.describe_execution(executionArn=arn)["status"] == "RUNNING"
    site.machines.stop_execution(executionArn=arn)
