"""A claim that truncates: what stays, what is named, and that nothing is lost or let back in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coldstream.adapters.memory import MemoryCatalog
from coldstream.errors import ConflictError, CorruptDataError, FencedError
from coldstream.fragment import TRAILER_SIZE, parse_trailer
from coldstream.manifest.entries import EntryKind
from coldstream.manifest.invariants import agreement, coverage, fencing, tree_sums
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.quarantine import QuarantineRecord
from coldstream.manifest.root import LastChunk
from coldstream.manifest.tree import leaves
from coldstream.names import data_prefix, parse_data_key, quarantine_prefix
from coldstream.plans.claim import KnownHistory, LocalChunk
from coldstream.plans.policy import PolicySet, Rule
from coldstream.plans.truncate import Truncation
from coldstream.ports import NotLanded, Unknown
from coldstream.remote.context import Context
from coldstream.remote.publish import publish
from coldstream.remote.roots import load
from coldstream.usecases.adopt import adopt
from coldstream.usecases.claim import Claimed
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.quarantine import current_record, drop, load_record
from coldstream.usecases.rebalance import rebalance
from coldstream.usecases.rebuild import rebuild
from coldstream.usecases.retention import retain
from coldstream_devkit.claims import claim
from coldstream_devkit.steps import contiguous_advance
from tests.support.remote import PREFIX, STREAM, Remote, chain, log_of, no_pause, piece
from tests.unit.usecases.test_divergence_of_logs import with_hole_at_the_end

#: Two fragments of five chunks of epoch 1, and what is cut off of them.
OLD = [piece(0, 50), piece(50, 100)]
#: The new writer has the same up to 70, and goes on by itself.
LOG = KnownHistory((*log_of(*OLD).chunks[:7], *(LocalChunk(a, a + 10, 2) for a in (70, 80))))


def tier(*fragments: Any) -> Remote:
    remote = Remote().claimed(1)
    remote.upload(*(fragments or OLD))
    commit_runs(remote.context, STREAM, pause=no_pause)
    return remote.forget()


def take(remote: Remote, log: KnownHistory = LOG, epoch: int = 2, **more: Any) -> Claimed:
    context = more.pop("context", None) or remote.context
    return claim(context, STREAM, epoch, log=log, pause=no_pause, now_ms=1234, **more)


def diverging(keep: int, *fragments: Any, end: int = 0, epoch: int = 2) -> KnownHistory:
    """The chunks of the fragments below `keep`, and new ones of `epoch` from there on."""
    common = [c for c in log_of(*fragments).chunks if c.next_offset <= keep]
    fresh = [LocalChunk(a, a + 10, epoch) for a in range(keep, end or keep + 10, 10)]
    return KnownHistory((*common, *fresh))


def ranges(context: Context) -> list[tuple[int, int]]:
    root = load(context, STREAM).root
    return [(e.first_offset, e.next_offset) for e in leaves(root, context.fetch(STREAM))]


def record(remote: Remote) -> QuarantineRecord:
    return current_record(remote.new_context(), STREAM)[1]


def assert_sound(context: Context) -> None:
    loaded, fetch = load(context, STREAM), context.fetch(STREAM)
    live = list(leaves(loaded.root, fetch))
    assert not agreement(loaded.item, loaded.root)
    assert not coverage(loaded.root, live)
    assert not fencing(loaded.root, live)
    assert not tree_sums(loaded.root, fetch)


def test_the_manifest_ends_where_the_histories_part_and_the_floor_is_there() -> None:
    remote = tier()
    before = remote.root()

    done = take(remote)

    root = remote.root()
    assert (root.next_offset, root.last_chunk) == (70, LastChunk(60, 1))
    assert root.ledger == Ledger.of([(1, 0), (2, 70)])
    assert ranges(remote.new_context()) == [(0, 50), (50, 70)]
    assert done.loaded.item.version == before.version + 1, "one commit"
    assert done.truncated == Truncation(
        2, 70, 0, 100, False, LocalChunk(80, 90, 2), 1, before.entries[1].size, root.quarantine_key
    )
    assert not contiguous_advance(before, root)
    assert_sound(remote.new_context())


def test_what_was_cut_in_two_is_replaced_by_its_good_beginning_byte_for_byte() -> None:
    remote = tier(OLD[0], piece(50, 100, segment_offset=20, segment_position=999))
    old = remote.memory.objects[remote.root().entries[1].data_key(STREAM).path(PREFIX)]

    take(remote)

    entry = remote.root().entries[1]
    new = remote.memory.objects[entry.data_key(STREAM).path(PREFIX)]
    trailer = parse_trailer(new[-TRAILER_SIZE:])
    chunks = new[8 : trailer.index_position]
    assert chunks
    assert old[8:].startswith(chunks)
    assert (trailer.first_offset, trailer.next_offset, trailer.last_chunk_id) == (50, 70, 60)
    assert (trailer.epoch, trailer.floor, entry.epoch) == (1, 0, 1), "as what it replaces"
    assert (trailer.segment_offset, trailer.segment_position) == (20, 999)
    assert (entry.size, entry.records) == (len(new), 20)


def test_nothing_is_deleted_or_overwritten_and_the_record_names_the_old_root() -> None:
    remote = tier()
    before, item = remote.tampered(), remote.items.items[STREAM]

    take(remote)

    after = remote.tampered()
    assert all(after[key] == body for key, body in before.items())
    (timeline,) = record(remote).timelines
    assert (timeline.epoch, timeline.floor, timeline.next_offset) == (2, 70, 100)
    assert (timeline.root_key, timeline.listed, timeline.complete) == (item.root_key, (), True)
    assert timeline.created_ms == 1234
    assert "chunk 80..90 of epoch 2" in timeline.reason
    assert after[timeline.root_key] == before[timeline.root_key]


def test_a_cut_between_two_fragments_writes_no_fragment() -> None:
    remote = tier()

    take(remote, diverging(50, *OLD))

    assert ranges(remote.new_context()) == [(0, 50)]
    assert remote.store.calls["put"] == 2, "the record and the root"


def test_what_was_only_listed_and_good_is_named_because_the_landed_root_lacks_it() -> None:
    remote = tier(OLD[0])
    (path,) = remote.upload(OLD[1])

    take(remote)

    (timeline,) = record(remote).timelines
    assert [row.key for row in timeline.listed] == [path]
    assert timeline.listed[0].size == len(OLD[1].data)
    assert timeline.next_offset == 100
    assert ranges(remote.new_context()) == [(0, 50), (50, 70)]


def test_history_6_what_was_uploaded_behind_a_gap_is_named_too() -> None:
    remote = tier()
    ahead, across = remote.upload(piece(120, 130), piece(60, 110, uid=3))
    remote.upload(piece(10, 20, uid=4), piece(70, 80, epoch=2, floor=70))

    take(remote)

    (timeline,) = record(remote).timelines
    part, behind = sorted(row.key for row in timeline.listed)
    assert behind == ahead
    assert (parse_data_key(part, PREFIX).first_offset, part != across) == (100, True)
    assert across in remote.memory.objects


@pytest.mark.parametrize(
    "late", [piece(50, 100, uid=9), piece(70, 100), piece(70, 80), piece(0, 80)]
)
def test_history_2_what_was_cut_off_never_comes_back_however_late(late: Any) -> None:
    remote = tier()
    take(remote)

    remote.upload(late, *chain(3, start=70, epoch=2, floor=70))

    assert commit_runs(remote.new_context(), STREAM, pause=no_pause).next_offset == 100
    assert ranges(remote.new_context()) == [(0, 50), (50, 70), (70, 80), (80, 90), (90, 100)]
    assert_sound(remote.new_context())


def test_history_2_two_truncates_one_below_the_other() -> None:
    remote = tier()
    take(remote)
    remote.upload(*chain(3, start=70, epoch=2, floor=70))
    commit_runs(remote.new_context(), STREAM, pause=no_pause)

    take(remote, diverging(30, *OLD, epoch=3), epoch=3)

    assert remote.root().ledger == Ledger.of([(1, 0), (2, 70), (3, 30)])
    assert ranges(remote.new_context()) == [(0, 30)]
    assert [each.epoch for each in record(remote).timelines] == [2, 3]
    remote.upload(piece(30, 50), piece(50, 70, uid=8))
    assert commit_runs(remote.new_context(), STREAM, pause=no_pause).next_offset == 30


@pytest.mark.parametrize("keep", [10, 20, 30, 40, 90, 170, 250, 330, 390])
@pytest.mark.parametrize("branching", [2, 4])
def test_a_tree_is_cut_wherever_and_keeps_its_rules(keep: int, branching: int) -> None:
    fragments = chain(40)
    remote = tier(*fragments)
    rebalance(remote.context, STREAM, branching=branching, pause=no_pause)

    take(remote, diverging(keep, *fragments, end=410))

    assert ranges(remote.new_context()) == [(n, n + 10) for n in range(0, keep, 10)]
    assert_sound(remote.new_context())


@pytest.mark.parametrize("branching", [2, 4])
@pytest.mark.parametrize("keep", [225, 300, 395])
def test_a_tree_whose_beginning_retention_has_taken_is_cut(keep: int, branching: int) -> None:
    fragments = [piece(n, n + 10, records_per_chunk=5) for n in range(0, 400, 10)]
    remote = tier(*fragments)
    rebalance(remote.context, STREAM, branching=branching, pause=no_pause)
    rules = PolicySet((Rule("r", max_bytes=remote.root().total_size // 2),))
    retain(remote.context, STREAM, rules, now_ms=0, pause=no_pause)
    first = remote.root().first_offset
    assert 0 < first < keep

    take(remote, diverging(keep, *fragments, end=keep + 20))

    assert remote.root().next_offset == keep
    assert ranges(remote.new_context())[0][0] == first
    assert_sound(remote.new_context())


def test_rebuild_from_the_bucket_gives_the_truncated_tree_and_keeps_the_record() -> None:
    remote = tier()
    take(remote)
    remote.upload(*chain(2, start=70, epoch=2, floor=70), piece(70, 90, uid=5))
    commit_runs(remote.new_context(), STREAM, pause=no_pause)
    key = remote.root().quarantine_key

    rebuild(remote.new_context(), STREAM, branching=4, dry_run=False)

    assert ranges(remote.new_context()) == [(0, 50), (50, 70), (70, 80), (80, 90)]
    assert remote.root().quarantine_key == key


def test_a_rebuild_after_the_claims_root_was_damaged_finds_the_record_again() -> None:
    remote = tier()
    take(remote)
    timelines = record(remote).timelines
    remote.memory.objects[remote.items.items[STREAM].root_key] = b"damaged"

    rebuild(remote.new_context(), STREAM, branching=4, dry_run=False)

    assert ranges(remote.new_context()) == [(0, 50), (50, 70)]
    assert record(remote).timelines == timelines


def test_a_rebuild_after_the_newest_root_was_damaged_brings_back_nothing_that_was_given_up() -> (
    None
):
    remote = tier()
    take(remote)
    take(remote, diverging(30, *OLD, epoch=3), epoch=3)
    drop(remote.new_context(), STREAM, 2, pause=no_pause)
    remote.memory.objects[remote.items.items[STREAM].root_key] = b"damaged"

    rebuild(remote.new_context(), STREAM, branching=4, dry_run=False)

    found = record(remote)
    assert [each.epoch for each in found.timelines] == [3]
    assert [each.epoch for each in found.dropped] == [2]


# To begin anew.


def test_without_anything_in_common_the_stream_begins_anew_where_the_log_does() -> None:
    remote = tier()
    item = remote.items.items[STREAM]

    done = take(remote, diverging(60, end=120))

    root = remote.root()
    assert (root.first_offset, root.next_offset, len(root.entries)) == (60, 60, 0)
    assert root.last_chunk is None
    assert root.ledger == Ledger.of([(1, 0), (2, 60)])
    assert done.truncated is not None
    assert done.truncated.anew
    (timeline,) = record(remote).timelines
    assert (timeline.floor, timeline.root_key) == (0, item.root_key), "all of it"
    remote.upload(piece(60, 90, epoch=2, floor=60), piece(50, 100, uid=9), piece(60, 120, uid=8))
    assert commit_runs(remote.new_context(), STREAM, pause=no_pause).next_offset == 90
    assert_sound(remote.new_context())


def test_to_begin_anew_may_take_the_first_offset_back_below_what_retention_left() -> None:
    remote = Remote()
    remote.anchor(1000)
    remote.claim(1)
    remote.upload(piece(1000, 1050, floor=1000))
    commit_runs(remote.context, STREAM, pause=no_pause)

    take(remote, diverging(500, end=900))

    root = remote.root()
    assert (root.first_offset, root.next_offset) == (500, 500)
    assert record(remote).timelines[0].floor == 500


# A hole.


def test_a_hole_at_the_end_that_the_log_fills_is_cut_and_nothing_was_lost() -> None:
    remote = tier()
    root = with_hole_at_the_end(remote, 150)
    context = remote.new_context()
    publish(context, load(context, STREAM), root)
    log = KnownHistory(tuple(LocalChunk(a, a + 10, 2) for a in range(120, 170, 10)))

    done = take(remote, log, context=context)

    entries = list(remote.root().entries)
    assert (entries[-1].kind, entries[-1].first_offset, entries[-1].next_offset) == (
        EntryKind.HOLE,
        100,
        120,
    )
    assert entries[-1].data_key(STREAM).path(PREFIX) in remote.memory.objects
    assert done.truncated is not None
    assert done.truncated.record_key == ""
    assert remote.root().last_chunk == LastChunk(90, 1)


# Lost answers, races, crashes, damage.


class Killed(BaseException):
    """The process ends."""


def test_a_truncate_whose_answer_was_lost_is_found_and_still_told() -> None:
    remote = tier()
    remote.catalog.after["commit"] = lambda answer: Unknown(answer.item)

    done = take(remote)

    assert remote.catalog.calls["commit"] == 1
    assert done.truncated is not None
    assert done.truncated.offset == 70
    assert done.truncated.record_key == remote.root().quarantine_key


def test_after_a_conflict_everything_is_planned_anew() -> None:
    remote = tier()
    other = remote.new_context()

    def meanwhile(*_: Any) -> None:
        remote.upload(piece(100, 110))
        commit_runs(other, STREAM, pause=no_pause)

    remote.catalog.before["commit"] = meanwhile

    take(remote)

    (timeline,) = record(remote).timelines
    assert timeline.next_offset == 110
    loaded = load(remote.new_context(), STREAM)
    assert timeline.root_key.split(".")[2] == f"{loaded.item.version - 1:012d}"
    assert ranges(remote.new_context()) == [(0, 50), (50, 70)]


def test_of_two_truncates_at_the_same_time_the_higher_epoch_wins_and_both_are_recorded() -> None:
    remote = tier()
    other = remote.new_context()
    remote.catalog.before["commit"] = lambda *_: take(
        remote, diverging(20, *OLD, epoch=5), 5, context=other
    )

    with pytest.raises(FencedError):
        take(remote)

    assert [each.epoch for each in record(remote).timelines] == [5]
    assert ranges(remote.new_context()) == [(0, 20)]


def test_a_lower_claim_that_lands_first_is_truncated_by_the_higher_one() -> None:
    remote = tier()
    other = remote.new_context()
    remote.catalog.before["commit"] = lambda *_: take(remote, LOG, 2, context=other)

    take(remote, diverging(20, *OLD, epoch=5), 5)

    assert [(t.epoch, t.floor) for t in record(remote).timelines] == [(2, 70), (5, 20)]
    assert ranges(remote.new_context()) == [(0, 20)]


@pytest.mark.parametrize("puts", range(3))
def test_a_crash_before_the_commit_changes_nothing_and_the_next_life_does_it_all(puts: int) -> None:
    remote = tier()
    item = remote.items.items[STREAM]
    real, left = remote.memory.put, [puts]

    def put(key: str, body: Any, *, write_id: str, crc: int | None = None) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        real(key, body, write_id=write_id, crc=crc)

    remote.memory.put = put  # type: ignore[method-assign]
    with pytest.raises(Killed):
        take(remote)
    assert remote.items.items[STREAM] == item
    remote.memory.put = real  # type: ignore[method-assign]

    take(remote, context=remote.new_context())

    assert len(record(remote).timelines) == 1
    assert ranges(remote.new_context()) == [(0, 50), (50, 70)]


def test_a_crash_right_after_the_commit_leaves_the_record_and_the_next_life_has_nothing_to_do() -> (
    None
):
    remote = tier()

    def dies(_: Any) -> None:
        raise Killed

    remote.catalog.after["commit"] = dies
    with pytest.raises(Killed):
        take(remote)
    remote.forget()

    done = take(remote, context=remote.new_context())

    assert (done.truncated, remote.store.calls["put"]) == (None, 0)
    assert len(record(remote).timelines) == 1


def test_endless_conflicts_end_in_an_error_and_nothing_is_lost() -> None:
    remote = tier()
    remote.items.commit = lambda commit: NotLanded(remote.items.get(STREAM))  # type: ignore[method-assign]

    with pytest.raises(ConflictError):
        take(remote, attempts=3)

    assert ranges(remote.new_context()) == [(0, 50), (50, 100)]


@pytest.mark.parametrize("where", [12, 200])
def test_a_fragment_whose_good_beginning_is_damaged_is_not_cut(where: int) -> None:
    remote = tier()
    path = OLD[1].path(PREFIX)
    data = bytearray(remote.memory.objects[path])
    data[where] ^= 1
    remote.memory.objects[path] = bytes(data)
    before, item = remote.tampered(), remote.items.items[STREAM]

    with pytest.raises(CorruptDataError) as caught:
        take(remote)

    assert (caught.value.stream, caught.value.key) == (STREAM, path)
    assert caught.value.offset is not None
    assert (remote.tampered(), remote.items.items[STREAM]) == (before, item)


def test_damage_above_the_cut_is_no_obstacle() -> None:
    remote = tier()
    path = OLD[1].path(PREFIX)
    data = bytearray(remote.memory.objects[path])
    data[parse_trailer(data).index_position - 5] ^= 1
    remote.memory.objects[path] = bytes(data)

    take(remote)

    assert ranges(remote.new_context()) == [(0, 50), (50, 70)]


def test_a_record_that_is_damaged_stops_the_claim() -> None:
    remote = tier()
    take(remote)
    remote.memory.objects[remote.root().quarantine_key] = b"{}"
    item = remote.items.items[STREAM]

    with pytest.raises(CorruptDataError):
        take(remote, diverging(30, *OLD, epoch=3), epoch=3)

    assert remote.items.items[STREAM] == item


def test_the_record_holds_what_was_there_before() -> None:
    remote = tier()
    take(remote)
    first = remote.root().quarantine_key

    take(remote, diverging(30, *OLD, epoch=3), epoch=3)

    context = remote.new_context()
    assert remote.root().quarantine_key != first
    assert load_record(context, STREAM, first).timelines == record(remote).timelines[:1]


def test_commits_after_a_truncate_keep_naming_the_record() -> None:
    remote = tier()
    take(remote)
    key = remote.root().quarantine_key

    remote.upload(*chain(9, start=70, epoch=2, floor=70))
    commit_runs(remote.new_context(), STREAM, pause=no_pause)
    rebalance(remote.new_context(), STREAM, branching=2, pause=no_pause)

    assert remote.root().quarantine_key == key
    assert remote.root().next_offset == 160


# The table is lost.


def restored(remote: Remote, item: Any = None) -> Context:
    table = MemoryCatalog("restored")
    if item is not None:
        table.items[STREAM] = item
    return replace(remote.new_context(), catalog=table)


@pytest.mark.parametrize("backup", [False, True])
def test_history_3_a_table_that_is_lost_gives_the_truncated_stream_back(backup: bool) -> None:
    remote = tier()
    item = remote.items.items[STREAM]
    take(remote)
    context = restored(remote, item if backup else None)

    adopt(context, STREAM)

    root = load(context, STREAM).root
    assert root.next_offset == 70
    assert len(current_record(context, STREAM)[1].timelines) == 1


@pytest.mark.parametrize("kind", ["record", "old root", "old data"])
def test_no_root_is_adopted_whose_quarantine_is_not_complete(kind: str) -> None:
    remote = tier()
    old = remote.items.items[STREAM].root_key
    take(remote)
    gone = {
        "record": remote.root().quarantine_key,
        "old root": old,
        "old data": OLD[1].path(PREFIX),
    }[kind]
    del remote.memory.objects[gone]

    with pytest.raises(CorruptDataError):
        adopt(restored(remote), STREAM)


def test_a_truncating_root_that_never_landed_is_as_good_as_one_that_did() -> None:
    remote = tier()
    remote.items.commit = lambda commit: NotLanded(remote.items.get(STREAM))  # type: ignore[method-assign]
    with pytest.raises(ConflictError):
        take(remote, attempts=1)
    context = restored(remote)

    adopt(context, STREAM)

    assert ranges(context) == [(0, 50), (50, 70)]
    assert len(current_record(context, STREAM)[1].timelines) == 1


def test_records_lie_where_they_should() -> None:
    remote = tier()
    take(remote)

    (key,) = [k for k in remote.memory.objects if k.startswith(quarantine_prefix(PREFIX, STREAM))]
    assert key == remote.root().quarantine_key
    assert not key.startswith(data_prefix(PREFIX, STREAM))
