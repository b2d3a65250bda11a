"""Starting workflows from handlers, each at most once for a reason."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

from coldstream import deployment
from coldstream.adapters.stepfunctions import StepFunctionsWorkflows
from coldstream.manifest.catalog import CatalogItem
from functions._runtime import aws_client, logger


def start_delete(item: CatalogItem, reason: str, why: str) -> bool:
    """Start the delete machine for a tombstone, once for a reason; see `start`."""
    # Not before the undelete time: a timestamp of the machine has whole seconds.
    until = datetime.fromtimestamp(-(-item.undelete_until // 1000), UTC)
    document = {
        "work": [{"stream": item.stream, "revision": item.revision}],
        "undelete_until": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "reason": why,
    }
    return start("delete", item.stream, reason, document)


@cache
def _workflows() -> StepFunctionsWorkflows:
    return StepFunctionsWorkflows(
        client=aws_client("stepfunctions"),
        arn_prefix=os.environ[deployment.ENV_WORKFLOWS],
        new_uid=lambda: secrets.randbits(64),
    )


def start(workflow: str, stream: str, reason: str, document: Mapping[str, Any]) -> bool:
    """Start a workflow on a stream unless it was started for this reason before.

    Raises:
        UnavailableError, PermissionDeniedError: it was not started, as far as anybody knows.
    """
    name = deployment.execution_name(workflow, stream, reason)
    started = _workflows().start(workflow, name, document)
    logger.info(
        "started" if started else "was started before",
        extra={"workflow": workflow, "stream": stream, "execution": name},
    )
    return started
