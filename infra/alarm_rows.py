"""What the alarms watch, one row each; `infra.alarms` makes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import IConstruct

from coldstream import deployment
from infra.commit import CommitQueue
from infra.metrics import FIVE_MINUTES, behind, most, oldest, own, throttled, waiting
from infra.setting_values import LONGEST_INTERVAL_MINUTES

#: With an anchor for each alarm.
RUNBOOK = "docs/how-to/alarms.md"

# A period of an alarm is a day at most, and all its periods are seven days together; or one day,
# where a period is shorter than an hour.
_DAY = 1440
_LONGEST = 7 * _DAY
# A run may take some minutes.
_SHORTEST_WATCHED = 15
# What is told every minute may be late for once.
_AGENT_SILENT_MINUTES = 10
_AGENT_TROUBLED_MINUTES = 30
# A record of the table's stream is gone after a day.
_DELETIONS_LATE_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Row:
    """What one alarm watches.

    Attributes:
        name: its id.
        metric: goes off where this is at or above `threshold`.
        description: what it means and what to do.
        threshold: in the metric's unit.
        periods: of the metric, in a row.
        too_few: goes off below the threshold instead, and where there is no value at all.
        section: of the runbook; that of the alarm's name if empty.
    """

    name: str
    metric: cloudwatch.IMetric
    description: str
    threshold: float = 1
    periods: int = 1
    too_few: bool = False
    section: str = ""

    @property
    def text(self) -> str:
        """The description, with the place of the runbook."""
        return f"{self.description} Runbook: {RUNBOOK}#{(self.section or self.name).lower()}"


def of_commits(commit_queue: CommitQueue, commit_runs: lambda_.IFunction) -> Iterator[Row]:
    """From an event to the commit."""
    yield Row(
        "DeadLetters",
        waiting(commit_queue.dead_letters),
        "Events that failed five times wait in the dead-letter queue. No data is lost: read"
        " the error in the commit function's log, mend the cause, and redrive the queue.",
    )
    yield Row(
        "CommitsLate",
        oldest(commit_queue.queue),
        "For five minutes the oldest event has waited longer than five minutes: manifests"
        " fall behind uploads. Look for throttling and errors of the commit function.",
        threshold=300,
        periods=5,
    )
    yield Row(
        "CommitErrors",
        commit_runs.metric_errors(period=FIVE_MINUTES, statistic="Sum"),
        "The commit function failed as a whole; its events will be tried again.",
    )


def of_agents(scope: IConstruct, scanned_every: int, behind_minutes: int) -> Iterator[Row]:
    """What the heartbeats say; the scan of reconcile makes metrics of them.

    Args:
        scope: in the stack.
        scanned_every: minutes between two such scans. A shorter period would have no value in most
            of its turns, and what is wanted of several in a row could never be.
        behind_minutes: for how long something may wait to be published.
    """
    minutes = max(5, scanned_every)
    period = Duration.minutes(minutes)

    def told(name: str) -> cloudwatch.Metric:
        return own(scope, name).with_(period=period)

    yield Row(
        "AgentsSilent",
        told(deployment.METRIC_AGENTS_SILENT),
        "For ten minutes an agent has not said that it lives: it is down, or its node"
        " reaches DynamoDB no more. Its streams are not uploaded, unless another"
        " member's agent does, and local retention goes on. The log of the function"
        " scan names the node; one that is gone for good counts no more after a week.",
        periods=_in_a_row(_AGENT_SILENT_MINUTES, minutes),
    )
    yield Row(
        "AgentsTroubled",
        told(deployment.METRIC_AGENTS_TROUBLED),
        "For half an hour an agent has had streams that fail or make no progress. What"
        " waits is in danger of local retention: its own log names stream, offset and"
        " reason; the log of the function scan names the node. Where it says fenced or diverged and"
        " no broker has failed over, an agent's credentials may be stolen: see docs/security.md.",
        periods=_in_a_row(_AGENT_TROUBLED_MINUTES, minutes),
    )
    yield Row(
        "AgentsRacing",
        told(deployment.METRIC_AGENTS_RACING),
        "Local retention is about to take what an agent has not uploaded yet: offsets will be lost."
        " Give the stream more local time or bytes at once. The log of the function scan names the"
        " node, the agent's own log and metrics the stream.",
    )
    yield Row(
        "AgentsBehind",
        most(scope, deployment.METRIC_AGENTS_LAG).with_(period=period),
        f"What a stream has committed has waited for more than {behind_minutes} minutes to be"
        " published: the link is too slow, or a broker does not prove what it has. Local retention"
        " goes on. The log of the function scan names the node, the agent's own log and metrics the"
        " stream.",
        threshold=60 * behind_minutes,
    )


def of_functions(
    commit_runs: lambda_.IFunction,
    claim: lambda_.IFunction,
    report: lambda_.IFunction,
) -> Iterator[Row]:
    """Functions that fail or are throttled."""
    yield Row(
        "ReportErrors",
        report.metric_errors(period=FIVE_MINUTES, statistic="Sum"),
        "The function that tells of failed workflows and jobs has failed itself. Look"
        " at the failed executions in the console of Step Functions.",
    )
    yield Row(
        "ReportThrottled",
        report.metric_throttles(period=FIVE_MINUTES, statistic="Sum"),
        "The function that tells of failed workflows and jobs was throttled: what it was to tell"
        " may come late, or not at all.",
        section="ReportErrors",
    )
    yield Row(
        "ClaimErrors",
        claim.metric_errors(period=FIVE_MINUTES, statistic="Sum"),
        "The function that claims and commits for the agents has failed as a whole, for a quarter"
        " of an hour. They try again, and say so; until then no new writer can upload.",
        periods=3,
    )
    for name, function in {"Claims": claim, "Commits": commit_runs}.items():
        yield Row(
            f"{name}Throttled",
            function.metric_throttles(period=FIVE_MINUTES, statistic="Sum"),
            "For a quarter of an hour the function has been throttled: the account's"
            " concurrency is too small, or something else uses it up. Events and agents wait; no"
            " event is lost.",
            periods=3,
            section="CommitsThrottled",
        )


def of_table(table: dynamodb.ITable) -> Iterator[Row]:
    """The table's own throttling."""
    for name in ("Read", "Write"):
        yield Row(
            f"Catalog{name}sThrottled",
            throttled(table, f"{name}ThrottleEvents"),
            f"For a quarter of an hour DynamoDB has throttled {name.lower()}s of the table: commits"
            " are tried again and are late.",
            periods=3,
            section="CatalogThrottled",
        )


def of_deletions(missed_tombstones: sqs.IQueue, tombstone: lambda_.IFunction) -> Iterator[Row]:
    """Streams that were deleted, and nothing happens."""
    yield Row(
        "TombstonesMissed",
        waiting(missed_tombstones),
        "Streams were marked as deleted, but the workflow that deletes their objects"
        " could not be started. Mend the cause in the log of the function tombstone, then give"
        " `coldstream delete STREAM` for each that `coldstream streams` shows as deleting.",
    )
    yield Row(
        "DeletionsLate",
        behind(tombstone),
        "The function tombstone is an hour behind the table's stream, which keeps a day: it fails,"
        " or is throttled. Its log says why.",
        threshold=_DELETIONS_LATE_MS,
    )


def of_streams(scope: IConstruct, looked_at_minutes: Mapping[str, int]) -> Iterator[Row]:
    """Streams that a workflow leaves undone, run after run; one row for each workflow.

    A period must have a run that looks at the stream, so it is twice as long as the time between
    two of them: a schedule drifts, and a run may be long. Where that is more than a day, one
    failure is told.

    Args:
        scope: in the stack.
        looked_at_minutes: by the workflow's name, how often it looks at one stream, at least.
    """
    for name, minutes in looked_at_minutes.items():
        period = min(_DAY, max(5, 2 * minutes))
        yield Row(
            f"{name.capitalize()}StreamsFailed",
            own(scope, deployment.METRIC_STREAMS_FAILED, workflow=name).with_(
                period=Duration.minutes(period)
            ),
            f"Runs of the workflow {name} leave streams undone. The log of the function {name} or"
            " scan names the stream, the offset and the key.",
            periods=2 if 2 * minutes <= _DAY else 1,
            section="StreamsFailed",
        )


def of_schedules(
    machines: Mapping[str, sfn.IStateMachine], every_minutes: Mapping[str, int]
) -> Iterator[Row]:
    """One for each schedule: a machine that is never started fails never.

    `infra.config` sees to it that an alarm can look back far enough.
    """
    for name, minutes in every_minutes.items():
        period, periods = _three_rounds(minutes)
        yield Row(
            f"{name.capitalize()}Missing",
            machines[name].metric_succeeded(period=Duration.minutes(period), statistic="Sum"),
            f"The state machine {name} has not succeeded for three times as long as it should take"
            " to come round, or for a week. Is its schedule enabled? Do its executions fail? After"
            " the first deployment this is red until the first run has ended.",
            periods=periods,
            too_few=True,
            section="Missing",
        )


def of_jobs(scope: IConstruct, every_minutes: Mapping[str, int]) -> Iterator[Row]:
    """One for each Glue job that a schedule starts: the seconds that a run reports at its end.

    Of what comes less often than an alarm looks back, none can tell that it does not come.
    """
    for name, minutes in every_minutes.items():
        if not 0 < minutes <= LONGEST_INTERVAL_MINUTES:
            continue
        period, periods = _three_rounds(minutes)
        yield Row(
            f"{name.capitalize()}JobMissing",
            own(scope, deployment.METRIC_JOB_SECONDS, job=name).with_(
                period=Duration.minutes(period), statistic="SampleCount"
            ),
            f"The Glue job {name} has not ended a run for three times as long as it should take to"
            " come round, or for a week. Is its schedule enabled? What do its runs in the console"
            " say?",
            periods=periods,
            too_few=True,
            section="Missing",
        )


def _in_a_row(minutes: int, period: int) -> int:
    """How many periods are so many minutes, at least."""
    return -(-minutes // period)


def _three_rounds(minutes: int) -> tuple[int, int]:
    """(length of a period in minutes, how many) for three rounds of what comes round in `minutes`.

    As far as an alarm can look back: a week has one round at least.
    """
    # Between a quarter of an hour and an hour three periods are below a day: both limits hold.
    period = min(_DAY, max(_SHORTEST_WATCHED, minutes))
    return period, min(_LONGEST // period, _in_a_row(3 * max(_SHORTEST_WATCHED, minutes), period))
