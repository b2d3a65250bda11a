"""`coldstream doctor` against the deployed app: a probe goes the way of every upload."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coldstream import deployment, names
from coldstream_devkit.generator import write_stream

from .conftest import Site

pytestmark = pytest.mark.emulator


def examined(site: Site, data_dir: Path, *more: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code of the command, and what it says by what it looked at."""
    done = site.run(
        "doctor", "--data-dir", data_dir, "--committed", "all", "--json", "--node", "n.1", *more
    )
    assert done.stdout, done.stderr.decode()
    rows = json.loads(done.stdout)["checks"]
    return done.returncode, {row["check"]: row for row in rows}


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    write_stream(tmp_path / "__orders_1745252105682952932", messages=100)
    return tmp_path


def test_a_probe_goes_all_the_way_by_events_and_the_next_one_too(
    site: Site, data_dir: Path
) -> None:
    for end in (1, 2):
        code, rows = examined(site, data_dir)

        assert code == 0, rows
        assert {row["level"] for row in rows.values()} == {"ok"}
        assert rows["probe: event"]["seconds"] > 0
        (row,) = site.json("streams", "--match", "doctor-n_1")
        assert (row["next"], row["vhost"], row["queue"]) == (end, "coldstream", "doctor-n_1")
    verified = site.run("verify", "coldstream/doctor-n_1", "--deep")
    assert verified.returncode == 0, verified.stdout.decode()
    assert not [row for row in site.json("streams") if "doctor" in row["queue"]]


@pytest.fixture
def unannounced(site: Site) -> Iterator[None]:
    """The bucket tells nobody of new objects."""
    s3 = site.emulator.client("s3")
    before = s3.get_bucket_notification_configuration(Bucket=site.bucket)
    before.pop("ResponseMetadata")
    s3.put_bucket_notification_configuration(Bucket=site.bucket, NotificationConfiguration={})
    yield
    s3.put_bucket_notification_configuration(Bucket=site.bucket, NotificationConfiguration=before)


@pytest.mark.slow  # it waits a minute for what never comes
@pytest.mark.usefixtures("unannounced")
def test_a_bucket_without_events_is_found_and_the_probe_is_committed_all_the_same(
    site: Site, data_dir: Path
) -> None:
    code, rows = examined(site, data_dir, "--node", "deaf")

    assert code == 1
    assert [about for about, row in rows.items() if row["level"] != "ok"] == ["probe: event"]
    assert "notification" in rows["probe: event"]["try"]
    assert rows["probe: commit"]["level"] == "ok"


def test_names_of_nothing_fail_each_for_itself_and_nothing_is_written(
    site: Site, data_dir: Path
) -> None:
    before = site.json("streams", "--match", "doctor")

    code, rows = examined(
        site, data_dir, "--bucket", "no-such-bucket", "--claim-function", "no-such-function",
        "--queue-url", f"{site.outputs[deployment.OUTPUT_QUEUE_URL]}-not", "--node", "lost",
    )  # fmt: skip

    assert code == 1
    assert {about for about, row in rows.items() if row["level"] == "FAILED"} == {
        "bucket", "claim function", "commit queue",
    }  # fmt: skip
    assert "there is no bucket '" in rows["bucket"]["message"]
    assert "ClaimFunctionName" in rows["claim function"]["try"]
    assert rows["probe"]["level"] == "warning", "none was made"
    assert rows["table"]["level"] == rows["heartbeat"]["level"] == "ok"
    assert site.json("streams", "--match", "doctor") == before
    assert not _heartbeats(site)


def _heartbeats(site: Site) -> list[Any]:
    """Nodes that have said that they live."""
    found = site.emulator.client("dynamodb").query(
        TableName=site.outputs[deployment.OUTPUT_TABLE],
        KeyConditionExpression="#key = :key",
        ExpressionAttributeNames={"#key": names.CATALOG_PARTITION_KEY},
        ExpressionAttributeValues={
            ":key": {"S": names.heartbeat_partition(site.outputs[deployment.OUTPUT_PREFIX])}
        },
    )
    return [each for each in found["Items"] if each[names.CATALOG_SORT_KEY]["S"] == "lost"]
