"""The state machines' definitions: valid, limited in time, patient with faults, never silent."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from coldstream import errors
from coldstream.deployment import ERROR_REPORTED, WORKFLOWS
from coldstream_devkit.local.install import exclusive
from infra.config import PUBLISHING_TIMEOUT_SECONDS, Settings, default_context

if TYPE_CHECKING:
    from conftest import Assembly

ROOT = Path(__file__).resolve().parents[2]
MACHINE, FUNCTION = "AWS::StepFunctions::StateMachine", "AWS::Lambda::Function"
VALIDATOR = "asl-validator@4.0.0"
# Step Functions' limit for what a state takes and gives, and well above any definition's own size.
STATE_BYTES = 256 * 1024
_FUNCTION_ARN = "arn:aws:lambda:eu-central-1:123456789012:function:step"


@pytest.fixture(scope="session")
def validator() -> Path:
    """The validator's program; installed once below build/, beside nothing that is ours."""
    home = ROOT / "build" / "asl"
    program = home / "node_modules" / ".bin" / "asl-validator"
    home.mkdir(parents=True, exist_ok=True)
    with exclusive(home / "install.lock"):
        if not program.exists():
            npm = shutil.which("npm")
            assert npm, "npm is needed to install asl-validator (Debian: apt-get install npm)"
            done = subprocess.run(
                [
                    *(npm, "install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund"),
                    *("--prefix", str(home), VALIDATOR),
                ],
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
            assert done.returncode == 0, f"npm could not install {VALIDATOR}:\n{done.stderr}"
    return program


def definition(name: str, numbers: Mapping[str, int]) -> dict[str, Any]:
    from infra.workflows import scanning  # brings the CDK, which takes seconds

    return scanning.definition(name, numbers)


@pytest.mark.parametrize("which", ["assembly", "customised"])
@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_definition_is_valid_as_it_is_deployed(
    name: str, which: str, validator: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    assembly: Assembly = request.getfixturevalue(which)
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(deployed(assembly, name)))

    done = subprocess.run(
        [validator, "--json-path", path], capture_output=True, text=True, timeout=300, check=False
    )

    assert done.returncode == 0, f"the definition of {name}: {done.stdout}{done.stderr}"


def test_the_validator_refuses_what_is_invalid(validator: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({"StartAt": "A", "States": {"A": {"Type": "Pass", "Next": "B"}}}))

    assert subprocess.run([validator, "--json-path", path], check=False).returncode != 0


def test_each_workflow_has_its_definition_its_module_and_its_machine(assembly: Assembly) -> None:
    from infra.workflow import DEFINITIONS
    from infra.workflows import scanning

    own = {*WORKFLOWS} - {*scanning.WORKFLOWS}
    assert {path.name.split(".")[0] for path in DEFINITIONS.glob("*.asl.json")} == {
        *own,
        scanning.DEFINITION,
    }
    assert {path.stem for path in DEFINITIONS.glob("[a-z]*.py")} == {*own, "scanning"}
    assert {
        one["Properties"]["StateMachineName"] for one in assembly.of_type(MACHINE).values()
    } == {f"coldstream-{name}" for name in WORKFLOWS}


def test_every_machine_is_standard_and_logs_its_errors(assembly: Assembly) -> None:
    groups = assembly.of_type("AWS::Logs::LogGroup")
    for name in WORKFLOWS:
        properties = resource(assembly, name)["Properties"]
        assert properties["StateMachineType"] == "STANDARD"
        assert properties["TracingConfiguration"] == {"Enabled": False}
        logging = properties["LoggingConfiguration"]
        assert (logging["Level"], logging["IncludeExecutionData"]) == ("ERROR", False)
        (destination,) = logging["Destinations"]
        group = destination["CloudWatchLogsLogGroup"]["LogGroupArn"]["Fn::GetAtt"][0]
        assert groups[group]["Properties"]["RetentionInDays"] == 30


@pytest.mark.parametrize("name", sorted(set(WORKFLOWS) - {"delete"}))
def test_a_machine_ends_within_half_the_grace_time(assembly: Assembly, name: str) -> None:
    grace = int(_variables(assembly, name)["COLDSTREAM_GRACE_SECONDS"])
    limit = deployed(assembly, name)["TimeoutSeconds"]

    assert limit <= PUBLISHING_TIMEOUT_SECONDS
    assert 2 * limit <= grace


def test_a_deletion_has_a_day_after_the_undelete_time(assembly: Assembly) -> None:
    undelete = Settings.from_context(default_context(ROOT)).undelete_seconds

    assert deployed(assembly, "delete")["TimeoutSeconds"] == undelete + 86_400


def test_a_deletion_waits_for_a_grace_time_whatever_its_item_says(
    assembly: Assembly, customised: Assembly
) -> None:
    for made in (assembly, customised):
        states = deployed(made, "delete")["States"]
        grace = int(_variables(made, "delete")["COLDSTREAM_GRACE_SECONDS"])
        least = states["WaitAtLeast"]["Seconds"]

        assert states["Begin"]["Next"] == "WaitAtLeast"
        assert (states["WaitAtLeast"]["Next"], states["WaitForUndelete"]["Next"]) == (
            "WaitForUndelete",
            "Sweep",
        )
        assert 0 < least <= grace
        # The execution's time-out counts from the undelete time.
        assert least + 86_400 <= deployed(made, "delete")["TimeoutSeconds"]
    assert deployed(assembly, "delete")["States"]["WaitAtLeast"]["Seconds"] == 86_400


def test_whoever_saw_a_deleted_stream_alive_has_ended_before_the_last_look(
    assembly: Assembly, customised: Assembly
) -> None:
    longest = max(one["Properties"]["Timeout"] for one in assembly.of_type(FUNCTION).values())

    assert deployed(assembly, "delete")["States"]["Settle"]["Seconds"] >= longest
    assert deployed(customised, "delete")["States"]["Settle"]["Seconds"] == 5


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_task_has_a_time_out_longer_than_its_functions(assembly: Assembly, name: str) -> None:
    substitutions = resource(assembly, name)["Properties"]["DefinitionSubstitutions"]
    functions = assembly.of_type(FUNCTION)
    for task in tasks(definition(name, {})):
        placeholder = task["Parameters"]["FunctionName"].strip("${}")
        function = functions[substitutions[placeholder]["Fn::GetAtt"][0]]
        (there,) = {
            each["TimeoutSeconds"]
            for each in tasks(json.loads(text(assembly, name)))
            if each["Parameters"]["FunctionName"] == task["Parameters"]["FunctionName"]
        }
        assert there > function["Properties"]["Timeout"]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_task_is_retried_with_jitter_and_reported_when_given_up(name: str) -> None:
    document = definition(name, {})
    for states in machines(document):
        for task in (state for state in states.values() if state["Type"] == "Task"):
            assert task["Resource"] == "arn:${Partition}:states:::lambda:invoke"
            for retrier in task["Retry"]:
                assert retrier["JitterStrategy"] == "FULL"
                assert retrier["BackoffRate"] > 1
                assert retrier["MaxDelaySeconds"] > retrier["IntervalSeconds"]
            assert task["Retry"][-1]["ErrorEquals"] == ["States.ALL"]
            (catcher,) = task["Catch"]
            assert catcher["ErrorEquals"] == ["States.ALL"]
            assert catcher["ResultPath"]  # the input stays: the report names the streams
            caught = states[catcher["Next"]]
            if task["Parameters"]["FunctionName"] == "${Report}":
                assert caught["Type"] == "Fail"
            else:
                assert caught["Parameters"]["FunctionName"] == "${Report}"
                assert caught["Parameters"]["Payload"]["workflow"] == name
                assert states[caught["Next"]]["Type"] == "Fail"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_an_execution_says_that_its_failure_is_reported_only_if_it_is(name: str) -> None:
    """Its event comes to `report`, too, which passes over what says so."""
    states = definition(name, {})["States"]
    report = states["Report"]
    (unreported,) = (each["Next"] for each in report["Catch"])

    assert states[report["Next"]]["ErrorPath"] == (
        f"States.Format('{{}}{ERROR_REPORTED}', $.error.Error)"
    )
    assert states[unreported]["ErrorPath"] == "$.error.Error"


def test_errors_that_are_retried_by_name_exist() -> None:
    own = {
        error
        for name in WORKFLOWS
        for task in tasks(definition(name, {}))
        for retrier in task["Retry"]
        for error in retrier["ErrorEquals"]
        if "." not in error
    }

    assert own == {"UnavailableError", "UnknownOutcomeError", "ConflictError"}
    assert all(issubclass(getattr(errors, each), errors.ColdstreamError) for each in own)


@pytest.mark.parametrize(
    ("name", "batch"),
    [("retention", 100), ("reconcile", 500), ("consolidate", 10), ("collect", 25)],
)
def test_one_batch_that_fails_stops_no_other(name: str, batch: int) -> None:
    (mapped,) = (
        state for state in definition(name, {})["States"].values() if state["Type"] == "Map"
    )

    assert mapped["ItemProcessor"]["ProcessorConfig"]["Mode"] == "DISTRIBUTED"
    assert mapped["ToleratedFailurePercentage"] == 100
    assert mapped["ItemBatcher"]["MaxItemsPerBatch"] == batch
    # A page of streams comes in, and the outputs of all children together must fit as well: a
    # batch in which all went well says nothing.
    assert mapped["ItemProcessor"]["States"]["BatchDone"]["Result"] == {}
    assert mapped["ItemProcessor"]["States"]["BatchHadFailures"]["Parameters"] == {
        "failed.$": "$.step.failed"
    }
    assert mapped["ResultPath"] == "$.batches"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_what_goes_from_state_to_state_is_bounded(name: str) -> None:
    # Only named fields of an answer are kept, never the whole of it beside what was there.
    for task in tasks(definition(name, {})):
        assert task["ResultPath"] is None or task["ResultSelector"]
    # A scan's page: 400 streams with names of 255 characters, twice (as page and in a batch).
    page = json.dumps([{"stream": "s" * 255}] * 400)
    assert 2 * len(page) < STATE_BYTES


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_definition_is_far_below_the_limit(assembly: Assembly, name: str) -> None:
    assert len(text(assembly, name)) < STATE_BYTES


def test_tombstones_and_nothing_else_start_a_deletion(assembly: Assembly) -> None:
    mapping = assembly.only("AWS::Lambda::EventSourceMapping", "DeleteTombstone")["Properties"]

    (pattern,) = (json.loads(one["Pattern"]) for one in mapping["FilterCriteria"]["Filters"])
    assert pattern == {
        "eventName": ["MODIFY"],
        "dynamodb": {
            "Keys": {"item": {"S": ["catalog"]}},
            "NewImage": {"state": {"S": ["deleting"]}},
        },
    }
    assert mapping["StartingPosition"] == "TRIM_HORIZON"
    assert mapping["BisectBatchOnFunctionError"] is True
    assert mapping["MaximumRetryAttempts"] == 10
    missed = mapping["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0]
    assert missed.startswith("DeleteTombstoneMissed")


def test_the_four_that_scan_run_by_the_clock_and_the_others_do_not(assembly: Assembly) -> None:
    schedules = {
        name.split("Workflow")[0]: one["Properties"]
        for name, one in assembly.of_type("AWS::Scheduler::Schedule").items()
    }

    assert {name: one["ScheduleExpression"] for name, one in schedules.items()} == {
        "Reconcile": "rate(5 minutes)",
        "Retention": "rate(60 minutes)",
        "Consolidate": "rate(60 minutes)",
        "Collect": "rate(1440 minutes)",
    }
    for name, one in schedules.items():
        assert one["Target"]["Arn"]["Ref"].startswith(f"{name}WorkflowMachine")
        assert json.loads(one["Target"]["Input"]) == {"reason": "schedule"}


def machines(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The states of a machine, then those of the machine within each of its maps."""
    yield document["States"]
    for state in document["States"].values():
        if state["Type"] == "Map":
            yield from machines(state["ItemProcessor"])


def tasks(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for states in machines(document):
        yield from (state for state in states.values() if state["Type"] == "Task")


def resource(assembly: Assembly, name: str) -> dict[str, Any]:
    return assembly.only(MACHINE, f"{name.capitalize()}Workflow")


def text(assembly: Assembly, name: str) -> str:
    return str(resource(assembly, name)["Properties"]["DefinitionString"])


def deployed(assembly: Assembly, name: str) -> dict[str, Any]:
    """A definition as CloudFormation hands it over."""
    substituted = text(assembly, name).replace("${Partition}", "aws")
    loaded: dict[str, Any] = json.loads(re.sub(r"\$\{\w+\}", _FUNCTION_ARN, substituted))
    return loaded


def _variables(assembly: Assembly, name: str) -> dict[str, str]:
    function = assembly.only(FUNCTION, f"{name.capitalize()}Step")
    variables: dict[str, str] = function["Properties"]["Environment"]["Variables"]
    return variables
