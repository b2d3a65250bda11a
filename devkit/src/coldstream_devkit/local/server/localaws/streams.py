"""DynamoDB streams and their event source: batches that fail, and servers that begin again."""

from __future__ import annotations

import copy
import time
from typing import Any

from .options import Options

# One thread of MiniStack's polls for all mappings, and a pause here is one of theirs, too.
_LONGEST_PAUSE = 0.3


def stream_retries(_: Options) -> None:
    """Give up a batch of stream records after the retries that its mapping allows.

    AWS: splits a failing batch in two with BisectBatchOnFunctionError, tries each part as often as
    MaximumRetryAttempts says, then reports it to the on-failure destination and goes on. MiniStack:
    tries the whole batch again for ever, and everything behind it waits. Mappings without a limit
    are left to it. Pauses are shorter here than AWS's.
    """
    from ministack.services import lambda_svc

    execute = lambda_svc._execute_function

    def execute_batch(function: dict[str, Any], event: Any, *more: Any, **named: Any) -> Any:
        mapping = _mapping(lambda_svc, function, event)
        tries = -1 if mapping is None else int(mapping.get("MaximumRetryAttempts", -1))
        if mapping is None or tries < 0:
            return execute(function, event, *more, **named)
        # CloudFormation may hand over text.
        bisects = str(mapping.get("BisectBatchOnFunctionError")).lower() == "true"

        def deliver(batch: list[dict[str, Any]], failures: int) -> Any:
            result = execute(function, {"Records": batch}, *more, **named)
            if not result.get("error"):
                return result
            if bisects and len(batch) > 1:
                middle = len(batch) // 2
                deliver(batch[:middle], 0)
                return deliver(batch[middle:], 0)
            if failures < tries:
                time.sleep(min(_LONGEST_PAUSE, 0.1 * 2**failures))
                return deliver(batch, failures + 1)
            lambda_svc._send_ddb_stream_failure_record(
                mapping, function, batch, mapping["EventSourceArn"], result, _EXHAUSTED
            )
            return {"body": None, "log": result.get("log", "")}

        return deliver(event["Records"], 0)

    lambda_svc._execute_function = execute_batch


def kept_streams(_: Options) -> None:
    """Keep the records of a table's stream beside how far each mapping has read them.

    AWS: a stream has its records for 24 hours, whatever happens. MiniStack: saves the positions of
    mappings and not the records. After a restart a mapping waits at its old position, and events
    are lost without a word until as many new ones have come.
    """
    from ministack import app
    from ministack.services import dynamodb, lambda_svc

    state, restore, load = (
        dynamodb.get_state,
        dynamodb.load_persisted_state,
        app._load_persisted_state,
    )

    def get_state() -> dict[str, Any]:
        return {
            **state(),
            "stream_records": copy.deepcopy(dynamodb._stream_records),
            "stream_trimmed": copy.deepcopy(dynamodb._stream_trimmed),
        }

    def load_persisted_state(data: dict[str, Any]) -> None:
        restore(data)
        dynamodb._stream_records.update(data.get("stream_records") or {})
        dynamodb._stream_trimmed.update(data.get("stream_trimmed") or {})

    def load_all() -> None:
        load()
        # Services are saved one after the other: a position may be newer than the records.
        with lambda_svc._dynamodb_stream_positions_lock:
            for account, region, mapping in lambda_svc._iter_all_esms():
                arn, number = str(mapping.get("EventSourceArn")), mapping.get("UUID")
                at = lambda_svc._dynamodb_stream_positions.get_scoped(account, region, number)
                if ":dynamodb:" not in arn or at is None:
                    continue
                table = arn.partition(":table/")[2].partition("/")[0]
                end = dynamodb.stream_end_position(table, account_id=account, region=region)
                lambda_svc._dynamodb_stream_positions.set_scoped(
                    account, region, number, min(at, end)
                )

    dynamodb.get_state = get_state
    dynamodb.load_persisted_state = load_persisted_state
    app._load_persisted_state = load_all


_EXHAUSTED = "RetryAttemptsExhausted"


def _mapping(lambda_svc: Any, function: dict[str, Any], event: Any) -> dict[str, Any] | None:
    """The mapping that an event of stream records came through, None for any other event."""
    records = event.get("Records") if isinstance(event, dict) else None
    if not records or not isinstance(records, list) or not isinstance(records[0], dict):
        return None
    if records[0].get("eventSource") != "aws:dynamodb":
        return None
    name = (function.get("config") or function).get("FunctionName")
    for _account, _region, mapping in lambda_svc._iter_all_esms():
        if (
            mapping.get("EventSourceArn") == records[0].get("eventSourceARN")
            and mapping.get("FunctionName") == name
        ):
            return dict(mapping)
    return None
