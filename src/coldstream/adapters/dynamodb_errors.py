"""What the errors of boto3's DynamoDB client mean, for every adapter that talks to a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from coldstream.adapters.remedies import remedy_for
from coldstream.errors import (
    ColdstreamError,
    InternalError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)

_T = TypeVar("_T")

#: Code of a write whose condition does not hold.
REFUSED = "ConditionalCheckFailedException"
FORBIDDEN = frozenset(
    {
        "AccessDeniedException",
        "ExpiredTokenException",
        "InvalidSignatureException",
        "UnrecognizedClientException",
    }
)


def translating(call: Callable[[], _T]) -> _T:
    """What `call` gives, with boto3's errors translated."""
    try:
        return call()
    except (ClientError, BotoCoreError) as exc:
        raise translated(exc) from exc


def code_of(exc: Exception) -> str:
    """DynamoDB's own code of an error, "" if there was no answer."""
    return (
        str(exc.response.get("Error", {}).get("Code", "")) if isinstance(exc, ClientError) else ""
    )


def translated(exc: Exception) -> ColdstreamError:
    """The error of ours that a boto3 error means."""
    code = code_of(exc)
    if code in FORBIDDEN:
        return PermissionDeniedError(
            f"DynamoDB refused the request: {code}", remedy=remedy_for(code)
        )
    if code == "ResourceNotFoundException":
        return NotFoundError("no such DynamoDB table")
    if code == "ValidationException":
        return InternalError(f"DynamoDB refused a request that we should not have made: {exc}")
    return UnavailableError(
        f"DynamoDB did not answer properly: {exc}", remedy=remedy_for(code, exc)
    )
