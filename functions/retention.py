"""Step of the retention machine: move first offsets forward as the rules ask."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream import deployment
from coldstream.clock import now_ms, pause
from coldstream.usecases.retention import retain
from functions._runtime import logger, metrics, remote, time_left, tracer
from functions._steps import Totals, answer, over_streams, policies, report


@logger.inject_lambda_context
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with the work that is left and with what went."""
    totals = Totals()

    def act(item: dict[str, Any]) -> None:
        done = retain(
            remote(),
            item["stream"],
            policies(),  # for each stream anew: a hold must work at once
            now_ms=now_ms(),
            pause=pause,
            dry_run=bool(event.get("dry_run")),
        )
        for each in done.ranges:
            logger.info(
                "retired" if done.landed else "would retire",
                stream=done.stream,
                offset=each.first_offset,
                next_offset=each.next_offset,
                bytes=each.size,
                reason=each.reason,
                rule=done.effective.retention_rule,
            )
        if done.effective.unsure:
            logger.warning(
                "kept: nobody has recorded the queue's name, and rules ask for it",
                stream=done.stream,
                rules=[*done.effective.unsure_holds, *done.effective.unsure_rules],
            )
        totals["held"] += done.effective.hold
        totals["unnamed"] += done.effective.unsure
        totals["landed"] += done.landed
        totals["conflicts"] += done.conflicts
        totals["fragments"] += sum(each.fragments for each in done.ranges)
        totals["bytes"] += done.size

    left = over_streams(event, totals, time_left(context), act)
    took = bool(totals["landed"])
    report(
        "retention",
        {
            deployment.METRIC_FRAGMENTS_RETIRED: totals["fragments"] if took else 0,
            deployment.METRIC_BYTES_RETIRED: totals["bytes"] if took else 0,
            deployment.METRIC_CONFLICTS: totals["conflicts"],
            deployment.METRIC_STREAMS_UNNAMED: totals["unnamed"],
        },
        failed=totals["failed"],
    )
    return answer(event, left, totals)
