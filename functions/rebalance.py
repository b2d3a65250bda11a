"""Step of the rebalance machine: shorten the roots of the streams it is given."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream import deployment
from coldstream.clock import pause
from coldstream.usecases.rebalance import rebalance
from functions._runtime import logger, metrics, remote, setting, time_left, tracer
from functions._steps import Totals, answer, check_given, over_streams, report


@logger.inject_lambda_context
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with the work that is left and with what was grouped."""
    check_given(event, "work", "dry_run", "reason", own="failed")
    totals = Totals()

    def act(item: dict[str, Any]) -> None:
        done = rebalance(
            remote(),
            item["stream"],
            branching=setting(deployment.ENV_BRANCHING),
            pause=pause,
            dry_run=bool(event.get("dry_run")),
        )
        totals["groups"] += sum(done.groups.values())
        totals["landed"] += done.landed
        totals["conflicts"] += done.conflicts

    left = over_streams(event, totals, time_left(context), act)
    report(
        "rebalance",
        {
            deployment.METRIC_REBALANCES: totals["landed"],
            deployment.METRIC_GROUPS_WRITTEN: totals["groups"] if totals["landed"] else 0,
            deployment.METRIC_CONFLICTS: totals["conflicts"],
        },
        failed=totals["failed"],
    )
    return answer(event, left, totals)
