"""Step of the erase machine: delete what still has erased messages, with all versions."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream import deployment
from coldstream.clock import pause
from coldstream.usecases.purge import Progress, PurgeState, purge
from functions._runtime import logger, metrics, remote, setting, time_left, tracer
from functions._steps import check_given, only_item, policies, report, version_deleter

_OF_ITEM = ("stream", *(each.name for each in fields(Progress)), "versions", "bytes")


@logger.inject_lambda_context
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with what comes next, with the work item for it, and with what was deleted so far."""
    item = only_item(check_given(event, "work", "reason", of_item=_OF_ITEM))
    stream, progress = item["stream"], _progress(item)
    tier = remote()
    # Half of a grace time is longer than any process holds what it has written for a root.
    hold_ms = min(tier.hold_ms, 500 * setting(deployment.ENV_GRACE_SECONDS))
    done = purge(
        replace(tier, hold_ms=hold_ms),
        version_deleter(),
        stream,
        policies(),
        progress=progress,
        pause=pause,
        time_left=time_left(context),
    )
    report(
        "erase",
        {
            deployment.METRIC_VERSIONS_ERASED: done.versions,
            deployment.METRIC_BYTES_ERASED: done.bytes,
        },
    )
    for key, why in done.kept.items():
        logger.warning("not erased", stream=stream, key=key, why=why)
    versions = int(item.get("versions", 0)) + done.versions
    size = int(item.get("bytes", 0)) + done.bytes
    following = {"stream": stream, **asdict(done.progress), "versions": versions, "bytes": size}
    return {
        "left": [] if done.state is PurgeState.DONE else [following],
        "state": str(done.state),
        "versions": versions,
        "bytes": size,
        "kept": done.kept,
    }


def _progress(item: dict[str, Any]) -> Progress:
    """How far the steps before have come; the first one finds nothing of it in its input."""
    key, version = item.get("after") or ("", "")
    return Progress(
        after=(str(key), str(version)),
        found=bool(item.get("found", False)),
        empty=int(item.get("empty", 0)),
        passes=int(item.get("passes", 0)),
    )
