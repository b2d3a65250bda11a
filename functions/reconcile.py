"""Step of the reconcile machine: complete the runs of streams whose events never came."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream import deployment
from coldstream.clock import now_ms, pause
from coldstream.errors import ConflictError
from coldstream.plans.delete import is_overdue, reason_again
from coldstream.usecases.reconcile import reconcile
from functions._holes import hole_metrics, tell_holes
from functions._rebalances import start_rebalance
from functions._runtime import logger, metrics, remote, setting, tell, time_left, tracer
from functions._starts import start_delete
from functions._steps import Totals, answer, over_streams, report


@logger.inject_lambda_context
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with the work that is left and with what was brought forward."""
    totals = Totals()
    holes: list[tuple[int, int]] = []
    in_time = time_left(context)

    def act(item: dict[str, Any]) -> dict[str, Any] | None:
        try:
            healed = reconcile(remote(), item["stream"], pause=pause, time_left=in_time)
        except ConflictError:
            if not _delete_again(item["stream"], totals):
                raise
            return None
        if healed.adopted:
            logger.warning("adopted the bucket's newest root", extra={"stream": item["stream"]})
        totals["adopted"] += healed.adopted
        done = healed.commits
        for error in done.refused:
            tell(error)
        totals["fragments"] += done.fragments
        totals["bytes"] += done.bytes
        totals["refused"] += len(done.refused)
        tell_holes(done)
        holes.extend(done.holes)
        start_rebalance(done)
        return item if done.more else None

    left = over_streams(event, totals, in_time, act)
    report(
        "reconcile",
        {
            deployment.METRIC_FRAGMENTS_COMMITTED: totals["fragments"],
            deployment.METRIC_BYTES_COMMITTED: totals["bytes"],
            deployment.METRIC_FRAGMENTS_REFUSED: totals["refused"],
            **hole_metrics(holes),
        },
        failed=totals["failed"],
    )
    return answer(event, left, totals)


def _grace_ms() -> int:
    return 1000 * setting(deployment.ENV_GRACE_SECONDS)


def _delete_again(stream: str, totals: Totals) -> bool:
    """Whether the stream is a tombstone long past its undelete time; then start its machine again.

    That has failed, for example because of a legal hold that was released since, or it was never
    started.
    """
    item, now = remote().catalog.get(stream), now_ms()
    if item is None or not is_overdue(item, now_ms=now, grace_ms=_grace_ms()):
        return False
    totals["deletions_again"] += start_delete(
        item, reason_again(item, now_ms=now), "its machine had ended"
    )
    return True
