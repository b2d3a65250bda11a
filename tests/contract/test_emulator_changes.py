"""The AWS adapters that change things keep the rules of their ports on the embedded AWS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from coldstream_devkit.emulator import Emulator
from coldstream_devkit.suites.policies import PoliciesRaceSuite
from coldstream_devkit.suites.state import StateRaceSuite
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
from tests.contract.conftest import closing_client

pytestmark = pytest.mark.emulator


@pytest.fixture
def s3(site: Emulator) -> Iterator[Any]:
    yield from closing_client(site, "s3")


@pytest.fixture
def dynamodb(site: Emulator) -> Iterator[Any]:
    yield from closing_client(site, "dynamodb")


@pytest.fixture
def states(site: Emulator) -> Iterator[Any]:
    yield from closing_client(site, "stepfunctions")


@pytest.fixture(scope="module")
def machine(site: Emulator) -> str:
    return create_machine(site.client("stepfunctions"))


class TestS3Deleter(S3DeleterRules):
    pass


class TestS3Versions(S3VersionsRules):
    pass


class TestS3Composer(S3ComposerRules):
    pass


class TestDynamoStates(DynamoStateRules, StateRaceSuite):
    pass


class TestDynamoHeartbeats(DynamoHeartbeatsRules):
    pass


class TestDynamoOffsets(DynamoOffsetsRules):
    pass


class TestDynamoPolicies(DynamoPoliciesRules, PoliciesRaceSuite):
    pass


class TestStepFunctions(StepFunctionsRules):
    pass
