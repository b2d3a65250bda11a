"""First step of a machine that goes over all streams: one page of those worth a look."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream import names
from coldstream.usecases.survey import Surveyed, survey
from functions._runtime import logger, now_ms, setting, tell, tracer, world
from functions._steps import policies, work_items


@logger.inject_lambda_context
@tracer.capture_lambda_handler(capture_response=False)
def handler(event: dict[str, Any], _: LambdaContext) -> dict[str, Any]:
    """Answer with work items, and with the cursor of the next page."""
    if event.get("work"):  # somebody has said which
        return {"work": work_items(event), "cursor": None, "more": False}
    page = survey(
        world(),
        Surveyed(event["workflow"]),
        policies(),
        now_ms=now_ms(),
        target_size=setting(names.ENV_FRAGMENT_SIZE),
        cursor=event.get("cursor"),
        mark=True,
    )
    for error in page.damaged:
        tell(error)
    logger.info("surveyed", workflow=event["workflow"], seen=page.seen, wanted=len(page.streams))
    return {
        "work": [{"stream": stream} for stream in page.streams],
        "cursor": page.cursor,
        "more": page.cursor is not None,
    }
