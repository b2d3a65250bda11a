"""The AWS adapters that change things keep the rules of their ports, as far as moto can tell."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from tests.contract.aws_changes import (
    DynamoHeartbeatsRules,
    DynamoOffsetsRules,
    DynamoPoliciesRules,
    DynamoStateRules,
    S3ComposerRules,
    S3DeleterRules,
    S3VersionsRules,
    StepFunctionsRules,
    create_machine,
)
from tests.contract.conftest import CONFIG, REGION
from tests.support.aws import give_table_id

# What moto does is done by the embedded AWS too, where `make test` looks.
pytestmark = pytest.mark.slow


@pytest.fixture
def s3(moto_aws: None) -> Any:
    return boto3.client("s3", region_name=REGION, config=CONFIG)


@pytest.fixture
def dynamodb(moto_aws: None) -> Any:
    client = boto3.client("dynamodb", region_name=REGION, config=CONFIG)
    give_table_id(client)
    return client


class TestS3Deleter(S3DeleterRules):
    pass


class TestS3Versions(S3VersionsRules):
    pass


class TestS3Composer(S3ComposerRules):
    pass


class TestDynamoStates(DynamoStateRules):
    pass


class TestDynamoHeartbeats(DynamoHeartbeatsRules):
    pass


class TestDynamoOffsets(DynamoOffsetsRules):
    pass


class TestDynamoPolicies(DynamoPoliciesRules):
    pass


class TestStepFunctions(StepFunctionsRules):
    @pytest.fixture
    def states(self, moto_aws: None) -> Any:
        return boto3.client("stepfunctions", region_name=REGION, config=CONFIG)

    @pytest.fixture
    def machine(self, states: Any) -> str:
        return create_machine(states)
