"""An agent -> here: claim a stream, commit what follows it, declare what is lost."""

from __future__ import annotations

import os
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream import deployment
from coldstream.clock import now_ms, pause
from coldstream.errors import ConflictError, UnavailableError
from coldstream.usecases.claim import Claimed
from coldstream.usecases.claim_function import answer
from functions._holes import hole_metrics, tell_holes
from functions._rebalances import start_rebalance
from functions._runtime import logger, metrics, remote, tell, time_left, tracer


@logger.inject_lambda_context
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def handler(event: Any, context: LambdaContext) -> dict[str, Any]:
    """Answer with a JSON object; see coldstream.plans.agent_requests."""
    answered = answer(
        remote(),
        event,
        pause=pause,
        now_ms=now_ms(),
        time_left=time_left(context),
        cluster=os.environ[deployment.ENV_CLUSTER],
    )
    if answered.misfit is not None:
        logger.warning(
            "no broker gives this directory to a queue of this name, so it is left out",
            stream=answered.stream,
            vhost=answered.misfit.vhost,
            queue=answered.misfit.queue,
        )
    if answered.error is not None:
        # Conflicts and what is only unavailable are for the agent, which tries again.
        if not isinstance(answered.error, ConflictError | UnavailableError):
            tell(answered.error)
        logger.info("not done", stream=answered.stream, error=str(answered.error))
    report = answered.report
    if report is not None:
        tell_holes(report)
        for refused in report.refused:
            tell(refused)
        start_rebalance(report)
    for key in answered.declared:
        logger.warning("an agent declares offsets lost", stream=answered.stream, key=key)
    totals = {
        deployment.METRIC_CLAIMS: int(answered.claimed is not None and answered.claimed.new),
        deployment.METRIC_CLAIMS_THAT_CUT: _tell_claim(answered.stream, answered.claimed),
        deployment.METRIC_COMMITS: report.commits if report else 0,
        deployment.METRIC_FRAGMENTS_COMMITTED: report.fragments if report else 0,
        deployment.METRIC_FRAGMENTS_REFUSED: len(report.refused) if report else 0,
        **hole_metrics([*report.holes] if report else []),
    }
    for name, value in totals.items():
        metrics.add_metric(name=name, unit=MetricUnit.Count, value=value)
    return answered.row


def _tell_claim(stream: str, claimed: Claimed | None) -> int:
    """Log a new claim, with what it has cut off; whether it has cut anything off."""
    if claimed is None or not claimed.new:
        return 0
    item, cut = claimed.loaded.item, claimed.truncated
    logger.info("claimed", stream=stream, epoch=item.epoch, next_offset=item.next_offset)
    if cut is None:
        return 0
    logger.warning(
        "a claim has cut off what its log does not have; it is in the quarantine",
        stream=stream,
        epoch=cut.epoch,
        offset=cut.offset,
        old_next_offset=cut.old_next_offset,
        bytes=cut.bytes,
        record_key=cut.record_key,
    )
    return 1
