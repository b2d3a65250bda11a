"""`make deploy`: a first deployment that fails must not be in the way of the next one.

The CDK's command line 2.1148.1 protects a stack before it executes the change set that makes it
(`updateTerminationProtection` in `changeSetDeployment`), and deletes a stack whose creation failed
before it tries again (`isCreationFailure` in `deployStack`), which CloudFormation refuses for one
that is protected. DynamoDB refuses to delete a protected table, so its rollback fails, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from coldstream.errors import InvalidInputError
from infra.config import Settings, default_context
from infra.deploy import ROOT, Found, Plan, deploy, plan

CODE = Path(__file__).parents[2] / "infra/deploy.py"
CDK = ("npx", "cdk", "deploy")
OFF = ("-c", "coldstream:protected=false")
SETTINGS = Settings.from_context(default_context(ROOT))


def test_a_new_stack_is_protected_only_once_it_is_there() -> None:
    assert plan(None, SETTINGS, ["--verbose"]) == Plan(
        unprotect=False, commands=((*CDK, "--verbose", *OFF), (*CDK, "--verbose"))
    )


@pytest.mark.parametrize("status", ["ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "REVIEW_IN_PROGRESS"])
@pytest.mark.parametrize("protected", [True, False])
def test_what_a_failed_first_try_left_is_made_deletable_and_made_again(
    status: str, protected: bool
) -> None:
    """Also where that try was made without `make deploy`, and has protected the stack."""
    assert plan(Found(status, protected, ""), SETTINGS, []) == Plan(
        unprotect=protected, commands=((*CDK, *OFF), CDK)
    )


@pytest.mark.parametrize(
    "status", ["CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "UPDATE_FAILED"]
)
def test_a_stack_that_once_was_there_never_loses_its_protection(status: str) -> None:
    assert plan(Found(status, True, "rabbitmq/"), SETTINGS, []) == Plan(
        unprotect=False, commands=(CDK,)
    )


def test_a_deployment_that_wants_no_protection_is_one_deployment() -> None:
    context = default_context(ROOT) | {"coldstream:protected": False}

    assert plan(None, Settings.from_context(context), [*OFF]).commands == ((*CDK, *OFF),)


@pytest.mark.parametrize("name", ["bucket-name", "table-name", "warehouse-name"])
def test_data_that_an_earlier_stack_left_is_never_taken_over_without_protection(name: str) -> None:
    context = default_context(ROOT) | {f"coldstream:{name}": "what-was-left"}
    settings = Settings.from_context(context)

    assert plan(None, settings, []).commands == (CDK,)
    # Nor after a first try that failed; that stack itself must be deletable.
    again = plan(Found("ROLLBACK_COMPLETE", True, ""), settings, [])
    assert again == Plan(unprotect=True, commands=(CDK,))


def test_a_stack_is_not_moved_to_the_prefix_of_another_cluster() -> None:
    """Whoever edits cdk.json for the second cluster would take the first one's events away."""
    with pytest.raises(InvalidInputError, match="serves the prefix prod/"):
        plan(Found("UPDATE_COMPLETE", True, "prod/"), SETTINGS, [])
    # What failed at its creation never served anybody.
    assert plan(Found("ROLLBACK_COMPLETE", False, "prod/"), SETTINGS, []).commands


@pytest.fixture
def answers() -> Iterator[Stubber]:
    """What CloudFormation answers; requests and answers are checked by its own model."""
    client = boto3.client(
        "cloudformation",
        region_name="eu-central-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )
    with Stubber(client) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def nothing(answers: Stubber, name: str) -> None:
    answers.add_client_error(
        "describe_stacks",
        "ValidationError",
        f"Stack with id {name} does not exist",
        400,
        expected_params={"StackName": name},
    )


def there(answers: Stubber, name: str, status: str, **more: Any) -> None:
    stack = {"StackName": name, "StackStatus": status, "CreationTime": datetime.now(UTC), **more}
    answers.add_response("describe_stacks", {"Stacks": [stack]}, {"StackName": name})


def run(answers: Stubber, *arguments: str, fails: int = 0) -> tuple[int, list[Sequence[str]]]:
    ran: list[Sequence[str]] = []

    def command(words: Sequence[str]) -> int:
        ran.append(words)
        return fails

    return deploy(arguments, lambda profile: answers.client, command), ran


def test_the_stack_that_is_looked_at_is_the_one_that_the_arguments_name(answers: Stubber) -> None:
    other = ("-c", "coldstream:stack-name=prod", "--context", "coldstream:prefix=prod/")
    nothing(answers, "prod")

    assert run(answers, *other) == (0, [(*CDK, *other, *OFF), (*CDK, *other)])


def test_a_stack_that_is_there_is_deployed_once(answers: Stubber) -> None:
    outputs = [{"OutputKey": "Prefix", "OutputValue": "rabbitmq/"}]
    there(answers, "coldstream", "UPDATE_COMPLETE", Outputs=outputs)

    assert run(answers) == (0, [CDK])


def test_a_protected_stack_whose_creation_failed_is_unprotected_before_the_next_try(
    answers: Stubber,
) -> None:
    there(answers, "coldstream", "ROLLBACK_FAILED", EnableTerminationProtection=True)
    answers.add_response(
        "update_termination_protection",
        {},
        {"StackName": "coldstream", "EnableTerminationProtection": False},
    )

    assert run(answers) == (0, [(*CDK, *OFF), CDK])


def test_a_first_step_that_fails_is_the_last_one(answers: Stubber) -> None:
    nothing(answers, "coldstream")

    assert run(answers, fails=1) == (1, [(*CDK, *OFF)])


def test_every_right_that_the_look_at_the_stack_takes_is_one_the_docs_name() -> None:
    """The caller's own: the CDK's roles are for what the CDK does."""
    asked = re.findall(r"client\.(\w+)\(|cloudformation\.(\w+)\(", CODE.read_text())
    actions = {"".join(word.title() for word in "".join(each).split("_")) for each in asked}
    docs = (ROOT / "docs/how-to/deploy.md").read_text()

    assert actions == {"DescribeStacks", "UpdateTerminationProtection"}
    for action in actions:
        assert f"`cloudformation:{action}`" in docs


def test_that_cloudformation_does_not_answer_is_no_new_stack(answers: Stubber) -> None:
    answers.add_client_error("describe_stacks", "AccessDenied", "no", 403)

    with pytest.raises(ClientError, match="AccessDenied"):
        run(answers)


def test_a_setting_that_is_wrong_deploys_nothing(answers: Stubber) -> None:
    with pytest.raises(InvalidInputError, match="coldstream:max-concurrency"):
        run(answers, "-c", "coldstream:max-concurrency=many")
    with pytest.raises(InvalidInputError, match="NAME=VALUE"):
        run(answers, "-c", "coldstream:max-concurrency")
