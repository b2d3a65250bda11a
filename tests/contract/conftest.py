"""AWS that is not there: moto in this process, and a bridge to it for clients like obstore."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from moto import mock_aws

from coldstream.testing.emulator import emulator
from tests.contract.aws import BUCKET, create_table
from tests.contract.bridge import Bridge

__all__ = ["emulator"]

REGION = "us-east-1"
#: One attempt: the tests say what is repeated.
CONFIG = Config(retries={"mode": "standard", "total_max_attempts": 1})


@pytest.fixture(scope="module")
def moto_aws() -> Iterator[None]:
    """One bucket and one table in moto, shared by a module: its tests use prefixes of their own."""
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        patch.delenv("AWS_ENDPOINT_URL", raising=False)
        boto3.client("s3", region_name=REGION).create_bucket(Bucket=BUCKET)
        create_table(boto3.client("dynamodb", region_name=REGION))
        yield


@pytest.fixture(scope="module")
def bridge(moto_aws: None) -> Iterator[Bridge]:
    """moto's S3 over HTTP."""
    with Bridge() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def give_table_id(dynamodb: Any) -> None:
    """moto gives tables no id; DynamoDB does."""

    def add(parsed: dict[str, Any], **_: Any) -> None:
        parsed["Table"]["TableId"] = "0a1b2c3d"

    dynamodb.meta.events.register("after-call.dynamodb.DescribeTable", add)
