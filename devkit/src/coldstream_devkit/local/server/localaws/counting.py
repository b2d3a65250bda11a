"""What a bill would count: requests by service and operation, transitions, invocations.

`GET /_localaws/counts` gives all counts since the server began, as a JSON object.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from .options import Options

PATH = "/_localaws/counts"
#: Bytes of the three lines that AWS writes of each invocation.
_START_END_REPORT = 330
_counts: Counter[str] = Counter()
_lock = threading.Lock()


def _add(name: str, by: float = 1) -> None:
    with _lock:
        _counts[name] += by  # type: ignore[assignment]  # seconds are counted, too


def billing(_: Options) -> None:
    """Count what AWS bills for besides requests: transitions of machines, runs of functions.

    AWS: bills each state that an execution enters, and each invocation by its time. MiniStack: has
    no bill.
    """
    from ministack.core import lambda_runtime as runtime
    from ministack.services import stepfunctions

    add_event, invoke = stepfunctions._add_event, runtime.Worker.invoke
    run_sub_machine = stepfunctions._run_sub_machine

    def adding(execution: Any, event_type: str, details: Any = None) -> Any:
        if event_type.endswith("StateEntered"):
            _add("states.Transition")
        return add_event(execution, event_type, details)

    def running(states: dict[str, Any], *given: Any, **named: Any) -> Any:
        # States of a child of a Map leave no event.
        return run_sub_machine(_CountedStates(states), *given, **named)

    def invoking(worker: Any, *given: Any, **named: Any) -> Any:
        handler = str(worker.config.get("Handler", "")).split(".")
        name = handler[1] if len(handler) > 1 else "other"
        began = time.monotonic()
        try:
            result = invoke(worker, *given, **named)
            _add("logs.bytes", len(str(result.get("log", ""))) + _START_END_REPORT)
            return result
        finally:
            _add(f"lambda.{name}")
            _add(f"lambda.{name}.seconds", time.monotonic() - began)

    stepfunctions._add_event = adding
    stepfunctions._run_sub_machine = running
    runtime.Worker.invoke = invoking


class _CountedStates(dict[str, Any]):
    """States of a machine; each that is looked up is entered."""

    def get(self, name: Any, default: Any = None) -> Any:
        _add("states.Transition")
        return super().get(name, default)


def counted(app: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """An ASGI application that counts its requests, and tells the counts."""

    async def call(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        if scope["path"] == PATH:
            with _lock:
                body = json.dumps(_counts).encode()
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        name = _name(scope)
        _add(name)
        await app(scope, receive, _scanned(send) if name in _READS_MANY else send)

    return call


#: Billed by what they read, whatever they return.
_READS_MANY = frozenset({"dynamodb.Scan", "dynamodb.Query"})
_SCANNED = re.compile(rb'"ScannedCount":\s*(\d+)')


def _scanned(send: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Count the items that an answer says were read."""

    async def counting(message: Any) -> None:
        found = _SCANNED.search(message.get("body", b""))
        if found is not None:
            _add("dynamodb.scanned", int(found.group(1)))
        await send(message)

    return counting


def _name(scope: Any) -> str:
    headers = dict(scope["headers"])
    target = headers.get(b"x-amz-target", b"").decode()
    if target:
        service, _, operation = target.partition(".")
        return f"{service.partition('_')[0].lower()}.{operation}"
    method, path, query = scope["method"], scope["path"], scope["query_string"].decode()
    if "/functions/" in path:
        return "lambda.Invoke"
    if path.startswith("/_") or "/" not in path.strip("/"):
        listing = "list-type" in query
        return "s3.ListObjectsV2" if listing else f"other.{method}"
    return f"s3.{_s3_operation(method, query, headers)}"


def _s3_operation(method: str, query: str, headers: dict[bytes, bytes]) -> str:
    if method == "PUT" and "partNumber" in query:
        return "UploadPartCopy" if b"x-amz-copy-source" in headers else "UploadPart"
    if method == "POST":
        return "CompleteMultipartUpload" if "uploadId" in query else "CreateMultipartUpload"
    return f"{method.capitalize()}Object"
