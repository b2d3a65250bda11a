"""The jobs as deployed: started through Glue's API, run on Spark, their tables in the catalog."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coldstream import deployment
from coldstream.adapters.dynamodb import DynamoCatalog
from coldstream.adapters.dynamodb_policies import DynamoPolicies
from coldstream.adapters.s3_boto import BotoObjectStore
from coldstream.jobs.fleet_tables import FRAGMENTS, OBJECTS, STREAMS
from coldstream.jobs.profile_tables import ALL
from coldstream.jobs.snapshots import SnapshotTable
from coldstream.remote.context import Context
from coldstream_devkit.emulator import Emulator
from tests.glue.in_process import snapshots_of
from tests.glue.streams import DEEP, EMPTY, HOLED, STRAY, fill

pytestmark = pytest.mark.emulator

PREFIX = "started/"


@dataclass(frozen=True)
class Site:
    """The deployed app, with streams in it."""

    emulator: Emulator
    outputs: dict[str, str]

    def run(self, job: str, **arguments: str) -> dict[str, Any]:
        """Start a job and wait for its end."""
        glue = self.emulator.client("glue")
        name = f"{deployment.STACK_NAME}-{job}"
        arguments["prefix"] = PREFIX
        given = {f"--{key.replace('_', '-')}": value for key, value in arguments.items()}
        run_id = glue.start_job_run(JobName=name, Arguments=given)["JobRunId"]
        deadline = time.monotonic() + 600
        while True:
            run: dict[str, Any] = glue.get_job_run(JobName=name, RunId=run_id)["JobRun"]
            if run["JobRunState"] not in ("STARTING", "RUNNING"):
                return run
            assert time.monotonic() < deadline, "the job does not end"
            time.sleep(0.2)

    def last_line(self, run: dict[str, Any]) -> dict[str, Any]:
        """What a run said at its end, out of its log."""
        events = self.emulator.client("logs").get_log_events(
            logGroupName=f"/aws-glue/jobs/{deployment.STACK_NAME}/output", logStreamName=run["Id"]
        )["events"]
        loaded: dict[str, Any] = json.loads(events[-1]["message"])
        return loaded

    def rows(self, table: SnapshotTable) -> list[dict[str, Any]]:
        """The rows of a table's newest snapshot, found by way of the catalog, as Athena does."""
        database = self.outputs[deployment.OUTPUT_DATABASE]
        found = self.emulator.client("glue").get_table(DatabaseName=database, Name=table.name)
        columns = found["Table"]["StorageDescriptor"]["Columns"]
        assert {each["Name"] for each in columns} == set(table.columns.names)
        assert found["Table"]["Parameters"]["table_type"] == "ICEBERG"
        snapshots = snapshots_of(self.emulator, f"{database}.{table.name}")
        return snapshots[max(snapshots)]

    def total(self, metric: str, **dimensions: str) -> float:
        """Sum of a metric."""
        points = self.emulator.client("cloudwatch").get_metric_statistics(
            Namespace=deployment.METRIC_NAMESPACE,
            MetricName=metric,
            Dimensions=[
                {"Name": name, "Value": value}
                for name, value in {"service": "coldstream", **dimensions}.items()
            ],
            StartTime=datetime.now(UTC) - timedelta(hours=1),
            EndTime=datetime.now(UTC) + timedelta(minutes=5),
            Period=3600,
            Statistics=["Sum"],
        )["Datapoints"]
        return float(sum(point["Sum"] for point in points))


@pytest.fixture(scope="module")
def site(emulator: Emulator) -> Site:
    """Streams below a prefix that no other test uses: fleet looks at all that there are."""
    outputs = emulator.deploy_app().outputs
    bucket, table = outputs[deployment.OUTPUT_BUCKET], outputs[deployment.OUTPUT_TABLE]
    s3, dynamodb = emulator.client("s3"), emulator.client("dynamodb")
    context = Context(
        BotoObjectStore(client=s3, bucket=bucket),
        DynamoCatalog(client=dynamodb, table=table, prefix=PREFIX),
        PREFIX,
        lambda: secrets.randbits(64),
    )
    fill(context, DynamoPolicies(client=dynamodb, table=table, prefix=PREFIX))
    return Site(emulator, outputs)


@pytest.mark.slow  # `make demo` runs it, too
def test_fleet_writes_every_stream_fragment_and_object_where_the_catalog_says(site: Site) -> None:
    streams_told = site.total(deployment.METRIC_STREAMS, job="fleet")
    holes_told = site.total(deployment.METRIC_HOLES)
    run = site.run("fleet", objects="true")

    assert run["JobRunState"] == "SUCCEEDED", run["ErrorMessage"]
    said = site.last_line(run)
    assert (said["ok"], said["run_id"], said["streams"]) == (True, run["Id"], 3)
    assert said["streams_without_item"] == [STRAY]
    streams = {row["stream"]: row for row in site.rows(STREAMS)}
    assert streams.keys() == {DEEP, HOLED, EMPTY}
    assert (streams[DEEP]["fragments"], streams[HOLED]["holes"]) == (40, 1)
    assert streams[DEEP]["last_commit"] > datetime.now(UTC) - timedelta(hours=1)
    fragments = site.rows(FRAGMENTS)
    assert len(fragments) == 44
    objects = {row["key"]: row for row in site.rows(OBJECTS)}
    assert all(objects[row["key"]]["referenced"] for row in fragments)
    assert site.total(deployment.METRIC_STREAMS, job="fleet") == streams_told + 3
    assert site.total(deployment.METRIC_HOLES) == holes_told + 1


@pytest.mark.slow  # as above
def test_profile_writes_its_tables_and_its_page(site: Site) -> None:
    run = site.run("profile", streams="deep", window="36500d", bucket_length="1m")

    assert run["JobRunState"] == "SUCCEEDED", run["ErrorMessage"]
    said = site.last_line(run)
    assert (said["streams"], said["failed"]) == (1, [])
    (row,) = site.rows(ALL[0])
    assert (row["stream"], row["offsets"], row["sampled_messages"]) == (DEEP, 400, 400)
    assert sum(each["offsets"] for each in site.rows(ALL[1])) == 400
    assert site.rows(ALL[3]) == []
    bucket, _, key = said["report"][5:].partition("/")
    html = site.emulator.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read().decode()
    assert html.startswith("<!doctype html>")
    assert DEEP in html


def test_a_run_with_a_misspelled_argument_fails_at_once_and_is_counted(site: Site) -> None:
    run = site.run("fleet", object="true")

    assert run["JobRunState"] == "FAILED"
    assert "did you mean --objects?" in run["ErrorMessage"]
    deadline = time.monotonic() + 120
    while not site.total(deployment.METRIC_WORKFLOW_FAILURES, workflow="coldstream-fleet"):
        assert time.monotonic() < deadline, "the failure was not counted"
        time.sleep(0.2)
