"""AWS that is not there: moto in this process, and a bridge to it for clients like obstore."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import boto3
import pytest
from botocore.config import Config
from moto import mock_aws
from moto.core.responses import ActionResult
from moto.s3 import responses

from coldstream_devkit.emulator import Emulator
from tests.contract.bridge import Bridge
from tests.support.aws import BUCKET, create_table

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
        patch.setattr(responses, "ActionResult", _with_encoded_start)
        boto3.client("s3", region_name=REGION).create_bucket(Bucket=BUCKET)
        create_table(boto3.client("dynamodb", region_name=REGION))
        yield


def _with_encoded_start(result: Any) -> Any:
    """moto encodes the keys of a listing, but not where it began, so that some are no XML."""
    if isinstance(result, dict) and "StartAfter" in result and "EncodingType" in result:
        result["StartAfter"] = quote(result["StartAfter"])
    return ActionResult(result)


@pytest.fixture(scope="module")
def bridge(moto_aws: None) -> Iterator[Bridge]:
    """moto's S3 over HTTP."""
    with Bridge() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def site(emulator: Emulator) -> Emulator:
    """The embedded AWS with one bucket and one table; tests use prefixes of their own."""
    emulator.client("s3").create_bucket(Bucket=BUCKET)
    create_table(emulator.client("dynamodb"))
    return emulator


def boto3_client(site: Emulator, service: str, **options: Any) -> Any:
    """A client of its own, because tests hang faults on it; `options` are more of its `Config`."""
    environment = site.environment()
    return boto3.client(
        service,
        endpoint_url=site.endpoint,
        region_name=environment["AWS_DEFAULT_REGION"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        config=CONFIG.merge(Config(**options)),
    )


def closing_client(site: Emulator, service: str) -> Iterator[Any]:
    """The same, closed after its test."""
    client = boto3_client(site, service)
    yield client
    client.close()
