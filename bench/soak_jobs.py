"""A generated stream of several GB through every Glue job on the embedded AWS, rows exact.

    make soak-jobs [GB=3]

The agent tiers the stream, then the jobs are started by Glue's API, one after the other. Exact
means: the table of materialise has every offset once, and the SHA-256 over the wire bytes of all
its rows in the order of offsets is that of the generated stream; scrub has checked every byte and
found nothing; the manifest that rebuild makes from the bucket is the live one; fleet and profile
count what there is. Exits with 1 if anything differs.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

import boto3
import pyarrow.parquet as pq
from pyarrow import fs

from bench.site import context, site, stream, tier
from coldstream import deployment
from coldstream.adapters.place import Place
from coldstream.jobs.materialise.iceberg.open_tables import glue_catalog
from coldstream.osiris.segment import SEGMENT_HEADER_SIZE
from coldstream.remote.roots import load
from coldstream_devkit.generator import Written

STREAM = "__soak_1795227161635119800"
#: AMQP 1.0: a data section whose binary has a 32-bit length, as the generator writes it.
_WIRE = b"\x00\x53\x75\xb0"
_OVER = frozenset({"SUCCEEDED", "FAILED", "TIMEOUT", "STOPPED", "ERROR"})
_LONGEST = 1800.0


def run_job(job: str, **arguments: str) -> tuple[dict[str, Any], float]:
    """Start a job, wait for its end; its last line, and seconds.

    Raises:
        RuntimeError: it did not succeed.
    """
    glue, logs = boto3.client("glue"), boto3.client("logs")
    name = f"{deployment.STACK_NAME}-{job}"
    given = {f"--{key.replace('_', '-')}": value for key, value in arguments.items()}
    began = time.monotonic()
    run_id = glue.start_job_run(JobName=name, Arguments=given)["JobRunId"]
    while True:
        run = glue.get_job_run(JobName=name, RunId=run_id)["JobRun"]
        if run["JobRunState"] in _OVER:
            break
        if time.monotonic() - began > _LONGEST:
            raise RuntimeError(f"{job} does not end")
        time.sleep(0.5)
    seconds = time.monotonic() - began
    if run["JobRunState"] != "SUCCEEDED":
        raise RuntimeError(f"{job}: {run['JobRunState']}: {run.get('ErrorMessage')}")
    events = logs.get_log_events(
        logGroupName=f"/aws-glue/jobs/{deployment.STACK_NAME}/output", logStreamName=run_id
    )["events"]
    lines = [each["message"] for each in events if each["message"].startswith("{")]
    return json.loads(lines[-1]), seconds


def rows_of_table() -> tuple[int, str]:
    """Number of rows, and SHA-256 over their wire bytes in the order of offsets.

    Raises:
        RuntimeError: an offset is missing or doubled.
    """
    place = Place("", "", "", os.environ["AWS_REGION"], os.environ["AWS_ENDPOINT_URL"])
    catalog = glue_catalog(place, os.environ[deployment.ENV_WAREHOUSE])
    table = catalog.load_table(f"{os.environ[deployment.ENV_DATABASE]}.soak")
    files = sorted(task.file.file_path for task in table.scan().plan_files())
    endpoint = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
    store = fs.S3FileSystem(endpoint_override=endpoint, scheme="http")
    found = sorted(
        (metadata.row_group(0).column(1).statistics.min, path)
        for path in files
        for metadata in [pq.ParquetFile(store.open_input_file(path[5:])).metadata]
    )
    digest, offset = hashlib.sha256(), 0
    for _, path in found:
        file = pq.ParquetFile(store.open_input_file(path[5:]))
        for batch in file.iter_batches(columns=["offset", "body"]):
            offsets = batch.column("offset").to_pylist()
            if offsets != list(range(offset, offset + len(offsets))):
                raise RuntimeError(f"offset {offset} is missing or doubled in {path}")
            offset += len(offsets)
            for body in batch.column("body").to_pylist():
                digest.update(_WIRE + struct.pack(">I", len(body)) + body)
    return offset, digest.hexdigest()


def tiered(work: Path, gigabytes: int) -> Written:
    """The stream in the bucket and in its manifest."""
    data_dir = work / "streams"
    written = stream(data_dir, STREAM, messages=gigabytes * 10**6)
    there = context()
    tier(there, data_dir)
    deadline = time.monotonic() + 300
    while load(there, STREAM).root.next_offset < written.next_offset:
        if time.monotonic() > deadline:
            raise RuntimeError("the manifest does not follow")
        time.sleep(0.5)
    return written


def chunk_bytes(work: Path) -> int:
    """Bytes of all chunks, as the segment files have them."""
    segments = (work / "streams" / STREAM).glob("*.segment")
    return sum(path.stat().st_size - SEGMENT_HEADER_SIZE for path in segments)


def main() -> int:
    """Tier, run, compare."""
    gigabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    wrong: list[str] = []

    def check(what: str, found: object, expected: object) -> None:
        print(f"  {what}: {found}", flush=True)
        if found != expected:
            wrong.append(f"{what}: {found!r} is not {expected!r}")

    with site() as work:
        began = time.monotonic()
        written = tiered(work, gigabytes)
        root = load(context(), STREAM).root
        print(
            f"tiered {written.messages:,} messages, {root.total_size:,} bytes in {root.fragments}"
            f" fragments, {time.monotonic() - began:.0f} s",
            flush=True,
        )
        for job, arguments in (
            ("materialise", {"streams": STREAM, "into": "soak", "rules": ""}),
            ("scrub", {}),
            ("profile", {"window": "36500d"}),
            ("fleet", {"objects": "true"}),
            ("rebuild", {"streams": STREAM, "shadow": "true"}),
        ):
            said, seconds = run_job(job, **arguments)
            speed = root.total_size / seconds / 1e6
            print(f"{job}: {seconds:.0f} s, {speed:.0f} MB/s, Spark's start included", flush=True)
            if job == "materialise":
                (done,) = said["tables"].values()
                check("rows", done["rows"], written.messages)
                check("rows and SHA-256", rows_of_table(), (written.messages, written.sha256))
            elif job == "scrub":
                check("findings", sum(said["findings"].values()), 0)
                check("bytes checked", said["bytes"], root.total_size)
            elif job == "fleet":
                check("fragments", said["fragments"], root.fragments)
                check("orphans", said["orphans"], 0)
            elif job == "profile":
                check("streams", (said["streams"], said["failed"]), (1, []))
                check("bytes of chunks", said["bytes"], chunk_bytes(work))
            else:
                check("fragments", said["fragments"], root.fragments)
                check("differences", said["differences"], {})
    for each in wrong:
        print(f"DIFFERS {each}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
