"""The safety net under the events: a scheduled look for uploads that no manifest has yet."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from infra import rights
from infra.commit import commit_rights
from infra.config import Settings
from infra.function import Function
from infra.nag import accept_keys

_LONGEST_RUN_MINUTES = 15  # Lambda's own limit


class Reconcile(Construct):
    """The function and its schedule.

    Args:
        scope: where it belongs.
        id: its name there.
        settings: of the deployment.
        bucket: where fragments and manifests lie.
        table: the catalog.
        code: the bundle.
        environment: what every handler reads.

    Attributes:
        function: the function.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        settings: Settings,
        bucket: s3.IBucket,
        table: dynamodb.ITable,
        code: lambda_.Code,
        environment: Mapping[str, str],
    ) -> None:
        super().__init__(scope, id)
        interval = settings.reconcile_interval_minutes
        made = Function(
            self,
            "Reconcile",
            handler="functions.reconcile.handler",
            code=code,
            # A run ends before the next one starts; two at once would do no harm, only work twice.
            timeout=Duration.minutes(min(interval, _LONGEST_RUN_MINUTES)),
            environment=environment,
            rights=[
                *commit_rights(bucket=bucket, table=table, prefix=settings.prefix),
                rights.survey_catalog(table=table),
            ],
            log_retention_days=settings.log_retention_days,
            description="Commits uploads whose events were lost",
        )
        accept_keys(made.role, bucket=bucket, prefix=settings.prefix, kinds=("data", "metadata"))
        self.function = made.function
        self._schedule(interval)

    def _schedule(self, interval_minutes: int) -> None:
        """Call the function again and again, by a role that can do that and nothing else.

        The CDK's own target class would let the role invoke every version and alias as well.
        """
        invoke = iam.PolicyStatement(
            sid="InvokeReconcile",
            actions=["lambda:InvokeFunction"],
            resources=[self.function.function_arn],
        )
        role = iam.Role(
            self,
            "ScheduleRole",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
            ),
            # Inline, so that the right is there as soon as the role is.
            inline_policies={"Invoke": iam.PolicyDocument(statements=[invoke])},
        )
        scheduler.CfnSchedule(
            self,
            "Schedule",
            description="Commits uploads whose events were lost",
            schedule_expression=_rate(interval_minutes),
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=self.function.function_arn,
                role_arn=role.role_arn,
                # A call that comes late is worth less than the next one, which comes anyway.
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_retry_attempts=0, maximum_event_age_in_seconds=60
                ),
            ),
        )


def _rate(minutes: int) -> str:
    return f"rate({minutes} minute{'' if minutes == 1 else 's'})"
