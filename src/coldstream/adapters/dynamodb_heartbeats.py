"""Heartbeats as items of the catalog's table, below a partition key that no stream has.

So an agent's role can be let write there and nowhere else (`dynamodb:LeadingKeys`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from coldstream.adapters.dynamodb_errors import translating
from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.names import (
    CATALOG_PARTITION_KEY,
    CATALOG_SORT_KEY,
    HEARTBEAT_ITEM,
    MAX_NAME,
    WORDS_ITEM,
    heartbeat_partition,
    words_partition,
)
from coldstream.plans.heartbeats import MAX_INTERVAL_MS, Heartbeat
from coldstream.plans.stream_words import MAX_PACKED, MAX_PAGES, WordsPage

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_NUMBERS = ("at_ms", "interval_ms", "streams", "behind", "standing", "failing")
#: An older agent does not say these.
_NEW_NUMBERS = ("racing", "pages", "lag_ms", "left_out", "shared")
_MAX_INSTANCE = 32
_MAX_NUMBER = 2**63 - 1
#: Whoever has an agent's rights can write any number of items; no cluster has so many nodes.
_MAX_NODES = 1000


class DynamoHeartbeats:
    """The `Heartbeats` port on one table, for the cluster of one prefix.

    Args:
        client: a boto3 DynamoDB client with standard retries.
        table: name.
        prefix: of the cluster, ends in "/".
    """

    def __init__(self, *, client: DynamoDBClient, table: str, prefix: str) -> None:
        self._client = client
        self._table = table
        self._partition, self._words = heartbeat_partition(prefix), words_partition(prefix)

    def beat(self, heartbeat: Heartbeat) -> Heartbeat | None:
        if not 0 < len(heartbeat.node) <= MAX_NAME:
            raise InvalidInputError(f"a node's name has 1 to {MAX_NAME} characters")
        item: dict[str, Any] = {
            CATALOG_PARTITION_KEY: {"S": self._partition},
            CATALOG_SORT_KEY: {"S": heartbeat.node},
            "kind": {"S": HEARTBEAT_ITEM},
            "instance": {"S": heartbeat.instance},
            **{name: {"N": str(getattr(heartbeat, name))} for name in _NUMBERS + _NEW_NUMBERS},
        }
        put = partial(
            self._client.put_item, TableName=self._table, Item=item, ReturnValues="ALL_OLD"
        )
        return parsed(translating(put).get("Attributes"))

    def all(self) -> list[Heartbeat | CorruptDataError]:
        found: list[Heartbeat | CorruptDataError] = []
        start: dict[str, Any] = {}
        while True:
            arguments: dict[str, Any] = {
                "TableName": self._table,
                "KeyConditionExpression": "#partition = :partition",
                "ExpressionAttributeNames": {"#partition": CATALOG_PARTITION_KEY},
                "ExpressionAttributeValues": {":partition": {"S": self._partition}},
                "Limit": _MAX_NODES + 1 - len(found),
                **({"ExclusiveStartKey": start} if start else {}),
            }
            answer = translating(partial(self._client.query, **arguments))
            found += [_checked(item) for item in answer["Items"]]
            start = answer.get("LastEvaluatedKey", {})
            if len(found) > _MAX_NODES:
                return [
                    *found[:_MAX_NODES],
                    CorruptDataError(f"more than {_MAX_NODES} heartbeats; the others are not read"),
                ]
            if not start:
                return found

    def tell(self, page: WordsPage) -> None:
        if not 0 < len(page.node) <= MAX_NAME:
            raise InvalidInputError(f"a node's name has 1 to {MAX_NAME} characters")
        item: dict[str, Any] = {
            CATALOG_PARTITION_KEY: {"S": self._words},
            CATALOG_SORT_KEY: {"S": f"{_pages(page.node, page.count)}{page.number:05d}"},
            "kind": {"S": WORDS_ITEM},
            "at_ms": {"N": str(page.at_ms)},
            "words": {"B": page.data},
        }
        translating(lambda: self._client.put_item(TableName=self._table, Item=item))

    def told(
        self, node: str, count: int, number: int | None = None
    ) -> list[WordsPage | CorruptDataError]:
        place = _pages(node, count)
        first, last = (0, count - 1) if number is None else (number, number)
        found: list[WordsPage | CorruptDataError] = []
        start: dict[str, Any] = {}
        while True:
            arguments: dict[str, Any] = {
                "TableName": self._table,
                "KeyConditionExpression": (
                    "#partition = :partition AND #item BETWEEN :first AND :last"
                ),
                "ExpressionAttributeNames": {
                    "#partition": CATALOG_PARTITION_KEY,
                    "#item": CATALOG_SORT_KEY,
                },
                "ExpressionAttributeValues": {
                    ":partition": {"S": self._words},
                    ":first": {"S": f"{place}{first:05d}"},
                    ":last": {"S": f"{place}{last:05d}"},
                },
                **({"ExclusiveStartKey": start} if start else {}),
            }
            answer = translating(partial(self._client.query, **arguments))
            found += [_page(item, node, count) for item in answer["Items"]]
            start = answer.get("LastEvaluatedKey", {})
            # Whoever has an agent's rights can write any number of items between two pages.
            if not start or len(found) > count:
                return found[:count]


def _pages(node: str, count: int) -> str:
    """How the sort keys of a node's pages begin."""
    return f"{node}/{count:05d}/"


def _page(item: dict[str, Any], node: str, count: int) -> WordsPage | CorruptDataError:
    try:
        number = int(str(item[CATALOG_SORT_KEY]["S"])[len(_pages(node, count)) :])
        at_ms, data = int(item["at_ms"]["N"]), bytes(item["words"]["B"])
    except (KeyError, ValueError, TypeError) as exc:
        return CorruptDataError(f"a page of the words of {node!r} cannot be read: {exc!r}"[:300])
    if not 0 <= number < count or not 0 <= at_ms <= _MAX_NUMBER or len(data) > MAX_PACKED:
        return CorruptDataError(f"a page of the words of {node!r} with numbers that none can have")
    return WordsPage(node, number, count, at_ms, data)


def parsed(item: dict[str, Any] | None) -> Heartbeat | None:
    """A heartbeat that a write has given back; None if there was none that can be read."""
    found = _checked(item) if item else None
    return found if isinstance(found, Heartbeat) else None


def _checked(item: dict[str, Any]) -> Heartbeat | CorruptDataError:
    """An item, which whoever has an agent's rights may have written."""
    try:
        node = str(item[CATALOG_SORT_KEY]["S"])
        numbers = [int(item[name]["N"]) for name in _NUMBERS]
        numbers += [int(item.get(name, {"N": "0"})["N"]) for name in _NEW_NUMBERS]
        instance = str(item.get("instance", {"S": ""})["S"])
    except (KeyError, ValueError, TypeError) as exc:
        return CorruptDataError(f"a heartbeat that cannot be read: {exc!r}")
    said: dict[str, Any] = dict(zip(_NUMBERS + _NEW_NUMBERS, numbers, strict=True))
    heartbeat = Heartbeat(node, **said, instance=instance)
    sound = len(node) <= MAX_NAME and len(instance) <= _MAX_INSTANCE
    sound = sound and all(0 <= each <= _MAX_NUMBER for each in numbers)
    if not sound or heartbeat.interval_ms > MAX_INTERVAL_MS or heartbeat.pages > MAX_PAGES:
        return CorruptDataError(f"a heartbeat with numbers that none can have: {node[:80]!r}")
    return heartbeat
