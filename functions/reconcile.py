"""The scheduler -> here: complete the runs of every stream, for events that never came."""

from __future__ import annotations

import secrets
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream import names
from coldstream.usecases.reconcile import Failure, reconcile
from functions._runtime import logger, metrics, pause, tell, time_left, tracer, world


@logger.inject_lambda_context
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with what was brought forward and what could not be."""
    streams = fragments = refused = 0
    failures = []
    results = reconcile(
        world(), pause=pause, time_left=time_left(context), begin=secrets.randbelow(1000) / 1000
    )
    for result in results:
        streams += 1
        if isinstance(result, Failure):
            failures.append(result.stream)
            tell(result.error.located(stream=result.stream))
            continue
        fragments += result.fragments
        refused += len(result.refused)
        for error in result.refused:
            tell(error)
    metrics.add_metric(
        name=names.METRIC_FRAGMENTS_COMMITTED, unit=MetricUnit.Count, value=fragments
    )
    metrics.add_metric(name=names.METRIC_FRAGMENTS_REFUSED, unit=MetricUnit.Count, value=refused)
    return {"streams": streams, "fragments": fragments, "refused": refused, "failed": failures}
