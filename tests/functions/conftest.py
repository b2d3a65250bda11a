"""Handlers in this process, against moto: one bucket, one table, one claimed stream."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest
from moto import mock_aws

from coldstream import deployment
from coldstream.manifest.catalog import QueueName
from coldstream.manifest.root import Root
from coldstream.names import DataKey
from coldstream.plans.claim import NO_HISTORY
from coldstream.remote.context import Context
from coldstream.remote.roots import RootCache, load
from coldstream.usecases.claim import anchor
from coldstream_devkit.claims import claim
from coldstream_devkit.fragments import SyntheticFragment
from functions import _heartbeats, _runtime, _starts, _steps, commit_runs
from tests.support.aws import BUCKET, PREFIX, TABLE, create_table, give_table_id
from tests.support.remote import STREAM, no_pause

MACHINES = "arn:aws:states:us-east-1:123456789012:stateMachine:coldstream-"
_CACHES = (
    _runtime.remote,
    _steps.deleter,
    _steps.composer,
    _steps.version_deleter,
    _steps._policies,
    _starts._workflows,
    commit_runs._requests,
    _heartbeats._heartbeats,
)


@dataclass
class Invocation:
    """What Lambda gives a handler beside the event."""

    function_name: str = "commit-runs"
    memory_limit_in_mb: int = 256
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:123456789012:function:commit-runs"
    aws_request_id: str = "52fdfc07-2182-154f-163f-5f0f9a621d72"
    remaining_ms: int = 60_000

    def get_remaining_time_in_millis(self) -> int:
        return self.remaining_ms


@dataclass
class Site:
    """Bucket, table, and what the handlers printed."""

    context: Context
    stdout: pytest.CaptureFixture[str]
    log: io.StringIO = field(default_factory=io.StringIO)

    @property
    def s3(self) -> Any:
        return self.context.store._client  # type: ignore[attr-defined]

    def claimed(self, stream: str = STREAM) -> None:
        anchor(self.context, stream, 0, QueueName())
        claim(self.context, stream, 1, log=NO_HISTORY, pause=no_pause)

    def upload(self, *fragments: SyntheticFragment) -> list[str]:
        paths = [each.path(PREFIX) for each in fragments]
        for each, path in zip(fragments, paths, strict=True):
            self.context.store.put(path, each.data, write_id=path)
        return paths

    def hole(self, first: int, next_offset: int) -> str:
        """Declare offsets lost, as an agent does."""
        path = DataKey(STREAM, first, next_offset, 1, 9, "hole").path(PREFIX)
        self.context.store.put(path, b"", write_id=path)
        return path

    def root(self, stream: str = STREAM) -> Root:
        context = Context(self.context.store, self.context.catalog, PREFIX, lambda: 0, RootCache())
        return load(context, stream).root

    def machine(self, workflow: str) -> str:
        """Make an empty state machine of this name; give its ARN."""
        made = boto3.client("stepfunctions").create_state_machine(
            name=f"coldstream-{workflow}",
            definition='{"StartAt": "A", "States": {"A": {"Type": "Succeed"}}}',
            roleArn="arn:aws:iam::123456789012:role/machine",
        )
        return str(made["stateMachineArn"])

    def executions(self, workflow: str) -> list[dict[str, Any]]:
        """Executions of a machine, each with its input."""
        client = boto3.client("stepfunctions")
        found = client.list_executions(stateMachineArn=MACHINES + workflow)["executions"]
        return [
            {**each, "input": json.loads(client.describe_execution(
                executionArn=each["executionArn"])["input"])}
            for each in found
        ]  # fmt: skip

    def logged(self, level: str) -> list[dict[str, Any]]:
        """The structured log lines of one level."""
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line for line in lines if line["level"] == level]

    def metrics(self, workflow: str | None = None) -> dict[str, float]:
        """The metrics of the last invocation, as CloudWatch reads them from standard output.

        Those of the handler, or those that count for one workflow alone; the others are forgotten.
        """
        lines = [each for each in self.stdout.readouterr().out.splitlines() if "_aws" in each]
        (line,) = [each for each in lines if json.loads(each).get("workflow") == workflow] or ["{}"]
        if line == "{}":
            return {}
        emf = json.loads(line)
        (directive,) = emf["_aws"]["CloudWatchMetrics"]
        assert directive["Namespace"] == deployment.METRIC_NAMESPACE
        return {
            metric["Name"]: emf[metric["Name"]][0] if isinstance(emf[metric["Name"]], list)
            else emf[metric["Name"]]
            for metric in directive["Metrics"]
        }  # fmt: skip


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Site]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        deployment.ENV_BUCKET: BUCKET,
        deployment.ENV_TABLE: TABLE,
        deployment.ENV_PREFIX: PREFIX,
        deployment.ENV_CLUSTER: "c",
        deployment.ENV_BRANCHING: "4",
        deployment.ENV_FRAGMENT_SIZE: str(2**20),
        deployment.ENV_READ_WHOLE: str(2**20),
        deployment.ENV_GRACE_SECONDS: "0",
        deployment.ENV_WORKFLOWS: MACHINES,
        deployment.ENV_QUEUE_URL: "https://sqs.us-east-1.amazonaws.com/123456789012/commits",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    for cache in _CACHES:
        cache.cache_clear()
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        create_table(boto3.client("dynamodb"))
        context = _runtime.remote()
        give_table_id(context.catalog._client)  # type: ignore[attr-defined]
        found = Site(context, capsys)
        handler = _runtime.logger.registered_handler
        assert isinstance(handler, logging.StreamHandler)
        before = handler.setStream(found.log)
        found.claimed()
        yield found
        handler.setStream(before)
    for cache in _CACHES:
        cache.cache_clear()
