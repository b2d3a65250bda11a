"""What survives when the server is stopped, and when it is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coldstream_devkit.emulator import Emulator
from coldstream_devkit.local import process
from coldstream_devkit.local.deploy import client
from coldstream_devkit.local.process import Server
from coldstream_devkit.local.progress import silent
from tests.support.probe_stack import Probe, deploy_probe, eventually

pytestmark = [pytest.mark.emulator, pytest.mark.slow]

Start = Callable[..., Server]


@pytest.fixture
def start(pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[Start]:
    """Start a server on the test's own directory, as often as the test likes."""

    def begin(**options: Any) -> Server:
        return process.start(
            pytestconfig.rootpath,
            tmp_path / "state",
            exit_with_parent=True,
            progress=silent,
            **options,
        )

    yield begin
    process.stop(tmp_path / "state")


def kill(server: Server) -> None:
    os.kill(server.pid, signal.SIGKILL)
    assert eventually(lambda: process.running(server.state_dir) is None)


def make_queue(server: Server) -> None:
    client(server, "sqs").create_queue(QueueName="kept")


def queues(server: Server) -> list[str]:
    return list(client(server, "sqs").list_queues().get("QueueUrls", []))


def test_a_stop_saves_everything_and_a_start_brings_it_back(start: Start) -> None:
    first = start(snapshot_seconds=3600)
    make_queue(first)

    assert process.stop(first.state_dir)
    second = start()

    assert second.port == first.port
    assert len(queues(second)) == 1


def test_a_server_that_was_killed_has_lost_no_more_than_the_time_between_snapshots(
    start: Start,
) -> None:
    first = start(snapshot_seconds=0.2)
    make_queue(first)
    # The time between two is a multiple of what one takes, on a slow machine seconds.
    kept = first.state_dir / "services" / "sqs.json"
    assert eventually(lambda: kept.exists() and b"kept" in kept.read_bytes())
    kill(first)

    assert len(queues(start())) == 1


@pytest.mark.parametrize("skip", ["", "kept_streams"])
def test_a_tables_stream_reaches_its_function_after_a_restart(
    start: Start, tmp_path: Path, skip: str
) -> None:
    first = start(snapshot_seconds=3600, skip=skip)
    outputs = deploy_probe(first, tmp_path / "assembly").outputs

    def tell(server: Server, *names: str) -> Probe:
        for name in names:
            client(server, "dynamodb").put_item(
                TableName=outputs["Table"], Item={"name": {"S": name}, "state": {"S": "live"}}
            )
            client(server, "dynamodb").put_item(
                TableName=outputs["Table"], Item={"name": {"S": name}, "state": {"S": "deleting"}}
            )
        return Probe(Emulator(server, tmp_path), outputs)

    before = tell(first, "one-before", "two-before", "three-before")
    assert eventually(lambda: before.records("three-before"))
    process.stop(first.state_dir)
    after = tell(start(skip=skip), "after")

    come = eventually(lambda: after.records("after"), seconds=6 if skip else 120)
    assert bool(come) is not bool(skip)


def test_without_snapshots_a_server_that_was_killed_has_lost_all_but_objects(start: Start) -> None:
    first = start(snapshot_seconds=0.2, skip="snapshots")
    make_queue(first)
    client(first, "s3").create_bucket(Bucket="bucket")
    client(first, "s3").put_object(Bucket="bucket", Key="key", Body=b"body")
    time.sleep(1)
    kill(first)

    second = start()
    assert queues(second) == []
    assert client(second, "s3").get_object(Bucket="bucket", Key="key")["Body"].read() == b"body"


def test_a_snapshot_taken_while_starting_does_not_empty_the_state(start: Start) -> None:
    first = start()
    make_queue(first)
    process.stop(first.state_dir)

    second = start(snapshot_seconds=0)
    kill(second)

    assert len(queues(start())) == 1


@pytest.mark.parametrize(("skip", "there"), [("", ["kept"]), ("whole_objects", ["kept", "torn"])])
def test_a_put_that_a_crash_cut_short_never_happened(
    start: Start, skip: str, there: list[str]
) -> None:
    first = start(skip=skip)
    store = client(first, "s3")
    store.create_bucket(Bucket="bucket")
    for key in ("kept", "torn"):
        store.put_object(Bucket="bucket", Key=key, Body=b"body", Metadata={"write-id": key})
    kill(first)
    # The bytes are written before the metadata: this is what a crash between the two leaves.
    [sidecar] = (first.state_dir / "objects").rglob("torn.meta.json")
    sidecar.unlink()

    store = client(start(skip=skip), "s3")

    found = [one["Key"] for one in store.list_objects_v2(Bucket="bucket").get("Contents", [])]
    assert found == there
    assert store.head_object(Bucket="bucket", Key="kept")["Metadata"] == {"write-id": "kept"}
