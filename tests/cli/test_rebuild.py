"""Which stream `coldstream rebuild` means, also where the catalog has lost it."""

from __future__ import annotations

import json

import pytest

from coldstream.manifest.catalog import QueueName
from tests.cli.conftest import Run
from tests.unit.reader.tier import Tier, chunk


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
