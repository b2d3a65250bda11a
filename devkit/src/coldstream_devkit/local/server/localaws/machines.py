"""Step Functions: batches of a Distributed Map, time-outs of machines, pauses before retries."""

from __future__ import annotations

import contextvars
import json
import random
import threading
from collections.abc import Iterator
from typing import Any

from .options import Options

_MAX_BYTES = 262_144


def map_batches(_: Options) -> None:
    """Hand the items of a Distributed Map to its children in batches.

    AWS: with an ItemBatcher, a child's input is {"BatchInput": ..., "Items": [...]}. MiniStack: has
    no ItemBatcher, and starts a child with each item as its input.
    """
    from ministack.services import stepfunctions

    run = stepfunctions._run_distributed_map

    def run_in_batches(
        state: dict[str, Any], raw: Any, effective: Any, *more: Any, **named: Any
    ) -> Any:
        batcher = state.get("ItemBatcher")
        if batcher is None:
            return run(state, raw, effective, *more, **named)
        if state.get("ItemReader") or state.get("ItemSelector"):
            raise stepfunctions._ExecutionError(
                "States.Runtime", "not emulated: ItemBatcher with ItemReader or ItemSelector"
            )
        context = more[-1]
        items = stepfunctions._resolve_path_or_ctx(state.get("ItemsPath", "$"), effective, context)
        common = {}
        if "BatchInput" in batcher:
            given = stepfunctions._resolve_params_obj(batcher["BatchInput"], effective, context)
            common = {"BatchInput": given}
        inputs = [
            {**common, "Items": batch}
            for batch in batches(
                items,
                most_items=int(batcher.get("MaxItemsPerBatch", len(items) or 1)),
                most_bytes=int(batcher.get("MaxInputBytesPerBatch", _MAX_BYTES))
                - len(json.dumps(common)),
            )
        ]
        batched = {**state, "ItemsPath": "$.inputs"}
        del batched["ItemBatcher"]
        return run(batched, raw, {"inputs": inputs}, *more, **named)

    stepfunctions._run_distributed_map = run_in_batches


def batches(items: list[Any], *, most_items: int, most_bytes: int) -> Iterator[list[Any]]:
    """Items in order, in lists that keep within both limits; a larger item comes alone."""
    batch: list[Any] = []
    size = 0
    for item in items:
        more = len(json.dumps(item)) + 2
        if batch and (len(batch) >= most_items or size + more > most_bytes):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += more
    if batch:
        yield batch


def machine_timeouts(_: Options) -> None:
    """End an execution when the machine's TimeoutSeconds are over.

    AWS: its status is TIMED_OUT then, and it enters no further state. MiniStack: has time-outs of
    tasks only. (Children of a Distributed Map finish the work that they have begun.)
    """
    from ministack.services import stepfunctions

    run = stepfunctions._run_execution

    def run_in_time(arn: str) -> None:
        execution = stepfunctions._executions.get(arn)
        machine = execution and stepfunctions._state_machines.get(execution["stateMachineArn"])
        try:
            limit = json.loads(machine["definition"]).get("TimeoutSeconds") if machine else None
        except ValueError:
            limit = None  # MiniStack fails the execution for it
        if not limit:
            run(arn)
            return

        def expire() -> None:
            if execution["status"] == "RUNNING":
                execution.update(status="TIMED_OUT", stopDate=stepfunctions.now_iso())
                stepfunctions._add_event(
                    execution, "ExecutionTimedOut", {"executionTimedOutEventDetails": {}}
                )
                stepfunctions._emit_execution_status_event(execution)

        # A thread begins without the account and region that everything is looked up in.
        timer = threading.Timer(limit, contextvars.copy_context().run, args=(expire,))
        timer.daemon = True
        timer.start()
        try:
            run(arn)
        finally:
            timer.cancel()

    # What fails after its time is over has timed out all the same.
    fail = stepfunctions._fail_execution

    def fail_running(execution: dict[str, Any], error: str, cause: str) -> None:
        if execution["status"] == "RUNNING":
            fail(execution, error, cause)

    stepfunctions._run_execution = run_in_time
    stepfunctions._fail_execution = fail_running


def retry_delays(_: Options) -> None:
    """Pause before a retry as long as the retrier says.

    AWS: MaxDelaySeconds bounds what BackoffRate makes of IntervalSeconds, and JitterStrategy FULL
    takes a random part of it. MiniStack: ignores both.
    """
    from ministack.services import stepfunctions

    find = stepfunctions._find_matching_retrier

    def find_with_delay(retriers: Any, error: str, counts: dict[int, int]) -> Any:
        retrier, index = find(retriers, error, counts)
        if retrier is None:
            return retrier, index
        backoff = float(retrier.get("BackoffRate", 2.0)) ** counts.get(index, 0)
        delay = float(retrier.get("IntervalSeconds", 1)) * backoff
        delay = min(delay, float(retrier.get("MaxDelaySeconds", delay)))
        if retrier.get("JitterStrategy") == "FULL":
            delay = random.uniform(0, delay)
        return {**retrier, "IntervalSeconds": delay, "BackoffRate": 1.0}, index

    stepfunctions._find_matching_retrier = find_with_delay
