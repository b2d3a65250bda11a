"""Step of the delete machine: sweep the prefix of a stream whose undelete time is over."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream import deployment
from coldstream.clock import now_ms
from coldstream.usecases.delete_stream import SweepState, sweep
from functions._runtime import logger, metrics, remote, time_left, tracer
from functions._steps import Totals, check_given, deleter, only_item, policies_and_revision, report

_OF_ITEM = ("stream", "revision", "empty")


@logger.inject_lambda_context
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with what comes next, and with the work item for it."""
    totals = Totals()
    item = only_item(check_given(event, "work", "undelete_until", "reason", of_item=_OF_ITEM))
    rules, rules_revision = policies_and_revision()
    done = sweep(
        remote(),
        deleter(),
        item["stream"],
        rules,
        revision=int(item["revision"]),
        empty=int(item.get("empty", 0)),
        now_ms=now_ms(),
        time_left=time_left(context),
        rules_revision=rules_revision,
    )
    totals["objects"] += done.objects
    totals["bytes"] += done.bytes
    report(
        "delete",
        {
            deployment.METRIC_STREAMS_SWEPT: int(done.state is SweepState.DONE),
            deployment.METRIC_OBJECTS_SWEPT: done.objects,
            deployment.METRIC_BYTES_SWEPT: done.bytes,
        },
    )
    over = done.state in (SweepState.DONE, SweepState.CALLED_OFF)
    left = [] if over else [{**item, "empty": done.empty}]
    return {"left": left, "state": str(done.state), **totals}
