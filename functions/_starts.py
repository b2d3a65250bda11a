"""Starting workflows from handlers, each at most once for a reason."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from functools import cache
from typing import Any

import boto3

from coldstream import names
from coldstream.adapters.stepfunctions import StepFunctionsWorkflows
from functions._runtime import CLIENT, logger


@cache
def _workflows() -> StepFunctionsWorkflows:
    return StepFunctionsWorkflows(
        client=boto3.client("stepfunctions", config=CLIENT),
        arn_prefix=os.environ[names.ENV_WORKFLOWS],
        new_uid=lambda: secrets.randbits(64),
    )


def start(workflow: str, stream: str, reason: str, document: Mapping[str, Any]) -> bool:
    """Start a workflow on a stream unless it was started for this reason before.

    Raises:
        UnavailableError, PermissionDeniedError: it was not started, as far as anybody knows.
    """
    name = names.execution_name(workflow, stream, reason)
    started = _workflows().start(workflow, name, document)
    logger.info(
        "started" if started else "was started before",
        extra={"workflow": workflow, "stream": stream, "execution": name},
    )
    return started
