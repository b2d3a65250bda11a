"""A manifest made anew from the bucket: the same data, no deletes meanwhile, no hidden gap."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from coldstream.adapters.memory import MemoryCatalog
from coldstream.errors import (
    ConflictError,
    CorruptDataError,
    ForeignBucketError,
    InvalidInputError,
    LostRangeError,
    NotFoundError,
    UnavailableError,
)
from coldstream.manifest.catalog import QueueName, StreamState
from coldstream.manifest.invariants import agreement, coverage, fencing, tree_sums
from coldstream.manifest.tree import leaves
from coldstream.osiris.offsets import OffsetSet
from coldstream.plans.policy import PolicySet, Rule
from coldstream.ports import Unknown
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.usecases.collect import collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.erase import erase
from coldstream.usecases.rebalance import rebalance
from coldstream.usecases.rebuild import LackingError, rebuild
from coldstream.usecases.retention import retain
from coldstream_devkit.bucket import referenced
from tests.support.crashes import Crash
from tests.support.remote import PREFIX, STREAM, Remote, chain, no_pause, piece

M = 2


@pytest.fixture
def remote() -> Remote:
    remote = Remote().claimed()
    remote.upload(*chain(20))
    commit_runs(remote.context, STREAM, pause=no_pause)
    rebalance(remote.context, STREAM, branching=M, pause=no_pause)
    return remote


def ranges(context: Context) -> list[tuple[int, int]]:
    root = load(context, STREAM).root
    return [(e.first_offset, e.next_offset) for e in leaves(root, context.fetch(STREAM))]


def assert_sound(context: Context) -> None:
    loaded, fetch = load(context, STREAM), context.fetch(STREAM)
    live = list(leaves(loaded.root, fetch))
    assert not agreement(loaded.item, loaded.root)
    assert not coverage(loaded.root, live)
    assert not fencing(loaded.root, live)
    assert not tree_sums(loaded.root, fetch)


def spoil(remote: Remote, *kinds: str) -> None:
    for key in list(remote.memory.objects):
        if key.endswith(kinds):
            remote.memory.objects[key] = b"garbage"


def test_a_dry_run_changes_nothing_and_says_what_would_come_out(remote: Remote) -> None:
    before = (remote.tampered(), dict(remote.items.items))

    report = rebuild(remote.context, STREAM, branching=M)

    assert (remote.tampered(), dict(remote.items.items)) == before
    root = load(remote.context, STREAM).root
    new = report.rebuilt.root
    assert (new.first_offset, new.next_offset) == (root.first_offset, root.next_offset)
    assert (new.fragments, new.total_size) == (root.fragments, root.total_size)


def test_damaged_groups_are_made_anew(remote: Remote) -> None:
    wanted = ranges(remote.context)
    spoil(remote, "group")

    report = rebuild(remote.context, STREAM, branching=M, dry_run=False)

    context = remote.new_context()
    assert report.landed
    assert report.rebuilt.unverified == 0
    assert ranges(context) == wanted
    assert_sound(context)
    assert remote.items.items[STREAM].state is StreamState.LIVE
    remote.upload(*chain(2, start=200))
    assert commit_runs(context, STREAM, pause=no_pause).next_offset == 220


def test_a_damaged_current_root_is_replaced_from_an_older_one(remote: Remote) -> None:
    wanted = ranges(remote.context)
    key = remote.items.items[STREAM].root_key
    remote.memory.objects[key] = b"garbage"

    report = rebuild(remote.new_context(), STREAM, branching=M, dry_run=False)

    assert report.damaged == (key,)
    assert ranges(remote.new_context()) == wanted
    assert_sound(remote.new_context())


def test_without_any_root_the_ledger_is_guessed_from_the_keys(remote: Remote) -> None:
    wanted = ranges(remote.context)
    spoil(remote, "group", ".manifest")

    report = rebuild(remote.new_context(), STREAM, branching=M, dry_run=False)

    assert report.root_key == ""
    assert ranges(remote.new_context()) == wanted
    assert_sound(remote.new_context())


def test_without_the_table_the_item_is_made_anew(remote: Remote) -> None:
    wanted = ranges(remote.context)
    spoil(remote, "group")
    context = Context(remote.context.store, MemoryCatalog("new"), PREFIX, remote.context.new_uid)

    rebuild(context, STREAM, branching=M, dry_run=False)

    assert ranges(context) == wanted
    assert_sound(context)


def test_nobody_commits_or_deletes_while_a_rebuild_has_died(remote: Remote) -> None:
    def dies(*_: object) -> None:
        raise Crash

    remote.store.before["put"] = dies
    with pytest.raises(Crash):
        rebuild(remote.context, STREAM, branching=M, dry_run=False)

    assert remote.items.items[STREAM].state is StreamState.REBUILDING
    with pytest.raises(ConflictError):
        commit_runs(remote.context, STREAM, pause=no_pause)
    with pytest.raises(ConflictError):
        collect(
            remote.context,
            remote.memory,
            STREAM,
            grace_ms=0,
            run_ms=0,
            now_ms=0,
            held=lambda _: False,
        )
    rebuild(remote.context, STREAM, branching=M, dry_run=False)
    assert_sound(remote.context)
    assert remote.items.items[STREAM].state is StreamState.LIVE


def test_a_gap_with_data_behind_it_is_told_and_nothing_is_committed(remote: Remote) -> None:
    gone = piece(100, 110).path(PREFIX)
    del remote.memory.objects[gone]

    with pytest.raises(LostRangeError) as found:
        rebuild(remote.context, STREAM, branching=M, dry_run=False)

    assert found.value.offset == 100
    item = remote.items.items[STREAM]
    assert (item.next_offset, item.state) == (200, StreamState.LIVE)


def test_a_fragment_that_does_not_hold_is_left_out_where_another_upload_is_good(
    remote: Remote,
) -> None:
    (double,) = remote.upload(piece(50, 60, uid=1))
    bad = piece(50, 60)
    remote.memory.objects[bad.path(PREFIX)] = b"x" * len(bad.data)

    report = rebuild(remote.context, STREAM, branching=M, dry_run=False)

    assert [error.key for error in report.refused] in ([bad.path(PREFIX)], [])
    loaded, fetch = load(remote.context, STREAM), remote.context.fetch(STREAM)
    assert double in referenced(PREFIX, loaded.item, loaded.root, fetch)
    assert_sound(remote.context)


@pytest.mark.parametrize("uid", [1, 2**63])
def test_what_was_erased_does_not_come_back_where_no_tree_says_which_object_is_blank(
    remote: Remote, uid: int
) -> None:
    erased = OffsetSet.of([(52, 53)])
    settings = {"reason": "", "now_ms": 1, "branching": M, "pause": no_pause}
    (new,) = erase(remote.context, STREAM, erased, PolicySet(()), **settings).written
    (late,) = remote.upload(piece(50, 60, uid=uid))
    spoil(remote, ".manifest", "group")

    rebuild(remote.new_context(), STREAM, branching=M, dry_run=False)

    loaded, fetch = load(remote.new_context(), STREAM), remote.new_context().fetch(STREAM)
    named = referenced(PREFIX, loaded.item, loaded.root, fetch)
    assert new.data_key(STREAM).path(PREFIX) in named
    assert late not in named


def test_a_stream_that_is_being_deleted_is_not_rebuilt(remote: Remote) -> None:
    item = remote.items.items[STREAM]
    remote.items.items[STREAM] = replace(item, state=StreamState.DELETING)

    with pytest.raises(ConflictError):
        rebuild(remote.context, STREAM, branching=M, dry_run=False)


def test_a_stream_without_objects_is_not_made_up(remote: Remote) -> None:
    with pytest.raises(NotFoundError):
        rebuild(remote.context, "__nobody_1", branching=M, dry_run=False)


@pytest.mark.parametrize("state", [StreamState.LIVE, StreamState.REBUILDING])
def test_a_stream_without_data_whose_root_is_lost_goes_on_from_its_item(state: StreamState) -> None:
    """Found by the simulator: a rebuild died, the root was lost, and no rebuild came further."""
    remote = Remote().claimed()
    item = remote.items.items[STREAM]
    remote.items.items[STREAM] = replace(item, state=state)
    remote.memory.objects.clear()

    rebuild(remote.new_context(), STREAM, branching=M, dry_run=False)

    assert remote.items.items[STREAM].state is StreamState.LIVE
    assert_sound(remote.new_context())
    remote.upload(*chain(2))
    assert commit_runs(remote.new_context(), STREAM, pause=no_pause).next_offset == 20


def test_a_stream_all_of_whose_objects_are_lost_needs_a_word_and_then_has_a_hole(
    remote: Remote,
) -> None:
    next_offset = remote.items.items[STREAM].next_offset
    remote.memory.objects.clear()

    with pytest.raises(LackingError, match="offsets 0 to"):
        rebuild(remote.new_context(), STREAM, branching=M, dry_run=False)
    assert remote.items.items[STREAM].state is StreamState.LIVE
    rebuild(remote.new_context(), STREAM, branching=M, dry_run=False, accept_less=True)

    root = load(remote.new_context(), STREAM).root
    assert (root.first_offset, root.next_offset) == (0, next_offset)
    assert_sound(remote.new_context())


def test_a_name_that_is_corrected_while_a_rebuild_is_under_way_stays(remote: Remote) -> None:
    """Rules go by names, a legal hold among them."""
    name = QueueName("c", "/", "orders")

    rebuild(
        remote.new_context(), STREAM, branching=M, dry_run=False,
        wait=lambda ms: remote.items.set_name(STREAM, name),
    )  # fmt: skip

    assert remote.items.items[STREAM].name == name
    assert remote.root().name == name


def test_a_name_that_is_corrected_as_a_rebuild_lands_stays_and_the_rebuild_is_tried_again(
    remote: Remote,
) -> None:
    name = QueueName("c", "/", "orders")
    remote.catalog.before["adopt"] = lambda *_: remote.items.set_name(STREAM, name)

    with pytest.raises(ConflictError):
        rebuild(remote.new_context(), STREAM, branching=M, dry_run=False)

    assert remote.items.items[STREAM].name == name
    assert remote.items.items[STREAM].state is StreamState.LIVE


def test_a_manifest_that_has_held_data_is_not_made_again_in_a_bucket_without_any() -> None:
    """Found by a stranger: after a claim that began anew no offset is missing in a wrong bucket."""
    remote = Remote().claimed()
    remote.upload(*chain(3))
    commit_runs(remote.context, STREAM, pause=no_pause)
    item = remote.items.items[STREAM]
    remote.items.items[STREAM] = replace(item, first_offset=30, fragments=0)
    remote.memory.objects.clear()

    with pytest.raises(ForeignBucketError):
        rebuild(remote.new_context(), STREAM, branching=M, dry_run=False)

    assert remote.items.items[STREAM].state is StreamState.LIVE
    assert not remote.memory.objects


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("table", ["memory", "restored"])
def test_a_tombstone_stays_one_whatever_the_bucket_and_the_table(
    remote: Remote, table: str, there: bool, dry_run: bool
) -> None:
    """Found by a stranger: an empty bucket made the stream live again in a restored table."""
    item = replace(remote.items.items[STREAM], state=StreamState.DELETED)
    items = MemoryCatalog(table)
    items.items[STREAM] = item
    if not there:
        remote.memory.objects.clear()
    context = Context(remote.memory, items, PREFIX, remote.context.new_uid)

    with pytest.raises(ConflictError, match="deleted"):
        rebuild(context, STREAM, branching=M, dry_run=dry_run, accept_less=True)

    assert items.items[STREAM] == item


def test_a_manifest_is_never_installed_from_keys_alone(remote: Remote) -> None:
    with pytest.raises(InvalidInputError):
        rebuild(remote.context, STREAM, branching=M, trailers=False, dry_run=False)
    assert rebuild(remote.context, STREAM, branching=M, trailers=False).rebuilt.unverified == 20
    assert remote.items.items[STREAM].state is StreamState.LIVE


def test_with_every_root_damaged_the_item_still_says_who_may_write_and_what_is_retired(
    remote: Remote,
) -> None:
    remote.claim(2)
    half = PolicySet((Rule("half", max_bytes=remote.items.items[STREAM].total_size // 2),))
    retain(remote.context, STREAM, half, now_ms=0, pause=no_pause)
    remote.upload(*chain(3, start=200))  # of epoch 1, which may write up to offset 200 only
    before = remote.items.items[STREAM]
    spoil(remote, ".manifest")

    report = rebuild(remote.new_context(), STREAM, branching=M, dry_run=False)

    after = remote.items.items[STREAM]
    assert report.landed
    assert after.ledger == before.ledger
    assert (after.first_offset, after.next_offset) == (before.first_offset, before.next_offset)
    assert_sound(remote.new_context())


def test_a_manifest_that_would_end_earlier_is_refused_and_the_stream_goes_on(
    remote: Remote,
) -> None:
    last = piece(190, 200).path(PREFIX)
    remote.memory.objects[last] = b"x" * len(remote.memory.objects[last])

    with pytest.raises(LostRangeError) as caught:
        rebuild(remote.context, STREAM, branching=M, dry_run=False)

    assert caught.value.offset == 190
    assert remote.items.items[STREAM].next_offset == 200
    assert remote.items.items[STREAM].state is StreamState.LIVE


def test_uploads_that_are_ahead_out_of_order_hinder_no_rebuild(remote: Remote) -> None:
    remote.upload(*chain(2, start=210))

    assert rebuild(remote.context, STREAM, branching=M, dry_run=False).landed
    remote.upload(piece(200, 210))
    assert commit_runs(remote.new_context(), STREAM, pause=no_pause).next_offset == 230


@pytest.mark.parametrize("ends", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full")], ids=repr)
@pytest.mark.parametrize("where", ["wait", "put"])
def test_a_rebuild_that_is_interrupted_or_has_no_disk_gives_the_stream_back(
    remote: Remote, ends: BaseException, where: str
) -> None:
    """Nobody would look for the reason, and local retention would take what waits."""
    before = remote.items.items[STREAM]

    def end(*_: object) -> None:
        raise ends

    remote.store.before.update({"put": end} if where == "put" else {})
    with pytest.raises(type(ends)):
        rebuild(
            remote.context,
            STREAM,
            branching=M,
            dry_run=False,
            wait=end if where == "wait" else None,
        )

    after = remote.items.items[STREAM]
    assert (after.state, after.root_key) == (StreamState.LIVE, before.root_key)
    remote.store.before.clear()
    remote.upload(piece(200, 210))
    assert commit_runs(remote.new_context(), STREAM, pause=no_pause).next_offset == 210


def test_a_rebuild_that_cannot_give_the_stream_back_says_that_it_stays_stopped(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table's port raises nothing where an answer is lost: it says that nobody knows."""
    change = remote.catalog.target.change_state

    def end(_: object) -> None:
        monkeypatch.setattr(remote.catalog.target, "change_state", lambda _: Unknown(None))
        raise KeyboardInterrupt

    with pytest.raises(UnavailableError, match="may take no commits yet") as found:
        rebuild(remote.context, STREAM, branching=M, dry_run=False, wait=end)

    assert "rebuild STREAM --write` again" in str(found.value.remedy)
    monkeypatch.setattr(remote.catalog.target, "change_state", change)
    assert rebuild(remote.context, STREAM, branching=M, dry_run=False).landed


def test_a_rebuild_that_is_interrupted_while_it_stops_the_others_gives_the_stream_back(
    remote: Remote,
) -> None:
    def end(*_: object) -> None:
        raise KeyboardInterrupt

    remote.catalog.after["change_state"] = end
    with pytest.raises(KeyboardInterrupt):
        rebuild(remote.context, STREAM, branching=M, dry_run=False)

    assert remote.items.items[STREAM].state is StreamState.LIVE


def test_a_rebuild_that_cannot_be_done_gives_the_stream_back(remote: Remote) -> None:
    spoil(remote, ".fragment")

    with pytest.raises((CorruptDataError, LostRangeError)):
        rebuild(remote.context, STREAM, branching=M, dry_run=False)

    assert remote.items.items[STREAM].state is StreamState.LIVE
