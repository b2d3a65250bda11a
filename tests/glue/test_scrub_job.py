"""The script glue_jobs/scrub.py as Glue starts it, on local Spark against the embedded AWS."""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq
import pytest

from coldstream import names
from coldstream.adapters.dynamodb import DynamoCatalog
from coldstream.adapters.dynamodb_policies import DynamoPolicies
from coldstream.adapters.s3_boto import BotoObjectStore
from coldstream.errors import CorruptDataError
from coldstream.fragment import HEADER
from coldstream.jobs.scrub.findings import FINDINGS
from coldstream.manifest.tree import leaves
from coldstream.testing.emulator import Emulator
from coldstream.usecases.load import World, load
from glue_jobs.scrub import main
from tests.glue.streams import DEEP, HOLED, fill

pytestmark = [
    pytest.mark.emulator,
    # py4j leaves its sockets to the collector of garbage.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@dataclass
class Site:
    """The deployed app with streams in it, and this process pointed at it."""

    emulator: Emulator
    outputs: dict[str, str]
    world: World

    def arguments(self, **more: str) -> list[str]:
        given = {
            "bucket": self.outputs[names.OUTPUT_BUCKET],
            "table": self.outputs[names.OUTPUT_TABLE],
            "prefix": self.outputs[names.OUTPUT_PREFIX],
            "endpoint": self.emulator.endpoint,
            "warehouse": self.outputs[names.OUTPUT_WAREHOUSE] + "scrub/",
            "database": self.outputs[names.OUTPUT_DATABASE],
            "task_bytes": "3000",
            "streams": f"{DEEP}|{HOLED}",
            **more,
        }
        return [word for key, value in given.items() for word in (f"--{key}", value)]

    def key(self, stream: str, number: int) -> str:
        loaded = load(self.world, stream)
        entry = list(leaves(loaded.root, self.world.fetch(stream)))[number]
        return entry.data_key(stream).path(self.world.prefix)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the newest snapshot of the table of findings, by way of the catalog."""
        glue, s3 = self.emulator.client("glue"), self.emulator.client("s3")
        partitions = glue.get_partitions(
            DatabaseName=self.outputs[names.OUTPUT_DATABASE], TableName=FINDINGS.name
        )["Partitions"]
        newest = max(partitions, key=lambda each: each["Values"])
        bucket, _, under = newest["StorageDescriptor"]["Location"][5:].partition("/")
        found = s3.list_objects_v2(Bucket=bucket, Prefix=under).get("Contents", [])
        bodies = [s3.get_object(Bucket=bucket, Key=one["Key"])["Body"].read() for one in found]
        return [
            row for body in bodies for row in pq.ParquetFile(io.BytesIO(body)).read().to_pylist()
        ]


@pytest.fixture(scope="module")
def site(emulator: Emulator) -> Iterator[Site]:
    outputs = emulator.deploy_app().outputs
    bucket, table, prefix = (
        outputs[name] for name in (names.OUTPUT_BUCKET, names.OUTPUT_TABLE, names.OUTPUT_PREFIX)
    )
    dynamodb = emulator.client("dynamodb")
    world = World(
        BotoObjectStore(client=emulator.client("s3"), bucket=bucket),
        DynamoCatalog(client=dynamodb, table=table, prefix=prefix),
        prefix,
        lambda: secrets.randbits(64),
    )
    fill(world, DynamoPolicies(client=dynamodb, table=table, prefix=prefix))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in emulator.environment().items():
            patch.setenv(name, value)
        yield Site(emulator, outputs, world)
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        if session is not None:
            session.stop()


def last_line(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return loaded


def test_a_sound_remote_tier_ends_well_and_is_not_read_again(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    main(site.arguments())
    said = last_line(capsys)

    assert said["ok"]
    assert (said["streams"], said["fragments"]) == (2, 43)
    assert said["findings"]["damaged"] == 0
    assert said["tasks"] > 5
    assert said["never_scrubbed"]

    main(site.arguments())
    again = last_line(capsys)

    assert (again["fragments"], again["bytes"]) == (0, 0)
    assert not again["never_scrubbed"]


def test_damage_is_in_the_table_in_the_line_and_in_the_error_of_the_run(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    path = site.key(DEEP, 7)
    s3, bucket = site.emulator.client("s3"), site.outputs[names.OUTPUT_BUCKET]
    good = s3.get_object(Bucket=bucket, Key=path)["Body"].read()
    bad = bytearray(good)
    bad[len(HEADER) + 70] ^= 4
    s3.put_object(Bucket=bucket, Key=path, Body=bytes(bad))

    with pytest.raises(CorruptDataError) as caught:
        main(site.arguments(every="0", JOB_NAME="coldstream-scrub", JOB_RUN_ID="jr_1"))

    assert (caught.value.stream, caught.value.offset, caught.value.key) == (DEEP, 70, path)
    said = last_line(capsys)
    assert (said["ok"], said["run_id"]) == (True, "jr_1")  # the run itself has done its work
    assert said["findings"]["damaged"] == 1
    assert said["worst"][0]["key"] == path
    damaged = [row for row in site.rows() if row["severity"] == "damaged"]
    assert [(row["kind"], row["key"]) for row in damaged] == [("chunk_crc", path)]
    assert (damaged[0]["first_offset"], damaged[0]["next_offset"]) == (70, 80)

    s3.put_object(Bucket=bucket, Key=path, Body=good)
    main(site.arguments(every="0"))


def test_a_budget_takes_what_was_longest_unchecked(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    main(site.arguments(every="0", **{"max-bytes": "4000"}))
    said = last_line(capsys)

    assert 0 < said["bytes"] <= 4000


def test_a_quick_run_reads_no_data(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    main(site.arguments(every="0", quick="true"))
    said = last_line(capsys)

    assert said["fragments"] == 43
    assert 0 < said["bytes"] < 43 * 300
