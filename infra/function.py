"""How every Lambda function here is made: arm64, its own role, its own log group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from coldstream.deployment import METRIC_NAMESPACE
from infra.nag import accept

# How the CDK calls the times that `infra.config` offers, in days.
RETENTION = {
    1: logs.RetentionDays.ONE_DAY,
    3: logs.RetentionDays.THREE_DAYS,
    5: logs.RetentionDays.FIVE_DAYS,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    60: logs.RetentionDays.TWO_MONTHS,
    90: logs.RetentionDays.THREE_MONTHS,
    180: logs.RetentionDays.SIX_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
}


class Function(Construct):
    """A function, its role with exactly the given rights, and its log group.

    Args:
        scope: where it belongs.
        id: its name there.
        handler: `functions.<module>.handler`.
        code: the bundle, shared by all functions.
        timeout: the longest run.
        environment: what the handler reads, besides what the libraries read.
        rights: what the role may do besides writing its own logs and traces.
        log_retention_days: how long the logs are kept.
        description: one sentence for the console.
        tracing: whether X-Ray gets a sample of its runs.
        memory_mib: memory, and with it the share of a CPU.
        reserved: how much of the account's concurrency it has for itself; None for nothing.
        asks_itself: whether it may be woken without end by what it sends itself. Lambda cuts such a
            chain off after about sixteen links otherwise, and the message is a dead letter.

    Attributes:
        function: the function.
        role: its role.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        handler: str,
        code: lambda_.Code,
        timeout: Duration,
        environment: Mapping[str, str],
        rights: Sequence[iam.PolicyStatement],
        log_retention_days: int,
        description: str,
        tracing: bool,
        memory_mib: int,
        reserved: int | None = None,
        asks_itself: bool = False,
    ) -> None:
        super().__init__(scope, id)
        log_group = logs.LogGroup(
            self,
            "Logs",
            retention=RETENTION[log_retention_days],
            removal_policy=RemovalPolicy.DESTROY,
        )
        self.role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        # Not the AWS managed policy for logs: that one may write to every log group there is.
        log_group.grant_write(self.role)
        for statement in rights:
            self.role.add_to_policy(statement)
        self.function = lambda_.Function(
            self,
            "Function",
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            handler=handler,
            code=code,
            memory_size=memory_mib,
            timeout=timeout,
            reserved_concurrent_executions=reserved,
            recursive_loop=lambda_.RecursiveLoop.ALLOW if asks_itself else None,
            role=self.role,
            log_group=log_group,
            tracing=lambda_.Tracing.ACTIVE if tracing else lambda_.Tracing.DISABLED,
            description=description,
            environment={
                **environment,
                # One name for all functions: metrics carry it as a dimension, and an alarm then
                # watches one metric and not one for each function. Logs and traces have the
                # function's name besides. The stack's: two clusters may be in one account.
                "POWERTOOLS_SERVICE_NAME": Stack.of(self).stack_name,
                "POWERTOOLS_METRICS_NAMESPACE": METRIC_NAMESPACE,
                "POWERTOOLS_LOG_LEVEL": "INFO",
                **({} if tracing else {"POWERTOOLS_TRACE_DISABLED": "true"}),
                # What a handler returns says nothing that its log does not.
                "POWERTOOLS_TRACER_CAPTURE_RESPONSE": "false",
            },
        )
        accept(
            self.function,
            "L1",
            "Python 3.13 is what the bundle is built for and tested with, and is supported until"
            " 2029. Nothing here needs a later one.",
        )
        if tracing:
            accept(
                self.role,
                "IAM5[Resource::*]",
                "X-Ray's two actions for sending traces know no resources",
            )
