"""A lost timeline stays readable: whatever is listed beside it, and whichever record survives."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from coldstream.errors import InvalidInputError, UnavailableError
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.quarantine import (
    MAX_TIMELINES,
    ListedData,
    QuarantineRecord,
    Timeline,
)
from coldstream.manifest.tree import leaves
from coldstream.names import DataKey
from coldstream.remote.publish import publish
from coldstream.remote.roots import load
from coldstream.usecases.collect import collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.quarantine import LostData, current_record, lost_data, write_record
from coldstream.usecases.rebuild import rebuild
from coldstream.usecases.surviving import surviving_record
from coldstream_devkit.fragments import SyntheticFragment, build_fragment
from tests.support.remote import PREFIX, STREAM, Remote, no_pause, piece
from tests.unit.usecases.test_truncate import LOG, OLD, diverging, record, take, tier

GOOD = piece(100, 120)
LONGER = build_fragment(100, 130, stream=STREAM, uid=77)


def row(fragment: SyntheticFragment) -> ListedData:
    return ListedData(fragment.path(PREFIX), len(fragment.data))


def cut(*listed: ListedData, root_key: str | None = None) -> Remote:
    """A tier whose claim of epoch 2 cut [70, 100) off, and a record that lists more."""
    remote = tier()
    take(remote)
    (timeline,) = record(remote).timelines
    key = timeline.root_key if root_key is None else root_key
    context = remote.new_context()
    loaded = load(context, STREAM)
    said = QuarantineRecord((replace(timeline, listed=listed, root_key=key),))
    path = write_record(context, STREAM, loaded.root.epoch, said)
    publish(context, loaded, replace(loaded.root, quarantine_key=path))
    return remote


def lost(remote: Remote, epoch: int = 2) -> LostData:
    context = remote.new_context()
    timeline = current_record(context, STREAM)[1].timeline(epoch)
    assert timeline is not None
    return lost_data(context, STREAM, timeline)


def messages(remote: Remote, epoch: int = 2) -> list[tuple[int, int]]:
    data = lost(remote, epoch)
    if data.root is None:
        return []
    found = leaves(data.root, remote.new_context().fetch(STREAM), start=data.timeline.floor)
    return [(each.first_offset, each.next_offset) for each in found]


def put(remote: Remote, *fragments: SyntheticFragment) -> None:
    for each in fragments:
        remote.memory.put(each.path(PREFIX), each.data, write_id=f"{each.key.uid:x}")


@pytest.mark.parametrize("how", ["gone", "damaged", "short", "another"])
def test_a_listed_fragment_that_is_bad_makes_way_for_a_good_one(how: str) -> None:
    remote = cut(row(LONGER), row(GOOD))
    put(remote, GOOD)
    data = {
        "damaged": b"\0" * len(LONGER.data),
        "short": b"x",
        "another": piece(100, 110).data,
    }
    if how in data:
        put(remote, replace(LONGER, data=data[how]))

    assert messages(remote) == [(50, 100), (100, 120)]
    assert lost(remote).strays == (LONGER.path(PREFIX),), "and the user is told"


def test_the_tree_is_read_although_everything_that_is_listed_is_bad() -> None:
    remote = cut(row(LONGER), row(GOOD))

    assert messages(remote) == [(50, 100)]
    assert lost(remote).strays == tuple(sorted((LONGER.path(PREFIX), GOOD.path(PREFIX))))


def test_without_a_tree_reading_begins_at_the_first_fragment_that_is_good() -> None:
    low, high = piece(70, 80), piece(80, 90)
    remote = cut(row(low), row(high), row(GOOD), root_key="")
    put(remote, high, GOOD)

    assert messages(remote) == [(80, 90)]
    assert lost(remote).strays == tuple(sorted((low.path(PREFIX), GOOD.path(PREFIX))))


def test_without_a_tree_and_without_anything_good_there_is_nothing_to_read() -> None:
    remote = cut(row(GOOD), root_key="")

    assert lost(remote).root is None
    assert lost(remote).strays == (GOOD.path(PREFIX),)


def test_a_fragment_of_another_stream_is_never_joined_into_a_lost_timeline() -> None:
    other = build_fragment(100, 120, stream="__other_1", uid=5)
    remote = cut(row(other))
    put(remote, other)

    assert messages(remote) == [(50, 100)]
    assert lost(remote).strays == (other.path(PREFIX),)


def test_a_listed_hole_or_no_key_at_all_is_told_and_stops_nothing() -> None:
    hole = DataKey(STREAM, 100, 125, 1, 9, "hole").path(PREFIX)
    remote = cut(ListedData(hole, 0), ListedData("x", 7), row(GOOD))
    put(remote, GOOD)
    remote.memory.put(hole, b"", write_id="h")

    assert messages(remote) == [(50, 100), (100, 120)]
    assert lost(remote).strays == tuple(sorted((hole, "x")))


def test_what_lies_behind_a_listed_hole_is_read_and_a_hole_at_the_end_is_none() -> None:
    """A claim shuts out what would have followed: fragments, a hole, and what lies behind it."""
    hole = ListedData(DataKey(STREAM, 120, 130, 1, 8, "hole").path(PREFIX), 0)
    last = ListedData(DataKey(STREAM, 140, 150, 1, 9, "hole").path(PREFIX), 0)
    behind = piece(130, 140)
    remote = cut(row(GOOD), hole, row(behind), last)
    put(remote, GOOD, behind)

    assert messages(remote) == [(50, 100), (100, 120), (120, 130), (130, 140)]
    assert lost(remote).strays == (last.key,)


def test_a_claim_lists_the_holes_between_what_it_shuts_out() -> None:
    remote, behind = tier(), piece(130, 140)
    put(remote, GOOD, behind)
    hole = DataKey(STREAM, 120, 130, 1, 8, "hole").path(PREFIX)
    remote.memory.put(hole, b"", write_id="8")
    take(remote)

    assert messages(remote)[-3:] == [(100, 120), (120, 130), (130, 140)]
    assert lost(remote).strays == ()


def test_a_store_that_does_not_answer_is_no_reason_to_read_less() -> None:
    remote = cut(row(LONGER), row(GOOD))
    put(remote, LONGER, GOOD)

    def get_suffix(key: str, size: int) -> bytes:
        raise UnavailableError("S3 does not answer")

    remote.memory.get_suffix = get_suffix  # type: ignore[method-assign]
    with pytest.raises(UnavailableError):
        lost(remote)


# What survives a damaged root.


def after_a_conflict(seed: int) -> Remote:
    """The claim of epoch 2 landed at its second attempt: in between [100, 120) was committed."""
    remote = Remote(seed=seed).claimed(1)
    remote.upload(*OLD)
    commit_runs(remote.context, STREAM, pause=no_pause)
    remote.forget()

    def meanwhile(*_: object) -> None:
        remote.upload(GOOD)
        commit_runs(remote.new_context(), STREAM, pause=no_pause)

    remote.catalog.before["commit"] = meanwhile
    take(remote, context=remote.new_context())
    return remote


def damage_the_root(remote: Remote) -> None:
    remote.memory.objects[remote.items.items[STREAM].root_key] = b"damaged"


@pytest.mark.parametrize("seed", range(8))
def test_after_a_rebuild_the_attempt_that_landed_says_what_was_lost(seed: int) -> None:
    remote = after_a_conflict(seed)
    before = record(remote).timelines
    assert messages(remote) == [(50, 100), (100, 120)]
    damage_the_root(remote)

    rebuild(remote.new_context(), STREAM, branching=4, dry_run=False)

    assert record(remote).timelines == before
    assert messages(remote) == [(50, 100), (100, 120)]


def put_records(remote: Remote, *timelines: Timeline) -> None:
    for each in timelines:
        write_record(remote.new_context(), STREAM, each.epoch, QuarantineRecord((each,)))


def surviving(remote: Remote) -> QuarantineRecord:
    return surviving_record(remote.new_context(), STREAM, Ledger.of([(1, 0), (2, 70)]))


@pytest.mark.parametrize("turn", [1, -1])
def test_what_any_record_of_a_claim_lists_stays_named(turn: int) -> None:
    remote = after_a_conflict(1)
    (landed,) = record(remote).timelines
    ahead, later = piece(130, 140), piece(150, 160)
    put(remote, ahead, later)
    versions = [
        replace(landed, listed=(row(ahead),)),
        replace(landed, next_offset=110, listed=(row(later), row(GOOD)), complete=False),
    ]
    put_records(remote, *versions[::turn])

    (found,) = surviving(remote).timelines

    assert {each.key for each in found.listed} == {ahead.path(PREFIX), later.path(PREFIX)}, (
        "what the tree has already is not named twice"
    )
    assert (found.root_key, found.next_offset) == (landed.root_key, 120)
    assert not found.complete, "one of them did not name all"


def test_collect_keeps_what_only_the_record_of_a_lost_attempt_lists() -> None:
    remote = after_a_conflict(1)
    (landed,) = record(remote).timelines
    copy = build_fragment(80, 100, stream=STREAM, uid=55)  # it would be garbage as such
    put(remote, copy)
    put_records(remote, replace(landed, listed=(row(copy),)))
    damage_the_root(remote)
    rebuild(remote.new_context(), STREAM, branching=4, dry_run=False)

    for now in range(10**9, 10**9 + 20_000, 5000):
        remote.memory._clock_ms = partial(int, now)
        collect(
            remote.new_context(),
            remote.memory,
            STREAM,
            grace_ms=1000,
            run_ms=now,
            now_ms=now,
            held=lambda _: False,
        )

    assert copy.path(PREFIX) in remote.memory.objects
    assert messages(remote) == [(50, 100), (100, 120)]


def test_of_versions_on_one_root_the_lower_floor_counts_because_it_keeps_more() -> None:
    remote = after_a_conflict(1)
    (landed,) = record(remote).timelines
    put_records(remote, replace(landed, floor=60))

    (found,) = surviving(remote).timelines

    assert found.floor == 60


def test_what_the_tree_has_below_the_floor_stays_listed_because_nothing_else_names_it() -> None:
    remote = after_a_conflict(1)
    (landed,) = record(remote).timelines
    below = load(remote.new_context(), STREAM).root.entries[0].data_key(STREAM)
    assert below.next_offset <= landed.floor
    older = replace(landed, root_key="", floor=0, listed=(ListedData(below.path(PREFIX), 5),))
    put_records(remote, older)

    (found,) = surviving(remote).timelines

    assert (found.floor, found.listed) == (landed.floor, older.listed)


def test_what_is_listed_stays_named_where_the_tree_cannot_be_asked() -> None:
    remote = after_a_conflict(1)
    (landed,) = record(remote).timelines
    put_records(remote, replace(landed, listed=(row(GOOD),)))
    remote.memory.objects[landed.root_key] = b"damaged"

    (found,) = surviving(remote).timelines

    assert found.root_key == landed.root_key, "damage is told, and no shorter history made of it"
    assert found.listed == (row(GOOD),)


def test_more_records_than_fit_into_one_are_told_and_not_forgotten() -> None:
    remote = tier()
    ledger = Ledger.of([(epoch, 0) for epoch in range(1, MAX_TIMELINES + 3)])
    put_records(remote, *(Timeline(epoch, 0, 1) for epoch in range(2, MAX_TIMELINES + 3)))

    with pytest.raises(InvalidInputError, match="quarantine drop"):
        surviving_record(remote.new_context(), STREAM, ledger)


def test_a_claim_that_the_quarantine_has_no_room_for_says_what_to_do_and_changes_nothing() -> None:
    remote = tier()
    context = remote.new_context()
    loaded = load(context, STREAM)
    full = QuarantineRecord(tuple(Timeline(epoch, 0, 1) for epoch in range(3, MAX_TIMELINES + 3)))
    path = write_record(context, STREAM, 1, full)
    publish(context, loaded, replace(loaded.root, quarantine_key=path))
    before = remote.items.items[STREAM]

    with pytest.raises(InvalidInputError, match="quarantine drop") as caught:
        take(remote, diverging(70, *OLD, epoch=5000), epoch=5000, context=remote.new_context())

    assert caught.value.stream == STREAM
    assert remote.items.items[STREAM] == before


assert LOG.chunks[-1].next_offset == 90, "what the claims above go by"
