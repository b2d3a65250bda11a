"""What fleet says of a tier is what its manifests and its bucket say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from coldstream.jobs.fleet import _COUNTS, FleetSettings, perform
from coldstream.jobs.fleet_streams import gather, stream_rows
from coldstream.jobs.fleet_walk import WalkUnit, pack, split, times
from coldstream.jobs.snapshots import TableSnapshot
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.root import Root
from coldstream.manifest.tree import leaves
from coldstream.names import MAX_OFFSET, GroupKey, data_prefix, parse_metadata_key
from coldstream.plans.claim import KnownHistory, LocalChunk
from coldstream.plans.policy import PolicySet
from coldstream.remote.directories import directories
from coldstream.remote.roots import load, load_root
from coldstream_devkit.claims import claim
from tests.glue.conftest import Tier
from tests.glue.streams import DEEP, EMPTY, HOLED, STRAY
from tests.support import tier as support

Rows = Callable[[str], list[dict[str, Any]]]
TAKEN_MS = 1_800_000_000_000


def settings(tmp_path: Path, *, objects: bool = True) -> FleetSettings:
    return FleetSettings(
        TableSnapshot(f"file://{tmp_path}/", TAKEN_MS), objects=objects, grace_ms=-(2**60)
    )


def unit(tier: Tier, stream: str) -> tuple[WalkUnit, Root]:
    item = tier.catalog.get(stream)
    assert item is not None
    whole = WalkUnit(
        stream=stream,
        root_key=item.root_key,
        first_offset=item.first_offset,
        next_offset=item.next_offset,
        entries=None,
        keys=(0, MAX_OFFSET),
        first=True,
        weight=item.fragments,
    )
    return whole, load_root(tier.context(), item)


def test_every_live_leaf_of_a_deep_tree_is_a_row_with_its_key(
    tier: Tier, tmp_path: Path, rows: Rows
) -> None:
    whole, root = unit(tier, DEEP)
    assert root.entries[0].kind is EntryKind.KILO_GROUP

    (counts,) = perform(tier.store, tier.prefix, [whole], 0, settings(tmp_path))

    expected = [
        (each.first_offset, each.next_offset, each.size, each.data_key(DEEP).path(tier.prefix))
        for each in leaves(root, tier.context().fetch(DEEP))
    ]
    found = rows("fleet_fragments")
    assert [
        (each["first_offset"], each["next_offset"], each["bytes"], each["key"]) for each in found
    ] == expected
    assert {each["path"].count("/") for each in found} == {0, 1, 2}
    assert counts["fragments"] == 40
    assert counts["groups"] == len({each["path"] for each in found} - {""}) + sum(
        each.kind is EntryKind.KILO_GROUP for each in root.entries
    )


def test_a_stream_that_was_split_gives_the_same_rows_as_a_whole_one(
    tier: Tier, tmp_path: Path, rows: Rows
) -> None:
    whole, root = unit(tier, DEEP)
    perform(tier.store, tier.prefix, [whole], 0, settings(tmp_path))
    before = {name: rows(name) for name in ("fleet_fragments", "fleet_objects")}

    parts = split(whole, root)
    for number, part in enumerate(parts):
        perform(tier.store, tier.prefix, [part], number, settings(tmp_path / "split"))

    assert len(parts) > 3
    for name, wanted in before.items():
        found = rows(f"split/{name}")
        assert sorted(found, key=lambda row: row["key"]) == sorted(
            wanted, key=lambda row: row["key"]
        )


def test_what_retention_has_taken_from_a_group_is_no_row(
    tier: Tier, tmp_path: Path, rows: Rows
) -> None:
    whole, _ = unit(tier, DEEP)

    perform(tier.store, tier.prefix, [replace(whole, first_offset=55)], 0, settings(tmp_path))

    assert min(each["next_offset"] for each in rows("fleet_fragments")) == 60


def test_a_hole_is_a_row_without_records(tier: Tier, tmp_path: Path, rows: Rows) -> None:
    whole, _ = unit(tier, HOLED)

    (counts,) = perform(tier.store, tier.prefix, [whole], 0, settings(tmp_path))

    (hole,) = [each for each in rows("fleet_fragments") if each["kind"] == "hole"]
    assert (hole["first_offset"], hole["next_offset"], hole["records"]) == (20, 25, 0)
    assert (counts["holes"], counts["hole_offsets"]) == (1, 5)


def test_objects_are_told_apart_by_what_refers_to_them(
    tier: Tier, tmp_path: Path, rows: Rows
) -> None:
    units = [
        unit(tier, HOLED)[0],
        unit(tier, DEEP)[0],
        WalkUnit(STRAY, "", 0, 0, b"", (0, MAX_OFFSET), True, 0),
    ]

    counts = perform(tier.store, tier.prefix, units, 0, settings(tmp_path))

    found = rows("fleet_objects")
    streams = set(directories(tier.store, tier.prefix)) - {EMPTY}
    assert {each["key"] for each in found} == {
        key for key in tier.store.objects if key.split("/")[2] in streams
    }
    assert {STRAY, HOLED, DEEP} == streams
    unreferenced = {
        (each["stream"], each["kind"], each["ahead"])
        for each in found
        if not each["referenced"] and each["kind"] not in ("root",)
    }
    assert unreferenced == {
        (HOLED, "fragment", False),
        (HOLED, "fragment", True),
        (HOLED, "other", False),
        (STRAY, "fragment", True),
        (STRAY, "other", False),
    }
    groups = [each for each in found if each["kind"] == "group"]
    assert groups
    assert all(each["referenced"] for each in groups)
    assert sum(each["referenced"] for each in found if each["kind"] == "root") == 2
    assert sum(each["orphans"] for each in counts) == 1


def test_what_a_claim_has_cut_off_is_told_apart_from_orphans(
    tier: Tier, tmp_path: Path, rows: Rows
) -> None:
    old = {row.key for row in tier.store.list(data_prefix(tier.prefix, DEEP))}
    log = KnownHistory((LocalChunk(290, 300, 1), LocalChunk(300, 310, 2)))
    claim(tier.context(seed=2), DEEP, 2, log=log, pause=lambda _: None, now_ms=1)
    whole, root = unit(tier, DEEP)
    assert root.next_offset == 300

    (counts,) = perform(tier.store, tier.prefix, [whole], 0, settings(tmp_path))

    found = {each["key"]: each for each in rows("fleet_objects")}
    cut = {key for key in old if int(key.rsplit("/", 1)[1][:20]) >= 300}
    assert len(cut) == 10
    assert {key for key in old if found[key]["quarantined"]} == cut
    assert not any(found[key]["ahead"] or found[key]["referenced"] for key in cut)
    record = found[root.quarantine_key]
    assert (record["kind"], record["referenced"]) == ("quarantine", True)
    roots = [each["quarantined"] for each in found.values() if each["kind"] == "root"]
    assert sum(roots) == 1
    assert counts["orphans"] == 0


def test_a_damaged_group_is_an_error_of_its_stream_and_not_of_the_others(
    tier: Tier, tmp_path: Path, rows: Rows
) -> None:
    for key in list(tier.store.objects):
        if "/metadata/" in key and key.endswith(".group"):
            tier.store.objects[key] = b"nonsense" * 20
            assert isinstance(parse_metadata_key(key, tier.prefix), GroupKey)

    counts = perform(
        tier.store, tier.prefix, [unit(tier, DEEP)[0], unit(tier, HOLED)[0]], 0, settings(tmp_path)
    )

    assert f"stream {DEEP}" in counts[0]["error"]
    assert counts[1].get("error") is None
    assert counts[1]["fragments"] == 4


def test_a_row_of_a_stream_has_its_item_its_counts_and_its_rule(tier: Tier, tmp_path: Path) -> None:
    found = [
        {
            **dict.fromkeys(("error", "smallest", "largest", "last_commit_ms", "quarantine_key")),
            **each,
        }
        for each in perform(
            tier.store,
            tier.prefix,
            [unit(tier, DEEP)[0], unit(tier, HOLED)[0]],
            0,
            settings(tmp_path),
        )
    ]
    policies, _ = tier.policies.load()

    table = stream_rows(tier.catalog.streams(), gather(found), policies, TAKEN_MS).to_pylist()

    by_name = {each["stream"]: each for each in table}
    deep, holed, empty = by_name[DEEP], by_name[HOLED], by_name[EMPTY]
    item = load(tier.context(), DEEP).item
    assert (deep["bytes"], deep["fragments"], deep["offsets"]) == (item.total_size, 40, 400)
    assert (deep["retention_rule"], deep["max_age_seconds"]) == ("short", 3600)
    assert (deep["hold"], deep["hold_rules"]) == (True, ["short"])
    assert deep["lag_seconds"] == (TAKEN_MS - item.last_timestamp) // 1000
    assert deep["ledger"] == [{"epoch": 1, "floor": 0}]
    assert (holed["holes"], holed["hole_offsets"], holed["retention_rule"]) == (1, 5, "")
    assert (empty["fragments"], empty["age_seconds"], empty["first_time"]) == (0, None, None)


def test_tasks_are_even_and_hold_every_unit_once() -> None:
    units = [
        WalkUnit(f"s{n}", "", 0, 0, None, (0, 1), first=True, weight=weight)
        for n, weight in enumerate([5, 1000, 30, 700, 2, 2, 300])
    ]

    tasks = pack(units, weight=1200)

    assert sorted(each.stream for task in tasks for each in task) == [f"s{n}" for n in range(7)]
    assert all(sum(each.weight + 200 for each in task) <= 1200 for task in tasks)
    assert len(tasks) < 7


def test_a_time_that_no_table_can_hold_becomes_the_nearest_that_one_can() -> None:
    found = times(np.array([-(2**63), 0, 2**63 - 1], np.int64)).to_pylist()

    assert found[1] == datetime(1970, 1, 1, tzinfo=UTC)
    assert (found[0].year, found[2].year) == (1, 9999)


def test_an_offset_that_no_column_can_hold_stops_no_table(tmp_path: Path, rows: Rows) -> None:
    far, stream = support.Tier(), "__far_1"
    hole = Entry(0, 2**63 + 5, 0, 0, EntryKind.HOLE, 0, 0, 1, 7)
    far.add(stream, [hole, [support.chunk(2**63 + 5, b"x")]])
    item = far.catalog.items[stream]
    whole = WalkUnit(
        stream, item.root_key, 0, item.next_offset, None, (0, MAX_OFFSET), first=True, weight=2
    )

    counts = perform(far.store, support.PREFIX, [whole], 0, settings(tmp_path))
    travelled = pa.RecordBatch.from_pylist(counts, schema=_COUNTS).to_pylist()

    (row,) = stream_rows([item], gather(travelled), PolicySet(), TAKEN_MS).to_pylist()
    most = 2**63 - 1
    assert (row["next_offset"], row["offsets"], row["hole_offsets"]) == (most, most, most)
    found = rows("fleet_fragments")
    assert [(each["first_offset"], each["next_offset"]) for each in found] == [
        (0, most), (most, most)
    ]  # fmt: skip
    assert {each["key"] for each in found} <= far.store.objects.keys()


@pytest.mark.parametrize("objects", [True, False])
def test_the_same_task_run_twice_leaves_one_file_a_table(
    tier: Tier, tmp_path: Path, objects: bool
) -> None:
    for _ in range(2):
        perform(
            tier.store, tier.prefix, [unit(tier, DEEP)[0]], 3, settings(tmp_path, objects=objects)
        )

    assert len(list(tmp_path.rglob("*.*"))) == 1 + objects
