"""The catalog's DynamoDB stream -> here: start the delete machine for every new tombstone."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream.adapters.dynamodb_item import parse_item
from coldstream.manifest.catalog import StreamState
from coldstream.plans.delete import reason
from functions._runtime import logger, remote, tracer
from functions._starts import start_delete


@logger.inject_lambda_context
@tracer.capture_lambda_handler(capture_response=False)
def handler(event: dict[str, Any], _: LambdaContext) -> None:
    """Start what is to be started; an error sends the batch round again, in halves."""
    for record in event["Records"]:
        item = parse_item(record["dynamodb"]["NewImage"], prefix=remote().prefix)
        if item.state is not StreamState.DELETING:
            continue
        start_delete(item, reason(item), "deleted")
