"""What is wrong is refused, told, counted, and changes nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coldstream import deployment
from coldstream_devkit.generator import write_stream

from .conftest import Site

pytestmark = pytest.mark.emulator

Wait = Callable[[Callable[[], Any]], Any]


@pytest.fixture(autouse=True)
def _quick_redelivery(site: Site) -> Iterator[None]:
    """A failed message comes again after a second here, after minutes in an account."""
    sqs = site.emulator.client("sqs")
    url = site.outputs[deployment.OUTPUT_QUEUE_URL]
    before = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "1"})
    yield
    sqs.set_queue_attributes(QueueUrl=url, Attributes=before["Attributes"])


def _dead_letters(site: Site, containing: str) -> list[str]:
    """Bodies of the dead letters that mention something; they stay where they are."""
    found = site.emulator.client("sqs").receive_message(
        QueueUrl=site.outputs[deployment.OUTPUT_DEAD_LETTERS_URL],
        MaxNumberOfMessages=10,
        VisibilityTimeout=0,
    )
    return [m["Body"] for m in found.get("Messages", []) if containing in m["Body"]]


def _logs(site: Site, containing: str) -> list[dict[str, Any]]:
    """Structured log lines of the commit function that mention something."""
    logs = site.emulator.client("logs")
    events = (
        event["message"]
        for group in logs.describe_log_groups()["logGroups"]
        for event in logs.filter_log_events(logGroupName=group["logGroupName"])["events"]
    )
    return [
        json.loads(each) for each in events if containing in each and each.lstrip().startswith("{")
    ]


def _refused_total(site: Site, metric: str) -> float:
    import datetime

    now = datetime.datetime.now(datetime.UTC)
    points = site.emulator.client("cloudwatch").get_metric_statistics(
        Namespace=deployment.METRIC_NAMESPACE,
        MetricName=metric,
        Dimensions=[{"Name": "service", "Value": "coldstream"}],
        StartTime=now - datetime.timedelta(hours=1),
        EndTime=now + datetime.timedelta(minutes=5),
        Period=60,
        Statistics=["Sum"],
    )["Datapoints"]
    return float(sum(point["Sum"] for point in points))


def test_garbage_under_a_right_key_goes_to_the_dead_letters_and_changes_nothing(
    site: Site, tmp_path: Path, wait_for: Wait
) -> None:
    written = write_stream(tmp_path / "__e2e_garbage_1", messages=100)
    assert site.tier(tmp_path).returncode == 0
    key = (
        f"{site.outputs[deployment.OUTPUT_PREFIX]}stream/{written.stream}/data/"
        f"{100:020d}-{200:020d}.{1:010d}.00000000deadbeef.fragment"
    )
    site.emulator.client("s3").put_object(
        Bucket=site.bucket, Key=key, Body=b"\0" * 5000, IfNoneMatch="*"
    )

    wait_for(lambda: _dead_letters(site, "00000000deadbeef"))

    assert site.json("describe", written.stream)["offsets"]["next"] == 100
    assert site.run("verify", written.stream, "--deep").returncode == 0
    refusals = [line for line in _logs(site, "00000000deadbeef") if line["level"] == "ERROR"]
    assert refusals[0]["stream"] == written.stream
    assert refusals[0]["offset"] == 100
    assert refusals[0]["key"] == key
    assert wait_for(lambda: _refused_total(site, deployment.METRIC_FRAGMENTS_REFUSED)) > 0


def test_good_data_for_the_same_range_wins_over_garbage(site: Site, tmp_path: Path) -> None:
    stream = "__e2e_garbage_2"
    write_stream(tmp_path / stream, messages=100)
    assert site.tier(tmp_path).returncode == 0
    key = (
        f"{site.outputs[deployment.OUTPUT_PREFIX]}stream/{stream}/data/"
        f"{100:020d}-{300:020d}.{1:010d}.00000000deadbee2.fragment"
    )
    site.emulator.client("s3").put_object(
        Bucket=site.bucket, Key=key, Body=b"no fragment", IfNoneMatch="*"
    )
    import shutil

    shutil.rmtree(tmp_path / stream)
    write_stream(tmp_path / stream, messages=300, chunk_messages=100)

    done = site.tier(tmp_path)

    (row,) = json.loads(done.stdout)
    # The first 100 messages are one chunk in both logs, so history is common and goes on.
    assert (row["error"], row["next"]) == (None, 300)
    assert site.run("verify", stream, "--deep").returncode == 0


def test_an_event_for_an_unknown_stream_goes_to_the_dead_letters(
    site: Site, wait_for: Wait
) -> None:
    key = (
        f"{site.outputs[deployment.OUTPUT_PREFIX]}stream/__e2e_nobody_1/data/"
        f"{0:020d}-{10:020d}.{1:010d}.00000000deadbee3.fragment"
    )
    site.emulator.client("s3").put_object(
        Bucket=site.bucket, Key=key, Body=b"whose is this", IfNoneMatch="*"
    )

    wait_for(lambda: _dead_letters(site, "deadbee3"))

    assert "__e2e_nobody_1" not in {row["stream"] for row in site.json("streams")}
    (first, *_) = [line for line in _logs(site, "__e2e_nobody_1") if line["level"] == "ERROR"]
    assert (first["stream"], first["key"]) == ("__e2e_nobody_1", key)
    assert wait_for(lambda: _refused_total(site, deployment.METRIC_EVENTS_REFUSED)) > 0


def test_a_message_that_is_no_event_goes_to_the_dead_letters(site: Site, wait_for: Wait) -> None:
    site.emulator.client("sqs").send_message(
        QueueUrl=site.outputs[deployment.OUTPUT_QUEUE_URL], MessageBody="not json deadbee4"
    )

    wait_for(lambda: _dead_letters(site, "deadbee4"))


@pytest.mark.parametrize("where", ["truncated", "flipped", "index"])
def test_a_damaged_segment_fails_the_run_with_stream_offset_and_file(
    site: Site, tmp_path: Path, where: str
) -> None:
    stream = f"__e2e_{where}_1"
    write_stream(tmp_path / stream, messages=100, chunk_messages=10)
    path = tmp_path / stream / f"{0:020d}.segment"
    body = bytearray(path.read_bytes())
    if where == "truncated":
        del body[-2000:]
    elif where == "flipped":
        body[len(body) * 11 // 20] ^= 16
    else:
        index = bytearray(path.with_suffix(".index").read_bytes())
        index[-5] ^= 0x7F  # the last record's position, far past the segment
        path.with_suffix(".index").write_bytes(index)
    path.write_bytes(body)

    done = site.tier(tmp_path)

    assert done.returncode == 65
    error = done.stderr.decode()
    assert stream in error
    assert str(path.parent) in error
    assert ("offset 50" if where == "flipped" else "offset 90") in error


def test_an_unknown_stream_is_said_to_be_unknown(site: Site) -> None:
    done = site.run("read", "nobody", "--from", "first")

    assert done.returncode == 66
    assert "nobody" in done.stderr.decode()
    assert done.stdout == b""
