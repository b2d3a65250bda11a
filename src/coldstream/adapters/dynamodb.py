"""The catalog on one DynamoDB table: partition key `<prefix><stream>`, sort key "catalog".

The prefix in the key keeps clusters apart that share a table, and lets IAM limit an agent to its
own cluster by `dynamodb:LeadingKeys`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from coldstream.adapters.aws_errors import code_of
from coldstream.adapters.dynamodb_errors import REFUSED, translated, translating
from coldstream.adapters.dynamodb_item import (
    name_values,
    parse_item,
    state_values,
    summary_values,
)
from coldstream.adapters.dynamodb_rules import CANCELLED, RulesUnchanged
from coldstream.errors import (
    ColdstreamError,
    CorruptDataError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.manifest.catalog import (
    CatalogItem,
    Commit,
    QueueName,
    StateChange,
    StreamState,
    moved,
)
from coldstream.names import (
    CATALOG_ITEM,
    CATALOG_PARTITION_KEY,
    CATALOG_SORT_KEY,
    check_prefix,
    check_stream,
)
from coldstream.ports import (
    CatalogPage,
    CommitOutcome,
    Landed,
    Unknown,
    outcome_of_failed_adoption,
    outcome_of_failed_change,
    outcome_of_failed_condition,
    outcome_of_moved_rules,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_TABLE_ID_SECONDS = 60.0
_U64 = 2**64 - 1


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
            answer = translating(lambda: self._client.describe_table(TableName=self._table))
            table_id = answer.get("Table", {}).get("TableId")
            if not table_id:
                raise UnavailableError("DynamoDB does not say which table this is")
            self._table_id = (table_id, now)
        return self._table_id[0]

    def get(self, stream: str) -> CatalogItem | None:
        answer = translating(
            lambda: self._client.get_item(
                TableName=self._table, Key=self._key(stream), ConsistentRead=True
            )
        )
        return parse_item(answer["Item"], self._prefix) if "Item" in answer else None

    def streams(self) -> Iterator[CatalogItem]:
        damaged: CorruptDataError | None = None
        start: dict[str, Any] = {}
        while True:
            page, start = self._scan(start, ConsistentRead=True)
            for item in page:
                if isinstance(item, CorruptDataError):
                    damaged = damaged or item
                else:
                    yield item
            if not start:
                break
        if damaged is not None:
            raise damaged  # last, so that one item that cannot be read hides no other stream

    def page(self, cursor: str | None, limit: int, *, fresh: bool = True) -> CatalogPage:
        start = {} if cursor is None else _start(cursor)
        found, next_offset = self._scan(start, Limit=limit, ConsistentRead=fresh)
        return CatalogPage(
            items=tuple(item for item in found if isinstance(item, CatalogItem)),
            cursor=_cursor(next_offset),
            damaged=tuple(item for item in found if isinstance(item, CorruptDataError)),
        )

    def cursor_at(self, token: int) -> str | None:
        # A scan goes on behind the place of any key, also of one that no item has.
        return json.dumps([f"{self._prefix}{token & _U64:016x}", CATALOG_ITEM])

    def _scan(
        self, start: dict[str, Any], **more: int
    ) -> tuple[list[CatalogItem | CorruptDataError], dict[str, Any]]:
        """The items that one request gives, and where the next one begins, {} at the end."""
        arguments: dict[str, Any] = {
            "TableName": self._table,
            # A scan reads every item anyway; what it filters is what it would have to skip.
            "FilterExpression": "#kind = :kind AND #prefix = :prefix",
            "ExpressionAttributeNames": {"#kind": "kind", "#prefix": "prefix"},
            "ExpressionAttributeValues": {
                ":kind": {"S": CATALOG_ITEM},
                ":prefix": {"S": self._prefix},
            },
            **more,
            **({"ExclusiveStartKey": start} if start else {}),
        }
        answer = translating(lambda: self._client.scan(**arguments))
        found: list[CatalogItem | CorruptDataError] = []
        for item in answer["Items"]:
            try:
                found.append(parse_item(item, self._prefix))
            except CorruptDataError as exc:
                found.append(exc)
        return found, answer.get("LastEvaluatedKey", {})

    def anchor(self, item: CatalogItem) -> CatalogItem:
        try:
            self._client.put_item(
                TableName=self._table,
                Item={**self._key(item.stream), **self._values(item)},
                ConditionExpression="attribute_not_exists(#key)",
                ExpressionAttributeNames={"#key": CATALOG_PARTITION_KEY},
            )
        except (ClientError, BotoCoreError) as exc:
            if code_of(exc) != REFUSED:
                raise translated(exc) from exc
        there = self.get(item.stream)
        if there is None:
            raise UnavailableError("an anchor that was just written is gone", stream=item.stream)
        return there

    def _values(self, item: CatalogItem) -> dict[str, Any]:
        """All attributes of an item but its key."""
        return {
            **summary_values(item),
            **name_values(item.name),
            "kind": {"S": CATALOG_ITEM},
            "prefix": {"S": self._prefix},
            "table_id": {"S": item.table_id},
            **state_values(item.state, item.revision, item.undelete_until, item.state_token),
        }

    def adopt(self, item: CatalogItem, *, replacing: CatalogItem | None) -> CommitOutcome:
        if replacing is None:
            conditions: tuple[str, ...] = ("attribute_not_exists(#key)",)
            names, values = {"#key": CATALOG_PARTITION_KEY}, {}
        else:
            conditions = (
                "#table_id = :read_table_id",  # still the item that was restored
                "#version = :read_version AND #uid = :read_uid",  # nobody has committed on it
                # An item from before there were revisions has none.
                "(#revision = :read_revision OR attribute_not_exists(#revision))",
                # Nobody has renamed it.
                "#cluster = :read_cluster AND #vhost = :read_vhost AND #queue = :read_queue",
            )
            names = {}
            values = {
                ":read_table_id": {"S": replacing.table_id},
                ":read_version": {"N": str(replacing.version)},
                ":read_uid": {"S": f"{replacing.uid:016x}"},
                ":read_revision": {"N": str(replacing.revision)},
                ":read_cluster": {"S": replacing.name.cluster},
                ":read_vhost": {"S": replacing.name.vhost},
                ":read_queue": {"S": replacing.name.queue},
            }
        return self._update(
            item.stream,
            self._values(item),
            conditions,
            names=names,
            values=values,
            judge=lambda found: outcome_of_failed_adoption(found, item),
        )

    def commit(self, commit: Commit) -> CommitOutcome:
        return self._update(
            commit.stream,
            summary_values(moved(CatalogItem(commit.stream, commit.table_id), commit)),
            (
                "#version = :read_version AND #uid = :read_uid",  # nobody was faster
                "#table_id = :table_id",  # the item belongs to this very table
                "#state = :live",  # no deletion or rebuild has begun
                "#epoch < :epoch" if commit.claim else "#epoch <= :epoch",
            ),
            names={"#table_id": "table_id", "#state": "state"},
            values={
                ":read_version": {"N": str(commit.read_version)},
                ":read_uid": {"S": f"{commit.read_uid:016x}"},
                ":table_id": {"S": commit.table_id},
                ":live": {"S": StreamState.LIVE},
            },
            judge=partial(outcome_of_failed_condition, commit=commit),
        )

    def change_state(self, change: StateChange) -> CommitOutcome:
        unchanged = "#revision = :read_revision"
        if change.read_revision == 0:  # items of older releases have no revision
            unchanged = f"({unchanged} OR attribute_not_exists(#revision))"
        return self._update(
            change.stream,
            state_values(change.state, change.read_revision + 1, change.undelete_until, change.uid),
            (
                unchanged,  # nobody was faster
                "#state = :read_state",  # the step was meant from this state
                "#table_id = :table_id",  # the item belongs to this very table
            ),
            names={"#table_id": "table_id"},
            values={
                ":read_revision": {"N": str(change.read_revision)},
                ":read_state": {"S": change.read_state},
                ":table_id": {"S": change.table_id},
            },
            judge=partial(outcome_of_failed_change, change=change),
            rules=None
            if change.rules_revision is None
            else RulesUnchanged(
                change.rules_revision, partial(outcome_of_moved_rules, change=change)
            ),
        )

    def _update(
        self,
        stream: str,
        changes: Mapping[str, Any],
        conditions: tuple[str, ...],
        *,
        names: Mapping[str, str],
        values: Mapping[str, Any],
        judge: Callable[[CatalogItem | None], CommitOutcome],
        rules: RulesUnchanged | None = None,
    ) -> CommitOutcome:
        """Set `changes` if all `conditions` hold; `judge` says what an item that fails them means.

        `names` and `values` are what the conditions need beside those of `changes`.
        """
        update: Any = {
            "TableName": self._table,
            "Key": self._key(stream),
            "UpdateExpression": "SET " + ", ".join(f"#{k} = :{k}" for k in changes),
            "ConditionExpression": " AND ".join(conditions),
            "ExpressionAttributeNames": {**{f"#{k}": k for k in changes}, **names},
            "ExpressionAttributeValues": {**{f":{k}": v for k, v in changes.items()}, **values},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        try:
            if rules is not None:
                self._client.transact_write_items(
                    TransactItems=[rules.check(self._table, self._prefix), {"Update": update}]
                )
                return self._read_back(stream, judge)
            answer = self._client.update_item(**update, ReturnValues="ALL_NEW")
        except ClientError as exc:
            if rules is not None and code_of(exc) == CANCELLED:
                # Nothing of it was written; the item says whether an earlier attempt of ours was.
                return self._told(stream, judge if rules.held(exc) else rules.judge)
            if code_of(exc) == REFUSED:
                item = exc.response.get("Item")
                there = item if isinstance(item, dict) else None
                return judge(parse_item(there, self._prefix) if there else None)
            error = translated(exc)
            if isinstance(error, PermissionDeniedError | InternalError):
                raise error from exc  # refused before anything was written
            return self._read_back(stream, judge)
        except BotoCoreError:
            return self._read_back(stream, judge)
        return Landed(parse_item(answer["Attributes"], self._prefix))

    def _read_back(
        self, stream: str, judge: Callable[[CatalogItem | None], CommitOutcome]
    ) -> CommitOutcome:
        """What a write without an answer came to. The request may still be under way, so an
        unchanged item proves nothing; only our own uid does."""
        try:
            item = self.get(stream)
        except ColdstreamError:
            return Unknown(None)
        outcome = judge(item)
        return outcome if isinstance(outcome, Landed) else Unknown(item)

    def _told(
        self, stream: str, judge: Callable[[CatalogItem | None], CommitOutcome]
    ) -> CommitOutcome:
        """What `judge` says of the item as it is now."""
        try:
            return judge(self.get(stream))
        except ColdstreamError:
            return Unknown(None)

    def set_name(self, stream: str, name: QueueName) -> None:
        try:
            self._client.update_item(
                TableName=self._table,
                Key=self._key(stream),
                UpdateExpression="SET " + ", ".join(f"#{k} = :{k}" for k in name_values(name)),
                ConditionExpression="attribute_exists(#key)",
                ExpressionAttributeNames={
                    "#key": CATALOG_PARTITION_KEY,
                    **{f"#{k}": k for k in name_values(name)},
                },
                ExpressionAttributeValues={f":{k}": v for k, v in name_values(name).items()},
            )
        except (ClientError, BotoCoreError) as exc:
            if code_of(exc) == REFUSED:
                raise NotFoundError("the catalog does not know this stream", stream=stream) from exc
            raise translated(exc) from exc

    def _key(self, stream: str) -> dict[str, Any]:
        return {
            CATALOG_PARTITION_KEY: {"S": self._prefix + check_stream(stream)},
            CATALOG_SORT_KEY: {"S": CATALOG_ITEM},
        }


def _cursor(key: Mapping[str, Any]) -> str | None:
    """The text of the key after which a scan goes on, None where it has ended."""
    if not key:
        return None
    return json.dumps([key[CATALOG_PARTITION_KEY]["S"], key[CATALOG_SORT_KEY]["S"]])


def _start(cursor: str) -> dict[str, Any]:
    """The key that `cursor` stands for."""
    try:
        partition, sort = json.loads(cursor)
        if isinstance(partition, str) and isinstance(sort, str) and partition and sort:
            return {CATALOG_PARTITION_KEY: {"S": partition}, CATALOG_SORT_KEY: {"S": sort}}
    except (ValueError, TypeError, RecursionError):
        pass
    raise InvalidInputError(f"not a cursor of this catalog: {cursor[:80]!r}")
