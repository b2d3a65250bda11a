"""The deployed app with streams below a prefix of their own, and jobs that run in this process.

A job is its script's real `main`, on a local Spark session that the tests of one module share.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError

from coldstream import deployment
from coldstream.adapters.dynamodb import DynamoCatalog
from coldstream.adapters.dynamodb_policies import DynamoPolicies
from coldstream.adapters.place import Place
from coldstream.adapters.s3_boto import BotoObjectStore
from coldstream.jobs.materialise.iceberg.open_tables import glue_catalog
from coldstream.jobs.snapshots import PARTITION, SNAPSHOT_PROPERTY, SnapshotTable
from coldstream.manifest.tree import leaves
from coldstream.remote.context import Context
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
    context: Context

    def arguments(self, job: str, **more: str) -> list[str]:
        given = {
            "bucket": self.outputs[deployment.OUTPUT_BUCKET],
            "table": self.outputs[deployment.OUTPUT_TABLE],
            "prefix": self.context.prefix,
            "endpoint": self.emulator.endpoint,
            "warehouse": f"{self.outputs[deployment.OUTPUT_WAREHOUSE]}{job}/",
            "database": self.outputs[deployment.OUTPUT_DATABASE],
            **more,
        }
        return [word for key, value in given.items() for word in (f"--{key}", value)]

    def new_context(self) -> Context:
        """The same remote tier, nothing cached."""
        return Context(
            self.context.store, self.context.catalog, self.context.prefix, self.context.new_uid
        )

    def key(self, stream: str, number: int) -> str:
        loaded = load(self.context, stream)
        entry = list(leaves(loaded.root, self.context.fetch(stream)))[number]
        return entry.data_key(stream).path(self.context.prefix)

    def rows(self, table: SnapshotTable) -> list[dict[str, Any]]:
        """The rows of the newest snapshot of a table, by way of the catalog."""
        found = snapshots_of(
            self.emulator, f"{self.outputs[deployment.OUTPUT_DATABASE]}.{table.name}"
        )
        return found[max(found)]


def snapshots_of(emulator: Emulator, name: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of every snapshot that a run has made part of a table, also of those without."""
    with pytest.MonkeyPatch.context() as patch:
        for key, value in emulator.environment().items():
            patch.setenv(key, value)
        place = Place("", "", "", "us-east-1", emulator.endpoint)
        try:
            table = glue_catalog(place, "s3://unused/").load_table(name)
        except NoSuchTableError:
            return {}
        commits = [each.summary for each in table.snapshots() if each.summary is not None]
        found: dict[str, list[dict[str, Any]]] = {
            each.additional_properties[SNAPSHOT_PROPERTY]: [] for each in commits
        }
        for row in table.scan().to_arrow().to_pylist():
            found[row.pop(PARTITION)].append(row)
        return found


@contextmanager
def deployed(emulator: Emulator, prefix: str) -> Iterator[Site]:
    """Deploy unless it is, fill a prefix, and point this process there."""
    outputs = emulator.deploy_app().outputs
    bucket, table = outputs[deployment.OUTPUT_BUCKET], outputs[deployment.OUTPUT_TABLE]
    dynamodb = emulator.client("dynamodb")
    context = Context(
        BotoObjectStore(client=emulator.client("s3"), bucket=bucket),
        DynamoCatalog(client=dynamodb, table=table, prefix=prefix),
        prefix,
        lambda: secrets.randbits(64),
    )
    fill(context, DynamoPolicies(client=dynamodb, table=table, prefix=prefix))
    with pointed_at(emulator):
        yield Site(emulator, outputs, context)


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
