"""Requests for a commit, by a message to the queue that S3's events go to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from coldstream.adapters.aws_errors import AWS_ERRORS, translated

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


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
        except AWS_ERRORS as exc:
            raise translated(exc, "SQS").located(stream=stream) from exc
