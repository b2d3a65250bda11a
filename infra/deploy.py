"""`make deploy`: the CDK's own `deploy`, in two steps where the stack is new.

    python -m infra.deploy [arguments of cdk deploy]

What protects a deployment is in the way of a first one that fails: CloudFormation refuses to delete
the protected stack before the next try (the CDK's command line protects it before it makes
anything), and DynamoDB refuses to let the rollback have the protected table. So a new stack is made
without both (the setting `protected`), and gets them by a second deployment, once it is there. An
old one is deployed as it is, and so is a new one that takes over data which an earlier stack left:
that must never be without protection.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from coldstream.deployment import OUTPUT_PREFIX
from coldstream.errors import ColdstreamError, InvalidInputError
from infra.config import Settings, default_context
from infra.setting_values import NAMESPACE

ROOT = Path(__file__).resolve().parents[1]

_CDK = ("npx", "cdk", "deploy")
_UNPROTECTED = ("-c", f"{NAMESPACE}protected=false")
#: Of these the CDK's command line makes a new stack, the last two after it has deleted this one.
_NEVER_MADE = frozenset({"REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED"})


@dataclass(frozen=True, slots=True)
class Found:
    """What CloudFormation has under the stack's name.

    Attributes:
        status: in CloudFormation's words.
        protected: against termination.
        prefix: of the keys of the cluster that it serves; "" if it never came so far.
    """

    status: str
    protected: bool
    prefix: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done.

    Attributes:
        unprotect: let CloudFormation delete what an earlier first try has left.
        commands: run in this order; each only if those before it succeeded.
    """

    unprotect: bool
    commands: tuple[tuple[str, ...], ...]


def plan(found: Found | None, settings: Settings, arguments: Sequence[str]) -> Plan:
    """How to deploy a stack.

    Args:
        found: what is there; None for nothing.
        settings: what `arguments` and cdk.json come to.
        arguments: for `cdk deploy`.

    Raises:
        InvalidInputError: the stack serves another prefix, and would be moved away from it.
    """
    deploy = (*_CDK, *arguments)
    if found is not None and found.status not in _NEVER_MADE:
        if found.prefix not in ("", settings.prefix):
            raise InvalidInputError(
                f"the stack {settings.stack_name} serves the prefix {found.prefix}, and a"
                f" deployment with {settings.prefix} would move it: another cluster is another"
                f" {NAMESPACE}stack-name"
            )
        return Plan(unprotect=False, commands=(deploy,))
    # A later -c of the same name would win, so this one comes last.
    first = (*deploy, *_UNPROTECTED)
    takes_over = settings.bucket_name or settings.table_name or settings.warehouse_name
    return Plan(
        unprotect=found is not None and found.protected,
        commands=(first, deploy) if settings.protected and not takes_over else (deploy,),
    )


def look(cloudformation: Any, stack_name: str) -> Found | None:
    """What CloudFormation has under a name.

    Raises:
        ClientError: CloudFormation does not say.
    """
    try:
        (stack,) = cloudformation.describe_stacks(StackName=stack_name)["Stacks"]
    except ClientError as error:
        if error.response["Error"]["Code"] == "ValidationError":
            return None  # "Stack with id ... does not exist"
        raise
    outputs = {each["OutputKey"]: each["OutputValue"] for each in stack.get("Outputs", [])}
    return Found(
        status=stack["StackStatus"],
        protected=bool(stack.get("EnableTerminationProtection")),
        prefix=outputs.get(OUTPUT_PREFIX, ""),
    )


def deploy(
    arguments: Sequence[str],
    cloudformation: Callable[[str | None], Any],
    run: Callable[[Sequence[str]], int],
) -> int:
    """Look, plan, do; the exit code of the command that ended it.

    Args:
        arguments: for `cdk deploy`.
        cloudformation: makes a client for a profile of the AWS tools, None for the default one.
        run: runs a command, gives its exit code.

    Raises:
        InvalidInputError: a setting is wrong, or see `plan`.
        ClientError: CloudFormation does not say what there is.
    """
    given, profile = _settings(arguments)
    settings = Settings.from_context({**default_context(ROOT), **given})
    client = cloudformation(profile)
    what = plan(look(client, settings.stack_name), settings, arguments)
    if what.unprotect:
        client.update_termination_protection(
            StackName=settings.stack_name, EnableTerminationProtection=False
        )
    return next((code for code in map(run, what.commands) if code), 0)


def _settings(arguments: Sequence[str]) -> tuple[dict[str, str], str | None]:
    """The context and the profile among arguments of the CDK; it judges the others itself."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-c", "--context", action="append", default=[])
    parser.add_argument("--profile")
    known, _ = parser.parse_known_args(arguments)
    pairs = [each.partition("=") for each in known.context]
    for name, equals, _ in pairs:
        if not equals:
            raise InvalidInputError(f"-c takes NAME=VALUE, not {name!r}")
    return {name: value for name, _, value in pairs}, known.profile


def _client(profile: str | None) -> Any:
    # The CDK knows this variable, boto3 does not.
    region = os.environ.get("AWS_REGION")
    return boto3.session.Session(profile_name=profile, region_name=region).client("cloudformation")


def main() -> int:
    """Deploy with the arguments of the command line."""
    try:
        return deploy(sys.argv[1:], _client, lambda command: subprocess.call(command, cwd=ROOT))
    except (ColdstreamError, ClientError, BotoCoreError) as error:
        sys.stderr.write(f"make deploy: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
