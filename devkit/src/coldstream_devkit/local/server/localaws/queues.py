"""SQS and its event source mappings: batches, malformed answers, moving dead letters back."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from .options import Options

_UNWINDOWED_LIMIT = 10


def batch_windows(_: Options) -> None:
    """Gather messages for a function as long and as many as the mapping says.

    AWS: a mapping with a batching window waits for BatchSize messages (up to 10,000), 6 MB of them,
    or the end of the window, whichever comes first. MiniStack: ignores the window and never hands
    over more than 10 messages.
    """
    from ministack.core.concurrency import esm_wake
    from ministack.services import lambda_svc, sqs

    # Time at which the window that is open for a queue closes.
    closes: dict[str, float] = {}

    def receive(queue_url: str, batch_size: int) -> list[dict[str, Any]]:
        with sqs._queues_lock:
            queue = sqs._get_q(queue_url)
            sqs._expire_retained(queue)
            sqs._dlq_sweep(queue)
            now = time.time()
            for message in queue["messages"]:
                sqs._ensure_msg_fields(message)
            waiting = sum(message["visible_at"] <= now for message in queue["messages"])
            window = _window_seconds(lambda_svc, queue["attributes"].get("QueueArn"))
            if not waiting or queue["is_fifo"]:
                window = 0
            size = min(int(batch_size or 1), 10_000 if window else _UNWINDOWED_LIMIT)
            if window and waiting < size:
                if queue_url not in closes:
                    closes[queue_url] = now + window
                    timer = threading.Timer(window, esm_wake.set)
                    timer.daemon = True
                    timer.start()
                if now < closes[queue_url]:
                    return []
            closes.pop(queue_url, None)
            timeout = int(queue["attributes"].get("VisibilityTimeout", "30"))
            return list(sqs._collect_msgs(queue, size, timeout))

    sqs._receive_messages_for_esm = receive


def _window_seconds(lambda_svc: Any, queue_arn: str | None) -> float:
    for _account, _region, mapping in lambda_svc._iter_all_esms():
        if mapping.get("EventSourceArn") == queue_arn:
            return float(mapping.get("MaximumBatchingWindowInSeconds") or 0)
    return 0


def malformed_batch_responses(_: Options) -> None:
    """Take a partial batch response that cannot be read as the failure of the whole batch.

    AWS: with ReportBatchItemFailures, an answer that is not an object, or holds an item without a
    usable itemIdentifier, means that all messages come back. MiniStack: takes it as success and
    deletes them all.
    """
    from ministack.services import lambda_svc

    run = lambda_svc._run_sqs_batch
    execute = lambda_svc._execute_function
    reporting = threading.local()

    def run_reporting(mapping: dict[str, Any], *arguments: Any) -> None:
        reporting.on = "ReportBatchItemFailures" in mapping.get("FunctionResponseTypes", [])
        try:
            run(mapping, *arguments)
        finally:
            reporting.on = False

    def execute_strictly(function: Any, event: Any, *arguments: Any, **named: Any) -> Any:
        result = execute(function, event, *arguments, **named)
        if getattr(reporting, "on", False) and not result.get("error"):
            sent = {record["messageId"] for record in event["Records"]}
            if not readable(result.get("body"), sent):
                said = repr(result.get("body"))[:500]
                error = {"errorType": "InvalidBatchResponse", "errorMessage": said}
                return {**result, "error": True, "body": error}
        return result

    lambda_svc._run_sqs_batch = run_reporting
    lambda_svc._execute_function = execute_strictly


def readable(body: Any, sent: set[str]) -> bool:
    """Whether an answer to a batch says which messages failed; nothing said is success."""
    if isinstance(body, str):
        try:
            body = json.loads(body) if body else None
        except ValueError:
            return False
    if body is None:
        return True
    if not isinstance(body, dict):
        return False
    failures = body.get("batchItemFailures")
    if failures is None:
        return True
    return isinstance(failures, list) and all(
        isinstance(one, dict) and one.get("itemIdentifier") in sent for one in failures
    )


def message_move_tasks(_: Options) -> None:
    """Move dead letters back to where they came from.

    AWS: StartMessageMoveTask moves all messages of a dead-letter queue to their source queues, or
    to the queue named, with a receive count of zero. MiniStack: does not know the operation. Here
    the whole move happens before the answer.
    """
    from ministack.core.concurrency import esm_wake
    from ministack.services import sqs

    def start(request: dict[str, Any], _queue_url: str) -> dict[str, Any]:
        with sqs._queues_lock:
            source = sqs._queue_by_arn(request["SourceArn"])
            if source is None:
                raise sqs._Err("ResourceNotFoundException", "The source queue does not exist.")
            kept = []
            for message in source["messages"]:
                origin = message.get("sys", {}).get("DeadLetterQueueSourceArn", "")
                target = sqs._queue_by_arn(request.get("DestinationArn") or origin)
                if target is None:
                    kept.append(message)
                    continue
                system = {k: v for k, v in message["sys"].items() if k != _ORIGIN}
                target["messages"].append({**message, **_FRESH, "sys": system})
            moved = len(source["messages"]) - len(kept)
            source["messages"] = kept
        esm_wake.set()
        return {"TaskHandle": f"moved-{moved}"}

    sqs._HANDLERS["StartMessageMoveTask"] = start
    sqs._HANDLERS["ListMessageMoveTasks"] = lambda _request, _queue_url: {"Results": []}


_ORIGIN = "DeadLetterQueueSourceArn"
_FRESH = {"receive_count": 0, "visible_at": 0.0, "receipt_handle": None, "first_receive_at": None}
