"""Stored offsets as items of the catalog's table: a partition a stream, an item a reference.

So a gateway's role can be let write there and nowhere else (`dynamodb:LeadingKeys`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from coldstream.adapters.aws_errors import code_of
from coldstream.adapters.dynamodb_errors import REFUSED, translated, translating
from coldstream.errors import CorruptDataError, InvalidInputError, UnavailableError
from coldstream.names import (
    CATALOG_PARTITION_KEY,
    CATALOG_SORT_KEY,
    OFFSET_ITEM,
    check_prefix,
    offsets_partition,
)
from coldstream.ports.offsets import MAX_REFERENCES, check_reference

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_OFFSET = "offset"
#: Another consumer of the same reference may come between two of our requests.
_TRIES = 5


class DynamoOffsets:
    """The `ConsumerOffsets` port on one table, for the cluster of one prefix.

    Args:
        client: a boto3 DynamoDB client with standard retries.
        table: name.
        prefix: of the cluster, ends in "/".
        most: references that a stream may have.
    """

    def __init__(
        self, *, client: DynamoDBClient, table: str, prefix: str, most: int = MAX_REFERENCES
    ) -> None:
        self._client, self._most = client, most
        self._table = table
        self._prefix = check_prefix(prefix)

    def query(self, stream: str, reference: str) -> int | None:
        key = self._key(stream, reference)
        answer = translating(
            lambda: self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True)
        )
        item = answer.get("Item")
        return _parsed(item, stream) if item else None

    def store(
        self, stream: str, reference: str, offset: int, *, seen: int | None = None, first: int = 0
    ) -> int:
        check_reference(reference, offset)
        key = self._key(stream, reference)
        for _ in range(_TRIES):
            found = self._change(key, offset, seen)
            if found is not None:
                return _parsed(found, stream)
            self._make_room(stream, first)
            if self._create(key, offset):
                return offset
        raise UnavailableError("an offset is stored and removed again and again", stream=stream)

    def _key(self, stream: str, reference: str) -> dict[str, Any]:
        check_reference(reference)
        return {
            CATALOG_PARTITION_KEY: {"S": offsets_partition(self._prefix, stream)},
            CATALOG_SORT_KEY: {"S": reference},
        }

    def _change(self, key: dict[str, Any], offset: int, seen: int | None) -> Any:
        """Change an item; what it is now, None if there is none.

        An attempt that the SDK repeats finds its own offset, for which the condition holds again.
        """
        condition, values = "#offset <= :offset", {":offset": {"N": str(offset)}}
        if seen is not None:
            condition, values = (
                f"{condition} OR #offset = :seen",
                {
                    **values,
                    ":seen": {"N": str(seen)},
                },
            )
        try:
            return self._client.update_item(
                TableName=self._table,
                Key=key,
                UpdateExpression="SET #offset = :offset",
                ConditionExpression=condition,
                ExpressionAttributeNames={"#offset": _OFFSET},
                ExpressionAttributeValues=values,
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )["Attributes"]
        except ClientError as exc:
            if code_of(exc) == REFUSED:
                return exc.response.get("Item") or None
            raise translated(exc) from exc
        except BotoCoreError as exc:
            raise translated(exc) from exc

    def _create(self, key: dict[str, Any], offset: int) -> bool:
        """Make an item; False if there is one."""
        try:
            self._client.put_item(
                TableName=self._table,
                Item={**key, "kind": {"S": OFFSET_ITEM}, _OFFSET: {"N": str(offset)}},
                ConditionExpression="attribute_not_exists(#key)",
                ExpressionAttributeNames={"#key": CATALOG_PARTITION_KEY},
            )
        except (ClientError, BotoCoreError) as exc:
            if code_of(exc) == REFUSED:
                return False
            raise translated(exc) from exc
        return True

    def _make_room(self, stream: str, first: int) -> None:
        """See that there may be one more reference; two who do so at once may be one too many."""
        answer = translating(
            lambda: self._client.query(
                TableName=self._table,
                ConsistentRead=True,
                KeyConditionExpression="#partition = :partition",
                ExpressionAttributeNames={"#partition": CATALOG_PARTITION_KEY},
                ExpressionAttributeValues={
                    ":partition": {"S": offsets_partition(self._prefix, stream)}
                },
                Limit=2 * self._most,
            )
        )
        items = answer["Items"]
        room = len(items) < self._most
        for item in items if not room else ():
            room = self._remove(item, first) or room
        if not room:
            raise InvalidInputError(
                f"{self._most} consumers have stored offsets; there is no room for another",
                stream=stream,
            )

    def _remove(self, item: Any, first: int) -> bool:
        """Remove an item if it lies below `first`, and still does."""
        try:
            self._client.delete_item(
                TableName=self._table,
                Key={name: item[name] for name in (CATALOG_PARTITION_KEY, CATALOG_SORT_KEY)},
                ConditionExpression="#offset < :first",
                ExpressionAttributeNames={"#offset": _OFFSET},
                ExpressionAttributeValues={":first": {"N": str(first)}},
            )
        except (ClientError, BotoCoreError) as exc:
            if code_of(exc) == REFUSED:
                return False
            raise translated(exc) from exc
        return True


def _parsed(item: Any, stream: str) -> int:
    """The offset of an item, which whoever has a gateway's rights may have written."""
    try:
        offset = int(item[_OFFSET]["N"])
        check_reference(str(item[CATALOG_SORT_KEY]["S"]), offset)
    except (KeyError, ValueError, TypeError) as exc:
        raise CorruptDataError("a stored offset cannot be read", stream=stream) from exc
    return offset
