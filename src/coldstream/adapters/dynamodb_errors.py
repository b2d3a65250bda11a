"""What the errors of boto3's DynamoDB client mean, for every adapter that talks to a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from coldstream.adapters import aws_errors
from coldstream.adapters.aws_errors import AWS_ERRORS, code_of
from coldstream.errors import ColdstreamError, InternalError, NotFoundError

_T = TypeVar("_T")

#: Code of a write whose condition does not hold.
REFUSED = "ConditionalCheckFailedException"


def translating(call: Callable[[], _T]) -> _T:
    """What `call` gives, with boto3's errors translated."""
    try:
        return call()
    except AWS_ERRORS as exc:
        raise translated(exc) from exc


def translated(exc: Exception) -> ColdstreamError:
    """The error of ours that a boto3 error means."""
    code = code_of(exc)
    if code == "ResourceNotFoundException":
        return NotFoundError("no such DynamoDB table")
    if code == "ValidationException":
        return InternalError(f"DynamoDB refused a request that we should not have made: {exc}")
    return aws_errors.translated(exc, "DynamoDB")
