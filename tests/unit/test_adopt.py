"""The table is lost, or a backup of it was restored: nothing may be lost, nothing deleted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.adapters.memory import MemoryCatalog
from coldstream.errors import ConflictError, CorruptDataError, NotFoundError
from coldstream.manifest.catalog import StreamState
from coldstream.names import root_path
from coldstream.plans.policy import PolicySet
from coldstream.usecases.adopt import adopt
from coldstream.usecases.collect import collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.load import World, load
from coldstream.usecases.survey import Surveyed, survey
from tests.unit.remote import PREFIX, STREAM, Remote, chain, no_pause


def with_table(world: World, catalog: MemoryCatalog) -> World:
    return World(world.store, catalog, PREFIX, world.new_uid)


@pytest.fixture
def remote() -> Remote:
    """A claimed stream with three fragments in its manifest and two behind it."""
    remote = Remote()
    remote.claimed()
    remote.upload(*chain(3))
    commit_runs(remote.world, STREAM, pause=no_pause)
    remote.upload(*chain(2, start=30))
    return remote


def test_after_the_loss_of_the_table_the_newest_root_is_adopted_and_the_run_goes_on(
    remote: Remote,
) -> None:
    world = with_table(remote.world, MemoryCatalog("new"))
    old = load(remote.world, STREAM)

    with pytest.raises(NotFoundError):
        commit_runs(world, STREAM, pause=no_pause)
    item = adopt(world, STREAM)
    commit_runs(world, STREAM, pause=no_pause)

    assert item is not None
    assert item.version > old.item.version
    assert item.uid != old.item.uid
    assert load(world, STREAM).root.next_offset == 50
    assert load(world, STREAM).root.ledger == old.root.ledger
    assert adopt(world, STREAM) is None


def test_a_restored_older_item_never_hides_what_the_bucket_has(remote: Remote) -> None:
    before = remote.world.catalog.get(STREAM)
    assert before is not None
    commit_runs(remote.world, STREAM, pause=no_pause)
    restored = MemoryCatalog("restored")
    restored.items[STREAM] = before
    world = with_table(remote.world, restored)

    with pytest.raises(ConflictError):
        collect(world, remote.memory, STREAM, grace_ms=0, run_ms=0, now_ms=0)
    adopt(world, STREAM)

    assert load(world, STREAM).root.next_offset == 50
    assert load(world, STREAM).item.version > load(remote.world, STREAM).item.version


def test_a_restored_tombstone_wipes_nothing(remote: Remote) -> None:
    item = remote.world.catalog.get(STREAM)
    assert item is not None
    restored = MemoryCatalog("restored")
    restored.items[STREAM] = replace(item, state=StreamState.DELETED, revision=2)
    world = with_table(remote.world, restored)

    adopted = adopt(world, STREAM)

    assert adopted is not None
    assert (adopted.state, adopted.revision) == (StreamState.LIVE, 3)
    assert load(world, STREAM).root.next_offset == 30


def test_a_root_that_never_landed_may_be_adopted(remote: Remote) -> None:
    loaded = load(remote.world, STREAM)
    ahead = replace(loaded.root, version=loaded.item.version + 1)
    path = root_path(PREFIX, STREAM, ahead.epoch, ahead.version, 77)
    remote.memory.put(path, ahead.encode(), write_id="x")
    world = with_table(remote.world, MemoryCatalog("new"))

    item = adopt(world, STREAM)

    assert item is not None
    assert item.version == ahead.version + 1


def test_a_damaged_newest_root_is_told_and_no_older_one_is_taken(remote: Remote) -> None:
    item = remote.world.catalog.get(STREAM)
    assert item is not None
    remote.memory.objects[item.root_key] = b"garbage"
    world = with_table(remote.world, MemoryCatalog("new"))

    with pytest.raises(CorruptDataError) as found:
        adopt(world, STREAM)

    assert (found.value.stream, found.value.key) == (STREAM, item.root_key)
    assert world.catalog.get(STREAM) is None


def test_objects_without_any_root_are_for_a_person(remote: Remote) -> None:
    for key in list(remote.memory.objects):
        if "/metadata/" in key:
            del remote.memory.objects[key]
    world = with_table(remote.world, MemoryCatalog("new"))

    with pytest.raises(CorruptDataError, match="rebuild"):
        adopt(world, STREAM)


def test_a_stream_that_nobody_knows_is_not_made_up(remote: Remote) -> None:
    with pytest.raises(NotFoundError):
        adopt(remote.world, "__nobody_1")


def surveyed(world: World) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = survey(
            world, Surveyed.RECONCILE, PolicySet(), now_ms=0, target_size=1, cursor=cursor
        )
        found += page.streams
        cursor = page.cursor
        if cursor is None:
            return found


def test_a_survey_over_a_lost_table_finds_the_streams_of_the_bucket(remote: Remote) -> None:
    others = ["__a_1", f"{STREAM}0", f"{STREAM}-0"]
    for stream in others:
        remote.claimed(stream=stream)
    world = with_table(remote.world, MemoryCatalog("new"))

    assert sorted(surveyed(world)) == sorted([STREAM, *others])


def test_a_survey_over_a_good_table_never_lists_the_bucket(remote: Remote) -> None:
    world = replace(remote.world, store=None)  # type: ignore[arg-type]

    assert surveyed(world) == [STREAM]


def test_a_survey_over_a_restored_table_finds_old_and_missing_streams(remote: Remote) -> None:
    remote.claimed(stream="__b_1")
    restored = MemoryCatalog("restored")
    item = remote.world.catalog.get(STREAM)
    assert item is not None
    restored.items[STREAM] = replace(item, state=StreamState.DELETING)
    world = with_table(remote.world, restored)

    assert sorted(surveyed(world)) == sorted([STREAM, "__b_1"])
