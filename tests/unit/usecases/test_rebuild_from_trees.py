"""What a rebuild takes from trees, from LIST and from data, and when it does not land."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from coldstream.adapters.memory import MemoryCatalog
from coldstream.errors import (
    ConflictError,
    InvalidInputError,
    UnavailableError,
    UnknownOutcomeError,
)
from coldstream.fragment import HEADER
from coldstream.manifest.catalog import StreamState
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.invariants import agreement, coverage, fencing, tree_sums
from coldstream.manifest.quarantine import QuarantineRecord, Timeline
from coldstream.manifest.tree import leaves
from coldstream.names import DataKey
from coldstream.plans.claim import LocalChunk
from coldstream.plans.policy import PolicySet, Rule
from coldstream.ports import MAX_DELETE_MS
from coldstream.remote.roots import load
from coldstream.usecases.collect import collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.consolidate import consolidate
from coldstream.usecases.quarantine import current_record, write_record
from coldstream.usecases.rebalance import rebalance
from coldstream.usecases.rebuild import LackingError, RebuildReport, rebuild
from coldstream.usecases.repair import repair
from coldstream.usecases.retention import retain
from coldstream_devkit.fragments import SyntheticFragment
from tests.support.remote import PREFIX, STREAM, Remote, chain, log_of, no_pause, piece

M = 2


@pytest.fixture
def remote() -> Remote:
    remote = Remote().claimed()
    remote.upload(*chain(10))
    commit_runs(remote.context, STREAM, pause=no_pause)
    rebalance(remote.context, STREAM, branching=M, pause=no_pause)
    return remote


def live(remote: Remote) -> list[Entry]:
    context = remote.new_context()
    return list(leaves(load(context, STREAM).root, context.fetch(STREAM)))


def path_of(entry: Entry) -> str:
    return entry.data_key(STREAM).path(PREFIX)


def at(remote: Remote, offset: int) -> Entry:
    return next(each for each in live(remote) if each.first_offset <= offset < each.next_offset)


def made(remote: Remote, **more: Any) -> RebuildReport:
    return rebuild(remote.new_context(), STREAM, branching=M, dry_run=False, **more)


def assert_sound(remote: Remote) -> None:
    context = remote.new_context()
    loaded, fetch = load(context, STREAM), context.fetch(STREAM)
    entries = live(remote)
    assert not agreement(loaded.item, loaded.root)
    assert not coverage(loaded.root, entries)
    assert not fencing(loaded.root, entries)
    assert not tree_sums(loaded.root, fetch)
    assert {path_of(each) for each in entries} <= set(remote.memory.objects)


def rot(remote: Remote, path: str) -> None:
    data = remote.memory.objects[path]
    at = len(HEADER) + 60
    remote.memory.objects[path] = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def spoil(remote: Remote, *kinds: str) -> None:
    for key in list(remote.memory.objects):
        if key.endswith(kinds):
            remote.memory.objects[key] = b"garbage"


def lose_metadata(remote: Remote) -> None:
    for key in list(remote.memory.objects):
        if "/metadata/" in key:
            del remote.memory.objects[key]


def lose_item(remote: Remote) -> None:
    remote.items = MemoryCatalog("another")
    remote.catalog.target = remote.items


LOSSES: dict[str, Callable[[Remote], None]] = {
    "nothing": lambda remote: None,
    "groups": lambda remote: spoil(remote, "group"),
    "item": lose_item,
    "newest root": lambda remote: spoil(remote, remote.items.items[STREAM].root_key),
    "roots": lambda remote: spoil(remote, ".manifest"),
    "metadata and item": lambda remote: (lose_metadata(remote), lose_item(remote))[1],
}


# A repair stays.


@pytest.mark.parametrize("uid", [1, 2**64 - 1], ids=["sorts first", "sorts last"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_repaired_object_stays_whatever_metadata_is_lost(
    remote: Remote, loss: str, uid: int
) -> None:
    old = at(remote, 50)
    good = remote.memory.objects[path_of(old)]
    copy = replace(old, uid=uid)
    remote.memory.put(path_of(copy), good, write_id="copy")
    rot(remote, path_of(old))
    context = replace(remote.new_context(), new_uid=iter([uid ^ 2, 5, 6, 7, 8, 9]).__next__)
    repair(context, STREAM, ranges=[(50, 60)], branching=M, pause=no_pause)
    assert path_of(at(remote, 50)) != path_of(old)
    LOSSES[loss](remote)

    assert made(remote).landed

    assert path_of(at(remote, 50)) != path_of(old)
    assert_sound(remote)


@pytest.mark.parametrize("loss", LOSSES)
def test_pieces_and_a_hole_stay_beside_the_damaged_object_that_they_replaced(loss: str) -> None:
    remote = Remote().claimed()
    remote.upload(*chain(5, size=30))
    commit_runs(remote.context, STREAM, pause=no_pause)
    old = path_of(at(remote, 30))
    rot(remote, old)
    repair(remote.new_context(), STREAM, ranges=[(30, 60)], lost=True, branching=M, pause=no_pause)
    before = [path_of(each) for each in live(remote)]
    rebalance(remote.context, STREAM, branching=M, pause=no_pause)
    LOSSES[loss](remote)

    assert made(remote).landed

    assert [path_of(each) for each in live(remote)] == before
    assert old in remote.memory.objects


@pytest.mark.parametrize("loss", LOSSES)
def test_a_rotten_object_composed_of_pieces_never_wins_over_them(remote: Remote, loss: str) -> None:
    before = [path_of(each) for each in live(remote)]
    (never_landed,) = remote.upload(piece(20, 60, uid=1))
    rot(remote, never_landed)
    LOSSES[loss](remote)

    assert made(remote).landed

    assert [path_of(each) for each in live(remote)] == before


@pytest.mark.parametrize("loss", ["nothing", "groups", "newest root"])
def test_a_consolidation_that_never_landed_takes_the_place_of_nothing(loss: str) -> None:
    remote = Remote().claimed()
    length = len(piece(0, 10).chunks)
    for n in range(10):
        more = {"segment_offset": 0, "segment_position": 8 + n * length}
        remote.upload(piece(10 * n, 10 * n + 10, **more))
    commit_runs(remote.context, STREAM, pause=no_pause)
    rebalance(remote.context, STREAM, branching=M, pause=no_pause)
    before = [path_of(each) for each in live(remote)]

    def fails(*_: object) -> None:
        raise UnavailableError("the table does not answer")

    remote.catalog.before["commit"] = fails
    with pytest.raises(UnavailableError):
        consolidate(
            remote.new_context(),
            remote.memory,
            STREAM,
            target_size=5000,
            branching=M,
            pause=no_pause,
        )
    LOSSES[loss](remote)

    assert made(remote).landed

    assert [path_of(each) for each in live(remote)] == before
    assert_sound(remote)


def test_only_what_is_contested_is_read(remote: Remote) -> None:
    remote.upload(piece(20, 30, uid=1))
    spoil(remote, "group", ".manifest")
    remote.store.calls.clear()

    assert made(remote).landed

    # Header, data and index of the one that is taken; groups and roots are read whole.
    assert remote.store.calls["get"] == 3


def test_what_a_certain_tree_names_is_not_read(remote: Remote) -> None:
    remote.upload(piece(20, 30, uid=1))
    remote.store.calls.clear()

    assert made(remote).landed

    assert remote.store.calls["get"] == 0


def test_a_great_object_is_read_in_parts(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.usecases.rebuild_objects._PART_BYTES", 100)
    remote.upload(piece(20, 30, uid=1))
    spoil(remote, "group", ".manifest")
    remote.store.calls.clear()

    assert made(remote).landed

    assert remote.store.calls["get"] > 3


# What is gone, and what takes its place.


def test_another_whole_upload_takes_the_place_of_what_is_gone(remote: Remote) -> None:
    (other,) = remote.upload(piece(50, 60, uid=1))
    gone = next(path_of(e) for e in live(remote) if e.first_offset == 50)
    del remote.memory.objects[gone]

    report = made(remote)

    assert path_of(at(remote, 50)) == other
    assert [(each.first, each.why) for each in report.rebuilt.told.replaced] == [
        (50, "the object is gone")
    ]
    assert_sound(remote)


def test_an_object_that_reaches_over_its_neighbours_takes_the_place_of_all(
    remote: Remote,
) -> None:
    (over,) = remote.upload(piece(40, 70, uid=1))
    del remote.memory.objects[path_of(at(remote, 50))]

    assert made(remote).landed

    assert path_of(at(remote, 50)) == over
    assert_sound(remote)


def test_a_rotten_upload_does_not_take_the_place_of_what_is_gone_in_silence(
    remote: Remote,
) -> None:
    (other,) = remote.upload(piece(50, 60, uid=1))
    rot(remote, other)
    del remote.memory.objects[path_of(at(remote, 50))]

    report = made(remote)

    assert report.rebuilt.told.damaged == [(50, 60)]
    assert report.rebuilt.told.replaced[0].first == 50


def test_what_is_gone_is_never_dropped_in_silence(remote: Remote) -> None:
    before = remote.items.items[STREAM]
    del remote.memory.objects[path_of(at(remote, 50))]
    objects = set(remote.memory.objects)

    with pytest.raises(LackingError) as caught:
        made(remote)

    assert [(e.first, e.next_offset) for e in caught.value.report.shortfalls] == [(50, 60)]
    after = remote.items.items[STREAM]
    assert (after.state, after.root_key) == (StreamState.LIVE, before.root_key)
    assert set(remote.memory.objects) == objects, "nothing is written for what does not land"


@pytest.mark.parametrize(("lost", "other"), [(10, (5, 20)), (90, (90, 110)), (50, (45, 60))])
def test_it_is_told_that_an_object_that_reaches_over_others_or_an_end_has_what_is_gone(
    remote: Remote, lost: int, other: tuple[int, int]
) -> None:
    """Found by the simulator: "no object has them", though `repair` would have found them."""
    rule = PolicySet((Rule("short", max_bytes=sum(each.size for each in live(remote)[1:])),))
    retain(remote.context, STREAM, rule, now_ms=0, pause=no_pause)
    assert live(remote)[0].first_offset == 10
    del remote.memory.objects[path_of(at(remote, lost))]

    for why in ("no object has them", "only an object that is damaged, or overlaps others"):
        with pytest.raises(LackingError, match=f"offsets {lost} to {lost + 9}: {why}"):
            made(remote)
        remote.upload(piece(*other, uid=7))


def test_who_accepts_less_gets_a_declared_hole(remote: Remote) -> None:
    del remote.memory.objects[path_of(at(remote, 50))]

    report = made(remote, accept_less=True)

    hole = at(remote, 50)
    assert (report.landed, hole.kind, hole.epoch) == (True, EntryKind.HOLE, 1)
    assert len(live(remote)) == 10
    assert_sound(remote)
    remote.upload(piece(100, 110))
    assert commit_runs(remote.new_context(), STREAM, pause=no_pause).next_offset == 110


def test_a_damaged_object_that_the_tree_names_stays_named_for_repair(remote: Remote) -> None:
    old = path_of(at(remote, 50))
    data = remote.memory.objects[old]
    remote.memory.objects[old] = data[:-9] + b"?" + data[-8:]

    with pytest.raises(LackingError):
        made(remote)
    assert made(remote, accept_less=True).landed

    assert path_of(at(remote, 50)) == old
    assert_sound(remote)


def test_a_lost_range_over_a_floor_becomes_a_hole_of_each_epoch(remote: Remote) -> None:
    remote.claim(2, *log_of(*chain(10)).chunks, LocalChunk(100, 110, 2))
    remote.upload(*chain(2, start=100, epoch=2, floor=100))
    commit_runs(remote.new_context(), STREAM, pause=no_pause)
    for offset in (90, 100):
        del remote.memory.objects[path_of(at(remote, offset))]

    assert made(remote, accept_less=True).landed

    assert (at(remote, 95).epoch, at(remote, 105).epoch) == (1, 2)
    assert_sound(remote)


def test_a_hole_whose_object_is_gone_gets_it_again(remote: Remote) -> None:
    del remote.memory.objects[path_of(at(remote, 50))]
    repair(remote.new_context(), STREAM, ranges=[(50, 60)], lost=True, branching=M, pause=no_pause)
    hole = path_of(at(remote, 50))
    del remote.memory.objects[hole]

    assert made(remote).landed

    assert path_of(at(remote, 50)) == hole
    assert_sound(remote)


def test_an_entry_whose_size_is_wrong_is_put_right(remote: Remote) -> None:
    context = remote.new_context()
    loaded = load(context, STREAM)
    last = loaded.root.entries[-1]
    wrong = [*list(loaded.root.entries)[:-1], replace(last, size=last.size + 1)]
    from coldstream.manifest.entries import Entries
    from coldstream.remote.publish import publish

    publish(context, loaded, replace(loaded.root, entries=Entries.of(wrong)))

    assert made(remote).landed

    assert live(remote)[-1] == last


# Which tree.


def test_a_group_that_is_gone_is_filled_from_an_earlier_tree_as_far_as_that_is_whole(
    remote: Remote,
) -> None:
    before = [path_of(each) for each in live(remote)]
    remote.upload(*(piece(n, n + 10, uid=1 + n) for n in range(0, 100, 10)))  # would sort first
    for key in [key for key in remote.memory.objects if key.endswith("group")]:
        del remote.memory.objects[key]

    assert made(remote).landed

    assert [path_of(each) for each in live(remote)] == before


def test_what_a_claim_has_cut_off_does_not_come_back_from_an_earlier_tree(remote: Remote) -> None:
    log = log_of(*chain(6)).chunks
    remote.claim(2, *log, LocalChunk(60, 70, 2))
    remote.upload(piece(60, 80, epoch=2, floor=60))
    commit_runs(remote.new_context(), STREAM, pause=no_pause)
    spoil(remote, remote.items.items[STREAM].root_key)

    assert made(remote).landed

    assert [(e.first_offset, e.epoch) for e in live(remote)][-2:] == [(50, 1), (60, 2)]


def test_a_later_claim_than_any_readable_root_has_is_seen_in_trailers(remote: Remote) -> None:
    roots = {key for key in remote.memory.objects if key.endswith(".manifest")}
    remote.claim(2, *log_of(*chain(6)).chunks, LocalChunk(60, 70, 2))
    remote.upload(piece(60, 80, epoch=2, floor=60), piece(80, 110, epoch=2, floor=60))
    commit_runs(remote.new_context(), STREAM, pause=no_pause)
    for key in [k for k in remote.memory.objects if k.endswith(".manifest") and k not in roots]:
        del remote.memory.objects[key]
    lose_item(remote)

    assert made(remote).landed

    assert [(e.first_offset, e.epoch) for e in live(remote)][-3:] == [(50, 1), (60, 2), (80, 2)]
    assert load(remote.new_context(), STREAM).item.ledger.floor(2) == 60


def test_retention_is_not_undone(remote: Remote) -> None:
    half = PolicySet((Rule("half", max_bytes=remote.root().total_size // 2),))
    retain(remote.new_context(), STREAM, half, now_ms=0, pause=no_pause)
    first = remote.root().first_offset
    spoil(remote, remote.items.items[STREAM].root_key, "group")

    assert made(remote).landed

    assert first > 0
    assert remote.root().first_offset == first


def test_a_root_that_is_not_the_one_that_the_item_describes_counts_for_nothing(
    remote: Remote,
) -> None:
    roots = sorted(key for key in remote.memory.objects if key.endswith(".manifest"))
    key = remote.items.items[STREAM].root_key
    remote.memory.objects[key] = remote.memory.objects[roots[0]]

    report = made(remote)

    assert report.damaged == (key,)
    assert len(live(remote)) == 10


def test_the_item_of_a_restored_table_counts_where_no_later_root_can_be_read(
    remote: Remote,
) -> None:
    half = PolicySet((Rule("half", max_bytes=remote.root().total_size // 2),))
    retain(remote.new_context(), STREAM, half, now_ms=0, pause=no_pause)
    first = remote.root().first_offset
    old = remote.items.items[STREAM]
    spoil(remote, ".manifest")
    lose_item(remote)
    remote.items.items[STREAM] = old

    assert made(remote).landed

    assert remote.root().first_offset == first


def test_the_root_that_a_restored_table_names_does_not_count_before_a_later_one(
    remote: Remote,
) -> None:
    """What has landed since the table was saved has landed, although the item does not know it."""
    old = remote.items.items[STREAM]
    half = PolicySet((Rule("half", max_bytes=remote.root().total_size // 2),))
    retain(remote.new_context(), STREAM, half, now_ms=0, pause=no_pause)
    first = remote.root().first_offset
    assert first > old.first_offset
    lose_item(remote)
    remote.items.items[STREAM] = old

    assert made(remote).landed

    assert remote.root().first_offset == first


# Without any tree.


def test_floors_come_from_trailers_where_the_first_fragments_are_gone(remote: Remote) -> None:
    remote.claim(2, *log_of(*chain(10)).chunks, LocalChunk(100, 110, 2))
    remote.upload(*chain(6, start=100, epoch=2, floor=100))
    commit_runs(remote.new_context(), STREAM, pause=no_pause)
    for entry in live(remote)[:3]:
        del remote.memory.objects[path_of(entry)]
    lose_metadata(remote)
    lose_item(remote)

    assert made(remote).landed

    root = remote.root()
    assert (root.first_offset, root.next_offset) == (30, 160)
    assert [(c.epoch, c.floor) for c in root.ledger.claims] == [(1, 0), (2, 100)]


def test_an_epoch_that_began_with_a_hole_keeps_its_floor() -> None:
    remote = Remote().claimed()
    remote.upload(*chain(3))
    remote.claim(2, *log_of(*chain(3)).chunks, LocalChunk(30, 40, 2))
    remote.memory.put(DataKey(STREAM, 30, 50, 2, 7, "hole").path(PREFIX), b"", write_id="h")
    remote.upload(*chain(3, start=50, epoch=2, floor=30))
    commit_runs(remote.new_context(), STREAM, pause=no_pause)
    before = [path_of(each) for each in live(remote)]
    lose_metadata(remote)
    lose_item(remote)

    assert made(remote).landed

    assert [path_of(each) for each in live(remote)] == before
    assert remote.root().ledger.floor(2) == 30


def lying(fragment: SyntheticFragment, floor: int) -> SyntheticFragment:
    return fragment.lying(floor=floor)


def test_a_trailer_that_lies_about_its_floor_is_outvoted_and_told() -> None:
    remote = Remote().claimed()
    remote.upload(*chain(6, start=20))
    remote.upload(lying(piece(30, 40, uid=1), 25))
    lose_metadata(remote)
    lose_item(remote)

    report = made(remote)

    assert (report.disputed, report.guessed) == ((1,), True)
    assert remote.root().ledger.floor(1) == 0
    assert (remote.root().first_offset, remote.root().next_offset) == (20, 80)


def test_where_most_trailers_lie_nothing_lands() -> None:
    remote = Remote().claimed()
    remote.upload(*(lying(each, 5) for each in chain(4, start=20)))
    remote.upload(*chain(2, start=60))
    lose_metadata(remote)
    lose_item(remote)

    with pytest.raises(LackingError) as caught:
        made(remote)

    assert caught.value.report.disputed == (1,)
    assert STREAM not in remote.items.items


def test_a_forged_epoch_hides_nothing_in_silence(remote: Remote) -> None:
    remote.upload(piece(0, 10, epoch=9, floor=0, uid=5))
    lose_metadata(remote)
    lose_item(remote)

    with pytest.raises(LackingError):
        made(remote)


def test_an_empty_manifest_never_lands_over_data() -> None:
    remote = Remote().claimed()
    paths = remote.upload(*chain(3))
    lose_metadata(remote)
    lose_item(remote)
    for path in paths:
        remote.memory.objects[path] = b"x" * len(remote.memory.objects[path])

    for accept_less in (False, True):
        with pytest.raises(LackingError):
            made(remote, accept_less=accept_less)
    assert STREAM not in remote.items.items


def test_a_gap_is_no_end_where_nobody_knows_the_end(remote: Remote) -> None:
    del remote.memory.objects[path_of(at(remote, 50))]
    lose_metadata(remote)
    lose_item(remote)

    with pytest.raises(LackingError):
        made(remote)
    assert made(remote, accept_less=True).landed
    assert remote.root().next_offset == 50


def test_a_bad_upload_at_the_very_end_is_told_where_nobody_knows_the_end(remote: Remote) -> None:
    (last,) = remote.upload(piece(100, 110))
    remote.memory.objects[last] = remote.memory.objects[last][:-1] + b"?"
    lose_item(remote)

    with pytest.raises(LackingError):
        made(remote)


def test_any_number_of_bad_uploads_is_passed_over_in_one_pass(remote: Remote) -> None:
    for n in range(300):
        bad = piece(20, 30, uid=n + 1001)
        remote.memory.put(bad.path(PREFIX), bad.data[:-3], write_id="b")
    spoil(remote, "group", ".manifest")
    remote.store.calls.clear()

    report = made(remote)

    assert report.landed
    assert remote.store.calls["get_suffix"] == 310
    assert len(report.refused) == 300


def test_rotten_uploads_of_one_range_are_looked_through_until_one_is_whole(remote: Remote) -> None:
    for n in range(40):
        rot(remote, remote.upload(piece(20, 30, uid=n + 1))[0])
    spoil(remote, "group", ".manifest")

    assert made(remote).landed

    assert path_of(at(remote, 20)) == piece(20, 30).path(PREFIX)


# Beside a delete.


def test_a_delete_that_is_under_way_is_waited_for_before_the_bucket_is_listed(
    remote: Remote,
) -> None:
    seen: list[tuple[int, StreamState]] = []

    def wait(ms: int) -> None:
        seen.append((ms, remote.items.items[STREAM].state))
        del remote.memory.objects[duplicate]  # now the delete is carried out

    (duplicate,) = remote.upload(piece(20, 30, uid=1))
    spoil(remote, "group", ".manifest")

    assert made(remote, wait=wait).landed

    assert seen == [(MAX_DELETE_MS, StreamState.REBUILDING)]
    assert_sound(remote)


def test_who_has_to_accept_less_is_not_kept_waiting_for_deletes(remote: Remote) -> None:
    del remote.memory.objects[path_of(at(remote, 50))]

    with pytest.raises(LackingError):
        made(remote, wait=lambda _: pytest.fail("it waits"))

    assert remote.items.items[STREAM].state is StreamState.LIVE


def test_a_dry_run_does_not_wait(remote: Remote) -> None:
    rebuild(remote.new_context(), STREAM, branching=M, wait=lambda _: pytest.fail("it waits"))


@pytest.mark.parametrize("loss", ["newest root", "roots"])
def test_nothing_lands_that_names_what_went_while_it_was_made(remote: Remote, loss: str) -> None:
    (duplicate,) = remote.upload(piece(20, 30, uid=1))
    del remote.memory.objects[path_of(at(remote, 20))]  # so that the other one is taken
    before = remote.items.items[STREAM].root_key
    LOSSES[loss](remote)

    def arrives(key: str, *_: object) -> None:
        if key.endswith(".manifest"):
            del remote.memory.objects[duplicate]
        else:
            remote.store.before["put"] = arrives

    remote.store.before["put"] = arrives
    with pytest.raises(ConflictError):
        made(remote)

    item = remote.items.items[STREAM]
    assert (item.root_key, item.state) == (before, StreamState.LIVE)


def test_a_late_duplicate_that_is_garbage_is_not_taken(remote: Remote) -> None:
    """`collect` may be deleting it: what the tree names is never garbage."""
    (duplicate,) = remote.upload(piece(20, 30, uid=1))

    assert made(remote).landed

    assert duplicate not in {path_of(each) for each in live(remote)}


# Quarantine.


def test_after_a_rebuild_without_item_and_roots_nothing_in_quarantine_is_deleted(
    remote: Remote,
) -> None:
    now = [10**12]
    remote.memory._clock_ms = lambda: now[0]
    remote.claim(2, *log_of(*chain(6)).chunks, LocalChunk(60, 70, 2))
    remote.upload(piece(60, 80, epoch=2, floor=60), piece(80, 120, epoch=2, floor=60))
    commit_runs(remote.new_context(), STREAM, pause=no_pause)
    record = current_record(remote.new_context(), STREAM)[1]
    kept = [path for path in remote.memory.objects if "-00000000000000000100.0000000001" in path]
    spoil(remote, remote.items.items[STREAM].root_key)
    lose_item(remote)

    made(remote, accept_less=True)
    for _ in range(4):
        now[0] += 5000
        collect(
            remote.new_context(),
            remote.memory,
            STREAM,
            grace_ms=1000,
            run_ms=now[0],
            now_ms=now[0],
            held=lambda _: False,
        )

    assert current_record(remote.new_context(), STREAM)[1].timelines == record.timelines
    assert kept
    assert set(kept) <= set(remote.memory.objects)


def test_a_timeline_stays_whose_claim_retention_has_taken_out_of_the_ledger(
    remote: Remote,
) -> None:
    remote.claim(2, *log_of(*chain(6)).chunks, LocalChunk(60, 70, 2))
    remote.upload(piece(60, 80, epoch=2, floor=60))
    remote.claim(3, *log_of(*chain(6), piece(60, 80, epoch=2)).chunks, LocalChunk(80, 90, 3))
    remote.upload(*chain(3, start=80, epoch=3, floor=80))
    commit_runs(remote.new_context(), STREAM, pause=no_pause)
    few = PolicySet((Rule("few", max_bytes=1),))
    retain(remote.new_context(), STREAM, few, now_ms=0, pause=no_pause)
    assert remote.root().ledger.floor(2) is None
    timelines = current_record(remote.new_context(), STREAM)[1].timelines
    spoil(remote, remote.items.items[STREAM].root_key)

    assert made(remote).landed

    assert timelines
    assert current_record(remote.new_context(), STREAM)[1].timelines == timelines


def test_a_damaged_record_of_a_good_root_is_made_anew_of_the_others(remote: Remote) -> None:
    remote.claim(2, *log_of(*chain(6)).chunks, LocalChunk(60, 70, 2))
    record = current_record(remote.new_context(), STREAM)[1]
    key = remote.root().quarantine_key
    remote.memory.put(key.replace(".record", "")[:-1] + "f.record", remote.memory.objects[key],
                      write_id="r")  # fmt: skip
    remote.memory.objects[key] = b"garbage"

    assert made(remote).landed

    assert current_record(remote.new_context(), STREAM)[1].timelines == record.timelines


def test_a_timeline_stays_though_no_root_shows_its_claim(remote: Remote) -> None:
    roots = {key for key in remote.memory.objects if key.endswith(".manifest")}
    remote.claim(2, *log_of(*chain(6)).chunks, LocalChunk(60, 70, 2))
    timelines = current_record(remote.new_context(), STREAM)[1].timelines
    for key in [k for k in remote.memory.objects if k.endswith(".manifest") and k not in roots]:
        del remote.memory.objects[key]
    lose_item(remote)

    assert made(remote).landed

    assert timelines
    assert current_record(remote.new_context(), STREAM)[1].timelines == timelines


def test_a_timeline_of_a_claim_that_never_landed_is_not_brought_in(remote: Remote) -> None:
    put = Timeline(7, 50, 100, reason="it never landed")
    write_record(remote.new_context(), STREAM, 7, QuarantineRecord((put,)))
    spoil(remote, remote.items.items[STREAM].root_key)

    assert made(remote).landed

    assert current_record(remote.new_context(), STREAM)[1].timelines == ()


# Commits.


def test_a_fragment_of_an_epoch_that_the_item_does_not_know_changes_nothing(
    remote: Remote,
) -> None:
    remote.upload(piece(0, 10, epoch=9, floor=0, uid=5))

    report = made(remote)

    assert (report.landed, report.guessed) == (True, False)
    assert load(remote.new_context(), STREAM).item.ledger.epoch == 1


def test_objects_that_carry_the_trailer_of_another_epoch_do_not_say_its_floor(
    remote: Remote,
) -> None:
    remote.claim(2, *log_of(*chain(10)).chunks, LocalChunk(100, 110, 2))
    remote.upload(*chain(2, start=100, epoch=2, floor=100))
    commit_runs(remote.new_context(), STREAM, pause=no_pause)
    for n in range(5):
        other = piece(100, 110, uid=n + 1)  # of epoch 1, under a key of epoch 2
        key = replace(other.key, epoch=2).path(PREFIX)
        remote.memory.put(key, other.data, write_id="x")
    lose_metadata(remote)
    lose_item(remote)

    report = made(remote)

    assert (report.landed, report.disputed) == (True, ())
    assert remote.root().ledger.floor(2) == 100


def test_an_answer_that_nobody_can_know_leaves_the_state(remote: Remote) -> None:
    def unknown(*_: object) -> None:
        raise UnknownOutcomeError("no answer")

    remote.store.before["put"] = unknown
    with pytest.raises(UnknownOutcomeError):
        made(remote)

    assert remote.items.items[STREAM].state is StreamState.REBUILDING


def test_nothing_lands_on_an_item_that_somebody_else_has_changed(remote: Remote) -> None:
    def changes(*_: object) -> None:
        item = remote.items.items[STREAM]
        remote.items.items[STREAM] = replace(item, version=item.version + 1)

    remote.catalog.before["adopt"] = changes
    with pytest.raises(ConflictError):
        made(remote)


def test_a_root_that_nobody_could_read_is_not_written(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldstream.remote.publish.MAX_ROOT_SIZE", 10)

    with pytest.raises(InvalidInputError):
        made(remote)

    assert remote.items.items[STREAM].state is StreamState.LIVE


def test_without_trailers_the_last_chunk_is_that_of_the_root(remote: Remote) -> None:
    report = rebuild(remote.new_context(), STREAM, branching=M, trailers=False)

    assert report.rebuilt.root.last_chunk == remote.root().last_chunk
