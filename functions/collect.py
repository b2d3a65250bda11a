"""Step of the collect machine: find garbage, prove it twice, delete it."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream import deployment
from coldstream.clock import now_ms
from coldstream.errors import NotFoundError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.plans.policy import effective
from coldstream.usecases.collect import Collection, collect
from coldstream.usecases.stragglers import sweep_stragglers
from functions._runtime import logger, metrics, remote, setting, tell, time_left, tracer
from functions._steps import Totals, answer, deleter, over_streams, policies, report


@logger.inject_lambda_context
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with the work that is left and with what was found, by kind."""
    totals = Totals()
    in_time = time_left(context)
    dry_run = bool(event.get("dry_run"))

    def held(item: CatalogItem) -> bool:
        return effective(policies(), item.stream, item.name).may_be_held

    def act(item: dict[str, Any]) -> dict[str, Any] | None:
        stream = item["stream"]
        known = remote().catalog.get(stream)
        if known is None:
            raise NotFoundError("the catalog does not know this stream", stream=stream)
        run_ms = int(item.get("run_ms", now_ms()))
        grace_ms = 1000 * setting(deployment.ENV_GRACE_SECONDS)
        if known.state is StreamState.DELETED:
            swept = sweep_stragglers(
                remote(),
                deleter(),
                stream,
                grace_ms=grace_ms,
                run_ms=run_ms,
                now_ms=now_ms(),
                held=held,
                dry_run=dry_run,
                cursor=item.get("cursor"),
                time_left=in_time,
            )
            return _done(swept, {"stream": stream, "run_ms": run_ms}, totals)
        # The other half of the time is for the deletes.
        half_ms = context.get_remaining_time_in_millis() // 2
        done = collect(
            remote(),
            deleter(),
            stream,
            grace_ms=grace_ms,
            run_ms=run_ms,
            now_ms=now_ms(),
            cursor=item.get("cursor"),
            dry_run=dry_run,
            time_left=in_time,
            time_to_list=lambda: in_time() and context.get_remaining_time_in_millis() > half_ms,
            held=held,
        )
        return _done(done, {"stream": stream, "run_ms": run_ms}, totals)

    left = over_streams(event, totals, in_time, act)
    report(
        "collect",
        {
            deployment.METRIC_GARBAGE_OBJECTS: totals["garbage"],
            deployment.METRIC_GARBAGE_BYTES: totals["garbage_bytes"],
            deployment.METRIC_GARBAGE_DELETED: totals["deleted"],
            deployment.METRIC_DELETES_REFUSED: totals["refused"],
        },
        failed=totals["failed"],
    )
    return answer(event, left, totals)


def _done(done: Collection, item: dict[str, Any], totals: Totals) -> dict[str, Any] | None:
    """Count and tell what a step did; give what is left of the stream's work."""
    _count(done, totals)
    if done.trouble is not None:
        totals["failed"] += 1
        tell(done.trouble)
    if done.blind:
        logger.warning(
            "the roots that may be adopted are not known: only roots are collected",
            stream=done.stream,
        )
    logger.info(
        "collected",
        stream=done.stream,
        deleted=sum(each.objects for each in done.deleted.values()),
        waiting=done.waiting.objects,
        busy=done.busy.objects,
        goes_on_behind=None if done.cursor is None else ascii(done.cursor),
    )
    return None if done.cursor is None else {**item, "cursor": done.cursor}


def _count(done: Collection, totals: Totals) -> None:
    for kind, count in done.found.items():
        totals[f"found_{kind}"] += count.objects
        totals[f"found_{kind}_bytes"] += count.bytes
        if kind.garbage:
            totals["garbage"] += count.objects
            totals["garbage_bytes"] += count.bytes
    for count in done.deleted.values():
        totals["deleted"] += count.objects
        totals["deleted_bytes"] += count.bytes
    totals["waiting"] += done.waiting.objects
    totals["held"] += done.held.objects
    totals["refused"] += done.refused.objects
    totals["busy"] += done.busy.objects
    for key in (*done.unique, *done.foreign):
        logger.warning("kept for a person to look at", stream=done.stream, key=ascii(key)[1:-1])
