"""The state machines on the embedded AWS: as deployed, and as written, with throw-away steps."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from coldstream.deployment import WORKFLOWS
from coldstream_devkit.emulator import Emulator, serving
from coldstream_devkit.local.deploy import deploy
from coldstream_devkit.local.progress import silent
from tests.support.probe_stack import eventually, probe_template, write_assembly
from tests.workflows.site import Site, deployed

STACK = "machines"
NUMBERS = {
    "TimeoutSeconds": 60,
    "StepTimeoutSeconds": 30,
    "ScanTimeoutSeconds": 30,
    "ReportTimeoutSeconds": 30,
    "MaxConcurrency": 2,
    "LeastSeconds": 2,
    "SettleSeconds": 1,
}
SCANNING = ("retention", "consolidate", "collect", "reconcile")


@dataclass(frozen=True)
class Machines:
    """All machines, and what their steps were given."""

    emulator: Emulator
    outputs: dict[str, str]

    def start(self, workflow: str, **document: Any) -> str:
        """Begin an execution; give its ARN."""
        answer = self.emulator.client("stepfunctions").start_execution(
            stateMachineArn=self.outputs[workflow], input=json.dumps(document)
        )
        return str(answer["executionArn"])

    def ended(self, arn: str, *, seconds: float = 180) -> dict[str, Any]:
        """What became of an execution."""
        machines = self.emulator.client("stepfunctions")

        def look() -> dict[str, Any] | None:
            found: dict[str, Any] = machines.describe_execution(executionArn=arn)
            return None if found["status"] == "RUNNING" else found

        found = eventually(look, seconds=seconds)
        assert found, f"{arn} still runs after {seconds} s"
        return found

    def run(self, workflow: str, **document: Any) -> dict[str, Any]:
        """Run an execution to its end."""
        return self.ended(self.start(workflow, **document))

    def given(self, kind: str, mark: str) -> list[dict[str, Any]]:
        """The inputs of all calls of a step whose text holds `mark`, in order of time."""
        store, bucket = self.emulator.client("s3"), self.outputs["Records"]
        found = store.list_objects_v2(Bucket=bucket, Prefix=f"{kind}/").get("Contents", [])
        bodies = []
        for one in sorted(found, key=lambda each: each["LastModified"]):
            body = store.get_object(Bucket=bucket, Key=one["Key"])["Body"].read().decode()
            if mark in body:
                bodies.append(json.loads(body))
        return bodies


@pytest.fixture
def mark() -> str:
    """A name for the streams of one test."""
    return f"s{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def site(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The app with settings of its own, on a server of its own: names on one server are taken."""
    with serving(pytestconfig.rootpath, tmp_path_factory.mktemp("tuned")) as tuned:
        yield deployed(tuned)


@pytest.fixture(scope="session")
def machines(
    emulator: Emulator, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Machines:
    steps = pytestconfig.rootpath / "tests" / "workflows" / "steps"
    assembly = write_assembly(tmp_path_factory.mktemp("machines"), template(), STACK, code=steps)
    deployment = deploy(emulator.server, assembly, STACK, timeout_seconds=60, progress=silent)
    return Machines(emulator, deployment.outputs)


def template() -> dict[str, Any]:
    """Every definition with its substitutions, and one function for each kind of step."""
    probe = probe_template()
    resources = {name: probe["Resources"][name] for name in ("Role", "Records")}
    for kind in ("Step", "Sweep", "Scan", "Report"):
        properties = {**probe["Resources"]["Function"]["Properties"]}
        properties["Handler"] = f"steps.{kind.lower()}"
        properties["Timeout"] = 20
        resources[f"{kind}Function"] = {"Type": "AWS::Lambda::Function", "Properties": properties}
    for name in WORKFLOWS:
        resources[name] = machine(name)
    return {
        "Parameters": probe["Parameters"],
        "Resources": resources,
        "Outputs": {name: {"Value": {"Ref": name}} for name in (*WORKFLOWS, "Records")},
    }


def machine(name: str) -> dict[str, Any]:
    """The resource of one workflow, as the CDK makes it."""
    from infra.workflows import scanning  # brings the CDK, which takes seconds

    wanted = {"TimeoutSeconds", "StepTimeoutSeconds", "ReportTimeoutSeconds"}
    wanted |= {"ScanTimeoutSeconds", "MaxConcurrency"} if name in SCANNING else set()
    wanted |= {"LeastSeconds", "SettleSeconds"} if name == "delete" else set()
    document = scanning.definition(name, {number: NUMBERS[number] for number in wanted})
    step = "Sweep" if name == "delete" else "Step"
    functions = {"Step": step, "Report": "Report"}
    if name in SCANNING:
        functions["Scan"] = "Scan"
    return {
        "Type": "AWS::StepFunctions::StateMachine",
        "Properties": {
            "StateMachineName": f"{STACK}-{name}",
            "RoleArn": {"Fn::GetAtt": ["Role", "Arn"]},
            "DefinitionString": json.dumps(document),
            "DefinitionSubstitutions": {
                "Partition": "aws",
                **{
                    placeholder: {"Fn::GetAtt": [f"{kind}Function", "Arn"]}
                    for placeholder, kind in functions.items()
                },
            },
        },
    }
