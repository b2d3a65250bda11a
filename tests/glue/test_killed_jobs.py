"""A job that dies at any of its writes and is run again: the same tables, never half a snapshot.

Materialise has tests of its own (`test_materialise.py`, `tests/unit/jobs/test_materialise_run.py`).
"""

from __future__ import annotations

import contextlib
import importlib
import random
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from coldstream import deployment
from coldstream.errors import CorruptDataError
from coldstream.fragment import HEADER
from coldstream.jobs.fleet_tables import FRAGMENTS, OBJECTS, STREAMS
from coldstream.jobs.profile_tables import ALL as PROFILE
from coldstream.jobs.rebuild_differences import DIFFERENCES
from coldstream.jobs.scrub.findings import FINDINGS
from coldstream.jobs.snapshots import SnapshotTable
from coldstream_devkit.emulator import Emulator
from tests.glue.in_process import MARKS, Site, deployed, snapshots_of
from tests.glue.streams import DEEP
from tests.glue.tripwire import Tripwire
from tests.support.slow import long, slow
from tests.support.sparks import of_spark

pytestmark = MARKS

ROOT = Path(__file__).parents[2]
#: What depends on when a run was: the rest of a row must be the same in every run.
_OF_THE_RUN = {
    "age_seconds", "lag_seconds", "found_at", "window_days", "offsets_per_second",
    "bytes_per_second", "fragments_per_day", "growth_bytes_per_day",
    "storage_cost_month_in_a_year", "request_cost_month",
}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A job, how it is called, and the tables that it adds a snapshot to.

    Where a job has many tables, only some writes are tried: each table is written by the same code.
    """

    module: str
    options: dict[str, str]
    tables: tuple[SnapshotTable, ...]
    stride: int = 1


JOBS = {
    "scrub": Job("scrub", {"every": "0", "task-bytes": "100000"}, (FINDINGS,)),
    "profile": Job(
        "profile_streams", {"window": "20000d", "sample-bytes": "2000"}, tuple(PROFILE), 9
    ),
    "fleet": Job("fleet", {"objects": "true"}, (STREAMS, FRAGMENTS, OBJECTS), 5),
    "shadow": Job("rebuild", {"streams": DEEP}, (DIFFERENCES,)),
}


@pytest.fixture(scope="module")
def site(emulator: Emulator) -> Iterator[Site]:
    with deployed(emulator, "killed/") as made:
        _damage(made)
        yield made


@pytest.fixture(scope="module")
def wire(emulator: Emulator) -> Iterator[Tripwire]:
    with Tripwire(emulator.endpoint) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def _damage(site: Site) -> None:
    """A flipped bit for scrub to find, and an object too few for a shadow."""
    s3, bucket = site.emulator.client("s3"), site.outputs[deployment.OUTPUT_BUCKET]
    path = site.key(DEEP, 7)
    data = bytearray(s3.get_object(Bucket=bucket, Key=path)["Body"].read())
    data[len(HEADER) + 70] ^= 4
    s3.put_object(Bucket=bucket, Key=path, Body=bytes(data))
    s3.delete_object(Bucket=bucket, Key=site.key(DEEP, 11))


def arguments(site: Site, wire: Tripwire, name: str, database: str) -> list[str]:
    return site.arguments(
        name,
        **JOBS[name].options,
        endpoint=wire.endpoint,
        database=database,
        warehouse=f"{site.outputs[deployment.OUTPUT_WAREHOUSE]}{database}/",
    )


def run(module: str, given: list[str]) -> None:
    """A run to its end; one that has found something ends with an error that says so."""
    with contextlib.suppress(CorruptDataError):
        importlib.import_module(f"glue_jobs.{module}").main(given)


def snapshots(site: Site, table: SnapshotTable, database: str) -> list[list[dict[str, Any]]]:
    """The rows of every snapshot that the catalog shows, without what depends on its time."""
    found = snapshots_of(site.emulator, f"{database}.{table.name}")
    return [
        sorted(({k: v for k, v in row.items() if k not in _OF_THE_RUN} for row in rows), key=repr)
        for _, rows in sorted(found.items())
    ]


@pytest.fixture
def database(site: Site, request: pytest.FixtureRequest) -> str:
    """A database of the test's own, so that all its snapshots are the test's."""
    name = f"killed_{zlib.crc32(request.node.name.encode()):08x}"
    site.emulator.client("glue").create_database(DatabaseInput={"Name": name})
    return name


@pytest.mark.parametrize("name", [*slow(["shadow"]), *long(["scrub", "profile", "fleet"])])
def test_a_job_that_dies_at_any_write_and_is_run_again_gives_the_same_tables(
    site: Site, wire: Tripwire, database: str, name: str
) -> None:
    job, given = JOBS[name], arguments(site, wire, name, database)
    for number in count(0, job.stride):  # while it makes its tables
        if not dies(wire, number, job, given):
            break
    wire.arm()
    run(job.module, given)  # all of them are there now
    wire.arm()
    run(job.module, given)
    writes = len(wire.writes)
    expected = {table.name: snapshots(site, table, database)[-1] for table in job.tables}
    assert writes >= 2
    assert any(expected.values())

    for number in range(0, writes, job.stride):
        assert dies(wire, number, job, given)
    wire.arm()
    run(job.module, given)

    for table in job.tables:
        found = snapshots(site, table, database)
        assert len(found) >= 2  # of the first run that ended, and of the last
        for rows in found:  # and all that a run could show before it died
            assert rows == expected[table.name]


def dies(wire: Tripwire, number: int, job: Job, given: list[str]) -> bool:
    """Run a job that dies at a write; False where it has fewer, and has ended."""
    wire.arm(number)
    try:
        run(job.module, given)
    except Exception:  # however its library tells of a death
        assert wire.dead
        return True
    assert not wire.dead
    return False


@pytest.mark.parametrize("name", [*slow(["fleet"]), *long(["scrub", "profile", "shadow"])])
def test_a_job_that_is_killed_leaves_no_half_snapshot_and_the_next_run_is_whole(
    site: Site, wire: Tripwire, database: str, name: str
) -> None:
    job, given = JOBS[name], arguments(site, wire, name, database)
    run(job.module, given)  # it makes its tables
    wire.arm()
    run(job.module, given)
    writes = len(wire.writes)
    expected = {table.name: snapshots(site, table, database)[-1] for table in job.tables}

    killed(wire, random.Random(name).randrange(writes), job.module, given, site)
    wire.arm()
    run(job.module, given)

    for table in job.tables:
        first, *others = snapshots(site, table, database)
        assert others
        assert first == expected[table.name]
        assert all(rows == first for rows in others)


def killed(wire: Tripwire, at: int, module: str, given: list[str], site: Site) -> None:
    """Run a job as a process of its own, with its Spark, which SIGKILL ends at a write."""
    process = subprocess.Popen(
        [sys.executable, "-c",
         f"import sys; sys.stdin.readline(); from glue_jobs.{module} import main; main()", *given],
        env={**of_spark(), **site.emulator.environment()}, cwd=ROOT, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wire.arm(at, victim=process.pid)
    process.communicate(b"go\n", timeout=600)
    assert wire.dead
    assert process.returncode == -signal.SIGKILL
