"""The state machines of the deployed app, with the real steps."""

from __future__ import annotations

import json
import secrets
import time
import uuid
from dataclasses import dataclass
from typing import Any

import pytest

from coldstream import names
from coldstream.adapters.dynamodb import DynamoCatalog
from coldstream.adapters.s3_boto import BotoObjectStore
from coldstream.manifest.catalog import QueueName
from coldstream.plans.policy import PolicySet
from coldstream.testing.emulator import Emulator
from coldstream.usecases.claim import anchor, claim
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.delete_stream import delete_stream
from coldstream.usecases.load import World
from tests.local.support import eventually
from tests.unit.remote import chain, no_pause
from tests.workflows.conftest import SURVEYED

pytestmark = pytest.mark.emulator


@dataclass(frozen=True)
class Site:
    """The deployed app."""

    emulator: Emulator
    outputs: dict[str, str]
    world: World

    @property
    def machines(self) -> Any:
        return self.emulator.client("stepfunctions")

    def arn(self, workflow: str) -> str:
        return self.outputs[names.OUTPUT_WORKFLOWS] + workflow

    def stream(self) -> str:
        """A claimed stream with three fragments."""
        stream = f"__w{uuid.uuid4().hex[:8]}_1745252105682952932"
        anchor(self.world, stream, 0, QueueName())
        claim(self.world, stream, 1, chunks_near=lambda _: [], pause=no_pause)
        for each in chain(3, stream=stream):
            path = each.path(self.world.prefix)
            self.world.store.put(path, each.data, write_id=path)
        # Here and now: how soon an event leads to this is for tests/e2e to see.
        commit_runs(self.world, stream, pause=no_pause)
        item = self.world.catalog.get(stream)
        assert item is not None
        assert item.next_offset == 30
        return stream

    def run(self, workflow: str, **document: Any) -> dict[str, Any]:
        """Run an execution to its end; all its batches must have succeeded."""
        arn = self.machines.start_execution(
            stateMachineArn=self.arn(workflow), input=json.dumps(document)
        )["executionArn"]

        def look() -> dict[str, Any] | None:
            found: dict[str, Any] = self.machines.describe_execution(executionArn=arn)
            return None if found["status"] == "RUNNING" else found

        ended = eventually(look, seconds=50)
        assert ended is not None, "still running"
        assert ended["status"] == "SUCCEEDED", ended
        for run in self.machines.list_map_runs(executionArn=arn)["mapRuns"]:
            counts = self.machines.describe_map_run(mapRunArn=run["mapRunArn"])["itemCounts"]
            assert counts["failed"] == 0
        output: dict[str, Any] = json.loads(ended["output"])
        return output


@pytest.fixture(scope="session")
def site(emulator: Emulator) -> Site:
    outputs = emulator.deploy_app().outputs
    prefix = outputs[names.OUTPUT_PREFIX]
    world = World(
        store=BotoObjectStore(client=emulator.client("s3"), bucket=outputs[names.OUTPUT_BUCKET]),
        catalog=DynamoCatalog(
            client=emulator.client("dynamodb"),
            table=outputs[names.OUTPUT_TABLE],
            prefix=prefix,
        ),
        prefix=prefix,
        new_uid=lambda: secrets.randbits(64),
    )
    return Site(emulator, outputs, world)


def test_every_workflow_has_its_machine_where_its_arn_says(site: Site) -> None:
    found = {one["stateMachineArn"] for one in site.machines.list_state_machines()["stateMachines"]}

    assert {site.arn(workflow) for workflow in names.WORKFLOWS} <= found


@pytest.mark.parametrize("workflow", ["rebalance", *SURVEYED])
def test_a_stream_that_needs_nothing_is_left_as_it_is(site: Site, workflow: str) -> None:
    stream = site.stream()
    before = site.world.catalog.get(stream)

    site.run(workflow, work=[{"stream": stream}], reason="test")

    assert site.world.catalog.get(stream) == before


@pytest.mark.parametrize("workflow", SURVEYED)
def test_a_survey_goes_over_all_streams(site: Site, workflow: str) -> None:
    site.stream()

    output = site.run(workflow)

    assert output["streams"] >= (1 if workflow in ("collect", "reconcile") else 0)


def test_a_tombstone_starts_the_deletion_and_the_objects_go(site: Site) -> None:
    stream = site.stream()

    delete_stream(
        site.world, stream, PolicySet(), now_ms=time.time_ns() // 1_000_000, undelete_ms=1000
    )

    item = site.world.catalog.get(stream)
    assert item is not None
    name = names.execution_name("delete", stream, f"r{item.revision}")
    arn = f"{site.arn('delete').replace(':stateMachine:', ':execution:')}:{name}"

    def running() -> set[str]:
        page = site.machines.list_executions(stateMachineArn=site.arn("delete"))
        return {one["executionArn"] for one in page["executions"]}

    assert eventually(lambda: arn in running(), seconds=15)
    gone = eventually(
        lambda: not site.world.store.list(names.stream_prefix(site.world.prefix, stream)),
        seconds=30,
    )
    assert gone
    # It waits now before it looks once more.
    assert site.machines.describe_execution(executionArn=arn)["status"] == "RUNNING"
    site.machines.stop_execution(executionArn=arn)
