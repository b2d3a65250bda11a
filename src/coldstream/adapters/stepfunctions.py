"""Workflows on Step Functions by boto3.

A name is used once: Step Functions refuses a second start for 90 days. But while an execution runs,
a second start with the *same input* is answered like the first one, so that a lost answer can be
asked for again. To tell the two apart, every start adds a random `start` to its input: a repeated
request of ours carries the same one, and anybody else's start is refused.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from coldstream.adapters import aws_errors
from coldstream.adapters.aws_errors import code_of
from coldstream.adapters.executions import check_execution_name, input_text
from coldstream.deployment import ERROR_REPORTED
from coldstream.errors import (
    ColdstreamError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
    UnknownOutcomeError,
)
from coldstream.ports import Execution, ExecutionStatus

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

_EXISTS = "ExecutionAlreadyExists"
_MISSING = frozenset({"ExecutionDoesNotExist", "StateMachineDoesNotExist"})
_INVALID = frozenset({"InvalidExecutionInput", "InvalidName"})
_MALFORMED = frozenset({"InvalidArn", "ValidationException", "StateMachineTypeNotSupported"})
_STATUS = {
    "RUNNING": ExecutionStatus.RUNNING,
    "PENDING_REDRIVE": ExecutionStatus.RUNNING,
    "SUCCEEDED": ExecutionStatus.SUCCEEDED,
    "FAILED": ExecutionStatus.FAILED,
    "TIMED_OUT": ExecutionStatus.TIMED_OUT,
    "ABORTED": ExecutionStatus.ABORTED,
}
_START = "start"
#: How often a start without an answer is sent before it counts as unknown.
_ATTEMPTS = 4


class StepFunctionsWorkflows:
    """The `Workflows` port on the state machines of one stack.

    Args:
        client: a boto3 Step Functions client with standard retries.
        arn_prefix: what the ARNs of all machines begin with; the workflow's name follows it.
        new_uid: gives a random 64-bit number for each start.
    """

    def __init__(
        self,
        *,
        client: SFNClient,
        arn_prefix: str,
        new_uid: Callable[[], int] = lambda: secrets.randbits(64),
    ) -> None:
        self._client = client
        self._arn_prefix = arn_prefix
        self._new_uid = new_uid

    def start(self, workflow: str, name: str, document: Mapping[str, Any]) -> bool:
        check_execution_name(name)
        text = input_text({**document, _START: f"{self._new_uid():016x}"})
        for _ in range(_ATTEMPTS):
            try:
                self._client.start_execution(
                    stateMachineArn=f"{self._arn_prefix}{workflow}", name=name, input=text
                )
                return True
            except (ClientError, BotoCoreError) as exc:
                if code_of(exc) == _EXISTS:
                    return self._is_ours(workflow, name, text)
                error = translated(exc, f"{workflow} {name}")
                if not isinstance(error, UnavailableError):
                    raise error from exc
        raise UnknownOutcomeError(f"Step Functions gave no answer to the start of {name}")

    def _is_ours(self, workflow: str, name: str, text: str) -> bool:
        """Whether the execution that is there is of this very start, whose answer was lost.

        Raises:
            UnknownOutcomeError: it cannot be looked at.
        """
        try:
            found = self._client.describe_execution(executionArn=self._execution(workflow, name))
        except (ClientError, BotoCoreError) as exc:
            raise UnknownOutcomeError(f"{name} exists, and nobody says who started it") from exc
        return found.get("input") == text

    def describe(self, workflow: str, name: str) -> Execution:
        check_execution_name(name)
        try:
            found = self._client.describe_execution(executionArn=self._execution(workflow, name))
        except (ClientError, BotoCoreError) as exc:
            raise translated(exc, f"{workflow} {name}") from exc
        status = _STATUS.get(found["status"])
        if status is None:
            raise UnavailableError(f"a status that this release does not know: {found['status']}")
        output = found.get("output") if status is ExecutionStatus.SUCCEEDED else None
        return Execution(
            status=status,
            output=None if output is None else json.loads(output),
            error=found.get("error", "").removesuffix(ERROR_REPORTED),
            cause=found.get("cause", ""),
        )

    def _execution(self, workflow: str, name: str) -> str:
        machine = self._arn_prefix.replace(":stateMachine:", ":execution:", 1)
        return f"{machine}{workflow}:{name}"


def translated(exc: Exception, what: str) -> ColdstreamError:
    """The error of ours that a boto3 error about `what` means."""
    code = code_of(exc)
    if code in _MISSING:
        return NotFoundError(f"no such workflow or execution: {what}")
    if code in _INVALID:
        return InvalidInputError(f"Step Functions does not take name or input of {what}: {code}")
    if code in _MALFORMED:
        return InternalError(f"Step Functions refused what we should not have asked: {exc}")
    return aws_errors.translated(exc, "Step Functions")
