"""Whole runs that fail are told by events of AWS, which cost nothing, to the function `report`.

It gets each as a whole: AWS does not promise a cause in all of them, nor does it say what
EventBridge makes of a template that asks for what an event lacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct


def report_failures(
    scope: Construct,
    id: str,  # noqa: A002 - the CDK's own word
    *,
    report: lambda_.IFunction,
    description: str,
    pattern: events.EventPattern,
) -> None:
    """Have some events logged and counted as failures.

    Args:
        scope: where the rule belongs.
        id: its name there.
        report: the function.
        description: one sentence for the console.
        pattern: which events.
    """
    events.Rule(
        scope,
        id,
        description=description,
        event_pattern=pattern,
        targets=[targets.LambdaFunction(report)],
    )


def report_machines(
    scope: Construct, *, machines: Mapping[str, sfn.IStateMachine], report: lambda_.IFunction
) -> None:
    """Tell of executions that failed or timed out as a whole.

    A definition reports what it catches, and marks its error. Only Step Functions knows of what it
    does not catch, a time-out first of all. Who stopped an execution by hand knows that.
    """
    report_failures(
        scope,
        "MachineFailures",
        report=report,
        description="Executions of the workflows that did not succeed",
        pattern=events.EventPattern(
            source=["aws.states"],
            detail_type=["Step Functions Execution Status Change"],
            detail={
                "stateMachineArn": [each.state_machine_arn for each in machines.values()],
                "status": ["FAILED", "TIMED_OUT"],
            },
        ),
    )


def report_jobs(scope: Construct, *, jobs: Sequence[str], report: lambda_.IFunction) -> None:
    """Tell of runs of Glue jobs that did not succeed.

    Args:
        scope: where the rule belongs.
        jobs: their names in Glue.
        report: the function.
    """
    report_failures(
        scope,
        "Failures",
        report=report,
        description="Runs of Glue jobs that did not succeed",
        pattern=events.EventPattern(
            source=["aws.glue"],
            detail_type=["Glue Job State Change"],
            detail={"jobName": [*jobs], "state": ["FAILED", "TIMEOUT", "ERROR"]},
        ),
    )
