"""Which versions of an Iceberg table are forgotten, and what the others need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import SnapshotLogEntry
from pyiceberg.table.update import RemoveSnapshotsUpdate

from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.jobs.materialise.commit import commit
from coldstream.jobs.materialise.iceberg.state_object import history
from coldstream.jobs.materialise.iceberg.versions import forgettable
from coldstream.jobs.materialise.table import Loaded
from coldstream_devkit.suites.table import SCHEMA, STREAM, TableSite, append_of, offsets
from tests.unit.jobs.iceberg_history import compact, current, expire, set_back, set_properties
from tests.unit.jobs.test_iceberg import catalog, site

__all__ = ["catalog", "site"]


def _grow(site: TableSite, first: int) -> None:
    table = site.open("db.t")
    append = append_of(site, table.load(SCHEMA), first, first + 100)
    commit(table, append, first_schema=SCHEMA, pause=lambda _: None)


def test_a_version_counts_by_when_it_was_replaced_not_by_when_it_was_made(
    site: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    for first in (0, 100, 200):
        _grow(site, first)
    metadata = catalog().load_table("db.t").metadata
    first, second, third = (each.snapshot_id for each in metadata.snapshots)
    replaced = [each.timestamp_ms for each in metadata.snapshot_log][1:]

    assert forgettable(metadata, replaced[0]) == set()
    assert forgettable(metadata, replaced[0] + 1) == {first}
    assert forgettable(metadata, replaced[1] + 1) == {first, second}
    assert forgettable(metadata, 2**42) == {first, second}
    assert third == metadata.current_snapshot_id


def test_what_a_tag_or_a_branch_names_is_kept(
    site: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    for first in (0, 100, 200, 300):
        _grow(site, first)
    ids = [each.snapshot_id for each in catalog().load_table("db.t").metadata.snapshots]
    with catalog().load_table("db.t").manage_snapshots() as change:
        change.create_tag(ids[0], "year-end")
        change.create_branch(ids[1], "audit")

    table = site.open("db.t")
    versions = table.forget(table.load(SCHEMA), 2**42)

    assert versions is not None
    assert versions.forgotten == 1
    left = catalog().load_table("db.t").metadata
    assert {each.snapshot_id for each in left.snapshots} == {ids[0], ids[1], ids[3]}
    assert set(left.refs) == {"main", "year-end", "audit"}
    for tagged in ids[:2]:
        scan = catalog().load_table("db.t").scan(snapshot_id=tagged)
        assert {each.file.file_path for each in scan.plan_files()} <= set(versions.needed)


def test_the_metadata_of_kept_versions_is_needed_and_that_of_forgotten_ones_is_not(
    site: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    for first in (0, 100, 200):
        _grow(site, first)
    with catalog().load_table("db.t").transaction() as change:
        change.set_properties({"write.metadata.previous-versions-max": "2"})
    before = catalog().load_table("db.t")
    made = {each.manifest_list for each in before.metadata.snapshots}
    last = before.current_snapshot()
    assert last is not None

    table = site.open("db.t")
    versions = table.forget(table.load(SCHEMA), 2**42)

    assert versions is not None
    needed, now = set(versions.needed), catalog().load_table("db.t")
    assert made & needed == {last.manifest_list}
    manifests = {each.manifest_path for each in last.manifests(before.io)}
    assert manifests <= needed
    logged = {each.metadata_file for each in now.metadata.metadata_log}
    assert len(logged) == 2
    assert {each for each in needed if each.endswith(".metadata.json")} == {
        now.metadata_location, before.metadata_location, *logged,
        *(each.metadata_file for each in before.metadata.metadata_log),
    }  # fmt: skip


def test_going_back_at_this_very_moment_loses_nothing(
    site: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    for first in (0, 100, 200):
        _grow(site, first)
    table = site.open("db.t")
    loaded = table.load(SCHEMA)
    oldest = loaded.handle.metadata.snapshots[0].snapshot_id
    set_back(catalog(), "db.t", oldest)

    assert table.forget(loaded, 2**42) is None

    assert current(catalog(), "db.t") == oldest
    assert len(catalog().load_table("db.t").metadata.snapshots) == 3
    assert offsets(site, "db.t") == list(range(100))


def test_without_the_guard_it_would(site: TableSite, catalog: Callable[[], SqlCatalog]) -> None:
    """Why `forget` says what branches it has seen: pyiceberg drops a branch with its snapshot."""
    for first in (0, 100):
        _grow(site, first)
    stale = catalog().load_table("db.t")
    oldest = stale.metadata.snapshots[0].snapshot_id
    set_back(catalog(), "db.t", oldest)

    removal = RemoveSnapshotsUpdate(**{"snapshot-ids": [oldest]})
    catalog().commit_table(stale, (), (removal,))

    assert catalog().load_table("db.t").current_snapshot() is None


def test_a_version_that_alone_says_what_the_table_has_is_kept(
    site: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    for first in (0, 100):
        _grow(site, first)
    table = site.open("db.t")
    compact(catalog(), "db.t")  # by others; only its parent names the state
    handle = catalog().load_table("db.t")
    unnoted = Loaded(SCHEMA, table.load(SCHEMA).state, "", frozenset(), handle)
    with handle.transaction() as change:
        change.remove_properties("coldstream.snapshot")
    unnoted = Loaded(SCHEMA, unnoted.state, "", frozenset(), catalog().load_table("db.t"))

    versions = table.forget(unnoted, 2**42)

    assert versions is not None
    assert versions.forgotten == 0
    assert site.open("db.t").load(SCHEMA).state.of(STREAM).spans == ((0, 200),)


def test_the_states_of_kept_versions_are_needed(
    site: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    for first in (0, 100, 200):
        _grow(site, first)
    snapshots = catalog().load_table("db.t").metadata.snapshots
    states = [
        each.summary.additional_properties["coldstream.state"] for each in snapshots if each.summary
    ]
    table = site.open("db.t")

    whole = table.forget(table.load(SCHEMA), 0)
    rest = table.forget(table.load(SCHEMA), 2**42)

    assert whole is not None
    assert rest is not None
    assert set(states) <= set(whole.needed)
    assert set(states) & set(rest.needed) == {states[-1]}


def test_a_state_that_only_a_property_names_any_more_is_needed(
    site: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    _grow(site, 0)
    (ours,) = catalog().load_table("db.t").metadata.snapshots
    assert ours.summary is not None
    state = ours.summary.additional_properties["coldstream.state"]
    compact(catalog(), "db.t")  # by others: its summary names no state
    site.open("db.t").load(SCHEMA)
    expire(catalog(), "db.t", ours.snapshot_id)
    set_properties(catalog(), "db.t", {"coldstream.state": "file:///elsewhere"})
    table = site.open("db.t")

    versions = table.forget(table.load(SCHEMA), 2**42)

    assert versions is not None
    assert state in versions.needed
    assert site.open("db.t").load(SCHEMA).state.of(STREAM).spans == ((0, 100),)


@pytest.mark.parametrize("tagged", [True, False])
def test_going_back_to_what_others_compacted_is_possible_as_long_as_it_is_kept(
    site: TableSite, catalog: Callable[[], SqlCatalog], tagged: bool
) -> None:
    _grow(site, 0)
    theirs = compact(catalog(), "db.t")
    if tagged:
        with catalog().load_table("db.t").manage_snapshots() as change:
            change.create_tag(theirs, "kept")
    for first in (100, 200):
        _grow(site, first)
    log = catalog().load_table("db.t").metadata.snapshot_log
    table = site.open("db.t")

    versions = table.forget(table.load(SCHEMA), 2**42 if tagged else log[2].timestamp_ms)

    assert versions is not None
    set_back(catalog(), "db.t", theirs)
    loaded = site.open("db.t").load(SCHEMA)
    assert loaded.state.of(STREAM).spans == ((0, 100),)
    assert offsets(site, "db.t") == list(range(100))


@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_a_name_that_is_given_at_this_very_moment_stays(
    site: TableSite, catalog: Callable[[], SqlCatalog], kind: str
) -> None:
    for first in (0, 100):
        _grow(site, first)
    table = site.open("db.t")
    loaded = table.load(SCHEMA)
    oldest = loaded.handle.metadata.snapshots[0].snapshot_id
    with catalog().load_table("db.t").manage_snapshots() as change:
        getattr(change, f"create_{kind}")(oldest, "mine")

    assert table.forget(loaded, 2**42) is None
    assert catalog().load_table("db.t").scan(snapshot_id=oldest).to_arrow().num_rows == 100


def test_what_others_have_forgotten_meanwhile_is_no_error(
    site: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    for first in (0, 100):
        _grow(site, first)
    table = site.open("db.t")
    loaded = table.load(SCHEMA)
    expire(catalog(), "db.t", loaded.handle.metadata.snapshots[0].snapshot_id)

    assert table.forget(loaded, 2**42) is None


def _logged(snapshot_id: int, ms: int) -> SnapshotLogEntry:
    return SnapshotLogEntry.model_validate({"snapshot-id": snapshot_id, "timestamp-ms": ms})


def _aged(metadata: TableMetadata, **changes: Any) -> TableMetadata:
    """With times of 1, 2, 3 ... instead of now, and a log of the same."""
    snapshots = [
        each.model_copy(update={"timestamp_ms": number})
        for number, each in enumerate(metadata.snapshots, 1)
    ]
    log = [_logged(each.snapshot_id, each.timestamp_ms) for each in snapshots]
    given = {"snapshots": snapshots, "snapshot_log": log, **changes}
    return metadata.model_copy(update=given)


def test_what_a_rollback_undid_counts_from_the_rollback(
    site: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    for first in (0, 100, 200):
        _grow(site, first)
    metadata = _aged(catalog().load_table("db.t").metadata)
    first, second, third = (each.snapshot_id for each in metadata.snapshots)
    log = [*metadata.snapshot_log, _logged(first, 1000), _logged(second, 2000)]
    back = metadata.model_copy(update={"snapshot_log": log, "current_snapshot_id": second})
    back = back.model_copy(update={"refs": {}})

    assert forgettable(back, 1000) == set()
    assert forgettable(back, 1001) == {third}
    assert forgettable(back, 2001) == {first, third}


def test_a_log_that_others_have_cut_forgets_nothing_that_may_have_been_the_table(
    site: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    for first in (0, 100, 200):
        _grow(site, first)
    metadata = _aged(catalog().load_table("db.t").metadata)
    first, second, third = (each.snapshot_id for each in metadata.snapshots)
    cut = metadata.model_copy(update={"snapshot_log": [_logged(third, 500)]})
    emptied = metadata.model_copy(update={"snapshot_log": [], "refs": {}})

    assert forgettable(cut, 500) == set()
    assert forgettable(cut, 501) == {first, second}
    assert forgettable(emptied, 2**42) == set()


def test_what_a_branch_was_a_moment_ago_is_kept(
    site: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    for first in (0, 100, 200):
        _grow(site, first)
    metadata = _aged(catalog().load_table("db.t").metadata)
    first, second, third = (each.snapshot_id for each in metadata.snapshots)
    # As if the second and the third were a branch of their own: the log does not have them.
    branch = {
        "audit": SnapshotRef.model_validate({"snapshot-id": third, "type": SnapshotRefType.BRANCH})
    }
    log = [_logged(first, 1)]
    own = metadata.model_copy(
        update={"snapshot_log": log, "current_snapshot_id": first, "refs": branch}
    )

    assert forgettable(own, 3) == set()
    assert forgettable(own, 4) == {second}


def test_what_the_tables_own_settings_keep_is_kept(
    site: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    for first in (0, 100, 200):
        _grow(site, first)
    least = "history.expire.min-snapshots-to-keep"
    oldest = catalog().load_table("db.t").metadata.snapshots[0].snapshot_id
    table = site.open("db.t")
    for value, gone in (("3", set()), ("2", {oldest})):
        set_properties(catalog(), "db.t", {least: value})
        assert forgettable(catalog().load_table("db.t").metadata, 2**42) == gone

    for name, value in ((least, "many"), ("gc.enabled", "FALSE")):
        set_properties(catalog(), "db.t", {least: "1", name: value})
        with pytest.raises(InvalidInputError, match=name):
            table.forget(table.load(SCHEMA), 2**42)
    assert len(catalog().load_table("db.t").metadata.snapshots) == 3


def test_a_manifest_that_is_gone_forgets_nothing(
    site: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    for first in (0, 100):
        _grow(site, first)
    table = site.open("db.t")
    loaded = table.load(SCHEMA)
    for manifest in catalog().load_table("db.t").current_snapshot().manifests(loaded.handle.io):  # type: ignore[union-attr]
        Path(manifest.manifest_path.removeprefix("file://")).unlink()

    with pytest.raises(CorruptDataError, match="manifest"):
        table.forget(loaded, 2**42)
    assert len(catalog().load_table("db.t").metadata.snapshots) == 2


def test_a_table_that_is_made_again_never_has_the_place_of_the_old_one(
    site: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    _grow(site, 0)
    old = catalog().load_table("db.t").location()
    catalog().rename_table("db.t", "db.t_2025")
    _grow(site, 0)

    assert catalog().load_table("db.t").location() != old
    assert catalog().load_table("db.t_2025").scan().to_arrow().num_rows == 100


def test_a_state_whose_place_has_a_blank_in_its_name_is_needed(
    site: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    _grow(site, 0)
    url = "s3://w/my tables/coldstream/state-1.json"
    set_properties(catalog(), "db.t", {"alone": url, "behind-a-snapshot": f"17 {url}2"})
    table = site.open("db.t")

    versions = table.forget(table.load(SCHEMA), 2**42)

    assert versions is not None
    assert {url, f"{url}2"} <= set(versions.needed)


def test_snapshots_that_are_each_others_parents_end(
    site: TableSite, catalog: Callable[[], SqlCatalog]
) -> None:
    for first in (0, 100):
        _grow(site, first)
    metadata = catalog().load_table("db.t").metadata
    first, second = metadata.snapshots
    turned = first.model_copy(update={"parent_snapshot_id": second.snapshot_id})
    circle = metadata.model_copy(update={"snapshots": [turned, second]})

    assert [each.snapshot_id for each in history(circle)] == [second.snapshot_id, first.snapshot_id]
    assert forgettable(circle, 2**42) == {first.snapshot_id}
