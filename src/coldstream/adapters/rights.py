"""What an agent's credentials are and allow, asked by requests that change nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from coldstream.adapters import aws_errors
from coldstream.adapters.aws_errors import code_of
from coldstream.adapters.dynamodb_errors import REFUSED, translated, translating
from coldstream.adapters.dynamodb_heartbeats import parsed
from coldstream.errors import UnavailableError
from coldstream.names import CATALOG_PARTITION_KEY, CATALOG_SORT_KEY, heartbeat_partition
from coldstream.plans.heartbeats import Heartbeat

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

#: A message that the commit function takes and does nothing for: S3 sends it to a new queue.
_NOTHING = json.dumps({"Event": "s3:TestEvent", "From": "coldstream doctor"})


class AwsRights:
    """The `Rights` of `coldstream doctor`, on AWS.

    Args:
        session: of boto3, whose credentials are told.
        dynamodb: a boto3 client.
        sqs: a boto3 client.
        table: of the catalog.
        prefix: of the cluster, ends in "/".
        queue_url: of the commit queue; "" if none is given.
        now: seconds since the Unix epoch, by this machine's clock.
    """

    def __init__(
        self,
        *,
        session: Any,
        dynamodb: DynamoDBClient,
        sqs: SQSClient,
        table: str,
        prefix: str,
        queue_url: str,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._session, self._dynamodb, self._sqs = session, dynamodb, sqs
        self._table, self._prefix, self._queue_url, self._now = table, prefix, queue_url, now

    def credentials(self) -> str | None:
        try:
            found = self._session.get_credentials()
        except BotoCoreError as exc:
            raise UnavailableError(f"the credentials cannot be read: {exc}") from exc
        if found is None or not found.access_key:
            return None
        return f"{found.method}, access key ending in {found.access_key[-4:]}"

    def clock(self) -> tuple[float, float]:
        begun = self._now()
        try:
            answer: Any = self._dynamodb.describe_table(TableName=self._table)
        except ClientError as exc:
            answer = exc.response  # also a refusal has a date: of a wrong signature for one
        except BotoCoreError as exc:
            raise translated(exc) from exc
        ended = self._now()
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        try:
            said = parsedate_to_datetime(headers["date"]).timestamp()
        except (KeyError, ValueError, TypeError) as exc:
            raise UnavailableError("DynamoDB's answer has no date") from exc
        # The date has whole seconds, and was written somewhere between question and answer.
        return (begun + ended) / 2 - (said + 0.5), 0.5 + (ended - begun) / 2

    def may_beat(self, node: str) -> Heartbeat | None:
        def put() -> Any:
            try:
                self._dynamodb.put_item(
                    TableName=self._table,
                    Item={
                        CATALOG_PARTITION_KEY: {"S": heartbeat_partition(self._prefix)},
                        CATALOG_SORT_KEY: {"S": node},
                    },
                    # Never true, and looked at behind the right: so nothing is written.
                    ConditionExpression="attribute_exists(#key) AND attribute_not_exists(#key)",
                    ExpressionAttributeNames={"#key": CATALOG_PARTITION_KEY},
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
            except ClientError as exc:
                if code_of(exc) != REFUSED:
                    raise
                return exc.response.get("Item")

        return parsed(translating(put))

    def may_ask(self) -> None:
        try:
            self._sqs.send_message(QueueUrl=self._queue_url, MessageBody=_NOTHING)
        except (ClientError, BotoCoreError) as exc:
            raise aws_errors.translated(exc, "SQS") from exc
