"""The scheduler -> here: complete the runs of every stream, for events that never came."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream import names
from coldstream.usecases.reconcile import Failure, reconcile
from functions._runtime import logger, metrics, pause, tracer, world


@logger.inject_lambda_context
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with what was brought forward and what could not be."""
    streams = fragments = refused = 0
    failures = []
    for result in reconcile(world(), pause=pause):
        streams += 1
        if isinstance(result, Failure):
            failures.append(result.stream)
            logger.error(
                str(result.error),
                kind=result.error.kind,
                stream=result.stream,
                offset=result.error.offset,
                key=result.error.key,
            )
            continue
        fragments += result.fragments
        refused += len(result.refused)
        for error in result.refused:
            logger.error(str(error), stream=error.stream, offset=error.offset, key=error.key)
    metrics.add_metric(
        name=names.METRIC_FRAGMENTS_COMMITTED, unit=MetricUnit.Count, value=fragments
    )
    metrics.add_metric(name=names.METRIC_FRAGMENTS_REFUSED, unit=MetricUnit.Count, value=refused)
    return {"streams": streams, "fragments": fragments, "refused": refused, "failed": failures}
