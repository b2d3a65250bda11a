"""What a person is told about, and one page to look at.

Few alarms, each for something that needs a person: what heals by itself has none.
"""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from coldstream import names
from infra.commit import CommitQueue
from infra.function import SERVICE

_MINUTE = Duration.minutes(1)
_FIVE_MINUTES = Duration.minutes(5)


class Alarms(Construct):
    """The alarms, a topic for them where somebody wants to be told, and a dashboard.

    Args:
        scope: where it belongs.
        id: its name there.
        commit_queue: watched for lateness and dead letters.
        commit_runs: watched for errors.
        machines: the state machines by their workflow's name, watched for runs that do not succeed.
        missed_tombstones: watched for deletions that were never started.
        email: who is told; empty for nobody.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own word
        *,
        commit_queue: CommitQueue,
        commit_runs: lambda_.IFunction,
        machines: Mapping[str, sfn.IStateMachine],
        missed_tombstones: sqs.IQueue,
        email: str,
    ) -> None:
        super().__init__(scope, id)
        dead_letters = commit_queue.dead_letters.metric_approximate_number_of_messages_visible(
            period=_MINUTE, statistic="Maximum"
        )
        oldest = commit_queue.queue.metric_approximate_age_of_oldest_message(
            period=_MINUTE, statistic="Maximum"
        )
        refused = _own(names.METRIC_FRAGMENTS_REFUSED)
        alarms = [
            self._alarm(
                "DeadLetters",
                dead_letters,
                "Events that failed five times wait in the dead-letter queue. No data is lost: read"
                " the error in the commit function's log, mend the cause, and redrive the queue.",
            ),
            self._alarm(
                "CommitsLate",
                oldest,
                "For five minutes the oldest event has waited longer than five minutes: manifests"
                " fall behind uploads. Look for throttling and errors of the commit function.",
                threshold=300,
                periods=5,
            ),
            self._alarm(
                "CommitErrors",
                commit_runs.metric_errors(period=_FIVE_MINUTES, statistic="Sum"),
                "The commit function failed as a whole; its events will be tried again.",
            ),
            self._alarm(
                "FragmentsRefused",
                refused,
                "A fragment was left out of its manifest because its bytes do not hold. The log of"
                " the function names the stream, the offset and the key.",
            ),
            self._alarm(
                "WorkflowFailures",
                _own(names.METRIC_WORKFLOW_FAILURES),
                "A workflow gave some streams up after all its retries and the others went on, or a"
                " run of a Glue job failed. The log of the function report names the workflow or"
                " the job, the error and the streams. The next scheduled run tries again.",
            ),
            self._alarm(
                "ScrubFindings",
                _own(names.METRIC_SCRUB_FINDINGS),
                "The job scrub found bytes in S3 that are not what was written. The table"
                " scrub_findings and the log of the run name the stream, the offset and the key;"
                " `coldstream repair` gets a range from a replica that still has it.",
            ),
            self._alarm(
                "DeadLetterRows",
                _own(names.METRIC_DEAD_LETTER_ROWS),
                "The job materialise put messages that do not fit their table's rule into the table"
                " of dead letters, with the reason beside each. No message is lost.",
            ),
            self._alarm(
                "TombstonesMissed",
                missed_tombstones.metric_approximate_number_of_messages_visible(
                    period=_MINUTE, statistic="Maximum"
                ),
                "Streams were marked as deleted, but the workflow that deletes their objects could"
                " not be started. Mend the cause in the log of the function tombstone, then start"
                " the workflow delete for each of them.",
            ),
            *(
                self._alarm(
                    f"{name.capitalize()}{what}",
                    metric,
                    f"The state machine {name} {happened} as a whole. Its last execution in the"
                    " console shows at which step.",
                )
                for name, machine in machines.items()
                for what, happened, metric in (
                    (
                        "Failed",
                        "failed",
                        machine.metric_failed(period=_FIVE_MINUTES, statistic="Sum"),
                    ),
                    (
                        "TimedOut",
                        "did not end in time",
                        machine.metric_timed_out(period=_FIVE_MINUTES, statistic="Sum"),
                    ),
                )
            ),
        ]
        if email:
            # Alarms cannot publish to a topic under the AWS managed key, and say nothing secret.
            topic = sns.Topic(self, "Topic", enforce_ssl=True)
            topic.add_subscription(subscriptions.EmailSubscription(email))
            for alarm in alarms:
                alarm.add_alarm_action(actions.SnsAction(topic))
                alarm.add_ok_action(actions.SnsAction(topic))
        self._dashboard(alarms, commit_queue.queue, dead_letters, oldest, commit_runs, machines)

    def _alarm(
        self,
        name: str,
        metric: cloudwatch.IMetric,
        description: str,
        *,
        threshold: float = 1,
        periods: int = 1,
    ) -> cloudwatch.Alarm:
        return cloudwatch.Alarm(
            self,
            name,
            metric=metric,
            alarm_description=description,
            threshold=threshold,
            evaluation_periods=periods,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            # No traffic is no fault.
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )

    def _dashboard(
        self,
        alarms: list[cloudwatch.Alarm],
        queue: sqs.IQueue,
        dead_letters: cloudwatch.IMetric,
        oldest: cloudwatch.IMetric,
        commit_runs: lambda_.IFunction,
        machines: Mapping[str, sfn.IStateMachine],
    ) -> None:
        def graph(title: str, *left: cloudwatch.IMetric) -> cloudwatch.GraphWidget:
            return cloudwatch.GraphWidget(title=title, left=list(left), width=12)

        def total(metric: cloudwatch.Metric) -> cloudwatch.Metric:
            return metric.with_(period=_MINUTE, statistic="Sum")

        cloudwatch.Dashboard(
            self,
            "Dashboard",
            widgets=[
                [cloudwatch.AlarmStatusWidget(title="Alarms", alarms=list(alarms), width=24)],
                [
                    graph("Bytes committed", _own(names.METRIC_BYTES_COMMITTED)),
                    graph(
                        "Commits and fragments",
                        _own(names.METRIC_COMMITS),
                        _own(names.METRIC_CONFLICTS),
                        _own(names.METRIC_FRAGMENTS_COMMITTED),
                    ),
                ],
                [
                    graph(
                        "Refused",
                        _own(names.METRIC_FRAGMENTS_REFUSED),
                        _own(names.METRIC_EVENTS_REFUSED),
                        dead_letters,
                    ),
                    graph("Events waiting: oldest, seconds", oldest),
                ],
                [
                    graph(
                        "Events",
                        total(queue.metric_number_of_messages_sent()),
                        total(queue.metric_number_of_messages_deleted()),
                    ),
                    graph(
                        "Functions",
                        total(commit_runs.metric_invocations(label="commit_runs")),
                        total(commit_runs.metric_errors(label="commit_runs errors")),
                    ),
                ],
                [
                    graph(
                        "Workflows that succeeded",
                        *(
                            total(machine.metric_succeeded(label=name))
                            for name, machine in machines.items()
                        ),
                    ),
                    graph(
                        "Workflows: streams and steps given up",
                        _own(names.METRIC_WORKFLOW_FAILURES),
                        _own(names.METRIC_STREAMS_FAILED),
                    ),
                ],
                [
                    graph(
                        "Rebalance",
                        _own(names.METRIC_REBALANCES),
                        _own(names.METRIC_GROUPS_WRITTEN),
                    ),
                    graph(
                        "Consolidation: fragments",
                        _own(names.METRIC_FRAGMENTS_CONSOLIDATED),
                    ),
                ],
                [
                    graph("Retention: fragments retired", _own(names.METRIC_FRAGMENTS_RETIRED)),
                    graph("Retention: bytes retired", _own(names.METRIC_BYTES_RETIRED)),
                ],
                [
                    graph(
                        "Garbage: objects seen and deleted",
                        _own(names.METRIC_GARBAGE_OBJECTS),
                        _own(names.METRIC_GARBAGE_DELETED),
                    ),
                    graph("Garbage: bytes", _own(names.METRIC_GARBAGE_BYTES)),
                ],
                [
                    graph(
                        "Deleted streams",
                        _own(names.METRIC_STREAMS_SWEPT),
                        _own(names.METRIC_OBJECTS_SWEPT),
                    ),
                    graph("Deleted streams: bytes", _own(names.METRIC_BYTES_SWEPT)),
                ],
                [
                    graph("Tables: rows added", _own(names.METRIC_ROWS_MATERIALISED)),
                    graph(
                        "Tables: seconds behind, dead letters",
                        _most(names.METRIC_MATERIALISE_LAG),
                        _own(names.METRIC_DEAD_LETTER_ROWS),
                    ),
                ],
                [
                    graph("Scrubbed: bytes", _own(names.METRIC_BYTES_SCRUBBED)),
                    graph("Scrubbed: findings", _own(names.METRIC_SCRUB_FINDINGS)),
                ],
                [
                    graph(
                        "Fleet: bytes of all streams, of objects without reference",
                        _most(names.METRIC_STREAM_BYTES),
                        _most(names.METRIC_ORPHAN_BYTES),
                    ),
                    graph(
                        "Fleet: streams, holes",
                        _most(names.METRIC_STREAMS),
                        _most(names.METRIC_HOLES),
                    ),
                ],
                [
                    graph(
                        "Glue jobs: seconds",
                        *(
                            _most(names.METRIC_JOB_SECONDS, **{names.METRIC_DIMENSION_JOB: name})
                            for name in names.JOBS
                        ),
                    ),
                ],
            ],
        )


def _most(name: str, **dimensions: str) -> cloudwatch.Metric:
    """The largest value of a metric that a job reports about the state of things."""
    return _own(name, **dimensions).with_(statistic="Maximum")


def _own(name: str, **dimensions: str) -> cloudwatch.Metric:
    """A metric that the handlers and the jobs report."""
    return cloudwatch.Metric(
        namespace=names.METRIC_NAMESPACE,
        metric_name=name,
        dimensions_map={"service": SERVICE, **dimensions},
        statistic="Sum",
        period=_FIVE_MINUTES,
    )
