"""Step of the collect machine: find garbage, prove it twice, delete it."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream import names
from coldstream.errors import NotFoundError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.plans.policy import effective
from coldstream.usecases.collect import Collection, collect, sweep_stragglers
from functions._runtime import logger, metrics, now_ms, setting, tell, time_left, tracer, world
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
        known = world().catalog.get(stream)
        if known is None:
            raise NotFoundError("the catalog does not know this stream", stream=stream)
        if known.state is StreamState.DELETED:
            _count(sweep_stragglers(world(), deleter(), stream, dry_run=dry_run), totals)
            return None
        run_ms = int(item.get("run_ms", now_ms()))
        # The other half of the time is for the deletes.
        half_ms = context.get_remaining_time_in_millis() // 2
        done = collect(
            world(),
            deleter(),
            stream,
            grace_ms=1000 * setting(names.ENV_GRACE_SECONDS),
            run_ms=run_ms,
            now_ms=now_ms(),
            cursor=item.get("cursor"),
            dry_run=dry_run,
            time_left=in_time,
            time_to_list=lambda: in_time() and context.get_remaining_time_in_millis() > half_ms,
            held=held,
        )
        _count(done, totals)
        if done.trouble is not None:
            totals["failed"] += 1
            tell(done.trouble)
        if done.cursor is None:
            return None
        return {"stream": stream, "cursor": done.cursor, "run_ms": run_ms}

    left = over_streams(event, totals, in_time, act)
    report(
        "collect",
        {
            names.METRIC_GARBAGE_OBJECTS: totals["garbage"],
            names.METRIC_GARBAGE_BYTES: totals["garbage_bytes"],
            names.METRIC_GARBAGE_DELETED: totals["deleted"],
            names.METRIC_DELETES_REFUSED: totals["refused"],
            names.METRIC_STREAMS_FAILED: totals["failed"],
        },
    )
    return answer(event, left, totals)


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
    for key in (*done.unique, *done.foreign):
        logger.warning("kept for a person to look at", stream=done.stream, key=key)
