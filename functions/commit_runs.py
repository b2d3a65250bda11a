"""S3 -> SQS -> here: bring forward the manifests of the streams that a batch of messages names."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream import deployment
from coldstream.adapters.sqs import QueueCommitRequests
from coldstream.clock import pause
from coldstream.errors import RefusedFragmentError
from coldstream.usecases.handle_events import handle_messages
from functions._holes import hole_metrics, tell_holes
from functions._rebalances import start_rebalance
from functions._runtime import aws_client, logger, metrics, remote, tell, time_left, tracer


@cache
def _requests() -> QueueCommitRequests:
    return QueueCommitRequests(
        client=aws_client("sqs"), queue_url=os.environ[deployment.ENV_QUEUE_URL]
    )


@logger.inject_lambda_context
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with the messages that failed; SQS delivers those again, and only those."""
    batch = handle_messages(
        remote(),
        ((each["messageId"], each["body"]) for each in event["Records"]),
        pause=pause,
        time_left=time_left(context),
        requests=_requests(),
    )
    for report in batch.reports:
        logger.info(
            "committed" if report.commits else "nothing to commit",
            stream=report.stream,
            version=report.version,
            next_offset=report.next_offset,
            fragments=report.fragments,
            bytes=report.bytes,
            conflicts=report.conflicts,
        )
        tell_holes(report)
        for refused in report.refused:
            tell(refused)
        start_rebalance(report)
    for message_id, error in batch.failed.items():
        if not isinstance(error, RefusedFragmentError):
            tell(error, message_id=message_id)
    totals = {
        deployment.METRIC_COMMITS: sum(report.commits for report in batch.reports),
        deployment.METRIC_CONFLICTS: sum(report.conflicts for report in batch.reports),
        deployment.METRIC_FRAGMENTS_COMMITTED: sum(report.fragments for report in batch.reports),
        deployment.METRIC_BYTES_COMMITTED: sum(report.bytes for report in batch.reports),
        deployment.METRIC_FRAGMENTS_REFUSED: sum(len(report.refused) for report in batch.reports),
        deployment.METRIC_EVENTS_REFUSED: len(batch.failed),
        **hole_metrics([hole for report in batch.reports for hole in report.holes]),
    }
    for name, value in totals.items():
        unit = MetricUnit.Bytes if name == deployment.METRIC_BYTES_COMMITTED else MetricUnit.Count
        metrics.add_metric(name=name, unit=unit, value=value)
    return {"batchItemFailures": [{"itemIdentifier": each} for each in batch.failed]}
