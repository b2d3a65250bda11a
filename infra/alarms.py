"""What a person is told about, and one page to look at.

Few alarms, each for something that needs a person: what heals by itself has none, and each metric
of each alarm costs 0.10 $ a month (docs/decisions/0037-alarms-by-the-metric.md).
"""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Stack
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

from coldstream import deployment
from infra import alarm_rows
from infra.alarm_rows import Row
from infra.arns import alarms_arn
from infra.commit import CommitQueue
from infra.dashboard import dashboard
from infra.metrics import own

#: Metrics that the handlers and the jobs report, by the alarm's name: (metric, description).
_REPORTED = {
    "FragmentsRefused": (
        deployment.METRIC_FRAGMENTS_REFUSED,
        "A fragment was left out of its manifest because its bytes do not hold. The log of"
        " the function names the stream, the offset and the key. If no agent has uploaded it, its"
        " credentials may be stolen: see docs/security.md.",
    ),
    "HolesCommitted": (
        deployment.METRIC_HOLES_COMMITTED,
        "Offsets were declared lost: the broker's retention took them before they were uploaded,"
        " and no member has them. The log of the function commit_runs or reconcile names the stream"
        " and the offsets; docs/how-to/holes.md says what can still be done. If no broker has lost"
        " them, an agent's credentials may be stolen; `coldstream undo` takes the hole back: see"
        " docs/security.md.",
    ),
    "ClaimsThatCut": (
        deployment.METRIC_CLAIMS_THAT_CUT,
        "A new writer's log has shown that the end of a manifest is another history, and its claim"
        " has cut that off. The quarantine keeps it. The log of the function claim names the"
        " stream, the epoch and the offsets. If no broker has failed over, an agent's credentials"
        " may be stolen: see docs/security.md.",
    ),
    "StreamsWithoutItem": (
        deployment.METRIC_STREAMS_WITHOUT_ITEM,
        "The bucket has a stream that the table lacks: its item was lost, so that nobody can read"
        " it and nothing watches over it. The log of the function scan or of the job names it."
        " reconcile gives it the newest root of the bucket back; `coldstream reconcile --dry-run`"
        " shows whether it did, and the log of the function reconcile why it could not.",
    ),
    "StreamsFailed": (
        deployment.METRIC_STREAMS_FAILED,
        "A Glue job left streams out: its log names them, with the offset and the key.",
    ),
    "OffsetsLost": (
        deployment.METRIC_OFFSETS_LOST,
        "The job materialise met offsets that are in neither tier: a table has no rows for them.",
    ),
    "DeletesRefused": (
        deployment.METRIC_DELETES_REFUSED,
        "S3 refused to delete garbage, because of a policy or Object Lock. The log of the function"
        " collect names a key.",
    ),
    "WorkflowFailures": (
        deployment.METRIC_WORKFLOW_FAILURES,
        "A workflow gave some streams up after all its retries and the others went on, or a whole"
        " run of a workflow or of a Glue job failed or did not end in time. The log of the function"
        " report names the workflow or the job, the error and the streams. The next scheduled run"
        " tries again.",
    ),
    "ScrubFindings": (
        deployment.METRIC_SCRUB_FINDINGS,
        "The job scrub found bytes in S3 that are not what was written. The table"
        " scrub_findings and the log of the run name the stream, the offset and the key;"
        " `coldstream repair` gets a range from a replica that still has it.",
    ),
    "DeadLetterRows": (
        deployment.METRIC_DEAD_LETTER_ROWS,
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
        claim: watched for errors and throttling.
        machines: the state machines by their workflow's name; what of them fails, `report` counts.
        every_minutes: how often a schedule starts some of them, watched for runs that do not come.
        looked_at_minutes: how often a workflow looks at one and the same stream, at least.
        jobs_every_minutes: how often a schedule starts Glue jobs, by their names; 0 for never.
        report: the function that tells of failures, watched for its own.
        tombstone: the function that starts deletions, watched for being late.
        table: the catalog, watched for throttling.
        missed_tombstones: watched for deletions that were never started.
        behind_minutes: for how long something may wait to be published.
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
        claim: lambda_.IFunction,
        machines: Mapping[str, sfn.IStateMachine],
        every_minutes: Mapping[str, int],
        looked_at_minutes: Mapping[str, int],
        jobs_every_minutes: Mapping[str, int],
        report: lambda_.IFunction,
        tombstone: lambda_.IFunction,
        table: dynamodb.ITable,
        missed_tombstones: sqs.IQueue,
        behind_minutes: int,
        email: str,
    ) -> None:
        super().__init__(scope, id)
        alarms = [
            self._alarm(each)
            for each in (
                *alarm_rows.of_commits(commit_queue, commit_runs),
                *(Row(name, own(self, metric), text) for name, (metric, text) in _REPORTED.items()),
                *alarm_rows.of_agents(self, every_minutes["reconcile"], behind_minutes),
                *alarm_rows.of_functions(commit_runs, claim, report),
                *alarm_rows.of_table(table),
                *alarm_rows.of_deletions(missed_tombstones, tombstone),
                *alarm_rows.of_streams(self, looked_at_minutes),
                *alarm_rows.of_schedules(machines, every_minutes),
                *alarm_rows.of_jobs(self, jobs_every_minutes),
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

    def _alarm(self, row: Row) -> cloudwatch.Alarm:
        return cloudwatch.Alarm(
            self,
            row.name,
            # What a mail says, and what a person types.
            alarm_name=f"{Stack.of(self).stack_name}-{row.name}",
            metric=row.metric,
            alarm_description=row.text,
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
