"""How something is started again and again: by EventBridge Scheduler, with one right of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping

from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from infra import rights


def schedule(
    scope: Construct,
    *,
    start: iam.PolicyStatement,
    target: str,
    message: Mapping[str, str],
    every_minutes: int,
    retries: int,
    description: str,
) -> None:
    """Start something at a fixed rate, by a role that can do that and nothing else.

    Args:
        scope: where role and schedule belong.
        start: the right to start it.
        target: ARN of what the schedule calls.
        message: what it is told, as JSON.
        every_minutes: the rate.
        retries: how often a start that failed is tried again, within a minute: one that comes
            later is worth less than the next one, which comes anyway.
        description: one sentence for the console.
    """
    role = iam.Role(
        scope,
        "ScheduleRole",
        assumed_by=rights.service_of_this_account(scope, "scheduler.amazonaws.com"),
        # Inline, so that the right is there as soon as the role is.
        inline_policies={"Start": iam.PolicyDocument(statements=[start])},
    )
    scheduler.CfnSchedule(
        scope,
        "Schedule",
        description=description,
        schedule_expression=_rate(every_minutes),
        flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
        target=scheduler.CfnSchedule.TargetProperty(
            arn=target,
            role_arn=role.role_arn,
            input=json.dumps(message),
            retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                maximum_retry_attempts=retries, maximum_event_age_in_seconds=60
            ),
        ),
    )


def _rate(minutes: int) -> str:
    return f"rate({minutes} minute{'' if minutes == 1 else 's'})"
