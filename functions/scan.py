"""First step of a machine that goes over all streams: one page of those worth a look."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream import deployment
from coldstream.clock import now_ms
from coldstream.errors import InvalidInputError
from coldstream.plans.turns import SEARCH_ROUNDS, is_in_turn
from coldstream.usecases.scan import ScanFor, ScanPage, scan, several
from functions._heartbeats import tell_heartbeats
from functions._runtime import (
    count_for,
    logger,
    metrics,
    remote,
    setting,
    tell,
    time_left,
    tracer,
)
from functions._steps import check_given, policies, work_items

_MINUTE_MS = 60_000
_TOLD = 20  # streams that a line of the log names


@logger.inject_lambda_context
@tracer.capture_lambda_handler(capture_response=False)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer with work items, with the cursor of the next page, and with how to do them."""
    given = check_given(_given(event), "work", "dry_run", "reason")
    failed = _sum(event.get("failed", 0))
    how = {"dry_run": given.get("dry_run", False), "reason": given.get("reason", "")}
    workflow = ScanFor(event["workflow"])
    if workflow is ScanFor.RECONCILE and how["dry_run"]:
        raise InvalidInputError("reconcile has no dry run here: coldstream reconcile --dry-run")
    if "work" in given:  # the caller has named them
        return {"work": work_items(given), "cursor": None, "more": False, "failed": failed, **how}
    if workflow is ScanFor.RECONCILE and not event.get("cursor"):
        tell_heartbeats()
    rules, in_time = policies(), time_left(context)
    scheduled = how["reason"] == deployment.REASON_SCHEDULE
    in_turn, look = _turn(scheduled), _turn(scheduled, SEARCH_ROUNDS)("")
    page = several(
        lambda cursor: scan(
            remote(),
            workflow,
            rules,
            now_ms=now_ms(),
            target_size=setting(deployment.ENV_FRAGMENT_SIZE),
            grace_ms=1000 * setting(deployment.ENV_GRACE_SECONDS),
            cursor=cursor,
            mark=True,
            look=look,
            in_turn=in_turn,
            time_left=in_time,
        ),
        event.get("cursor"),
        time_left=in_time,
    )
    for error in page.damaged:
        tell(error)
    if page.damaged:
        # No step ever sees these: nobody else says that the run leaves them undone.
        count_for(workflow, deployment.METRIC_STREAMS_FAILED, len(page.damaged))
    if page.foreign:
        logger.warning(
            "objects that lie where a stream's directory should be: passed over",
            objects=page.foreign,
            keys=[ascii(key) for key in page.foreign_keys],
        )
    if page.lost:
        _tell_lost(page)
    logger.info("scanned", workflow=event["workflow"], seen=page.seen, wanted=len(page.streams))
    return {
        "work": [{"stream": stream} for stream in page.streams],
        "cursor": page.cursor,
        "more": page.cursor is not None,
        "failed": failed + len(page.damaged),
        **how,
    }


def _given(event: dict[str, Any]) -> Any:
    """What the machine was given; one that an older release has begun hands it on in pieces."""
    if "given" in event:
        return event["given"]
    return {key: event[key] for key in ("work", "reason") if event.get(key)}


def _tell_lost(page: ScanPage) -> None:
    """Streams without an item: they are among the work, and adopted, but somebody lost them."""
    logger.warning(
        "the bucket has streams that the table lacks: their items were lost",
        streams=list(page.streams[-page.lost :][:_TOLD]),
        count=page.lost,
    )
    # Metrics cost money: this one is reported only where there is something to say.
    metrics.add_metric(
        name=deployment.METRIC_STREAMS_WITHOUT_ITEM, unit=MetricUnit.Count, value=page.lost
    )
    metrics.flush_metrics()


def _turn(scheduled: bool, rounds: int = 1) -> Callable[[str], bool]:
    """Which idle streams are looked at: all of them where a person has started the run.

    In a number of rounds each is looked at once.
    """
    if not scheduled:
        return lambda _: True
    return partial(
        is_in_turn,
        now_ms=now_ms(),
        every_ms=setting(deployment.ENV_RECONCILE_MINUTES) * _MINUTE_MS,
        idle_ms=rounds * setting(deployment.ENV_RECONCILE_IDLE_MINUTES) * _MINUTE_MS,
    )


def _sum(failed: Any) -> int:
    """Of how many streams the pages before this one said that they failed.

    The machine cannot add up what a page's batches said, so it hands a list of that on, and each
    scan makes a number of it again: else it would be a list in a list for every page.
    """
    return sum(map(_sum, failed)) if isinstance(failed, list) else int(failed)
