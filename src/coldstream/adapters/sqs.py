"""Requests for a commit, by a message to the queue that S3's events go to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from coldstream.adapters.remedies import remedy_for
from coldstream.errors import ColdstreamError, PermissionDeniedError, UnavailableError

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_FORBIDDEN = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)


class QueueCommitRequests:
    """The `CommitRequests` port on one SQS queue.

    Args:
        client: a boto3 SQS client.
        queue_url: of the commit queue.
    """

    def __init__(self, *, client: SQSClient, queue_url: str) -> None:
        self._client = client
        self._queue_url = queue_url

    def ask(self, stream: str) -> None:
        try:
            self._client.send_message(
                QueueUrl=self._queue_url, MessageBody=json.dumps({"stream": stream})
            )
        except (ClientError, BotoCoreError) as exc:
            raise translated(exc).located(stream=stream) from exc


def translated(exc: Exception) -> ColdstreamError:
    """The error of ours that a boto3 error of SQS means."""
    code = (
        str(exc.response.get("Error", {}).get("Code", "")) if isinstance(exc, ClientError) else ""
    )
    remedy = remedy_for(code, exc)
    if code in _FORBIDDEN:
        return PermissionDeniedError(f"SQS refused: {code}", remedy=remedy)
    return UnavailableError(f"SQS did not answer properly: {exc}", remedy=remedy)
