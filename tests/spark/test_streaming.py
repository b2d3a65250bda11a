"""`spark.readStream.format("rabbitmq_stream")` in real Spark: exactly once, though it is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from coldstream.manifest.root import LastChunk
from tests.spark.conftest import ROOT, Site, in_groups, plain_chunks
from tests.support.sparks import of_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.emulator


class Query:
    """One checkpoint and one table, and the runs that go on from it."""

    def __init__(self, site: Site, folder: Path, **options: str) -> None:
        self.site = site
        self.folder = folder
        self.options = options

    def run(
        self,
        *,
        trigger: str = "processingTime",
        kill: str = "",
        seconds: int = 300,
        batches: int = 1,
    ) -> str:
        """Run until so many batches are committed in all; what failed, if anything."""
        log = self.folder / "rows-seen"
        log.unlink(missing_ok=True)
        given = {
            "options": self.options,
            "out": str(self.folder / "out"),
            "checkpoint": str(self.folder / "checkpoint"),
            "log": str(log),
            "kill": kill,
            "seconds": seconds,
            "batches": batches,
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.streaming_query", json.dumps(given)],
            env={
                **of_spark(),
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
                **self.site.environment,
            },
            cwd=ROOT,
            capture_output=True,
            timeout=600,
            check=False,
        )
        if kill:
            assert done.returncode == 9, done.stderr.decode()[-3000:]
            return ""
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        return str(json.loads(done.stdout.decode().splitlines()[-1])["failed"])

    def logged(self, kind: str) -> dict[int, Any]:
        """The offsets or the commits that the checkpoint has, by batch."""
        found = {}
        for each in (self.folder / "checkpoint" / kind).glob("[0-9]*"):
            found[int(each.name)] = each.read_text().splitlines()[-1]
        return found

    def offsets(self, spark: SparkSession) -> list[int]:
        rows = spark.read.parquet(str(self.folder / "out")).select("offset").collect()
        return sorted(row["offset"] for row in rows)


def grow(site: Site, stream: str, first: int, chunks: int) -> None:
    made = plain_chunks(chunks, first=first)
    entry = site.tier.upload(stream, made, epoch=1, floor=0)
    root = site.tier.reader(stream).snapshot().root
    site.tier.commit(stream, root.appended([entry], LastChunk(entry.next_offset - 5, 1)))


@pytest.mark.slow  # each run is a Spark of its own; in memory: tests/unit/spark/test_streaming.py
def test_a_query_killed_in_a_batch_and_between_batches_gives_every_row_once(
    spark: SparkSession, site: Site, tmp_path: Path
) -> None:
    stream = "__streamed_1"
    site.tier.add(stream, in_groups(plain_chunks(60), 10))
    query = Query(site, tmp_path, stream=stream, columns="offset,body", maxOffsetsPerTrigger="100")

    query.run(kill="mid")
    assert list(query.logged("offsets")) == [0]
    assert not query.logged("commits")

    query.run(kill="between", batches=2)
    assert len(query.logged("commits")) >= 2
    grow(site, stream, 300, 40)
    query.run(kill="mid")
    begun, committed = query.logged("offsets"), query.logged("commits")
    assert len(begun) == len(committed) + 1

    assert query.run(batches=5) == ""
    assert query.offsets(spark) == list(range(500))
    ends = [
        json.loads(text)["streams"][stream] for _, text in sorted(query.logged("offsets").items())
    ]
    assert ends == [100, 200, 300, 400, 500]


@pytest.mark.slow
def test_available_now_reads_what_is_there_and_goes_on_from_there(
    spark: SparkSession, site: Site, tmp_path: Path
) -> None:
    stream = "__available_1"
    site.tier.add(stream, in_groups(plain_chunks(30), 10))

    def run() -> list[int]:
        reader = spark.readStream.format("rabbitmq_stream").option("stream", "__available_.*")
        frame = reader.option("columns", "stream,offset").load()
        table, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
        query = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start(table).awaitTermination(300)
        return sorted(row["offset"] for row in spark.read.parquet(table).collect())

    assert run() == list(range(150))
    assert run() == list(range(150))
    grow(site, stream, 150, 10)
    site.tier.add("__available_2", in_groups(plain_chunks(4, first=1000), 2))
    assert run() == [*range(200), *range(1000, 1020)]


def test_what_makes_no_sense_for_a_stream_is_refused(spark: SparkSession, site: Site) -> None:
    for option in ("asOfVersion", "endingOffset"):
        reader = spark.readStream.format("rabbitmq_stream").option("stream", "plain")
        frame = reader.option(option, "7").load()
        with pytest.raises(Exception, match=f"option {option} is for batch reads"):
            frame.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination(
                300
            )
