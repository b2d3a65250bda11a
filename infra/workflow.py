"""How every state machine here is made: named, traced, logged, timed out, with its own role.

The definition lies beside the construct that uses it, `infra/workflows/<file>.asl.json`, as plain
Amazon States Language. `${Name}` in it stands for what only the deployment knows: the ARN of a
function (CloudFormation puts it in), a number of the settings (put in at synthesis, because JSON
takes `"${Name}"` for text and the language wants a number there), or a word of the workflow, where
several share a definition.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from coldstream import deployment
from infra import rights
from infra.arns import executions_arn, machine_arn, map_runs_arn
from infra.function import RETENTION
from infra.nag import accept, accept_arn, accept_executions
from infra.schedule import schedule

DEFINITIONS = Path(__file__).with_name("workflows")

_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")


def definition(file: str, numbers: Mapping[str, int], words: Mapping[str, str]) -> dict[str, Any]:
    """A definition, with `numbers` and `words` in their places.

    Raises:
        KeyError: there is no placeholder for one of them.
    """
    text = (DEFINITIONS / f"{file}.asl.json").read_text("utf-8")
    values = {f'"${{{number}}}"': str(value) for number, value in numbers.items()}
    values |= {f"${{{word}}}": json.dumps(value)[1:-1] for word, value in words.items()}
    for placeholder, value in values.items():
        if placeholder not in text:
            raise KeyError(f"{file}.asl.json has no placeholder {placeholder}")
        text = text.replace(placeholder, value)
    loaded: dict[str, Any] = json.loads(text)
    return loaded


class Workflow(Construct):
    """A state machine, its role with exactly the rights to run its steps, and its log group.

    Args:
        scope: where it belongs.
        id: its name there.
        name: of the workflow, and of its definition where that is no other.
        functions: what the definition calls, by the name of the placeholder.
        numbers: other placeholders.
        timeout_seconds: the longest run.
        log_retention_days: how long the logs are kept.
        tracing: whether X-Ray gets a sample of its executions.
        distributed: whether it has a Distributed Map, which starts executions of the machine.
        description: one sentence for the console.
        every_minutes: start it this often; None if something else starts it.
        file: of its definition, where several workflows share one.
        words: other placeholders.

    Attributes:
        machine: the state machine.
        role: its role.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        name: str,
        functions: Mapping[str, lambda_.IFunction],
        numbers: Mapping[str, int],
        timeout_seconds: int,
        log_retention_days: int,
        tracing: bool,
        distributed: bool,
        description: str,
        every_minutes: int | None = None,
        file: str = "",
        words: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(scope, id)
        stack = Stack.of(self)
        numbers = {**numbers, "TimeoutSeconds": timeout_seconds}
        document = definition(file or name, numbers, words or {})
        text = json.dumps(document, indent=1)
        wanted = set(_PLACEHOLDER.findall(text)) - {"Partition"}
        if wanted != set(functions):
            raise ValueError(f"{name}.asl.json calls {sorted(wanted)}, not {sorted(functions)}")

        log_group = logs.LogGroup(
            self,
            "Logs",
            # Below this name the account's one policy for delivered logs needs no entry for it.
            log_group_name=f"/aws/vendedlogs/states/{stack.stack_name}-{name}",
            retention=RETENTION[log_retention_days],
            removal_policy=RemovalPolicy.DESTROY,
        )
        self.role = self._role(functions)
        self.machine = self._machine(name, text, functions, log_group, description, tracing)
        if distributed:
            self._allow_map(stack, name)
        if every_minutes is not None:
            schedule(
                self,
                start=iam.PolicyStatement(
                    sid="StartWorkflow",
                    actions=["states:StartExecution"],
                    resources=[self.machine.state_machine_arn],
                ),
                target=self.machine.state_machine_arn,
                message={"reason": deployment.REASON_SCHEDULE},
                every_minutes=every_minutes,
                retries=2,
                description=f"Starts the workflow {name}",
            )

    def _role(self, functions: Mapping[str, lambda_.IFunction]) -> iam.Role:
        role = iam.Role(
            self, "Role", assumed_by=rights.service_of_this_account(self, "states.amazonaws.com")
        )
        role.add_to_policy(
            iam.PolicyStatement(
                sid="CallSteps",
                actions=["lambda:InvokeFunction"],
                # Not `grant_invoke`: it would add every version and alias.
                resources=[each.function_arn for each in functions.values()],
            )
        )
        accept(
            role,
            "IAM5[Resource::*]",
            "X-Ray's actions and those that deliver a state machine's log know no resources",
        )
        return role

    def _machine(
        self,
        name: str,
        text: str,
        functions: Mapping[str, lambda_.IFunction],
        log_group: logs.ILogGroup,
        description: str,
        tracing: bool,
    ) -> sfn.StateMachine:
        stack = Stack.of(self)
        machine = sfn.StateMachine(
            self,
            "Machine",
            state_machine_name=f"{stack.stack_name}-{name}",
            state_machine_type=sfn.StateMachineType.STANDARD,
            definition_body=sfn.DefinitionBody.from_string(text),
            definition_substitutions={
                "Partition": stack.partition,
                **{step: each.function_arn for step, each in functions.items()},
            },
            role=self.role,
            logs=sfn.LogOptions(
                destination=log_group,
                # Inputs hold names of streams and cursors, and the console keeps them for 90 days.
                include_execution_data=False,
                level=sfn.LogLevel.ERROR,
            ),
            tracing_enabled=tracing,
            comment=description,
        )
        if not tracing:
            accept(
                machine,
                "SF2",
                "The setting `tracing` turns X-Ray on; the log and the history of each execution"
                " say what happened",
            )
        accept(
            machine,
            "SF1",
            "Errors are logged, and so is every step's own work by its function. Each event of each"
            " execution is kept by Step Functions itself for 90 days.",
        )
        return machine

    def _allow_map(self, stack: Stack, name: str) -> None:
        """Let a Distributed Map start, follow and stop its children: executions of the machine."""
        for statement in (
            iam.PolicyStatement(
                sid="StartChildren",
                actions=["states:StartExecution"],
                resources=[machine_arn(stack, name)],
            ),
            iam.PolicyStatement(
                sid="FollowChildren",
                actions=["states:DescribeExecution", "states:StopExecution"],
                resources=[executions_arn(stack, name)],
            ),
            # "Redrive" in the console goes on with the children that failed.
            iam.PolicyStatement(
                sid="RedriveChildren",
                actions=["states:RedriveExecution"],
                resources=[map_runs_arn(stack, name)],
            ),
        ):
            self.role.add_to_policy(statement)
        accept_executions(self.role, name)
        accept_arn(
            self.role,
            map_runs_arn(stack, name),
            "All children of one state machine: their names are made up when they start",
        )
