"""Suites for the AWS adapters, whatever answers their requests: moto or the embedded AWS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from coldstream.adapters.dynamodb import DynamoCatalog
from coldstream.errors import CorruptDataError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.names import CATALOG_ITEM, CATALOG_PARTITION_KEY, CATALOG_SORT_KEY
from coldstream.ports import Catalog, ObjectStore
from coldstream_devkit.suites.catalog import CatalogSuite, PrefixedCatalogSuite
from coldstream_devkit.suites.commit_answer import LostCommitAnswerSuite
from coldstream_devkit.suites.object_store import LostPutAnswerSuite, ObjectStoreSuite
from coldstream_devkit.suites.odd_keys import OddKeysSuite
from tests.support import faults

BUCKET = "fragments"
TABLE = "catalog"
PREFIX = "rabbitmq/"


def give_table_id(dynamodb: Any) -> None:
    """moto gives tables no id; DynamoDB does."""

    def add(parsed: dict[str, Any], **_: Any) -> None:
        parsed["Table"]["TableId"] = "0a1b2c3d"

    dynamodb.meta.events.register("after-call.dynamodb.DescribeTable", add)


def create_table(dynamodb: Any, table: str = TABLE) -> None:
    """The table as `infra/catalog.py` defines it."""
    dynamodb.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": CATALOG_PARTITION_KEY, "AttributeType": "S"},
            {"AttributeName": CATALOG_SORT_KEY, "AttributeType": "S"},
        ],
        KeySchema=[
            {"AttributeName": CATALOG_PARTITION_KEY, "KeyType": "HASH"},
            {"AttributeName": CATALOG_SORT_KEY, "KeyType": "RANGE"},
        ],
    )


def put_raw(s3: Any, keys: Sequence[str]) -> None:
    """Small objects under keys that no adapter of ours would write."""
    for key in keys:
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"x")


class BotoStoreRules(ObjectStoreSuite, OddKeysSuite, LostPutAnswerSuite):
    """Both suites for `BotoObjectStore`; needs the fixtures `s3` (client) and `store`."""

    @pytest.fixture
    def lose_answers(self, s3: Any) -> Callable[[int], None]:
        return partial(faults.lose_answers, s3, "PutObject")

    @pytest.fixture
    def lose_requests(self, s3: Any) -> Callable[[int], None]:
        return partial(faults.lose_requests, s3, "PutObject")

    @pytest.fixture
    def answer_conflict(self, s3: Any) -> Callable[[int], None]:
        return lambda count: faults.answer_error(
            s3, "PutObject", 409, "ConditionalRequestConflict", count
        )

    def test_a_listing_that_s3_cuts_short_is_completed(
        self, s3: Any, store: ObjectStore, prefix: str
    ) -> None:
        # S3 promises never more than MaxKeys rows, and may give fewer although more follow.
        keys = [f"{prefix}{number}" for number in range(7)]
        self.fill(store, keys)

        def fewer(params: dict[str, Any], **_: Any) -> None:
            params["MaxKeys"] = min(params["MaxKeys"], 3)

        s3.meta.events.register("before-parameter-build.*.ListObjectsV2", fewer)

        assert [each.key for each in store.list(prefix)] == keys
        assert [each.key for each in store.list(prefix, limit=5)] == keys[:5]
        assert [each.key for each in store.list(prefix, start_after=keys[1], limit=4)] == keys[2:6]

    def test_a_listing_takes_one_request(self, s3: Any, store: ObjectStore, prefix: str) -> None:
        self.fill(store, [f"{prefix}{number}" for number in range(5)])
        sent: list[str] = []
        s3.meta.events.register("before-send.s3", lambda request, **_: sent.append(request.url))

        store.list(prefix)
        store.list(prefix, limit=5)
        store.list(prefix, limit=2)

        assert len(sent) == 3


class DynamoCatalogRules(CatalogSuite, PrefixedCatalogSuite, LostCommitAnswerSuite):
    """All suites for `DynamoCatalog`; needs the fixture `dynamodb` (client)."""

    @pytest.fixture
    def catalog(self, dynamodb: Any) -> Catalog:
        return DynamoCatalog(client=dynamodb, table=TABLE, prefix=PREFIX)

    @pytest.fixture
    def neighbour(self, dynamodb: Any) -> Catalog:
        # The other prefix begins with ours: the nastiest neighbour there can be.
        return DynamoCatalog(client=dynamodb, table=TABLE, prefix=f"{PREFIX}eu/")

    @pytest.fixture
    def lose_answer(self, dynamodb: Any) -> Callable[..., None]:
        return partial(faults.lose_answers, dynamodb, "UpdateItem", 1)

    @pytest.fixture
    def repeat_request(self, dynamodb: Any) -> Callable[..., None]:
        return partial(faults.repeat_request, dynamodb, "UpdateItem")

    @pytest.fixture
    def lose_request(self, dynamodb: Any) -> Callable[[], None]:
        return partial(faults.lose_requests, dynamodb, "UpdateItem", 1)

    @pytest.fixture
    def lose_reads(self, dynamodb: Any) -> Callable[[str], None]:
        def lose(failure: str) -> None:
            if failure == "timeout":
                faults.lose_requests(dynamodb, "GetItem", 1000)
            elif failure == "forbidden":
                faults.answer_error(dynamodb, "GetItem", 400, "AccessDeniedException", 1000)
            else:
                faults.answer_error(dynamodb, "GetItem", 400, "ResourceNotFoundException", 1000)

        return lose

    def set_state(self, catalog: Catalog, stream: str, state: StreamState) -> None:
        assert isinstance(catalog, DynamoCatalog)
        catalog._client.update_item(
            TableName=TABLE,
            Key={
                CATALOG_PARTITION_KEY: {"S": PREFIX + stream},
                CATALOG_SORT_KEY: {"S": CATALOG_ITEM},
            },
            UpdateExpression="SET #state = :state",
            ExpressionAttributeNames={"#state": "state"},
            ExpressionAttributeValues={":state": {"S": state}},
        )

    def test_items_of_another_kind_beside_a_stream_are_not_taken_for_streams(
        self, dynamodb: Any, catalog: Catalog, claimed: Any
    ) -> None:
        dynamodb.put_item(
            TableName=TABLE,
            Item={
                CATALOG_PARTITION_KEY: {"S": PREFIX + claimed.stream},
                CATALOG_SORT_KEY: {"S": "watermark"},
                "kind": {"S": "watermark"},
                "prefix": {"S": PREFIX},
            },
        )

        assert [e.stream for e in catalog.streams() if e.stream == claimed.stream] == [
            claimed.stream
        ]
        assert catalog.get(claimed.stream) == claimed

    def test_one_item_that_cannot_be_read_hides_no_other_stream(
        self, dynamodb: Any, catalog: Catalog, stream: str
    ) -> None:
        names = [f"{stream}_{number}" for number in range(8)]
        for name in names:
            catalog.anchor(CatalogItem(stream=name, table_id=catalog.table_id()))
        damaged = {
            CATALOG_PARTITION_KEY: {"S": PREFIX + names[0]},
            CATALOG_SORT_KEY: {"S": CATALOG_ITEM},
        }
        dynamodb.update_item(TableName=TABLE, Key=damaged, UpdateExpression="REMOVE ledger")

        try:
            seen: set[str] = set()

            def walk() -> None:
                for each in catalog.streams():
                    seen.add(each.stream)

            with pytest.raises(CorruptDataError) as caught:
                walk()
            assert names[0] in str(caught.value)
            assert set(names[1:]) <= seen
        finally:
            dynamodb.delete_item(TableName=TABLE, Key=damaged)
