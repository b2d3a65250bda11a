"""Holes, from the object to the manifest: what is declared lost, and what never is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coldstream.manifest.entries import EntryKind
from coldstream.manifest.root import LastChunk
from coldstream.names import DataKey
from coldstream.reader import Gap as ReadGap
from coldstream.reader import Offset, StreamReader
from coldstream.reader.gap import GapReason
from coldstream.reader.verify import verify_stream
from coldstream.usecases.ahead import ahead
from coldstream.usecases.commit_runs import CommitReport, commit_runs
from coldstream.usecases.holes import ChainGap, declare
from coldstream.usecases.rebuild import LackingError, rebuild
from coldstream.usecases.repair import repair
from coldstream_devkit.claims import claim
from coldstream_devkit.fragments import SyntheticFragment
from tests.support.remote import PREFIX, STREAM, Remote, chain, gap, log_of, no_pause, piece


@pytest.fixture
def remote() -> Remote:
    return Remote().claimed()


def hole(remote: Remote, first: int, next_offset: int, *, epoch: int = 1, uid: int = 7) -> str:
    path = DataKey(STREAM, first, next_offset, epoch, uid, "hole").path(PREFIX)
    remote.memory.put(path, b"", write_id=path)
    return path


def commit(remote: Remote, **settings: Any) -> CommitReport:
    return commit_runs(remote.new_context(), STREAM, pause=no_pause, **settings)


def kinds(remote: Remote) -> list[tuple[int, int, str]]:
    return [(e.first_offset, e.next_offset, e.kind.name) for e in remote.root().entries]


def verified(remote: Remote) -> bool:
    return verify_stream(remote.memory, remote.items, PREFIX, STREAM, deep=True).sound


def test_a_hole_and_what_follows_it_are_appended_in_one_commit(remote: Remote) -> None:
    remote.upload(piece(0, 10, timestamps=[50]), piece(40, 50, timestamps=[20]))
    hole(remote, 10, 40)

    report = commit(remote)

    assert (report.commits, report.fragments, report.next_offset) == (1, 2, 50)
    assert report.holes == ((10, 40),)
    assert kinds(remote) == [(0, 10, "FRAGMENT"), (10, 40, "HOLE"), (40, 50, "FRAGMENT")]
    lost = remote.root().entries[1]
    assert (lost.size, lost.records, lost.min_timestamp, lost.max_timestamp) == (0, 0, 50, 50)
    assert verified(remote)


def test_a_commit_with_a_hole_costs_one_list_and_no_get_of_the_hole(remote: Remote) -> None:
    remote.upload(piece(0, 10), piece(40, 50))
    hole(remote, 10, 40)
    remote.forget()

    commit_runs(remote.context, STREAM, pause=no_pause)

    assert (remote.store.calls["list"], remote.store.calls["get_suffix"]) == (1, 2)


def test_a_hole_waits_for_a_fragment_behind_it(remote: Remote) -> None:
    remote.upload(piece(0, 10))
    hole(remote, 10, 40)
    assert commit(remote).next_offset == 10

    remote.upload(piece(40, 50))

    assert commit(remote).next_offset == 50


def test_history_5_a_fragment_whose_event_waits_keeps_the_hole_out(remote: Remote) -> None:
    remote.upload(piece(0, 10), piece(10, 20), piece(40, 50))
    hole(remote, 10, 40)

    report = commit(remote)

    assert report.next_offset == 20
    assert report.holes == ()


def test_a_fragment_that_comes_before_the_commit_wins_over_the_hole(remote: Remote) -> None:
    remote.upload(piece(0, 10))
    hole(remote, 10, 40)
    commit(remote)
    remote.upload(piece(20, 30), piece(40, 50))
    assert commit(remote).next_offset == 10

    hole(remote, 10, 20)
    hole(remote, 30, 40)
    commit(remote)

    assert kinds(remote)[1:] == [
        (10, 20, "HOLE"),
        (20, 30, "FRAGMENT"),
        (30, 40, "HOLE"),
        (40, 50, "FRAGMENT"),
    ]


def test_chunk_epochs_never_fall_across_a_hole() -> None:
    remote = Remote().claimed(5)
    remote.upload(piece(0, 10, epoch=5, chunk_epochs=[5]))
    remote.upload(piece(40, 50, epoch=5, chunk_epochs=[4], uid=1))
    hole(remote, 10, 40, epoch=5)

    report = commit(remote)

    assert report.next_offset == 10
    assert "fall" in report.refused[0].reason


def test_a_hole_is_not_taken_when_what_follows_it_is_refused(remote: Remote) -> None:
    bad = piece(40, 50).lying(floor=9)
    remote.upload(piece(0, 10), bad)
    hole(remote, 10, 40)

    report = commit(remote)

    assert (report.next_offset, kinds(remote)) == (10, [(0, 10, "FRAGMENT")])
    assert [each.key for each in report.refused] == [bad.path(PREFIX)]


def test_a_longer_hole_behind_a_refused_fragment_is_found_beyond_the_page(remote: Remote) -> None:
    bad = piece(40, 50).lying(floor=9)
    remote.upload(piece(0, 10), bad)
    # Enough keys that no ledger accepts, so that what follows lies on another page.
    for number in range(1100):
        key = DataKey(STREAM, 60 + number, 61 + number, 9, number)
        remote.memory.put(key.path(PREFIX), b"x", write_id=str(number))
    hole(remote, 10, 40)
    hole(remote, 10, 5000, uid=8)
    remote.upload(piece(5000, 5010))

    report = commit(remote)

    assert (report.next_offset, report.holes) == (5010, ((10, 5000),))


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_no_commit_ends_in_a_hole_whatever_the_limit(remote: Remote, limit: int) -> None:
    remote.upload(piece(0, 10), piece(20, 30), piece(30, 40), piece(50, 60))
    hole(remote, 10, 20)
    hole(remote, 40, 50)

    report = commit(remote, limit=limit)

    assert report.next_offset == 60
    assert report.holes == ((10, 20), (40, 50))
    for key, body in remote.memory.objects.items():
        if key.endswith(".manifest"):
            from coldstream.manifest.root import parse_root

            entries = parse_root(body).entries
            assert not len(entries) or entries[-1].kind is EntryKind.FRAGMENT


def test_an_object_that_is_not_empty_is_no_hole(remote: Remote) -> None:
    remote.upload(piece(0, 10), piece(40, 50))
    path = DataKey(STREAM, 10, 40, 1, 3, "hole").path(PREFIX)
    remote.memory.put(path, b"data?", write_id=path)
    hole(remote, 10, 40)

    report = commit(remote)

    assert report.next_offset == 50
    assert [each.key for each in report.refused] == [path]


def test_a_stream_may_begin_with_a_hole(remote: Remote) -> None:
    remote.upload(piece(30, 40))
    hole(remote, 0, 30)

    assert commit(remote).next_offset == 40
    assert verified(remote)


def test_a_hole_of_a_deposed_writer_that_comes_late_changes_nothing(remote: Remote) -> None:
    remote.upload(piece(0, 10))
    commit(remote)
    remote.claim(2)
    remote.upload(piece(10, 20, epoch=2, floor=10), piece(40, 50, epoch=2, floor=10))
    hole(remote, 20, 40, epoch=1)

    assert commit(remote).next_offset == 20

    hole(remote, 20, 40, epoch=2)
    assert commit(remote).next_offset == 50


def test_a_claim_takes_a_hole_with_what_follows_it_below_its_floor(remote: Remote) -> None:
    remote.upload(piece(0, 10), piece(40, 50))
    hole(remote, 10, 40)

    item = remote.claim(2)

    assert (item.next_offset, item.ledger.floor(2)) == (50, 50)


def test_the_last_chunk_is_that_of_the_last_fragment(remote: Remote) -> None:
    remote.upload(piece(0, 10), piece(40, 50))
    hole(remote, 10, 40)
    commit(remote)

    assert remote.root().last_chunk == LastChunk(40, 1)


def test_a_preview_counts_no_hole_as_a_fragment(remote: Remote) -> None:
    remote.upload(piece(0, 10), piece(40, 50))
    hole(remote, 10, 40)

    found = ahead(remote.new_context(), STREAM)

    assert (found.next_offset, found.fragments) == (50, 2)


# What is missing.


def test_there_is_no_gap_where_an_upload_waits_for_its_event(remote: Remote) -> None:
    remote.upload(piece(0, 10), piece(10, 30))

    assert gap(remote, 30) is None
    assert gap(remote, 20) is None
    assert remote.root().next_offset == 30


def test_a_gap_begins_at_the_end_of_the_chain_and_ends_where_data_is(remote: Remote) -> None:
    remote.upload(piece(0, 10), piece(10, 20))

    assert gap(remote, 50) == ChainGap(
        20, 50, 1, fragment_follows=False, declared=False, holding=()
    )
    remote.upload(piece(35, 40))
    assert gap(remote, 50) == ChainGap(20, 35, 1, fragment_follows=True, declared=False, holding=())


def test_a_hole_that_is_there_is_found_again_and_not_declared_twice(remote: Remote) -> None:
    remote.upload(piece(0, 10))
    found = gap(remote, 50)
    assert found is not None
    (key,) = declare(remote.context, STREAM, found)

    assert key == DataKey(STREAM, 10, 50, 1, key.uid, "hole")
    assert gap(remote, 50) == replace(found, declared=True)
    # Local retention went on meanwhile.
    assert gap(remote, 60) == ChainGap(10, 60, 1, False, False, ())


def test_a_gap_never_reaches_over_the_begin_of_the_local_log(remote: Remote) -> None:
    """What another node has uploaded above it says nothing of what lies between."""
    remote.upload(piece(0, 10), piece(80, 90))

    assert gap(remote, 50) == ChainGap(
        10, 50, 1, fragment_follows=False, declared=False, holding=()
    )
    assert gap(remote, 80) == ChainGap(10, 80, 1, fragment_follows=True, declared=False, holding=())


def test_an_object_that_is_not_empty_declares_nothing(remote: Remote) -> None:
    remote.upload(piece(0, 10))
    path = DataKey(STREAM, 10, 50, 1, 3, "hole").path(PREFIX)
    remote.memory.put(path, b"data?", write_id=path)

    found = gap(remote, 50)

    assert found is not None
    assert not found.declared


def test_what_comes_right_after_the_commit_is_committed_and_no_gap(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.upload(piece(0, 10))

    def then_comes_another(*given: Any, **named: Any) -> CommitReport:
        monkeypatch.undo()
        report = commit_runs(*given, **named)
        remote.upload(piece(10, 20))
        return report

    monkeypatch.setattr("tests.support.remote.commit_runs", then_comes_another)

    assert gap(remote, 50) == ChainGap(
        20, 50, 1, fragment_follows=False, declared=False, holding=()
    )


def test_an_upload_of_a_deposed_writer_in_a_gap_is_named_though_the_ledger_refuses_it(
    remote: Remote,
) -> None:
    remote.upload(piece(0, 10))
    remote.claim(2)
    late = piece(20, 30, epoch=1)
    remote.upload(late)

    assert gap(remote, 50) == ChainGap(10, 50, 2, False, False, (late.path(PREFIX),))


def test_what_holds_some_of_a_gap_and_cannot_follow_is_named(remote: Remote) -> None:
    across, bad = piece(5, 15), piece(10, 20).lying(floor=9)
    remote.upload(piece(0, 10), across, bad)

    found = gap(remote, 50)

    assert found is not None
    assert found.holding == (across.path(PREFIX), bad.path(PREFIX))
    assert (found.first_offset, found.next_offset) == (10, 50)


# Afterwards.


def with_hole(remote: Remote) -> list[SyntheticFragment]:
    data = [piece(0, 10), piece(10, 20), piece(50, 60), piece(60, 70)]
    remote.upload(*data)
    hole(remote, 20, 50)
    commit(remote)
    return data


def test_a_reader_is_told_of_a_hole_and_goes_on_behind_it(remote: Remote) -> None:
    with_hole(remote)
    reader = StreamReader(remote.store, remote.catalog, PREFIX, STREAM)
    gaps: list[ReadGap] = []

    offsets = [each.offset for each in reader.messages(Offset(0), on_gap=gaps.append)]
    inside = [each.offset for each in reader.messages(Offset(30), on_gap=gaps.append)]

    assert offsets == [*range(20), *range(50, 70)]
    assert inside == [*range(50, 70)]
    assert gaps == [ReadGap(20, 50, GapReason.HOLE), ReadGap(30, 50, GapReason.HOLE)]


def test_verify_counts_a_hole_and_finds_nothing_wrong(remote: Remote) -> None:
    with_hole(remote)

    report = verify_stream(remote.memory, remote.items, PREFIX, STREAM, deep=True)

    assert report.sound
    assert [str(each.status) for each in report.ranges].count("LOST") == 1


@pytest.mark.parametrize("lost", ["nothing", "root", "table", "table and roots"])
def test_a_rebuild_gives_the_same_tree(remote: Remote, lost: str) -> None:
    with_hole(remote)
    before = remote.root().entries
    if "root" in lost:
        for key in [key for key in remote.memory.objects if key.endswith(".manifest")]:
            remote.memory.objects[key] = b"damaged"
    if "table" in lost:
        remote.items.items.clear()

    report = rebuild(remote.new_context(), STREAM, branching=1024, dry_run=False)

    assert report.landed
    assert report.rebuilt.holes == ((20, 50),)
    assert remote.root().entries == before


def test_a_rebuild_keeps_a_hole_at_the_very_end(remote: Remote) -> None:
    with_hole(remote)
    gone = piece(60, 70).path(PREFIX)
    del remote.memory.objects[gone]
    repair(
        remote.new_context(), STREAM, ranges=[(60, 70)], lost=True, branching=1024, pause=no_pause
    )
    before = remote.root().entries
    assert before[-1].kind is EntryKind.HOLE

    report = rebuild(remote.new_context(), STREAM, branching=1024, dry_run=False)

    assert report.landed
    # A hole has the greatest time before it; repair gave it the time of what was there.
    assert [(e.first_offset, e.uid) for e in remote.root().entries] == [
        (e.first_offset, e.uid) for e in before
    ]


def test_a_rebuild_prefers_data_that_came_late_and_fills_the_hole(remote: Remote) -> None:
    with_hole(remote)
    remote.upload(piece(20, 50))

    assert rebuild(remote.new_context(), STREAM, branching=1024, dry_run=False).landed
    assert all(each.kind is EntryKind.FRAGMENT for each in remote.root().entries)


@pytest.mark.parametrize("late", [(20, 30), (30, 40), (40, 50), (40, 55), (30, 65)])
def test_a_rebuild_is_not_stopped_by_data_that_came_late_and_fills_some_of_a_hole(
    remote: Remote, late: tuple[int, int]
) -> None:
    with_hole(remote)
    before = remote.root().entries
    late_path = remote.upload(piece(*late))[0]

    report = rebuild(remote.new_context(), STREAM, branching=1024, dry_run=False)

    assert report.landed
    assert remote.root().entries == before
    assert late_path in remote.memory.objects


@pytest.mark.parametrize("late", [(20, 50), (20, 30), (30, 40), (40, 55)])
def test_repair_puts_late_data_in_the_place_of_a_hole(
    remote: Remote, late: tuple[int, int]
) -> None:
    with_hole(remote)
    remote.upload(piece(*late))

    repair(
        remote.new_context(), STREAM, ranges=[(20, 50)], lost=False, branching=1024, pause=no_pause
    )

    reader = StreamReader(remote.store, remote.catalog, PREFIX, STREAM)
    gaps: list[ReadGap] = []
    offsets = [each.offset for each in reader.messages(Offset(0), on_gap=gaps.append)]
    found = range(late[0], min(late[1], 50))
    assert offsets == sorted({*range(20), *found, *range(50, 70)})
    assert sum(each.next_offset - each.first_offset for each in gaps) == 30 - len(found)
    assert verified(remote)


def test_the_order_in_which_events_come_does_not_matter(remote: Remote) -> None:
    given = [*chain(3), piece(50, 60), piece(60, 70)]
    manifests = set()
    for turn in range(6):
        other = Remote(turn).claimed()
        steps: list[Any] = [*given, None]
        for step in steps[turn:] + steps[:turn]:
            if step is None:
                hole(other, 30, 50)
            else:
                other.upload(step)
            commit(other)
        manifests.add(bytes(other.root().entries))

    assert len(manifests) == 1


def test_repair_cuts_a_fragment_that_begins_before_a_hole_and_reaches_into_it(
    remote: Remote,
) -> None:
    with_hole(remote)
    remote.upload(piece(15, 30, records_per_chunk=5))

    repair(
        remote.new_context(), STREAM, ranges=[(20, 50)], lost=False, branching=1024, pause=no_pause
    )

    assert kinds(remote)[2:4] == [(20, 30, "FRAGMENT"), (30, 50, "HOLE")]
    assert verified(remote)


def test_a_hole_below_the_last_floor_carries_the_epoch_that_may_write_there(remote: Remote) -> None:
    """A rebuild may end below the last floor: a hole of the last epoch would never be let in."""
    remote.upload(piece(0, 9), piece(12, 28))
    remote.upload(piece(28, 40, epoch=2, floor=28))
    lost = piece(9, 12)
    remote.upload(lost)
    commit(remote)
    remote.claim(2)
    commit(remote)
    for key in list(remote.memory.objects):
        if "/metadata/" in key or key == lost.path(PREFIX):
            del remote.memory.objects[key]
    remote.items.items.clear()
    rebuild(remote.new_context(), STREAM, branching=4, dry_run=False, accept_less=True)
    assert remote.root().next_offset == 9

    found = gap(remote, 100)
    assert found is not None
    assert (found.first_offset, found.next_offset, found.parts) == (9, 12, ((9, 12, 1),))
    declare(remote.new_context(), STREAM, found)

    assert commit(remote).next_offset == 40
    assert kinds(remote)[1] == (9, 12, "HOLE")


def test_a_repair_at_the_end_of_a_manifest_is_no_other_history_for_the_next_claim() -> None:
    """The root would remember the chunk before the hole, and a claim cut off what was put in."""
    remote = Remote().claimed()
    first, last = piece(0, 10), piece(10, 20)
    remote.upload(first, last)
    commit_runs(remote.new_context(), STREAM, pause=no_pause)
    del remote.memory.objects[last.path(PREFIX)]
    rebuild(remote.new_context(), STREAM, branching=4, dry_run=False, accept_less=True)
    assert [e.kind.name for e in remote.root().entries] == ["FRAGMENT", "HOLE"]
    remote.upload(piece(10, 20, uid=99))

    repair(remote.new_context(), STREAM, ranges=None, branching=4, pause=no_pause)

    assert [e.kind.name for e in remote.root().entries] == ["FRAGMENT", "FRAGMENT"]
    end = last.trailer
    assert remote.root().last_chunk == LastChunk(end.last_chunk_id, end.last_chunk_epoch)
    claimed = claim(remote.new_context(), STREAM, 2, log=log_of(first, last), pause=no_pause)
    assert claimed.truncated is None


def test_what_only_an_overlapping_object_has_is_told_by_a_rebuild_and_put_in_by_a_repair() -> None:
    """Found by the simulator: it was said that no object has them, and a repair found them."""
    remote = Remote().claimed()
    pieces = [piece(a, b, records_per_chunk=3) for a, b in ((0, 9), (9, 12), (12, 30))]
    remote.upload(*pieces)
    commit_runs(remote.new_context(), STREAM, pause=no_pause)
    remote.upload(piece(6, 15, uid=99, records_per_chunk=3))
    del remote.memory.objects[pieces[1].path(PREFIX)]

    with pytest.raises(LackingError, match="9 to 11: only an object that is damaged, or overlaps"):
        rebuild(remote.new_context(), STREAM, branching=4, dry_run=False)
    rebuild(remote.new_context(), STREAM, branching=4, dry_run=False, accept_less=True)
    assert kinds(remote) == [(0, 9, "FRAGMENT"), (9, 12, "HOLE"), (12, 30, "FRAGMENT")]
    repair(remote.new_context(), STREAM, ranges=None, branching=4, pause=no_pause)

    assert kinds(remote) == [(0, 9, "FRAGMENT"), (9, 12, "FRAGMENT"), (12, 30, "FRAGMENT")]
    assert verified(remote)


def test_a_gap_across_a_floor_is_declared_in_parts_of_the_epochs_that_may_write_them(
    remote: Remote,
) -> None:
    """Found by the simulator: no epoch may write all of it, so the stream stood still."""
    lost = [piece(9, 12), piece(12, 20, epoch=2, floor=12)]
    remote.upload(piece(0, 9), lost[0])
    commit(remote)
    remote.claim(2)
    remote.upload(lost[1], piece(20, 40, epoch=2, floor=12))
    commit(remote)
    gone = {each.path(PREFIX) for each in lost}
    for key in list(remote.memory.objects):
        if "/metadata/" in key or key in gone:
            del remote.memory.objects[key]
    remote.items.items.clear()
    rebuild(remote.new_context(), STREAM, branching=4, dry_run=False, accept_less=True)
    assert remote.root().next_offset == 9

    found = gap(remote, 100)
    assert found is not None
    assert found.parts == ((9, 12, 1), (12, 20, 2))
    keys = declare(remote.new_context(), STREAM, found)
    assert [(key.first_offset, key.next_offset, key.epoch) for key in keys] == [*found.parts]
    again = gap(remote, 15)
    assert again is None or again.declared

    assert commit(remote).next_offset == 40
    assert kinds(remote)[1:3] == [(9, 12, "HOLE"), (12, 20, "HOLE")]
