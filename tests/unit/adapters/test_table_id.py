from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from coldstream.adapters.dynamodb import DynamoCatalog
from coldstream.errors import InternalError, UnavailableError
from coldstream.manifest.catalog import CatalogItem
from coldstream_devkit.suites.catalog_fixtures import next_commit


class Table:
    """A DynamoDB client that knows its table's id and refuses every write as malformed."""

    def __init__(self, *ids: str) -> None:
        self.ids = list(ids)

    def describe_table(self, **_: Any) -> Any:
        return {"Table": {"TableId": self.ids.pop(0)} if self.ids else {}}

    def update_item(self, **_: Any) -> Any:
        raise ClientError({"Error": {"Code": "ValidationException"}}, "UpdateItem")


def _catalog(table: Any, now: list[float]) -> DynamoCatalog:
    return DynamoCatalog(client=table, table="t", prefix="rabbitmq/", clock=lambda: now[0])


def test_the_table_id_is_asked_again_after_a_minute_and_when_the_clock_went_back() -> None:
    now = [1000.0]
    catalog = _catalog(Table("a", "b", "c"), now)

    seen = []
    for now[0] in (1000.0, 1059.0, 1061.0, 900.0):
        seen.append(catalog.table_id())

    assert seen == ["a", "a", "b", "c"]


def test_a_table_without_an_id_is_never_taken_for_the_right_one() -> None:
    with pytest.raises(UnavailableError):
        _catalog(Table(), [0.0]).table_id()


def test_a_request_that_the_table_refuses_as_such_did_not_land_and_says_why() -> None:
    catalog = _catalog(Table("a"), [0.0])

    with pytest.raises(InternalError, match="ValidationException"):
        catalog.commit(next_commit(CatalogItem("s", "a"), uid=1))
