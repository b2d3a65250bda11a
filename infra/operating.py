"""What the runbook asks of a person in the console, as rights: to act, and to look.

To act is a right to named machines, queues and jobs of the stack. To look is one to the stack's own
log groups and executions, and to what AWS permits on everything only: the account's alarms, metrics
and lists of names. None of it shows a message or a key of a stream's object but as a log does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs

from coldstream.deployment import WORKFLOWS
from infra.arns import executions_arn, job_arn, machine_arn, map_run_arns, map_runs_arn

#: Actions that know no resources, or that the console asks for all of them together.
_NAMES = (
    "cloudwatch:DescribeAlarmHistory",
    "cloudwatch:DescribeAlarms",
    "cloudwatch:GetDashboard",
    "cloudwatch:GetMetricData",
    "cloudwatch:ListDashboards",
    "cloudwatch:ListMetrics",
    "glue:ListJobs",
    "scheduler:ListSchedules",
    "sqs:ListQueues",
    "states:ListStateMachines",
)
_NAMES_OF_LOGS = (
    "logs:DescribeLogGroups",
    "logs:DescribeQueries",
    "logs:DescribeQueryDefinitions",
    "logs:GetQueryResults",
    "logs:StopQuery",
)


def run_workflows(stack: Stack) -> list[iam.PolicyStatement]:
    """Start, stop and redrive executions of the stack's machines."""
    executions = [executions_arn(stack, name) for name in WORKFLOWS]
    return [
        iam.PolicyStatement(
            sid="StartWorkflows",
            actions=["states:StartExecution"],
            resources=[machine_arn(stack, name) for name in WORKFLOWS],
        ),
        iam.PolicyStatement(
            sid="RunWorkflows",
            actions=[
                "states:DescribeExecution",
                "states:RedriveExecution",
                "states:StopExecution",
            ],
            resources=executions,
        ),
    ]


def redrive_messages(*, queue: sqs.IQueue, kept: Iterable[sqs.IQueue]) -> list[iam.PolicyStatement]:
    """Bring refused messages back to the queue that they came from, and take others away.

    SQS moves them with the rights of whoever asks for it, so these are those to do it by hand, too.

    Args:
        queue: where messages go back to.
        kept: where what failed is kept.
    """
    return [
        iam.PolicyStatement(
            sid="RedriveMessages",
            actions=[
                "sqs:CancelMessageMoveTask",
                "sqs:DeleteMessage",
                "sqs:GetQueueAttributes",
                "sqs:ListDeadLetterSourceQueues",
                "sqs:ListMessageMoveTasks",
                "sqs:ReceiveMessage",
                "sqs:StartMessageMoveTask",
            ],
            resources=[each.queue_arn for each in kept],
        ),
        iam.PolicyStatement(
            sid="AskForCommit",
            actions=["sqs:GetQueueAttributes", "sqs:SendMessage"],
            resources=[queue.queue_arn],
        ),
    ]


def run_jobs(stack: Stack, jobs: Iterable[str]) -> iam.PolicyStatement:
    """Start and stop the stack's Glue jobs, by their names in Glue."""
    return iam.PolicyStatement(
        sid="RunJobs",
        actions=["glue:BatchStopJobRun", "glue:GetJobRun", "glue:GetJobRuns", "glue:StartJobRun"],
        resources=[job_arn(stack, name) for name in jobs],
    )


def look(
    stack: Stack, *, jobs: Iterable[str], mapping: Collection[str]
) -> list[iam.PolicyStatement]:
    """See alarms, the dashboard, executions and runs of jobs.

    Args:
        stack: whose.
        jobs: names of its Glue jobs.
        mapping: the workflows that have a Distributed Map.
    """
    children = [arn(stack, name) for name in mapping for arn in (map_runs_arn, map_run_arns)]
    return [
        iam.PolicyStatement(sid="SeeNames", actions=[*_NAMES], resources=["*"]),
        iam.PolicyStatement(
            sid="SeeWorkflows",
            actions=["states:DescribeStateMachine", "states:ListExecutions"],
            resources=[machine_arn(stack, name) for name in WORKFLOWS],
        ),
        iam.PolicyStatement(
            sid="SeeExecutions",
            actions=[
                "states:DescribeExecution",
                "states:DescribeMapRun",
                "states:GetExecutionHistory",
                "states:ListExecutions",
                "states:ListMapRuns",
            ],
            resources=[*(executions_arn(stack, name) for name in WORKFLOWS), *children],
        ),
        iam.PolicyStatement(
            sid="SeeJobs",
            actions=["glue:BatchGetJobs", "glue:GetJob", "glue:GetJobRun", "glue:GetJobRuns"],
            resources=[job_arn(stack, name) for name in jobs],
        ),
    ]


def read_logs(groups: Iterable[logs.ILogGroup]) -> list[iam.PolicyStatement]:
    """Read log groups, by themselves and by the saved queries."""
    return [
        iam.PolicyStatement(sid="SeeNamesOfLogs", actions=[*_NAMES_OF_LOGS], resources=["*"]),
        iam.PolicyStatement(
            sid="ReadLogs",
            actions=[
                "logs:DescribeLogStreams",
                "logs:FilterLogEvents",
                "logs:GetLogEvents",
                "logs:StartQuery",
            ],
            resources=[each.log_group_arn for each in groups],
        ),
    ]
