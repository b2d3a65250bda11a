"""Spark on two cores of this machine, and an embedded AWS with streams for it to read."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from coldstream import deployment
from coldstream.adapters.dynamodb import DynamoCatalog
from coldstream.adapters.s3 import S3ObjectStore, open_store
from coldstream.columns.reference import decode_reference
from coldstream.columns.schema import Origin, select
from coldstream.manifest.catalog import QueueName
from coldstream.manifest.entries import Entry
from coldstream.osiris.chunk import iter_chunks
from coldstream_devkit.emulator import Emulator
from coldstream_devkit.messages import any_chunks
from tests.support.aws import create_table
from tests.support.tier import FIXTURES, PREFIX, Tier, chunk, segments_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUCKET, TABLE = "spark-fragments", "spark-catalog"
ROOT = Path(__file__).parents[2]
SETTINGS = {
    "spark.master": "local[2]",
    "spark.app.name": "coldstream tests",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark leaves sockets to the garbage collector; that is not ours to mend."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@dataclass(frozen=True)
class Site:
    """The embedded AWS with one bucket and one table."""

    emulator: Emulator
    tier: Tier

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find it."""
        return {
            **self.emulator.environment(),
            deployment.ENV_BUCKET: BUCKET,
            deployment.ENV_TABLE: TABLE,
            deployment.ENV_PREFIX: PREFIX,
        }

    def add(
        self, stream: str, groups: Sequence[Sequence[bytes] | Entry], *, queue: str = ""
    ) -> None:
        """A stream whose fragments hold the given groups of chunks, in a tree of groups of four."""
        root = self.tier.add(stream, groups, name=QueueName("test", "/", queue))
        from coldstream.plans.rebalance import rebalance

        change = rebalance(root, 4, self.tier.uids)
        if change.nodes:
            self.tier.publish(stream, change)


@pytest.fixture(scope="session")
def site(emulator: Emulator) -> Site:
    emulator.client("s3").create_bucket(Bucket=BUCKET)
    create_table(emulator.client("dynamodb"), TABLE)
    store = S3ObjectStore(
        bucket=BUCKET, store=open_store(BUCKET, environment=emulator.environment())
    )
    catalog: Any = DynamoCatalog(client=emulator.client("dynamodb"), table=TABLE, prefix=PREFIX)
    return Site(emulator, Tier(store, catalog))


def end_jvm() -> None:
    """End a JVM that other tests of this process have begun: it has their environment for ever."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=180)
    SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="session")
def spark(site: Site) -> Iterator[SparkSession]:
    """One session for all tests; its workers find the embedded AWS by environment variables."""
    from pyspark.sql import SparkSession

    from coldstream.spark import register

    with pytest.MonkeyPatch.context() as patch:
        for name, value in site.environment.items():
            patch.setenv(name, value)
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
        end_jvm()
        builder = SparkSession.builder
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        register(session)
        yield session
        session.stop()


def of_one_clock(chunks: bytes, *, start: int = 1_790_000_000_000) -> list[bytes]:
    """Drawn chunks as one writer would have written them: epoch 3, 20 ms apart."""
    found = []
    for number, each in enumerate(iter_chunks(chunks)):
        head = (start + 20 * number).to_bytes(8, "big") + (3).to_bytes(8, "big")
        found.append(bytes(each.buffer[:8]) + head + bytes(each.buffer[24:]))
    return found


def plain_chunks(count: int, *, first: int = 0, records: int = 5, epoch: int = 1) -> list[bytes]:
    """Chunks of small messages, 10 ms apart; three of ten by a clock that was behind."""
    return [
        chunk(
            first + records * n,
            *(b"\x00\x53\x75\xa0\x64" + bytes([(n + i) % 256]) * 100 for i in range(records)),
            timestamp=1_790_000_000_000 + 10 * n - (35 if n % 10 in (4, 5, 6) else 0),
            epoch=epoch,
        )
        for n in range(count)
    ]


def in_groups(chunks: Sequence[bytes], length: int) -> list[Sequence[bytes]]:
    return [chunks[at : at + length] for at in range(0, len(chunks), length)]


@dataclass(frozen=True)
class Stream:
    """A stream, and the chunks in it."""

    name: str
    chunks: list[bytes]
    queue: str = ""

    def table(
        self, columns: Sequence[str] | None = None, *, start: int = 0, end: int = 2**63
    ) -> pa.Table:
        """What the plain decoder makes of it."""
        parsed = [next(iter_chunks(each)) for each in self.chunks]
        origin = Origin(self.name, "/", self.queue)
        batch = decode_reference(select(columns), parsed, origin=origin, start=start, end=end)
        return pa.Table.from_batches([batch])


@pytest.fixture(scope="session")
def fixtures(site: Site) -> dict[str, Stream]:
    """Every stream that a real broker wrote."""
    found = {}
    for name in sorted(FIXTURES):
        chunks = [each for segment in segments_of(name) for each in segment]
        stream = "fx_" + name.replace(".", "_")
        site.add(stream, in_groups(chunks, 9), queue=f"fx.{name}")
        found[name] = Stream(stream, chunks, f"fx.{name}")
    return found


@pytest.fixture(scope="session")
def drawn(site: Site) -> Stream:
    """Every codec, tracking chunks, all kinds of messages, some that cannot be decoded."""
    chunks = of_one_clock(any_chunks(random.Random(20261121), 250, first=1000))
    site.add("__drawn_1", in_groups(chunks, 12), queue="drawn")
    return Stream("__drawn_1", chunks, "drawn")


@pytest.fixture(scope="session")
def plain(site: Site) -> Stream:
    """300 chunks of five messages; clocks jump."""
    chunks = plain_chunks(300)
    site.add("__plain_1", in_groups(chunks, 11), queue="plain")
    return Stream("__plain_1", chunks, "plain")


def collected(frame: DataFrame, like: pa.Schema) -> pa.Table:
    """The rows of a DataFrame in the order of their offsets, with the types that they came with."""
    table = frame.toArrow()
    assert table.schema.names == like.names
    table = table.cast(like)
    return table.sort_by("offset") if "offset" in like.names else table
