"""The deployed app with streams below a prefix of their own, and jobs that run in this process.

A job is its script's real `main`, on a local Spark session that the tests of one module share.
"""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq
import pytest

from coldstream import names
from coldstream.adapters.dynamodb import DynamoCatalog
from coldstream.adapters.dynamodb_policies import DynamoPolicies
from coldstream.adapters.s3_boto import BotoObjectStore
from coldstream.jobs.snapshots import SnapshotTable
from coldstream.manifest.tree import leaves
from coldstream.remote.context import World
from coldstream.remote.roots import load
from coldstream_devkit.emulator import Emulator
from tests.glue.streams import fill

MARKS = [
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

    def arguments(self, job: str, **more: str) -> list[str]:
        given = {
            "bucket": self.outputs[names.OUTPUT_BUCKET],
            "table": self.outputs[names.OUTPUT_TABLE],
            "prefix": self.world.prefix,
            "endpoint": self.emulator.endpoint,
            "warehouse": f"{self.outputs[names.OUTPUT_WAREHOUSE]}{job}/",
            "database": self.outputs[names.OUTPUT_DATABASE],
            **more,
        }
        return [word for key, value in given.items() for word in (f"--{key}", value)]

    def new_world(self) -> World:
        """The same remote tier, nothing cached."""
        return World(self.world.store, self.world.catalog, self.world.prefix, self.world.new_uid)

    def key(self, stream: str, number: int) -> str:
        loaded = load(self.world, stream)
        entry = list(leaves(loaded.root, self.world.fetch(stream)))[number]
        return entry.data_key(stream).path(self.world.prefix)

    def rows(self, table: SnapshotTable) -> list[dict[str, Any]]:
        """The rows of the newest snapshot of a table, by way of the catalog."""
        glue, s3 = self.emulator.client("glue"), self.emulator.client("s3")
        partitions = glue.get_partitions(
            DatabaseName=self.outputs[names.OUTPUT_DATABASE], TableName=table.name
        )["Partitions"]
        newest = max(partitions, key=lambda each: each["Values"])
        bucket, _, under = newest["StorageDescriptor"]["Location"][5:].partition("/")
        found = s3.list_objects_v2(Bucket=bucket, Prefix=under).get("Contents", [])
        bodies = [s3.get_object(Bucket=bucket, Key=one["Key"])["Body"].read() for one in found]
        return [
            row for body in bodies for row in pq.ParquetFile(io.BytesIO(body)).read().to_pylist()
        ]


@contextmanager
def deployed(emulator: Emulator, prefix: str) -> Iterator[Site]:
    """Deploy unless it is, fill a prefix, and point this process there."""
    outputs = emulator.deploy_app().outputs
    bucket, table = outputs[names.OUTPUT_BUCKET], outputs[names.OUTPUT_TABLE]
    dynamodb = emulator.client("dynamodb")
    world = World(
        BotoObjectStore(client=emulator.client("s3"), bucket=bucket),
        DynamoCatalog(client=dynamodb, table=table, prefix=prefix),
        prefix,
        lambda: secrets.randbits(64),
    )
    fill(world, DynamoPolicies(client=dynamodb, table=table, prefix=prefix))
    with pointed_at(emulator):
        yield Site(emulator, outputs, world)


@contextmanager
def pointed_at(emulator: Emulator) -> Iterator[None]:
    """Credentials for this process, and a Spark session that ends if it is begun here."""
    from pyspark.sql import SparkSession

    others = SparkSession.getActiveSession()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in emulator.environment().items():
            patch.setenv(name, value)
        # What a job is told by its arguments must reach every client of it, in every process.
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        yield
        session = SparkSession.getActiveSession()
        # A session that was there before belongs to other tests of this process.
        if session is not None and others is None:
            session.stop()


def last_line(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What a job has said at its end."""
    loaded: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return loaded
