"""One page to look at: rows of graphs, the alarms above them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from coldstream import deployment
from infra.commit import CommitQueue
from infra.metrics import MINUTE, most, oldest, own, waiting


@dataclass(frozen=True, slots=True)
class _Graph:
    """A graph of metrics that the handlers and the jobs report.

    Attributes:
        title: above it.
        sums: metrics whose values are added up.
        most: metrics of which the largest value counts; drawn before `sums`.
    """

    title: str
    sums: tuple[str, ...] = ()
    most: tuple[str, ...] = ()


#: What the agents say, what workflows and jobs do; each row has its graphs side by side.
_WORK = (
    (
        _Graph(
            "Agents: silent, troubled, about to lose data",
            most=(
                deployment.METRIC_AGENTS,
                deployment.METRIC_AGENTS_SILENT,
                deployment.METRIC_AGENTS_TROUBLED,
                deployment.METRIC_AGENTS_RACING,
            ),
        ),
        _Graph("Agents: streams behind", most=(deployment.METRIC_STREAMS_BEHIND,)),
        _Graph("Agents: seconds behind", most=(deployment.METRIC_AGENTS_LAG,)),
    ),
    (
        _Graph("Rebalance", (deployment.METRIC_REBALANCES, deployment.METRIC_GROUPS_WRITTEN)),
        _Graph("Consolidation: fragments", (deployment.METRIC_FRAGMENTS_CONSOLIDATED,)),
    ),
    (
        _Graph("Retention: fragments retired", (deployment.METRIC_FRAGMENTS_RETIRED,)),
        _Graph("Retention: bytes retired", (deployment.METRIC_BYTES_RETIRED,)),
    ),
    (
        _Graph(
            "Garbage: objects seen and deleted",
            (deployment.METRIC_GARBAGE_OBJECTS, deployment.METRIC_GARBAGE_DELETED),
        ),
        _Graph("Garbage: bytes", (deployment.METRIC_GARBAGE_BYTES,)),
    ),
    (
        _Graph(
            "Deleted streams", (deployment.METRIC_STREAMS_SWEPT, deployment.METRIC_OBJECTS_SWEPT)
        ),
        _Graph("Deleted streams: bytes", (deployment.METRIC_BYTES_SWEPT,)),
    ),
    (
        _Graph("Tables: rows added", (deployment.METRIC_ROWS_MATERIALISED,)),
        _Graph(
            "Tables: seconds behind, dead letters",
            (deployment.METRIC_DEAD_LETTER_ROWS,),
            most=(deployment.METRIC_MATERIALISE_LAG,),
        ),
    ),
    (
        _Graph("Scrubbed: bytes", (deployment.METRIC_BYTES_SCRUBBED,)),
        _Graph("Scrubbed: findings", (deployment.METRIC_SCRUB_FINDINGS,)),
    ),
    (
        _Graph(
            "Fleet: bytes of all streams, of objects without reference",
            most=(deployment.METRIC_STREAM_BYTES, deployment.METRIC_ORPHAN_BYTES),
        ),
        _Graph("Fleet: streams, holes", most=(deployment.METRIC_STREAMS, deployment.METRIC_HOLES)),
    ),
)


def dashboard(
    scope: Construct,
    *,
    alarms: Sequence[cloudwatch.Alarm],
    commit_queue: CommitQueue,
    commit_runs: lambda_.IFunction,
    machines: Mapping[str, sfn.IStateMachine],
) -> str:
    """Make the page; its name.

    Args:
        scope: where it belongs.
        alarms: shown first.
        commit_queue: between uploads and commits.
        commit_runs: the function that commits.
        machines: the state machines by their workflow's name.
    """
    # The machines of the others fail instead.
    failing = [name for name in machines if name not in ("delete", "erase")]
    jobs = [
        most(scope, deployment.METRIC_JOB_SECONDS, **{deployment.METRIC_DIMENSION_JOB: n})
        for n in deployment.JOBS
    ]
    page = cloudwatch.Dashboard(
        scope,
        "Dashboard",
        dashboard_name=Stack.of(scope).stack_name,
        widgets=[
            [cloudwatch.AlarmStatusWidget(title="Alarms", alarms=list(alarms), width=24)],
            *_commits(scope, commit_queue, commit_runs),
            [
                _widget(
                    "Workflows that succeeded",
                    *(_total(each.metric_succeeded(label=n)) for n, each in machines.items()),
                ),
                _widget(
                    "Workflows: streams and steps given up",
                    own(scope, deployment.METRIC_WORKFLOW_FAILURES),
                    *(
                        own(scope, deployment.METRIC_STREAMS_FAILED, workflow=each)
                        for each in failing
                    ),
                ),
            ],
            *([_drawn(scope, graph) for graph in row] for row in _WORK),
            [_widget("Glue jobs: seconds", *jobs)],
        ],
    )
    return page.dashboard_name


def _commits(
    scope: Construct, commit_queue: CommitQueue, commit_runs: lambda_.IFunction
) -> list[list[cloudwatch.IWidget]]:
    """From an event to the commit: the rows for what every deployment does all the time."""
    queue = commit_queue.queue
    return [
        [
            _widget("Bytes committed", own(scope, deployment.METRIC_BYTES_COMMITTED)),
            _widget(
                "Commits and fragments",
                own(scope, deployment.METRIC_COMMITS),
                own(scope, deployment.METRIC_CONFLICTS),
                own(scope, deployment.METRIC_FRAGMENTS_COMMITTED),
            ),
        ],
        [
            _widget(
                "Refused",
                own(scope, deployment.METRIC_FRAGMENTS_REFUSED),
                own(scope, deployment.METRIC_EVENTS_REFUSED),
                waiting(commit_queue.dead_letters),
            ),
            _widget("Events waiting: oldest, seconds", oldest(queue)),
        ],
        [
            _widget(
                "Events",
                _total(queue.metric_number_of_messages_sent()),
                _total(queue.metric_number_of_messages_deleted()),
            ),
            _widget(
                "Functions",
                _total(commit_runs.metric_invocations(label="commit_runs")),
                _total(commit_runs.metric_errors(label="commit_runs errors")),
            ),
        ],
    ]


def _drawn(scope: Construct, graph: _Graph) -> cloudwatch.IWidget:
    largest = (most(scope, name) for name in graph.most)
    return _widget(graph.title, *largest, *(own(scope, name) for name in graph.sums))


def _widget(title: str, *metrics: cloudwatch.IMetric) -> cloudwatch.IWidget:
    return cloudwatch.GraphWidget(title=title, left=list(metrics), width=12)


def _total(metric: cloudwatch.Metric) -> cloudwatch.Metric:
    return metric.with_(period=MINUTE, statistic="Sum")
