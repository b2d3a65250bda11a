"""The AWS adapters keep the rules of their ports on the embedded AWS, also under many threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest

from coldstream.adapters.s3 import S3ObjectStore, open_store
from coldstream.adapters.s3_boto import BotoObjectStore
from coldstream.ports import ObjectStore
from coldstream.testing.catalog_suite import CatalogRaceSuite
from coldstream.testing.emulator import Emulator
from coldstream.testing.object_store_suite import ObjectStoreRaceSuite, ObjectStoreSuite
from tests.contract.aws import BUCKET, BotoStoreRules, DynamoCatalogRules, create_table
from tests.contract.conftest import CONFIG

pytestmark = pytest.mark.emulator


@pytest.fixture(scope="module")
def site(emulator: Emulator) -> Emulator:
    """The embedded AWS with one bucket and one table; tests use prefixes of their own."""
    emulator.client("s3").create_bucket(Bucket=BUCKET)
    create_table(emulator.client("dynamodb"))
    return emulator


def fresh_client(site: Emulator, service: str) -> Iterator[Any]:
    """A client of one test, because tests hang faults on it."""
    environment = site.environment()
    client = boto3.client(
        service,
        endpoint_url=site.endpoint,
        region_name=environment["AWS_DEFAULT_REGION"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        config=CONFIG,
    )
    yield client
    client.close()


class Filling:
    def fill(self, store: ObjectStore, keys: Sequence[str]) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: store.put(key, b"x", write_id="w"), keys))


class TestBotoObjectStore(Filling, BotoStoreRules, ObjectStoreRaceSuite):
    @pytest.fixture
    def s3(self, site: Emulator) -> Iterator[Any]:
        yield from fresh_client(site, "s3")

    @pytest.fixture
    def store(self, s3: Any) -> ObjectStore:
        return BotoObjectStore(client=s3, bucket=BUCKET)


class TestS3ObjectStore(Filling, ObjectStoreSuite, ObjectStoreRaceSuite):
    @pytest.fixture
    def store(self, site: Emulator) -> ObjectStore:
        return S3ObjectStore(
            bucket=BUCKET, store=open_store(BUCKET, environment=site.environment())
        )


class TestDynamoCatalog(DynamoCatalogRules, CatalogRaceSuite):
    @pytest.fixture
    def dynamodb(self, site: Emulator) -> Iterator[Any]:
        yield from fresh_client(site, "dynamodb")
