"""The table is lost, or a backup of it was restored: nothing may be lost, nothing deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from coldstream.adapters.memory import MemoryCatalog
from coldstream.errors import (
    ConflictError,
    CorruptDataError,
    NotFoundError,
)
from coldstream.manifest.catalog import StreamState
from coldstream.manifest.entries import ENTRY_SIZE, Entries
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.queue_name import QueueName
from coldstream.manifest.root import LastChunk, Root
from coldstream.names import root_path
from coldstream.plans.policy import PolicySet
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.usecases.adopt import adopt
from coldstream.usecases.collect import collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.delete_stream import delete_stream, sweep
from coldstream.usecases.rebalance import rebalance
from coldstream.usecases.rebuild import rebuild
from coldstream.usecases.reconcile import reconcile
from coldstream.usecases.scan import ScanFor, scan
from coldstream.usecases.stragglers import sweep_stragglers
from tests.support.remote import PREFIX, STREAM, Remote, chain, log_of, no_pause, piece

NAME = QueueName("rabbit", "/", "orders-0", "orders", "0")


def with_table(context: Context, catalog: MemoryCatalog) -> Context:
    return Context(context.store, catalog, PREFIX, context.new_uid)


@pytest.fixture
def remote() -> Remote:
    """A claimed stream with three fragments in its manifest and two behind it."""
    remote = Remote()
    remote.claimed()
    remote.upload(*chain(3))
    commit_runs(remote.context, STREAM, pause=no_pause)
    remote.upload(*chain(2, start=30))
    return remote


def test_after_the_loss_of_the_table_the_newest_root_is_adopted_and_the_run_goes_on(
    remote: Remote,
) -> None:
    context = with_table(remote.context, MemoryCatalog("new"))
    old = load(remote.context, STREAM)

    with pytest.raises(NotFoundError):
        commit_runs(context, STREAM, pause=no_pause)
    item = adopt(context, STREAM)
    commit_runs(context, STREAM, pause=no_pause)

    assert item is not None
    assert item.version > old.item.version
    assert item.uid != old.item.uid
    assert load(context, STREAM).root.next_offset == 50
    assert load(context, STREAM).root.ledger == old.root.ledger
    assert adopt(context, STREAM) is None


def test_a_restored_older_item_never_hides_what_the_bucket_has(remote: Remote) -> None:
    before = remote.context.catalog.get(STREAM)
    assert before is not None
    commit_runs(remote.context, STREAM, pause=no_pause)
    restored = MemoryCatalog("restored")
    restored.items[STREAM] = before
    context = with_table(remote.context, restored)

    with pytest.raises(ConflictError):
        collect(
            context, remote.memory, STREAM, grace_ms=0, run_ms=0, now_ms=0, held=lambda _: False
        )
    adopt(context, STREAM)

    assert load(context, STREAM).root.next_offset == 50
    assert load(context, STREAM).item.version > load(remote.context, STREAM).item.version


def test_a_root_has_the_name_that_the_item_has_when_it_is_made(remote: Remote) -> None:
    assert load(remote.context, STREAM).root.name == QueueName()

    remote.context.catalog.set_name(STREAM, NAME)
    commit_runs(remote.context, STREAM, pause=no_pause)

    assert load(remote.context, STREAM).root.name == NAME


def test_after_the_loss_of_the_table_a_stream_has_the_name_that_its_root_says(
    remote: Remote,
) -> None:
    remote.context.catalog.set_name(STREAM, NAME)
    commit_runs(remote.context, STREAM, pause=no_pause)
    context = with_table(remote.context, MemoryCatalog("new"))

    item = adopt(context, STREAM)

    assert item is not None
    assert (item.name, load(context, STREAM).root.name) == (NAME, NAME)


@pytest.mark.parametrize("name", [QueueName(), QueueName("old", "/", "before")])
def test_a_restored_item_gets_the_name_of_the_newest_root_which_is_younger(
    remote: Remote, name: QueueName
) -> None:
    before = remote.context.catalog.get(STREAM)
    assert before is not None
    remote.context.catalog.set_name(STREAM, NAME)
    commit_runs(remote.context, STREAM, pause=no_pause)
    restored = MemoryCatalog("restored")
    restored.items[STREAM] = replace(before, name=name)

    item = adopt(with_table(remote.context, restored), STREAM)

    assert item is not None
    assert item.name == NAME


def test_a_root_that_says_no_name_gets_that_of_the_restored_item(remote: Remote) -> None:
    before = remote.context.catalog.get(STREAM)
    assert before is not None
    restored = MemoryCatalog("restored")
    restored.items[STREAM] = replace(before, name=NAME)
    context = with_table(remote.context, restored)

    item = adopt(context, STREAM)

    assert item is not None
    assert (item.name, load(context, STREAM).root.name) == (NAME, NAME)


def test_a_rebuild_of_a_lost_item_has_the_name_of_the_newest_root(remote: Remote) -> None:
    remote.context.catalog.set_name(STREAM, NAME)
    commit_runs(remote.context, STREAM, pause=no_pause)
    context = with_table(remote.context, MemoryCatalog("new"))

    assert rebuild(context, STREAM, branching=4, dry_run=False).landed

    assert load(context, STREAM).item.name == load(context, STREAM).root.name == NAME


def test_a_rebuild_keeps_a_name_that_was_corrected_since_the_newest_root(remote: Remote) -> None:
    remote.context.catalog.set_name(STREAM, QueueName("c", "/", "wrong"))
    commit_runs(remote.context, STREAM, pause=no_pause)
    remote.context.catalog.set_name(STREAM, NAME)

    assert rebuild(remote.context, STREAM, branching=4, dry_run=False).landed

    assert load(remote.context, STREAM).item.name == load(remote.context, STREAM).root.name == NAME


def test_a_restored_tombstone_wipes_nothing(remote: Remote) -> None:
    item = remote.context.catalog.get(STREAM)
    assert item is not None
    restored = MemoryCatalog("restored")
    restored.items[STREAM] = replace(item, state=StreamState.DELETING, revision=2)
    context = with_table(remote.context, restored)

    adopted = adopt(context, STREAM)

    assert adopted is not None
    assert (adopted.state, adopted.revision) == (StreamState.LIVE, 3)
    assert load(context, STREAM).root.next_offset == 30


def test_a_stream_that_was_deleted_for_good_never_comes_back_half_swept(remote: Remote) -> None:
    rules = PolicySet()
    tombstone = delete_stream(remote.context, STREAM, rules, now_ms=0, undelete_ms=0)

    class Half:
        def delete(self, keys: Sequence[str]) -> list[str]:
            return remote.memory.delete([key for key in keys if key.endswith(".fragment")][:2])

    sweep(
        remote.context,
        Half(),
        STREAM,
        rules,
        revision=tombstone.revision,
        empty=0,
        now_ms=0,
        time_left=lambda: False,
    )
    item = remote.items.items[STREAM]
    restored = MemoryCatalog("restored")
    restored.items[STREAM] = item
    context = with_table(remote.context, restored)

    healed = reconcile(context, STREAM, pause=no_pause)

    assert (healed.adopted, healed.commits.commits) == (True, 0)
    now = restored.items[STREAM]
    assert (now.state, now.revision) == (StreamState.DELETED, item.revision + 1)
    assert now.state_token != item.state_token
    for _ in range(2):  # seen, and then gone
        sweep_stragglers(
            context, remote.memory, STREAM, grace_ms=0, run_ms=0, now_ms=0, held=lambda _: False
        )
    assert not remote.memory.objects


def test_a_root_that_never_landed_may_be_adopted(remote: Remote) -> None:
    loaded = load(remote.context, STREAM)
    ahead = replace(loaded.root, version=loaded.item.version + 1)
    path = root_path(PREFIX, STREAM, ahead.epoch, ahead.version, 77)
    remote.memory.put(path, ahead.encode(), write_id="x")
    context = with_table(remote.context, MemoryCatalog("new"))

    item = adopt(context, STREAM)

    assert item is not None
    assert item.version == ahead.version + 1


def unlanded(remote: Remote, *, epoch: int = 1) -> Root:
    """A root after the current one that never landed and names what is not there."""
    loaded = load(remote.context, STREAM)
    entry = replace(loaded.root.entries[-1], first_offset=30, next_offset=40, uid=4711)
    root = replace(
        loaded.root.appended([entry], LastChunk(30, 1)),
        version=loaded.item.version + 1,
        epoch=epoch,
        ledger=loaded.root.ledger if epoch == 1 else loaded.root.ledger.claimed(epoch, 30),
    )
    path = root_path(PREFIX, STREAM, root.epoch, root.version, 77)
    remote.memory.put(path, root.encode(), write_id="x")
    return root


def test_a_root_that_never_landed_and_lacks_an_object_is_passed_over(remote: Remote) -> None:
    ahead = unlanded(remote)
    context = with_table(remote.context, MemoryCatalog("new"))

    item = adopt(context, STREAM)

    assert item is not None
    assert item.next_offset == 30
    assert item.version == ahead.version + 1
    commit_runs(context, STREAM, pause=no_pause)
    assert load(context, STREAM).root.next_offset == 50


def test_a_claim_is_not_forgotten_by_going_back_to_a_root_without_it(remote: Remote) -> None:
    unlanded(remote, epoch=2)
    context = with_table(remote.context, MemoryCatalog("new"))

    with pytest.raises(CorruptDataError, match="claim of a later writer"):
        adopt(context, STREAM)

    assert context.catalog.get(STREAM) is None


def test_nobody_goes_further_back_than_to_the_root_that_must_have_landed(remote: Remote) -> None:
    commit_runs(remote.context, STREAM, pause=no_pause)
    (gone,) = [key for key in remote.memory.objects if f"/data/{40:020d}-" in key]
    item = remote.items.items[STREAM]
    unlanded_version = item.version + 1
    ahead = replace(load(remote.context, STREAM).root, version=unlanded_version)
    path = root_path(PREFIX, STREAM, ahead.epoch, ahead.version, 77)
    remote.memory.put(path, ahead.encode(), write_id="x")
    del remote.memory.objects[gone]
    context = with_table(remote.context, MemoryCatalog("new"))

    with pytest.raises(CorruptDataError, match="rebuild"):
        adopt(context, STREAM)

    restored = MemoryCatalog("restored")
    restored.items[STREAM] = item
    with pytest.raises(CorruptDataError, match="rebuild"):
        adopt(with_table(remote.context, restored), STREAM)


def test_a_group_that_is_gone_counts_as_an_object_that_is_missing(remote: Remote) -> None:
    remote.upload(*chain(10, start=50))
    commit_runs(remote.context, STREAM, pause=no_pause)
    rebalance(remote.context, STREAM, branching=2, pause=no_pause)
    for key in [key for key in remote.memory.objects if key.endswith("group")]:
        del remote.memory.objects[key]
    context = with_table(remote.context, MemoryCatalog("new"))

    item = adopt(context, STREAM)

    assert item is not None
    assert item.next_offset == 150
    assert not any(entry.kind.level for entry in load(context, STREAM).root.entries)


def test_of_equal_roots_the_one_that_the_item_names_is_adopted(remote: Remote) -> None:
    loaded = load(remote.context, STREAM)
    shorter = replace(
        loaded.root, first_offset=10, entries=Entries(bytes(loaded.root.entries)[ENTRY_SIZE:])
    )
    for uid in (1, 2**64 - 1):
        path = root_path(PREFIX, STREAM, shorter.epoch, shorter.version, uid)
        remote.memory.put(path, shorter.encode(), write_id="x")
    restored = MemoryCatalog("restored")
    restored.items[STREAM] = loaded.item

    item = adopt(with_table(remote.context, restored), STREAM)

    assert item is not None
    assert item.first_offset == 0


def test_a_damaged_newest_root_is_told_and_no_older_one_is_taken(remote: Remote) -> None:
    item = remote.context.catalog.get(STREAM)
    assert item is not None
    remote.memory.objects[item.root_key] = b"garbage"
    context = with_table(remote.context, MemoryCatalog("new"))

    with pytest.raises(CorruptDataError) as found:
        adopt(context, STREAM)

    assert (found.value.stream, found.value.key) == (STREAM, item.root_key)
    assert context.catalog.get(STREAM) is None


def test_objects_without_any_root_are_for_a_person(remote: Remote) -> None:
    for key in list(remote.memory.objects):
        if "/metadata/" in key:
            del remote.memory.objects[key]
    context = with_table(remote.context, MemoryCatalog("new"))

    with pytest.raises(CorruptDataError, match="rebuild"):
        adopt(context, STREAM)


def test_a_stream_that_nobody_knows_is_not_made_up(remote: Remote) -> None:
    with pytest.raises(NotFoundError):
        adopt(remote.context, "__nobody_1")


def scanned(context: Context) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = scan(
            context,
            ScanFor.RECONCILE,
            PolicySet(),
            now_ms=0,
            target_size=1,
            cursor=cursor,
            mark=True,
        )
        found += page.streams
        cursor = page.cursor
        if cursor is None:
            return found


def test_a_scan_over_a_lost_table_finds_the_streams_of_the_bucket(remote: Remote) -> None:
    others = ["__a_1", f"{STREAM}0", f"{STREAM}-0"]
    for stream in others:
        remote.claimed(stream=stream)
    context = with_table(remote.context, MemoryCatalog("new"))

    assert sorted(scanned(context)) == sorted([STREAM, *others])


def test_a_scan_over_a_good_table_goes_through_the_bucket_once(remote: Remote) -> None:
    remote.forget()
    assert scanned(remote.context) == [STREAM]
    assert remote.store.calls["put"] == 1
    remote.forget()
    for _ in range(3):
        assert scanned(remote.context) == [STREAM]

    assert remote.store.calls == {"list": 3}  # each time the mark and nothing more


def test_streams_that_a_restored_table_lacks_are_found_after_a_run_that_died(
    remote: Remote,
) -> None:
    remote.claimed(stream="__b_1")
    scanned(remote.context)
    restored = MemoryCatalog("restored")
    item = remote.context.catalog.get(STREAM)
    assert item is not None
    restored.items[STREAM] = item
    context = with_table(remote.context, restored)
    page = scan(context, ScanFor.RECONCILE, PolicySet(), now_ms=0, target_size=1)
    for stream in page.streams:  # and here the first run dies
        reconcile(context, stream, pause=no_pause)

    # Handed out again and again until the table has it, not only once.
    assert [set(scanned(context)) for _ in range(2)] == 2 * [{STREAM, "__b_1"}]
    reconcile(context, "__b_1", pause=no_pause)
    scanned(context)
    remote.forget()
    assert set(scanned(context)) == {STREAM, "__b_1"}
    assert remote.store.calls["list"] == 1


def test_a_scan_that_is_only_to_read_leaves_no_mark(remote: Remote) -> None:
    before = remote.tampered()
    found = scan(
        remote.context, ScanFor.RECONCILE, PolicySet(), now_ms=0, target_size=1, cursor="bucket:"
    )

    assert found.cursor is None
    assert remote.tampered() == before


def test_a_scan_over_a_restored_table_finds_old_and_missing_streams(remote: Remote) -> None:
    remote.claimed(stream="__b_1")
    restored = MemoryCatalog("restored")
    item = remote.context.catalog.get(STREAM)
    assert item is not None
    restored.items[STREAM] = replace(item, state=StreamState.DELETING)
    context = with_table(remote.context, restored)

    assert sorted(scanned(context)) == sorted([STREAM, "__b_1"])


def beside(remote: Remote, before: Root, claims: Sequence[tuple[int, int]]) -> Root:
    """The root of a claim that came to nothing: of the version that another claim has."""
    epoch, next_offset = claims[-1]
    entries = [each for each in before.entries if each.next_offset <= next_offset]
    last = LastChunk(next_offset - 1, 1)
    root = replace(
        before,
        epoch=epoch,
        version=before.version + 1,
        ledger=Ledger.of(claims),
        next_offset=next_offset,
        entries=Entries.of(entries),
        last_chunk=last,
    )
    path = root_path(PREFIX, STREAM, epoch, root.version, 77)
    remote.memory.put(path, root.encode(), write_id=path)
    return root


@pytest.mark.parametrize("claims", [[(1, 0), (2, 30)], [(1, 0), (3, 20)]])
def test_of_two_claims_that_of_which_an_upload_tells_is_adopted(
    claims: list[tuple[int, int]],
) -> None:
    """Found by the simulator: what was uploaded under the claim that landed was hidden, and a lost
    timeline came back. No log showed it any more: local retention had moved on."""
    remote = Remote().claimed()
    remote.upload(*chain(3))
    commit_runs(remote.context, STREAM, pause=no_pause)
    before = remote.root()
    remote.claim(2, *log_of(*chain(2), piece(20, 30, epoch=2)).chunks)
    landed = remote.root()
    assert landed.ledger == Ledger.of([(1, 0), (2, 20)])
    other = beside(remote, before, claims)
    assert other.version == landed.version
    uploaded = piece(20, 30, epoch=2, floor=20)

    def adopted(*, rebuilt: bool) -> Root:
        context = with_table(remote.new_context(), MemoryCatalog("new"))
        if rebuilt:
            rebuild(context, STREAM, branching=4, dry_run=False, accept_less=True)
        else:
            adopt(context, STREAM)
        return load(context, STREAM).root

    for rebuilt in (False, True):
        objects = remote.tampered()
        assert adopted(rebuilt=rebuilt).ledger == other.ledger, "nothing speaks against it"
        remote.memory.objects = dict(objects)
        remote.upload(uploaded)
        root = adopted(rebuilt=rebuilt)
        assert root.ledger == landed.ledger
        remote.memory.objects = objects


@pytest.mark.parametrize(("stale", "said"), [(25, 20), (30, 30)])
def test_a_floor_that_no_root_has_tells_nothing_and_two_that_roots_have_neither(
    stale: int, said: int
) -> None:
    """Found by a stranger: one late upload under a claim that a rebuild had forgotten decided."""
    remote = Remote().claimed()
    remote.upload(*chain(3))
    commit_runs(remote.context, STREAM, pause=no_pause)
    before = remote.root()
    remote.claim(2, *log_of(*chain(2), piece(20, 30, epoch=2)).chunks)
    beside(remote, before, [(1, 0), (2, 30)])
    lost = replace(before, version=before.version + 1)
    path = root_path(PREFIX, STREAM, 1, lost.version, 55)
    remote.memory.put(path, lost.encode(), write_id=path)
    remote.upload(piece(20, 30, epoch=2, floor=20))
    remote.upload(*(piece(40 + n, 50 + n, epoch=2, floor=stale) for n in (0, 10)))
    context = with_table(remote.new_context(), MemoryCatalog("new"))

    adopt(context, STREAM)

    # Where two are said, the order of roots without any upload stands: the furthest one.
    assert load(context, STREAM).root.ledger == Ledger.of([(1, 0), (2, said)])


def test_a_root_that_an_upload_contradicts_does_not_step_in_for_one_that_misses_something() -> None:
    remote = Remote().claimed()
    paths = remote.upload(*chain(3))
    commit_runs(remote.context, STREAM, pause=no_pause)
    before = remote.root()
    remote.claim(2, *log_of(*chain(2), piece(20, 30, epoch=2)).chunks)
    beside(remote, before, [(1, 0), (3, 10)])
    remote.upload(piece(20, 30, epoch=2, floor=20))
    remote.memory.delete([paths[1]])
    context = with_table(remote.new_context(), MemoryCatalog("new"))

    with pytest.raises(CorruptDataError, match="under a claim that it does not know"):
        adopt(context, STREAM)


def test_roots_of_one_claim_are_told_apart_without_a_look_at_uploads(remote: Remote) -> None:
    landed = remote.root()
    path = root_path(PREFIX, STREAM, landed.epoch, landed.version, 77)
    remote.memory.put(path, landed.encode(), write_id=path)
    context = with_table(remote.new_context(), MemoryCatalog("new"))
    remote.forget()

    adopt(context, STREAM)

    assert remote.store.calls["get_suffix"] == 0
