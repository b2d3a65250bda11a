"""The catalog on one DynamoDB table: partition key `<prefix><stream>`, sort key "catalog".

The prefix in the key keeps clusters apart that share a table, and lets IAM limit an agent to its
own cluster by `dynamodb:LeadingKeys`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from coldstream.errors import (
    ColdstreamError,
    CorruptDataError,
    InternalError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.manifest.catalog import CatalogItem, Commit, QueueName, StreamState, moved
from coldstream.manifest.ledger import Ledger
from coldstream.names import (
    CATALOG_ITEM,
    CATALOG_PARTITION_KEY,
    CATALOG_SORT_KEY,
    check_prefix,
    check_stream,
)
from coldstream.ports import CommitOutcome, Landed, Unknown, outcome_of_failed_condition

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_T = TypeVar("_T")
_TABLE_ID_SECONDS = 60.0
_REFUSED = "ConditionalCheckFailedException"
_FORBIDDEN = frozenset(
    {
        "AccessDeniedException",
        "ExpiredTokenException",
        "InvalidSignatureException",
        "UnrecognizedClientException",
    }
)


class DynamoCatalog:
    """The `Catalog` port on one table, for the streams below one prefix.

    Args:
        client: a boto3 DynamoDB client with standard retries.
        table: name.
        prefix: of the cluster, ends in "/".
        clock: seconds; the table's id is asked again after a minute. The wall clock, because a
            Lambda container that was frozen for an hour must not take its answer for fresh.
    """

    def __init__(
        self,
        *,
        client: DynamoDBClient,
        table: str,
        prefix: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._table = table
        self._prefix = check_prefix(prefix)
        self._clock = clock
        self._table_id: tuple[str, float] | None = None

    def table_id(self) -> str:
        now = self._clock()
        if self._table_id is None or not 0 <= now - self._table_id[1] <= _TABLE_ID_SECONDS:
            answer = _translating(lambda: self._client.describe_table(TableName=self._table))
            table_id = answer["Table"].get("TableId")
            if not table_id:
                raise UnavailableError("DynamoDB does not say which table this is")
            self._table_id = (table_id, now)
        return self._table_id[0]

    def get(self, stream: str) -> CatalogItem | None:
        answer = _translating(
            lambda: self._client.get_item(
                TableName=self._table, Key=self._key(stream), ConsistentRead=True
            )
        )
        return self._parse(answer["Item"]) if "Item" in answer else None

    def streams(self) -> Iterator[CatalogItem]:
        start: dict[str, Any] = {}
        damaged: CorruptDataError | None = None
        while True:
            arguments = {
                "TableName": self._table,
                "ConsistentRead": True,
                # A scan reads every item anyway; what it filters is what it would have to skip.
                "FilterExpression": "#kind = :kind AND #prefix = :prefix",
                "ExpressionAttributeNames": {"#kind": "kind", "#prefix": "prefix"},
                "ExpressionAttributeValues": {
                    ":kind": {"S": CATALOG_ITEM},
                    ":prefix": {"S": self._prefix},
                },
                **({"ExclusiveStartKey": start} if start else {}),
            }
            answer = _translating(lambda a=arguments: self._client.scan(**a))  # type: ignore[misc]
            for item in answer["Items"]:
                try:
                    parsed = self._parse(item)
                except CorruptDataError as exc:
                    damaged = damaged or exc
                    continue
                yield parsed
            start = answer.get("LastEvaluatedKey", {})
            if not start:
                break
        if damaged is not None:
            raise damaged  # last, so that one item that cannot be read hides no other stream

    def anchor(self, item: CatalogItem) -> CatalogItem:
        try:
            self._client.put_item(
                TableName=self._table,
                Item={
                    **self._key(item.stream),
                    **_summary(item),
                    **_name(item.name),
                    "kind": {"S": CATALOG_ITEM},
                    "prefix": {"S": self._prefix},
                    "table_id": {"S": item.table_id},
                    "state": {"S": item.state},
                },
                ConditionExpression="attribute_not_exists(#key)",
                ExpressionAttributeNames={"#key": CATALOG_PARTITION_KEY},
            )
        except (ClientError, BotoCoreError) as exc:
            if _code(exc) != _REFUSED:
                raise _translated(exc) from exc
        there = self.get(item.stream)
        if there is None:
            raise UnavailableError("an anchor that was just written is gone", stream=item.stream)
        return there

    def commit(self, commit: Commit) -> CommitOutcome:
        summary = _summary(moved(CatalogItem(commit.stream, commit.table_id), commit))
        try:
            answer = self._client.update_item(
                TableName=self._table,
                Key=self._key(commit.stream),
                UpdateExpression="SET " + ", ".join(f"#{k} = :{k}" for k in summary),
                ConditionExpression=" AND ".join(
                    (
                        "#version = :read_version AND #uid = :read_uid",  # nobody was faster
                        "#table_id = :table_id",  # the item belongs to this very table
                        "#state = :live",  # no deletion or rebuild has begun
                        "#epoch < :epoch" if commit.claim else "#epoch <= :epoch",
                    )
                ),
                ExpressionAttributeNames={
                    **{f"#{k}": k for k in summary},
                    "#table_id": "table_id",
                    "#state": "state",
                },
                ExpressionAttributeValues={
                    **{f":{k}": v for k, v in summary.items()},
                    ":read_version": {"N": str(commit.read_version)},
                    ":read_uid": {"S": f"{commit.read_uid:016x}"},
                    ":table_id": {"S": commit.table_id},
                    ":live": {"S": StreamState.LIVE},
                },
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ClientError as exc:
            if _code(exc) == _REFUSED:
                item = exc.response.get("Item")
                found = self._parse(item) if isinstance(item, dict) and item else None
                return outcome_of_failed_condition(found, commit)
            error = _translated(exc)
            if isinstance(error, PermissionDeniedError | InternalError):
                raise error from exc  # refused before anything was written
            return self._read_back(commit)
        except BotoCoreError:
            return self._read_back(commit)
        return Landed(self._parse(answer["Attributes"]))

    def _read_back(self, commit: Commit) -> CommitOutcome:
        """What a commit without an answer came to. The request may still be under way, so an
        unchanged item proves nothing; only our own uid does."""
        try:
            item = self.get(commit.stream)
        except ColdstreamError:
            return Unknown(None)
        if item is not None and item.uid == commit.uid:
            return Landed(item)
        return Unknown(item)

    def set_name(self, stream: str, name: QueueName) -> None:
        try:
            self._client.update_item(
                TableName=self._table,
                Key=self._key(stream),
                UpdateExpression="SET " + ", ".join(f"#{k} = :{k}" for k in _name(name)),
                ConditionExpression="attribute_exists(#key)",
                ExpressionAttributeNames={
                    "#key": CATALOG_PARTITION_KEY,
                    **{f"#{k}": k for k in _name(name)},
                },
                ExpressionAttributeValues={f":{k}": v for k, v in _name(name).items()},
            )
        except (ClientError, BotoCoreError) as exc:
            if _code(exc) == _REFUSED:
                raise NotFoundError("the catalog does not know this stream", stream=stream) from exc
            raise _translated(exc) from exc

    def _key(self, stream: str) -> dict[str, Any]:
        return {
            CATALOG_PARTITION_KEY: {"S": self._prefix + check_stream(stream)},
            CATALOG_SORT_KEY: {"S": CATALOG_ITEM},
        }

    def _parse(self, item: Mapping[str, Any]) -> CatalogItem:
        try:
            key = str(item[CATALOG_PARTITION_KEY]["S"])
            return CatalogItem(
                stream=check_stream(key.removeprefix(self._prefix)),
                table_id=str(item["table_id"]["S"]),
                uid=int(item["uid"]["S"], 16),
                root_key=str(item["root_key"]["S"]),
                epoch=int(item["epoch"]["N"]),
                version=int(item["version"]["N"]),
                first_offset=int(item["first_offset"]["N"]),
                next_offset=int(item["next_offset"]["N"]),
                first_timestamp=int(item["first_timestamp"]["N"]),
                last_timestamp=int(item["last_timestamp"]["N"]),
                total_size=int(item["total_size"]["N"]),
                fragments=int(item["fragments"]["N"]),
                ledger=Ledger.of(
                    (int(claim["L"][0]["N"]), int(claim["L"][1]["N"]))
                    for claim in item["ledger"]["L"]
                ),
                name=QueueName(
                    str(item["cluster"]["S"]), str(item["vhost"]["S"]), str(item["queue"]["S"])
                ),
                state=StreamState(item["state"]["S"]),
            )
        except (KeyError, ValueError, TypeError, IndexError) as exc:
            raise CorruptDataError(
                f"a catalog item that this release cannot read: {exc!r}",
                key=str(item.get(CATALOG_PARTITION_KEY)),
            ) from exc


def _summary(item: CatalogItem) -> dict[str, Any]:
    """Every attribute that a commit sets."""
    return {
        "uid": {"S": f"{item.uid:016x}"},
        "root_key": {"S": item.root_key},
        **{
            name: {"N": str(value)}
            for name, value in (
                ("epoch", item.epoch),
                ("version", item.version),
                ("first_offset", item.first_offset),
                ("next_offset", item.next_offset),
                ("first_timestamp", item.first_timestamp),
                ("last_timestamp", item.last_timestamp),
                ("total_size", item.total_size),
                ("fragments", item.fragments),
            )
        },
        "ledger": {
            "L": [
                {"L": [{"N": str(claim.epoch)}, {"N": str(claim.floor)}]}
                for claim in item.ledger.claims
            ]
        },
    }


def _name(name: QueueName) -> dict[str, Any]:
    return {
        "cluster": {"S": name.cluster},
        "vhost": {"S": name.vhost},
        "queue": {"S": name.queue},
    }


def _translating(call: Callable[[], _T]) -> _T:
    try:
        return call()
    except (ClientError, BotoCoreError) as exc:
        raise _translated(exc) from exc


def _code(exc: Exception) -> str:
    return (
        str(exc.response.get("Error", {}).get("Code", "")) if isinstance(exc, ClientError) else ""
    )


def _translated(exc: Exception) -> ColdstreamError:
    """The error of ours that a boto3 error means."""
    code = _code(exc)
    if code in _FORBIDDEN:
        return PermissionDeniedError(f"DynamoDB refused the request: {code}")
    if code == "ResourceNotFoundException":
        return NotFoundError("no such DynamoDB table")
    if code == "ValidationException":
        return InternalError(f"DynamoDB refused a request that we should not have made: {exc}")
    return UnavailableError(f"DynamoDB did not answer properly: {exc}")
