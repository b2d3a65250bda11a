"""Which stream `coldstream rebuild` means, also where the catalog has lost it."""

from __future__ import annotations

import json
import threading
import time

import pytest

from coldstream.manifest.catalog import QueueName
from coldstream.ports import MAX_DELETE_MS
from tests.cli.conftest import Run
from tests.support.tier import Tier, chunk


@pytest.mark.parametrize("name", ["//fx.plain", "fx.plain", "__fx_1"])
def test_a_rebuild_takes_the_name_of_a_queue_as_every_command_does(
    run: Run, tier: Tier, name: str
) -> None:
    tier.add("__fx_1", [[chunk(0, b"0")]], name=QueueName("c", "/", "fx.plain"))

    done = run("rebuild", name, "--json")

    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["stream"] == "__fx_1"


def test_a_stream_that_only_the_bucket_knows_is_found_by_its_directory(
    run: Run, tier: Tier
) -> None:
    tier.add("__fx_1", [[chunk(0, b"0")]], name=QueueName("c", "/", "fx.plain"))
    del tier.catalog.items["__fx_1"]

    by_directory, by_queue = run("rebuild", "__fx_1", "--json"), run("rebuild", "//fx.plain")

    assert json.loads(by_directory.stdout)["stream"] == "__fx_1"
    assert by_queue.exit_code == 66


def test_a_name_of_two_queues_rebuilds_neither(run: Run, tier: Tier) -> None:
    for stream in ("__fx_1", "__fx_2"):
        tier.add(stream, [[chunk(0, b"0")]], name=QueueName("c", stream, "fx"))

    done = run("rebuild", "fx", "--write")

    assert done.exit_code == 2
    assert "names 2 streams" in done.stderr


def test_what_would_be_lost_is_shown_and_not_installed_unless_it_is_accepted(
    run: Run, tier: Tier
) -> None:
    tier.add("__fx_1", [[chunk(0, b"0")], [chunk(1, b"1")], [chunk(2, b"2")]])
    gone = next(key for key in tier.store.objects if "/data/00000000000000000001-" in key)
    del tier.store.objects[gone]

    dry = run("rebuild", "__fx_1")
    refused = run("rebuild", "__fx_1", "--write", "--wait", "0", "--json")
    accepted = run("rebuild", "__fx_1", "--write", "--wait", "0", "--accept-less")

    assert dry.exit_code == 0
    assert "offsets 1 to 1 would be missing" in dry.stderr
    assert refused.exit_code == 65
    assert json.loads(refused.stdout)["lacks"] == [
        {"first": 1, "next": 2, "why": "no object has them"}
    ]
    assert "--accept-less" in refused.stderr
    assert accepted.exit_code == 0, accepted.stderr
    assert "a hole: offsets 1 to 1 are lost" in accepted.stderr


def test_a_rebuild_says_that_it_waits_and_why(
    run: Run, tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    sleep = time.sleep

    def sleeps(seconds: float) -> None:
        """Every thread of the process has this `sleep` now; only this one's counts."""
        if threading.current_thread() is threading.main_thread():
            slept.append(seconds)
        else:
            sleep(seconds)

    monkeypatch.setattr("coldstream.cli.rebuild.time.sleep", sleeps)
    tier.add("__fx_1", [[chunk(0, b"0")]])

    done = run("rebuild", "__fx_1", "--write")

    assert done.exit_code == 0, done.stderr
    assert sum(slept) * 1000 == MAX_DELETE_MS
    assert "a delete may still be under way" in done.stderr
