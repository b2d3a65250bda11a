"""Requests for a commit, by a message to the queue that S3's events go to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from coldstream.errors import PermissionDeniedError, UnavailableError

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_FORBIDDEN = frozenset({"AccessDenied", "AccessDeniedException", "InvalidClientTokenId"})


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
        except ClientError as exc:
            code = str(exc.response.get("Error", {}).get("Code", ""))
            if code in _FORBIDDEN:
                raise PermissionDeniedError(f"SQS refused: {code}", stream=stream) from exc
            raise UnavailableError(f"SQS did not answer properly: {exc}", stream=stream) from exc
        except BotoCoreError as exc:
            raise UnavailableError(f"SQS did not answer properly: {exc}", stream=stream) from exc
