"""Step of the consolidate machine: make few fragments out of many small ones."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream import deployment
from coldstream.clock import pause
from coldstream.plans.policy import effective
from coldstream.usecases.consolidate import consolidate
from functions._runtime import logger, metrics, remote, setting, tell, time_left, tracer
from functions._steps import Totals, answer, composer, over_streams, policies, report


@logger.inject_lambda_context
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with the work that is left and with what was joined."""
    totals = Totals()
    rules = policies()
    in_time = time_left(context)

    def act(item: dict[str, Any]) -> dict[str, Any] | None:
        stream = item["stream"]
        known = remote().catalog.get(stream)
        if known is not None and not effective(rules, stream, known.name).consolidate:
            totals["switched_off"] += 1
            return None
        done = consolidate(
            remote(),
            composer(),
            stream,
            target_size=setting(deployment.ENV_FRAGMENT_SIZE),
            branching=setting(deployment.ENV_BRANCHING),
            pause=pause,
            cursor=int(item.get("cursor", 0)),
            dry_run=bool(event.get("dry_run")),
            time_left=in_time,
            read_whole=setting(deployment.ENV_READ_WHOLE),
        )
        for error in done.failed:
            tell(error)
        totals["damaged"] += len(done.failed)
        totals["merges"] += done.merges
        totals["fragments"] += done.pieces
        totals["bytes"] += done.bytes
        totals["copied"] += done.copied
        totals["landed"] += done.commits
        totals["conflicts"] += done.conflicts
        return None if done.cursor is None else {"stream": stream, "cursor": done.cursor}

    left = over_streams(event, totals, in_time, act)
    took = bool(totals["landed"])
    report(
        "consolidate",
        {
            deployment.METRIC_FRAGMENTS_CONSOLIDATED: totals["fragments"] if took else 0,
            deployment.METRIC_BYTES_CONSOLIDATED: totals["bytes"] if took else 0,
            deployment.METRIC_CONFLICTS: totals["conflicts"],
        },
        failed=totals["failed"],
    )
    return answer(event, left, totals)
