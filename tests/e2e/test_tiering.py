"""The main job: segment files go up, a verified manifest follows, every byte comes back."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from coldstream_devkit.generator import Written, write_stream
from tests.support.slow import slow

from .conftest import Site

pytestmark = pytest.mark.emulator

DATA = Path(__file__).parents[1] / "data"
FIXTURES: list[dict[str, Any]] = [
    each
    for each in json.loads((DATA / "fixtures.json").read_text())["streams"]
    if "last_committed_chunk_in_stale" not in each
]


def _small(data_dir: Path, name: str, seed: int = 1, messages: int = 4000) -> Written:
    return write_stream(
        data_dir / name, messages=messages, message_size=300, chunk_messages=40,
        segment_bytes=400_000, seed=seed,
    )  # fmt: skip


def _assert_comes_back(site: Site, written: Written) -> None:
    raw = site.run("read", written.stream, "--from", "first", "--output", "raw")
    assert raw.returncode == 0, raw.stderr.decode()
    assert len(raw.stdout) == written.body_bytes
    assert hashlib.sha256(raw.stdout).hexdigest() == written.sha256


@pytest.mark.parametrize(
    "fixture",
    [*FIXTURES[:1], *slow(FIXTURES[1:])],
    ids=lambda each: each["path"],
)
def test_every_message_of_a_real_broker_comes_back(
    site: Site, tmp_path: Path, fixture: dict[str, Any]
) -> None:
    stream = f"__e2e_{fixture['path'].replace('.', '_')}_1"
    shutil.copytree(DATA / fixture["path"], tmp_path / stream)

    (row,) = json.loads(site.tier(tmp_path).stdout)

    assert row["error"] is None
    assert row["next"] == fixture["next_offset"]
    raw = site.run("read", stream, "--from", "first", "--output", "raw")
    assert hashlib.sha256(raw.stdout).hexdigest() == fixture["sha256"]
    assert len(raw.stdout) == fixture["body_bytes"]
    verified = site.run("verify", stream, "--deep")
    assert verified.returncode == 0, verified.stdout.decode() + verified.stderr.decode()


def test_an_agent_killed_at_any_instant_is_taken_over_by_the_next(
    site: Site, tmp_path: Path
) -> None:
    written = _small(tmp_path, "__e2e_killed_1", messages=20_000)
    chance = random.Random(20261121)
    arguments = ("--fragment-size", "100KiB", "--memory", "8MiB")
    killed = 0
    for _ in range(6):
        process = site.start(
            "agent", "run", "--data-dir", tmp_path, "--committed", "all", "--once", *arguments
        )
        time.sleep(chance.uniform(0.5, 1.6))
        killed += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert killed, "no agent was killed while it worked"

    done = site.tier(tmp_path, *arguments)

    assert done.returncode == 0, done.stderr.decode()
    _assert_comes_back(site, written)
    verified = site.run("verify", written.stream, "--deep")
    assert verified.returncode == 0, verified.stdout.decode()


def test_two_agents_at_once_end_in_one_manifest(site: Site, tmp_path: Path) -> None:
    streams = [_small(tmp_path, f"__e2e_twice{seed}_1", seed) for seed in range(2)]
    agents = [
        site.start(
            "agent",
            "run",
            "--data-dir",
            tmp_path,
            "--committed",
            "all",
            "--once",
            "--fragment-size",
            size,
        )
        for size in ("100KiB", "150KiB")
    ]
    for agent in agents:
        _, err = agent.communicate(timeout=300)
        assert agent.returncode == 0, err.decode()

    for written in streams:
        _assert_comes_back(site, written)


def test_a_running_agent_makes_new_data_durable_within_its_flush_time(
    site: Site, tmp_path: Path
) -> None:
    from coldstream_devkit.generator import append_chunks, build_chunk

    written = _small(tmp_path, "__e2e_followed_1", messages=100)
    agent = site.start("agent", "run", "--data-dir", tmp_path, "--committed", "all", "--flush", "1")
    try:
        _wait_for_offset(site, written.stream, written.next_offset)
        chunk = build_chunk(written.next_offset, 1, int(time.time() * 1000), [b"hello"])
        append_chunks(tmp_path / written.stream, [chunk])
        _wait_for_offset(site, written.stream, written.next_offset + 1)
    finally:
        agent.send_signal(signal.SIGTERM)
        _, err = agent.communicate(timeout=180)
    assert agent.returncode == 0, err.decode()


def test_the_reconciler_alone_heals_a_stream_whose_events_were_all_lost(
    site: Site, tmp_path: Path
) -> None:
    from coldstream import deployment

    written = _small(tmp_path, "__e2e_lost_1")
    functions = site.emulator.client("lambda")
    (mapping,) = functions.list_event_source_mappings(
        FunctionName=site.outputs[deployment.OUTPUT_COMMIT_FUNCTION]
    )["EventSourceMappings"]
    functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    try:
        agent = site.start(
            "agent", "run", "--data-dir", tmp_path, "--committed", "all", "--flush", "0",
            "--queue-url", "",
        )  # fmt: skip
        s3 = site.emulator.client("s3")
        prefix = f"{site.outputs[deployment.OUTPUT_PREFIX]}stream/{written.stream}/data/"
        _wait(
            lambda: (
                sum(
                    1
                    for _ in s3.list_objects_v2(Bucket=site.bucket, Prefix=prefix).get(
                        "Contents", []
                    )
                )
                >= len(written.segments)
            )
        )
        agent.kill()
        agent.communicate()
        site.emulator.client("sqs").purge_queue(QueueUrl=site.outputs[deployment.OUTPUT_QUEUE_URL])
        assert _next_offset(site, written.stream) == 0

        answer = functions.invoke(
            FunctionName=site.outputs[deployment.OUTPUT_RECONCILE_FUNCTION],
            Payload=json.dumps({"work": [{"stream": written.stream}]}),
        )

        assert json.loads(answer["Payload"].read())["left"] == []
        assert _next_offset(site, written.stream) == written.next_offset
        _assert_comes_back(site, written)
    finally:
        functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)


def _next_offset(site: Site, stream: str) -> int:
    rows = {row["stream"]: row for row in site.json("streams")}
    return int(rows[stream]["next"]) if stream in rows else -1


def _wait_for_offset(site: Site, stream: str, offset: int) -> None:
    def come() -> bool:
        item = site.catalog.get(stream)
        return item is not None and item.next_offset >= offset

    _wait(come)
    assert _next_offset(site, stream) >= offset


def _wait(condition: Any) -> None:
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline, "waited three minutes in vain"
        time.sleep(0.3)


@pytest.mark.slow  # in memory: tests/unit/agent/test_thefts.py
def test_what_a_thief_of_an_agents_rights_did_is_undone_by_one_command(
    site: Site, tmp_path: Path
) -> None:
    """The thief runs an agent of his own beside a made-up log; see docs/security.md."""
    stream, true, evil = "__e2e_stolen_1", tmp_path / "true", tmp_path / "evil"
    _small(true, stream)
    assert site.tier(true).returncode == 0
    write_stream(
        evil / stream, messages=5000, message_size=200, chunk_messages=40,
        epochs=((1, 0), (7, 2000)),
    )  # fmt: skip
    assert site.tier(evil).returncode == 0
    shutil.rmtree(true)
    written = _small(true, stream, messages=6000)
    fenced = json.loads(site.tier(true).stdout)
    assert fenced[0]["error"]["kind"] == "fenced"

    planned = site.json("undo", stream, "--claim", "7", "--dry-run")
    done = site.json("undo", stream, "--claim", "7", "--yes")

    assert planned["done"] is False
    assert (planned["first"], planned["old_next"]) == (2000, 5000)
    assert done == planned | {
        "done": True, "next": 4000, "left": [], "timeline": done["epoch"],
        "fragments": done["fragments"], "bytes": done["bytes"],
        "epoch": done["epoch"], "shift": done["shift"],
    }  # fmt: skip
    assert site.tier(true).returncode == 0
    _assert_comes_back(site, written)
    verified = site.run("verify", stream, "--deep")
    assert verified.returncode == 0, verified.stdout.decode()
    timelines = site.json("quarantine", "list", stream)["timelines"]
    assert [(each["timeline"], each["first"], each["next"]) for each in timelines] == [
        (7, 2000, 4000),
        (done["epoch"], 2000, 5000),
    ]
