"""What real brokers wrote goes through every job, and every row of it is compared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from coldstream import deployment
from coldstream.adapters.place import Place
from coldstream.columns.reference import decode_reference
from coldstream.columns.schema import Origin, select
from coldstream.jobs.fleet_tables import STREAMS as FLEET
from coldstream.jobs.materialise.iceberg.open_tables import glue_catalog
from coldstream.jobs.profile_tables import STREAMS as PROFILES
from coldstream.jobs.rebuild_differences import DIFFERENCES
from coldstream.jobs.scrub.findings import FINDINGS
from coldstream.manifest.catalog import QueueName
from coldstream.names import data_prefix, parse_data_key
from coldstream.osiris.chunk import ChunkType, iter_chunks
from coldstream.osiris.segment import SEGMENT_HEADER_SIZE
from coldstream.plans.claim import NO_HISTORY
from coldstream.usecases.claim import anchor
from coldstream.usecases.commit_runs import commit_runs
from coldstream_devkit.claims import claim
from coldstream_devkit.emulator import Emulator
from glue_jobs import fleet, materialise, profile_streams, rebuild, scrub
from tests.glue.in_process import MARKS, Site, deployed, last_line
from tests.glue.streams import no_pause
from tests.support.tier import DATA, FIXTURES, PREFIX, Tier

pytestmark = MARKS

_WANTED = ("offset", "timestamp", "chunk_id", "epoch", "body_kind", "body", "raw", "error")


@pytest.fixture(scope="module")
def site(emulator: Emulator) -> Iterator[Site]:
    with deployed(emulator, "fixtures/") as made:
        yield made


@pytest.fixture(scope="module")
def streams(site: Site) -> dict[str, str]:
    """Every fixture in the remote tier; its stream by its name."""
    found = {}
    for name in FIXTURES:
        tier = Tier()
        stream = tier.add_fixture(name)
        keys = [each for each in tier.store.objects if each.startswith(data_prefix(PREFIX, stream))]
        parsed = [parse_data_key(each, PREFIX) for each in keys]
        first = min(each.first_offset for each in parsed)
        anchor(site.context, stream, first, QueueName("test", "/", stream))
        claim(
            site.context, stream, max(each.epoch for each in parsed), log=NO_HISTORY, pause=no_pause
        )
        for key, data_key in zip(keys, parsed, strict=True):
            data = bytes(tier.store.objects[key])
            site.context.store.put(data_key.path(site.context.prefix), data, write_id=key)
        commit_runs(site.context, stream, pause=no_pause)
        found[name] = stream
    return found


def plain_rows(name: str, stream: str) -> list[dict[str, Any]]:
    """The messages of a fixture, by the plain decoder, from the broker's own files."""
    chunks = [
        chunk
        for path in sorted((DATA / name).glob("*.segment"))
        for chunk in iter_chunks(path.read_bytes(), SEGMENT_HEADER_SIZE)
    ]
    batch = decode_reference(select(_WANTED), chunks, origin=Origin(stream, "/", stream))
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def iceberg(site: Site, table: str) -> pa.Table:
    place = Place("", "", "", "us-east-1", site.emulator.endpoint)
    warehouse = f"{site.outputs[deployment.OUTPUT_WAREHOUSE]}materialise/"
    catalog = glue_catalog(place, warehouse)
    return (
        catalog.load_table(f"{site.outputs[deployment.OUTPUT_DATABASE]}.{table}").scan().to_arrow()
    )


def test_materialise_has_every_row_of_every_fixture_and_nothing_else(
    site: Site, streams: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    materialise.main(site.arguments("materialise", streams="fx_.*", into="fixtures"))
    said = last_line(capsys)
    assert said["ok"], said

    rows = {
        (each["stream"], each["offset"]): each for each in iceberg(site, "fixtures").to_pylist()
    }
    dead = {
        (each["stream"], each["offset"]): each
        for each in iceberg(site, "fixtures_dead_letters").to_pylist()
    }
    compared = 0
    for name, stream in streams.items():
        for plain in plain_rows(name, stream):
            key = (stream, plain["offset"])
            if plain["error"] is None:
                row = rows.pop(key)
                assert {each: row[each] for each in row.keys() & set(_WANTED)} == {
                    each: plain[each] for each in row.keys() & set(_WANTED)
                }
                assert {"offset", "timestamp", "body"} <= row.keys()
            else:
                letter = dead.pop(key)
                assert (letter["raw"], letter["error"]) == (plain["raw"], plain["error"])
            compared += 1
    assert (rows, dead) == ({}, {})
    assert compared == sum(each["messages"] for each in FIXTURES.values())


def test_scrub_finds_every_fixture_sound(
    site: Site, streams: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    scrub.main(site.arguments("scrub", streams="|".join(streams.values()), every="0"))
    said = last_line(capsys)

    assert (said["streams"], said["findings"]["damaged"]) == (len(streams), 0)
    assert [row for row in _rows(site, FINDINGS) if row["severity"] == "damaged"] == []


def test_profile_counts_what_the_files_have(
    site: Site, streams: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    profile_streams.main(
        site.arguments(
            "profile", streams="fx_.*", window="36500d", **{"sample-bytes": "1000000000"}
        )
    )
    assert last_line(capsys)["failed"] == []

    found = {row["stream"]: row for row in site.rows(PROFILES)}
    for name, stream in streams.items():
        chunks = [
            chunk
            for path in sorted((DATA / name).glob("*.segment"))
            for chunk in iter_chunks(path.read_bytes(), SEGMENT_HEADER_SIZE)
        ]
        row = found[stream]
        assert row["chunks"] == len(chunks)
        assert row["bytes"] == sum(each.header.size for each in chunks)
        assert row["offsets"] == sum(each.header.records for each in chunks)
        assert row["sampled_messages"] == FIXTURES[name]["messages"]
        assert row["tracking_chunks"] == sum(
            each.header.chunk_type != ChunkType.USER for each in chunks
        )


def test_fleet_and_rebuild_say_what_the_manifests_say(
    site: Site, streams: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.main(site.arguments("fleet"))
    assert last_line(capsys)["ok"]
    found = {row["stream"]: row for row in site.rows(FLEET)}
    for name, stream in streams.items():
        item = site.context.catalog.get(stream)
        assert item is not None
        row = found[stream]
        assert (row["first_offset"], row["next_offset"]) == (item.first_offset, item.next_offset)
        assert (row["bytes"], row["fragments"]) == (item.total_size, item.fragments)
        assert row["next_offset"] == FIXTURES[name]["next_offset"]

    rebuild.main(site.arguments("rebuild", streams="fx_.*", **{"verify-trailers": "true"}))
    said = last_line(capsys)
    assert said["ok"], json.dumps(said)
    assert _rows(site, DIFFERENCES) == []


def _rows(site: Site, table: Any) -> list[dict[str, Any]]:
    try:
        return site.rows(table)
    except (ValueError, site.emulator.client("glue").exceptions.EntityNotFoundException):
        return []  # nothing was ever found, so there is no partition
