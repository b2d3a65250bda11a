"""What a person is told about, and one page to look at.

Few alarms, each for something that needs a person: what heals by itself has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from coldstream import names
from infra.arns import alarms_arn
from infra.commit import CommitQueue
from infra.dashboard import dashboard
from infra.metrics import FIVE_MINUTES, oldest, own, throttled, waiting

# A period of an alarm is a day at most, and a run may take some minutes.
_LONGEST_WATCHED_MINUTES = 1440
_SHORTEST_WATCHED_MINUTES = 15


@dataclass(frozen=True, slots=True)
class _Alarm:
    """What one alarm watches.

    Attributes:
        name: its id.
        metric: goes off where this is at or above `threshold`.
        description: what it means and what to do.
        threshold: in the metric's unit.
        periods: of the metric, in a row.
        too_few: goes off below the threshold instead, and where there is no value at all.
    """

    name: str
    metric: cloudwatch.IMetric
    description: str
    threshold: float = 1
    periods: int = 1
    too_few: bool = False


#: Metrics that the handlers and the jobs report, by the alarm's name: (metric, description).
_REPORTED = {
    "FragmentsRefused": (
        names.METRIC_FRAGMENTS_REFUSED,
        "A fragment was left out of its manifest because its bytes do not hold. The log of"
        " the function names the stream, the offset and the key.",
    ),
    "HolesCommitted": (
        names.METRIC_HOLES_COMMITTED,
        "Offsets were declared lost: the broker's retention took them before they were uploaded,"
        " and no member has them. The log of the function commit_runs or reconcile names the stream"
        " and the offsets; docs/how-to/holes.md says what can still be done.",
    ),
    "ClaimsThatCut": (
        names.METRIC_CLAIMS_THAT_CUT,
        "A new writer's log has shown that the end of a manifest is another history, and its claim"
        " has cut that off. The quarantine keeps it. The log of the function claim names the"
        " stream, the epoch and the offsets. If no broker has failed over, an agent's credentials"
        " may be stolen: see docs/security.md.",
    ),
    "StreamsWithoutItem": (
        names.METRIC_STREAMS_WITHOUT_ITEM,
        "The bucket has a stream that the table lacks: its item was lost, so that nobody can read"
        " it and nothing watches over it. The log of the function scan or of the job names it."
        " reconcile gives it the newest root of the bucket back; `coldstream reconcile --dry-run`"
        " shows whether it did, and the log of the function reconcile why it could not.",
    ),
    "OffsetsLost": (
        names.METRIC_OFFSETS_LOST,
        "The job materialise met offsets that are in neither tier: a table has no rows for them.",
    ),
    "DeletesRefused": (
        names.METRIC_DELETES_REFUSED,
        "S3 refused to delete garbage, because of a policy or Object Lock. The log of the function"
        " collect names a key.",
    ),
    "WorkflowFailures": (
        names.METRIC_WORKFLOW_FAILURES,
        "A workflow gave some streams up after all its retries and the others went on, or a"
        " run of a Glue job failed. The log of the function report names the workflow or"
        " the job, the error and the streams. The next scheduled run tries again.",
    ),
    "ScrubFindings": (
        names.METRIC_SCRUB_FINDINGS,
        "The job scrub found bytes in S3 that are not what was written. The table"
        " scrub_findings and the log of the run name the stream, the offset and the key;"
        " `coldstream repair` gets a range from a replica that still has it.",
    ),
    "DeadLetterRows": (
        names.METRIC_DEAD_LETTER_ROWS,
        "The job materialise put messages that do not fit their table's rule into the table"
        " of dead letters, with the reason beside each. No message is lost.",
    ),
}


class Alarms(Construct):
    """The alarms, the topic that they publish to, and a dashboard.

    Args:
        scope: where it belongs.
        id: its name there.
        commit_queue: watched for lateness and dead letters.
        commit_runs: watched for errors.
        machines: the state machines by their workflow's name, watched for runs that do not succeed.
        every_minutes: how often a schedule starts some of them, watched for runs that do not come.
        report: the function that tells of failures, watched for its own.
        table: the catalog, watched for throttling.
        missed_tombstones: watched for deletions that were never started.
        email: who is told; empty for nobody.

    Attributes:
        topic: what every alarm publishes to; subscribe whatever should know.
        dashboard_url: of the page in the console.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        commit_queue: CommitQueue,
        commit_runs: lambda_.IFunction,
        machines: Mapping[str, sfn.IStateMachine],
        every_minutes: Mapping[str, int],
        report: lambda_.IFunction,
        table: dynamodb.ITable,
        missed_tombstones: sqs.IQueue,
        email: str,
    ) -> None:
        super().__init__(scope, id)
        alarms = [
            self._alarm(each)
            for each in (
                *_of_commits(commit_queue, commit_runs),
                *(
                    _Alarm(name, own(self, metric), text)
                    for name, (metric, text) in _REPORTED.items()
                ),
                *_of_agents(self),
                *_of_functions(self, commit_runs, report, table, missed_tombstones),
                *_of_machines(machines),
                *_of_schedules(machines, every_minutes),
            )
        ]
        self.topic = self._topic(email)
        for alarm in alarms:
            alarm.add_alarm_action(actions.SnsAction(self.topic))
            alarm.add_ok_action(actions.SnsAction(self.topic))
        page = dashboard(
            self,
            alarms=alarms,
            commit_queue=commit_queue,
            commit_runs=commit_runs,
            machines=machines,
        )
        region = Stack.of(self).region
        self.dashboard_url = (
            f"https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}"
            f"#dashboards/dashboard/{page}"
        )

    def _topic(self, email: str) -> sns.Topic:
        """The topic that every alarm publishes to, and who is told by mail.

        A policy of one's own replaces the one that SNS gives a new topic, which let the account
        publish. CloudWatch publishes as a service, so only the policy can let it; and the CDK adds
        nothing for it. Alarms cannot publish to a topic under the AWS managed key, and say nothing
        secret.
        """
        stack = Stack.of(self)
        topic = sns.Topic(self, "Topic", enforce_ssl=True)
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AllowAlarms",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={
                    "StringEquals": {"aws:SourceAccount": stack.account},
                    "ArnLike": {"aws:SourceArn": alarms_arn(stack)},
                },
            )
        )
        if email:
            topic.add_subscription(subscriptions.EmailSubscription(email))
        return topic

    def _alarm(self, row: _Alarm) -> cloudwatch.Alarm:
        return cloudwatch.Alarm(
            self,
            row.name,
            metric=row.metric,
            alarm_description=row.description,
            threshold=row.threshold,
            evaluation_periods=row.periods,
            comparison_operator=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD
            if row.too_few
            else cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            # No traffic is no fault; no run of what a schedule starts is one.
            treat_missing_data=cloudwatch.TreatMissingData.BREACHING
            if row.too_few
            else cloudwatch.TreatMissingData.NOT_BREACHING,
        )


def _of_agents(scope: Construct) -> Iterator[_Alarm]:
    yield _Alarm(
        "AgentsSilent",
        own(scope, names.METRIC_AGENTS_SILENT),
        "For ten minutes an agent has not said that it lives: it is down, or its node"
        " reaches DynamoDB no more. Its streams are not uploaded, unless another"
        " member's agent does, and local retention goes on. The log of the function"
        " scan names the node; one that is gone for good counts no more after a week.",
        periods=2,
    )
    yield _Alarm(
        "AgentsTroubled",
        own(scope, names.METRIC_AGENTS_TROUBLED),
        "For half an hour an agent has had streams that fail or make no progress. What"
        " waits is in danger of local retention: its own log names stream, offset and"
        " reason; the log of the function scan names the node.",
        periods=6,
    )


def _of_functions(
    scope: Construct,
    commit_runs: lambda_.IFunction,
    report: lambda_.IFunction,
    table: dynamodb.ITable,
    missed_tombstones: sqs.IQueue,
) -> Iterator[_Alarm]:
    yield _Alarm(
        "TombstonesMissed",
        waiting(missed_tombstones),
        "Streams were marked as deleted, but the workflow that deletes their objects"
        " could not be started. Mend the cause in the log of the function tombstone,"
        " then start the workflow delete for each of them.",
    )
    yield _Alarm(
        "StreamsFailed",
        own(scope, names.METRIC_STREAMS_FAILED),
        "For a quarter of an hour every run has left streams undone. The log of the"
        " function of the workflow names the stream, the offset and the key.",
        periods=3,
    )
    yield _Alarm(
        "ReportErrors",
        report.metric_errors(period=FIVE_MINUTES, statistic="Sum"),
        "The function that tells of failed workflows and jobs has failed itself. Look"
        " at the failed executions in the console of Step Functions.",
    )
    yield _Alarm(
        "CommitsThrottled",
        commit_runs.metric_throttles(period=FIVE_MINUTES, statistic="Sum"),
        "For a quarter of an hour the commit function has been throttled: the account's"
        " concurrency is too small, or something else uses it up. Events wait; none is"
        " lost.",
        periods=3,
    )
    yield _Alarm(
        "CatalogThrottled",
        throttled(table),
        "For a quarter of an hour DynamoDB has throttled writes to the table: commits"
        " are tried again and are late.",
        periods=3,
    )


def _of_commits(commit_queue: CommitQueue, commit_runs: lambda_.IFunction) -> Iterator[_Alarm]:
    yield _Alarm(
        "DeadLetters",
        waiting(commit_queue.dead_letters),
        "Events that failed five times wait in the dead-letter queue. No data is lost: read"
        " the error in the commit function's log, mend the cause, and redrive the queue.",
    )
    yield _Alarm(
        "CommitsLate",
        oldest(commit_queue.queue),
        "For five minutes the oldest event has waited longer than five minutes: manifests"
        " fall behind uploads. Look for throttling and errors of the commit function.",
        threshold=300,
        periods=5,
    )
    yield _Alarm(
        "CommitErrors",
        commit_runs.metric_errors(period=FIVE_MINUTES, statistic="Sum"),
        "The commit function failed as a whole; its events will be tried again.",
    )


def _of_machines(machines: Mapping[str, sfn.IStateMachine]) -> Iterator[_Alarm]:
    for name, machine in machines.items():
        failed = machine.metric_failed(period=FIVE_MINUTES, statistic="Sum")
        timed_out = machine.metric_timed_out(period=FIVE_MINUTES, statistic="Sum")
        for what, happened, metric in (
            ("Failed", "failed", failed),
            ("TimedOut", "did not end in time", timed_out),
        ):
            yield _Alarm(
                f"{name.capitalize()}{what}",
                metric,
                f"The state machine {name} {happened} as a whole. Its last execution in the"
                " console shows at which step.",
            )


def _of_schedules(
    machines: Mapping[str, sfn.IStateMachine], every_minutes: Mapping[str, int]
) -> Iterator[_Alarm]:
    """One for each schedule: a machine that is never started fails never."""
    for name, minutes in every_minutes.items():
        if minutes > _LONGEST_WATCHED_MINUTES:
            continue  # an alarm looks back for a week
        period = Duration.minutes(max(minutes, _SHORTEST_WATCHED_MINUTES))
        yield _Alarm(
            f"{name.capitalize()}Missing",
            machines[name].metric_succeeded(period=period, statistic="Sum"),
            f"The state machine {name} has not succeeded for three times as long as it should take"
            " to come round. Is its schedule enabled? Do its executions fail? After the first"
            " deployment this is red until the first run has ended.",
            periods=3,
            too_few=True,
        )
