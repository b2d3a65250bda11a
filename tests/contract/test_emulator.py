"""The AWS adapters keep the rules of their ports on the embedded AWS, also under many threads."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from coldstream.adapters.dynamodb import DynamoCatalog
from coldstream.adapters.s3 import S3ObjectStore, open_store
from coldstream.adapters.s3_boto import BotoObjectStore
from coldstream.adapters.s3_send import Sender, SendingObjectStore
from coldstream.manifest.catalog import QueueName
from coldstream.manifest.root import Root
from coldstream.plans.claim import NO_HISTORY
from coldstream.ports import ObjectStore
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.usecases.claim import anchor
from coldstream.usecases.commit_runs import commit_runs
from coldstream_devkit.claims import claim
from coldstream_devkit.emulator import Emulator
from coldstream_devkit.suites.catalog import CatalogRaceSuite
from coldstream_devkit.suites.object_store import ObjectStoreRaceSuite, ObjectStoreSuite
from coldstream_devkit.suites.odd_keys import OddKeysSuite
from tests.contract.conftest import boto3_client, closing_client
from tests.support.aws import (
    BUCKET,
    PREFIX,
    TABLE,
    BotoStoreRules,
    DynamoCatalogRules,
    put_raw,
)
from tests.support.remote import chain

pytestmark = pytest.mark.emulator


def short_pause(attempt: int) -> None:
    time.sleep(random.uniform(0, 0.02 * attempt))


class Filling:
    def fill(self, store: ObjectStore, keys: Sequence[str]) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: store.put(key, b"x", write_id="w"), keys))


class TestBotoObjectStore(Filling, BotoStoreRules, ObjectStoreRaceSuite):
    @pytest.fixture
    def s3(self, site: Emulator) -> Iterator[Any]:
        yield from closing_client(site, "s3")

    @pytest.fixture
    def store(self, s3: Any) -> ObjectStore:
        return BotoObjectStore(client=s3, bucket=BUCKET)


class TestS3ObjectStore(Filling, ObjectStoreSuite, OddKeysSuite, ObjectStoreRaceSuite):
    @pytest.fixture
    def plant(self, site: Emulator) -> Callable[[Sequence[str]], None]:
        # obstore writes no odd key.
        return partial(put_raw, site.client("s3"))

    @pytest.fixture
    def store(self, site: Emulator) -> ObjectStore:
        return S3ObjectStore(
            bucket=BUCKET, store=open_store(BUCKET, environment=site.environment())
        )


class TestSendingObjectStore(TestS3ObjectStore):
    @pytest.fixture
    def store(self, site: Emulator) -> Iterator[ObjectStore]:
        made = SendingObjectStore(
            bucket=BUCKET,
            make_client=lambda options: boto3_client(site, "s3", **options),
            sender=Sender(),
            store=open_store(BUCKET, environment=site.environment()),
        )
        yield made
        made.close()


class TestDynamoCatalog(DynamoCatalogRules, CatalogRaceSuite):
    @pytest.fixture
    def dynamodb(self, site: Emulator) -> Iterator[Any]:
        yield from closing_client(site, "dynamodb")


def test_many_committers_of_one_stream_append_every_fragment_once(site: Emulator) -> None:
    stream = f"__orders_{secrets.token_hex(6)}"
    fragments = chain(12, stream=stream)

    def commit(number: int) -> None:
        s3, dynamodb = (boto3_client(site, service) for service in ("s3", "dynamodb"))
        context = Context(
            store=BotoObjectStore(client=s3, bucket=BUCKET),
            catalog=DynamoCatalog(client=dynamodb, table=TABLE, prefix=PREFIX),
            prefix=PREFIX,
            new_uid=lambda: secrets.randbits(64),
        )
        if number < 0:
            anchor(context, stream, 0, QueueName())
            claim(context, stream, 1, log=NO_HISTORY, pause=short_pause)
        else:
            for each in fragments[number::6]:
                context.store.put(each.path(PREFIX), each.data, write_id="w")
                commit_runs(context, stream, pause=short_pause, attempts=50)
        landed.append(load(context, stream).root)
        s3.close()
        dynamodb.close()

    landed: list[Root] = []
    commit(-1)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(commit, range(6)))

    best = max(landed, key=lambda root: root.version)
    assert [(e.first_offset, e.next_offset) for e in best.entries] == [
        (n * 10, n * 10 + 10) for n in range(12)
    ]
