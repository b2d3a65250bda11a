"""The jobs as deployed: started through Glue's API, run on Spark, their tables in the catalog."""

from __future__ import annotations

import io
import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldstream import names
from coldstream.adapters.dynamodb import DynamoCatalog
from coldstream.adapters.dynamodb_policies import DynamoPolicies
from coldstream.adapters.s3_boto import BotoObjectStore
from coldstream.jobs.fleet_tables import FRAGMENTS, OBJECTS, STREAMS
from coldstream.jobs.profile_tables import ALL
from coldstream.jobs.snapshots import SnapshotTable, hive_type
from coldstream.remote.context import World
from coldstream_devkit.emulator import Emulator
from coldstream_devkit.local import process
from coldstream_devkit.local.progress import silent
from tests.glue.streams import DEEP, EMPTY, HOLED, STRAY, fill

pytestmark = pytest.mark.emulator


@dataclass(frozen=True)
class Site:
    """The deployed app, with streams in it."""

    emulator: Emulator
    outputs: dict[str, str]

    def run(self, job: str, **arguments: str) -> dict[str, Any]:
        """Start a job and wait for its end."""
        glue = self.emulator.client("glue")
        name = f"{names.STACK_NAME}-{job}"
        given = {f"--{key.replace('_', '-')}": value for key, value in arguments.items()}
        run_id = glue.start_job_run(JobName=name, Arguments=given)["JobRunId"]
        deadline = time.monotonic() + 90
        while True:
            run: dict[str, Any] = glue.get_job_run(JobName=name, RunId=run_id)["JobRun"]
            if run["JobRunState"] not in ("STARTING", "RUNNING"):
                return run
            assert time.monotonic() < deadline, "the job does not end"
            time.sleep(0.2)

    def last_line(self, run: dict[str, Any]) -> dict[str, Any]:
        """What a run said at its end, out of its log."""
        events = self.emulator.client("logs").get_log_events(
            logGroupName=f"/aws-glue/jobs/{names.STACK_NAME}/output", logStreamName=run["Id"]
        )["events"]
        loaded: dict[str, Any] = json.loads(events[-1]["message"])
        return loaded

    def rows(self, table: SnapshotTable) -> list[dict[str, Any]]:
        """The rows of a table's newest snapshot, found by way of the catalog, as Athena does."""
        glue, s3 = self.emulator.client("glue"), self.emulator.client("s3")
        database = self.outputs[names.OUTPUT_DATABASE]
        found = glue.get_table(DatabaseName=database, Name=table.name)["Table"]
        columns = {each["Name"]: each["Type"] for each in found["StorageDescriptor"]["Columns"]}
        assert columns == {each.name: hive_type(each.type) for each in table.schema}
        partitions = glue.get_partitions(DatabaseName=database, TableName=table.name)["Partitions"]
        newest = max(partitions, key=lambda each: each["Values"])
        bucket, _, under = newest["StorageDescriptor"]["Location"][5:].partition("/")
        files = s3.list_objects_v2(Bucket=bucket, Prefix=under).get("Contents", [])
        bodies = [s3.get_object(Bucket=bucket, Key=one["Key"])["Body"].read() for one in files]
        if not bodies:
            return []
        read: list[dict[str, Any]] = pa.concat_tables(
            [pq.ParquetFile(io.BytesIO(body)).read() for body in bodies]
        ).to_pylist()
        return read

    def total(self, metric: str, **dimensions: str) -> float:
        """Sum of a metric."""
        points = self.emulator.client("cloudwatch").get_metric_statistics(
            Namespace=names.METRIC_NAMESPACE,
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
def alone(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Emulator]:
    """A server that no other test uses: fleet looks at all streams that there are."""
    state_dir = tmp_path_factory.mktemp("alone")
    server = process.start(pytestconfig.rootpath, state_dir, exit_with_parent=True, progress=silent)
    yield Emulator(server, pytestconfig.rootpath)
    process.stop(state_dir)


@pytest.fixture(scope="module")
def site(alone: Emulator) -> Site:
    emulator = alone
    outputs = emulator.deploy_app().outputs
    bucket, table, prefix = (
        outputs[name] for name in (names.OUTPUT_BUCKET, names.OUTPUT_TABLE, names.OUTPUT_PREFIX)
    )
    s3, dynamodb = emulator.client("s3"), emulator.client("dynamodb")
    world = World(
        BotoObjectStore(client=s3, bucket=bucket),
        DynamoCatalog(client=dynamodb, table=table, prefix=prefix),
        prefix,
        lambda: secrets.randbits(64),
    )
    fill(world, DynamoPolicies(client=dynamodb, table=table, prefix=prefix))
    return Site(emulator, outputs)


def test_fleet_writes_every_stream_fragment_and_object_where_the_catalog_says(site: Site) -> None:
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
    assert site.total(names.METRIC_STREAMS, job="fleet") == 3
    assert site.total(names.METRIC_HOLES) == 1


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
    deadline = time.monotonic() + 20
    while not site.total(names.METRIC_WORKFLOW_FAILURES, workflow="coldstream-fleet"):
        assert time.monotonic() < deadline, "the failure was not counted"
        time.sleep(0.2)
