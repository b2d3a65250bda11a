"""A bucket or a table that is not there is a wrong setting, and never looks like lost data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3
import pytest

from coldstream.adapters.s3 import S3ObjectStore, open_store
from coldstream.adapters.s3_boto import BotoObjectStore
from coldstream.adapters.settings import MisconfiguredError
from coldstream.cli import connect as connecting
from coldstream.cli.exit_codes import ExitCode, exit_code_of
from coldstream.cli.report import explain
from coldstream.errors import NotFoundError
from coldstream.ports import ObjectStore
from tests.contract.bridge import Bridge
from tests.support.aws import BUCKET, TABLE

REQUESTS: dict[str, Callable[[ObjectStore], object]] = {
    "get": lambda store: store.get("p/k", 0, 3),
    "get_all": lambda store: store.get_all("p/k", limit=9),
    "get_suffix": lambda store: store.get_suffix("p/k", 3),
    "list": lambda store: store.list("p/"),
    "put": lambda store: store.put("p/k", b"x", write_id="w"),
}


@pytest.fixture(params=["obstore", "boto3"])
def open_bucket(request: pytest.FixtureRequest, bridge: Bridge) -> Callable[[str], ObjectStore]:
    if request.param == "boto3":
        client: Any = boto3.client("s3", region_name="us-east-1")
        return lambda bucket: BotoObjectStore(client=client, bucket=bucket)
    environment = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": bridge.endpoint,
    }
    return lambda bucket: S3ObjectStore(
        bucket=bucket, store=open_store(bucket, environment=environment)
    )


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_a_bucket_that_is_not_there_is_a_wrong_setting_and_no_lost_object(
    open_bucket: Callable[[str], ObjectStore], request_: Callable[[ObjectStore], object]
) -> None:
    with pytest.raises(MisconfiguredError, match="there is no bucket 'misspelled'") as caught:
        request_(open_bucket("misspelled"))

    assert exit_code_of(caught.value) is ExitCode.CONFIGURATION
    said = explain(caught.value, "read")
    assert "why: configuration" in said
    assert "Debug source" not in said
    assert len(said) < 400


def test_an_object_that_is_not_there_stays_not_found(
    open_bucket: Callable[[str], ObjectStore],
) -> None:
    with pytest.raises(NotFoundError):
        open_bucket(BUCKET).get_all("p/none", limit=9)


def test_a_table_that_is_not_there_is_named(
    moto_aws: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLDSTREAM_TABLE", raising=False)
    remote = connecting.connect(bucket=BUCKET, table="misspelled", prefix="p/")

    for request in (
        lambda: remote.catalog.get("__s_1"),
        lambda: list(remote.catalog.streams()),
        lambda: remote.catalog.page(None, 9),
        remote.catalog.table_id,
        remote.policies.load,
    ):
        with pytest.raises(MisconfiguredError, match="no DynamoDB table 'misspelled'") as caught:
            request()
        assert "coldstream streams" not in explain(caught.value, "read")


def test_a_table_that_is_there_is_not_complained_of(moto_aws: None) -> None:
    remote = connecting.connect(bucket=BUCKET, table=TABLE, prefix="p/")

    assert remote.catalog.get("__s_1") is None
