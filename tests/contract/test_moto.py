"""The AWS adapters keep the rules of their ports, as far as moto can tell: one thread only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import boto3
import pytest
from botocore.config import Config

from coldstream.adapters.s3 import S3ObjectStore, open_store
from coldstream.adapters.s3_boto import BotoObjectStore
from coldstream.adapters.s3_send import Sender, SendingObjectStore
from coldstream.ports import ObjectStore
from coldstream_devkit.suites.object_store import LostPutAnswerSuite, ObjectStoreSuite
from coldstream_devkit.suites.odd_keys import OddKeysSuite
from tests.contract.bridge import Bridge
from tests.contract.conftest import CONFIG, REGION
from tests.support.aws import BUCKET, BotoStoreRules, DynamoCatalogRules, give_table_id, put_raw

# What moto does is done by the embedded AWS too, where `make test` looks.
pytestmark = pytest.mark.slow


class TestBotoObjectStore(BotoStoreRules):
    @pytest.fixture
    def s3(self, moto_aws: None) -> Any:
        return boto3.client("s3", region_name=REGION, config=CONFIG)

    @pytest.fixture
    def store(self, s3: Any) -> ObjectStore:
        return BotoObjectStore(client=s3, bucket=BUCKET)


class TestS3ObjectStore(ObjectStoreSuite, OddKeysSuite, LostPutAnswerSuite):
    @pytest.fixture
    def plant(self, moto_aws: None) -> Callable[[Sequence[str]], None]:
        # obstore writes no odd key.
        return partial(put_raw, boto3.client("s3", region_name=REGION))

    @pytest.fixture
    def store(self, bridge: Bridge) -> ObjectStore:
        environment = {
            "AWS_ENDPOINT_URL": bridge.endpoint,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
        }
        return S3ObjectStore(bucket=BUCKET, store=open_store(BUCKET, environment=environment))

    @pytest.fixture(autouse=True)
    def undisturbed(self, bridge: Bridge) -> None:
        bridge.lose_answers = bridge.lose_requests = bridge.answer_conflict = 0

    @pytest.fixture
    def lose_answers(self, bridge: Bridge) -> Callable[[int], None]:
        return lambda count: setattr(bridge, "lose_answers", count)

    @pytest.fixture
    def lose_requests(self, bridge: Bridge) -> Callable[[int], None]:
        return lambda count: setattr(bridge, "lose_requests", count)

    @pytest.fixture
    def answer_conflict(self, bridge: Bridge) -> Callable[[int], None]:
        return lambda count: setattr(bridge, "answer_conflict", count)


class TestSendingObjectStore(TestS3ObjectStore):
    @pytest.fixture
    def store(self, bridge: Bridge) -> Iterator[ObjectStore]:
        def make_client(options: Mapping[str, Any]) -> Any:
            return boto3.client(
                "s3",
                endpoint_url=bridge.endpoint,
                region_name=REGION,
                config=Config(**options),
            )

        environment = {
            "AWS_ENDPOINT_URL": bridge.endpoint,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
        }
        made = SendingObjectStore(
            bucket=BUCKET,
            make_client=make_client,
            sender=Sender(),
            store=open_store(BUCKET, environment=environment),
        )
        yield made
        made.close()

    @pytest.mark.skip(reason="moto compares no checksum; the embedded AWS does, and is asked")
    def test_bytes_that_are_not_those_that_were_checked_are_not_stored(
        self, store: ObjectStore, prefix: str
    ) -> None:
        """S3 itself has to refuse them."""


class TestDynamoCatalog(DynamoCatalogRules):
    @pytest.fixture
    def dynamodb(self, moto_aws: None) -> Any:
        client = boto3.client("dynamodb", region_name=REGION, config=CONFIG)
        give_table_id(client)
        return client
