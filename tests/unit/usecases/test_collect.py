"""What collect deletes, what it keeps, and what makes it stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from coldstream.errors import ConflictError, CorruptDataError, NotFoundError
from coldstream.manifest.catalog import StreamState
from coldstream.names import collect_path, group_path, stream_prefix
from coldstream.plans.collect import ObjectKind, Record, replaced
from coldstream.plans.policy import PolicySet, Rule
from coldstream.ports import ObjectInfo
from coldstream.remote.context import Context
from coldstream.usecases.collect import Collection, collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.marks import list_records
from coldstream.usecases.rebalance import rebalance
from coldstream.usecases.retention import retain
from tests.support.remote import PREFIX, STREAM, Remote, chain, no_pause, piece

GRACE = 1000


class Tier(Remote):
    """A remote tier whose store has a clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000
        self.memory._clock_ms = lambda: self.now
        self.claimed()
        self.upload(*chain(12))
        commit_runs(self.context, STREAM, pause=no_pause)
        self.now += 2 * GRACE

    def collect(self, **more: object) -> Collection:
        return collect(
            self.context,
            more.pop("deleter", self.memory),  # type: ignore[arg-type]
            STREAM,
            grace_ms=GRACE,
            run_ms=self.now,
            now_ms=self.now,
            held=more.pop("held", lambda _: False),  # type: ignore[arg-type]
            **more,  # type: ignore[arg-type]
        )

    def settle(self) -> Collection:
        """Runs far enough apart to delete all that can be deleted; the last one."""
        for _ in range(3):
            self.now += 2 * GRACE
            report = self.collect()
        return report

    def retire(self, size: int) -> None:
        rules = PolicySet((Rule("r", max_bytes=size),))
        retain(self.context, STREAM, rules, now_ms=self.now, pause=no_pause)


@pytest.fixture
def tier() -> Tier:
    return Tier()


def test_garbage_goes_at_the_second_sight_a_grace_time_later_and_not_before(tier: Tier) -> None:
    size = tier.root().total_size
    tier.retire(size // 2)
    tier.now += 10 * GRACE  # old, but never seen as garbage

    assert not tier.collect().deleted
    tier.now += GRACE - 1
    assert not tier.collect().deleted
    tier.now += 1

    assert tier.collect().deleted[ObjectKind.RETIRED].objects == 6


def test_what_was_seen_before_an_undelete_has_to_be_seen_again(tier: Tier) -> None:
    tier.retire(1)
    tier.collect()
    item = tier.items.items[STREAM]
    tier.items.items[STREAM] = replace(item, revision=item.revision + 2)
    tier.now += 2 * GRACE

    assert not tier.collect().deleted


def test_a_damaged_record_proves_nothing_and_stops_nothing(tier: Tier) -> None:
    tier.retire(1)
    tier.collect()
    (record,) = list_records(tier.context, STREAM)
    tier.memory.objects[record.path] = b"garbage"
    tier.now += 2 * GRACE

    assert ObjectKind.RETIRED not in tier.collect().deleted
    tier.now += 2 * GRACE
    assert tier.collect().deleted[ObjectKind.RETIRED].objects == 11


def test_a_dry_run_writes_nothing_and_says_what_a_run_would_delete(tier: Tier) -> None:
    tier.retire(1)
    tier.collect()
    tier.now += 2 * GRACE
    before = tier.tampered()

    report = tier.collect(dry_run=True)

    assert tier.tampered() == before
    assert report.provable.objects >= 11
    assert tier.collect().deleted[ObjectKind.RETIRED].objects == 11


def test_a_second_upload_of_a_range_goes_and_one_that_reaches_beyond_stays(tier: Tier) -> None:
    double = tier.upload(piece(0, 10, uid=900), piece(10, 30, uid=901))
    beyond = tier.upload(piece(110, 125, uid=902), piece(150, 160, uid=903))

    tier.settle()

    assert not set(double) & set(tier.memory.objects)
    assert set(beyond) <= set(tier.memory.objects)


def test_a_deposed_writers_copy_goes_but_its_other_timeline_stays(tier: Tier) -> None:
    # Epoch 2 takes over at 120 and uploads the chunks that epoch 1 had written from there on.
    tier.claim(2)
    tier.upload(piece(120, 130, epoch=2, floor=120, chunk_epochs=[1], uid=5))
    tier.upload(piece(130, 140, epoch=2, floor=120, chunk_epochs=[2], uid=6))
    commit_runs(tier.context, STREAM, pause=no_pause)
    assert tier.root().next_offset == 140
    (copy,) = tier.upload(piece(120, 130, epoch=1, uid=7))
    (other,) = tier.upload(piece(130, 140, epoch=1, uid=8))

    report = tier.settle()

    assert copy not in tier.memory.objects
    assert other in tier.memory.objects
    assert report.unique == [other]


def test_a_damaged_upload_of_a_deposed_writer_is_kept(tier: Tier) -> None:
    tier.claim(2)
    tier.upload(piece(120, 130, epoch=2, floor=120, chunk_epochs=[1], uid=5))
    commit_runs(tier.context, STREAM, pause=no_pause)
    copy = piece(120, 130, epoch=1, uid=7)
    (path,) = tier.upload(replace(copy, data=copy.data[:-1] + b"?"))

    tier.settle()

    assert path in tier.memory.objects


def test_keys_that_are_not_ours_are_never_touched(tier: Tier) -> None:
    under = stream_prefix(PREFIX, STREAM)
    ours = f"{under}data/00000000000000000000-00000000000000000010.0000000001.00000000000000ff"
    foreign = [f"{ours}.tmp", f"{under}notes.txt", f"{under}metadata/root.x", f"{under}data/x"]
    for key in foreign:
        tier.memory.put(key, b"x", write_id="x")

    report = tier.settle()

    assert sorted(report.foreign) == sorted(foreign)
    assert set(foreign) <= set(tier.memory.objects)


def test_groups_outside_the_tree_and_roots_before_the_current_one_go(tier: Tier) -> None:
    rebalance(tier.context, STREAM, branching=2, pause=no_pause)
    rebalance(tier.context, STREAM, branching=2, pause=no_pause)
    lost = group_path(PREFIX, STREAM, 0, 12345, 1)
    tier.memory.put(lost, b"of a rebalance that lost the race", write_id="x")

    tier.settle()

    assert lost not in tier.memory.objects
    assert tier.items.items[STREAM].root_key in tier.memory.objects
    roots = [key for key in tier.memory.objects if key.endswith(".manifest")]
    assert len(roots) == 1
    assert tier.root().fragments == 12


def test_a_root_of_a_version_that_may_land_yet_stays(tier: Tier) -> None:
    key = tier.items.items[STREAM].root_key
    version = f"{tier.items.items[STREAM].version:012d}"
    ahead = f"{int(version) + 1:012d}"
    later = key.replace(version, ahead).replace(key.split(".")[-2], f"{77:016x}")
    tier.memory.put(later, b"x", write_id="x")

    tier.settle()

    assert later in tier.memory.objects


def test_a_root_that_is_gone_or_damaged_stops_everything(tier: Tier) -> None:
    tier.retire(1)
    tier.collect()
    tier.now += 2 * GRACE
    before = tier.tampered()
    key = tier.items.items[STREAM].root_key
    tier.context = tier.new_context()
    tier.memory.objects[key] = b"garbage"
    with pytest.raises(CorruptDataError):
        tier.collect()
    del tier.memory.objects[key]
    with pytest.raises(NotFoundError):
        tier.collect()

    before.pop(key)
    assert tier.tampered() == before


@pytest.mark.parametrize("state", [StreamState.DELETING, StreamState.REBUILDING])
def test_a_stream_that_is_not_live_is_left_alone(tier: Tier, state: StreamState) -> None:
    tier.items.items[STREAM] = replace(tier.items.items[STREAM], state=state)

    with pytest.raises(ConflictError):
        tier.collect()


def test_a_state_that_changes_between_proof_and_delete_stops_the_delete(tier: Tier) -> None:
    tier.retire(1)
    tier.collect()
    tier.now += 2 * GRACE

    def undeleted(*_: object) -> None:
        item = tier.items.items[STREAM]
        tier.items.items[STREAM] = replace(item, revision=item.revision + 2)

    tier.store.before["put"] = undeleted
    before = len(tier.memory.objects)
    with pytest.raises(ConflictError):
        tier.collect()

    assert len(tier.memory.objects) == before + 1  # the record


def test_a_long_listing_is_gone_over_in_steps_with_a_cursor(tier: Tier) -> None:
    tier.upload(*(piece(0, 10, uid=10_000 + n) for n in range(2_500)))
    found = deleted = 0
    for _ in range(2):
        tier.now += 2 * GRACE
        cursor: str | None = None
        steps = 0
        while True:
            report = tier.collect(cursor=cursor, time_to_list=lambda: False)
            found += report.found.get(ObjectKind.SUPERSEDED, _NONE).objects
            deleted += report.deleted.get(ObjectKind.SUPERSEDED, _NONE).objects
            cursor = report.cursor
            steps += 1
            if cursor is None:
                break
        assert steps >= 2

    assert (found, deleted) == (2 * 2_500, 2_500)


class _NONE:
    objects = 0


def test_a_root_goes_before_the_data_that_only_it_refers_to(tier: Tier) -> None:
    tier.retire(1)
    tier.collect()
    tier.now += 2 * GRACE
    batches: list[Sequence[str]] = []
    delete = tier.memory.delete

    def noting(keys: Sequence[str]) -> list[str]:
        batches.append(keys)
        return delete(keys)

    tier.memory.delete = noting  # type: ignore[method-assign]
    tier.collect()

    # In batches of their own: a store may do any part of a batch and no other.
    assert [{"/metadata/" in key for key in batch} for batch in batches] == [{True}, {False}]


def test_of_the_records_only_those_that_a_later_one_replaced_or_that_are_very_old_go() -> None:
    from coldstream.names import MarkKey

    def record(created: int, modified: int) -> Record:
        path = collect_path(PREFIX, STREAM, created, created)
        return Record(MarkKey(STREAM, created, created), path, modified)

    young, newest, older = record(9_500, 9_500), record(8_000, 8_000), record(7_500, 7_500)
    ancient = record(1, 1)

    gone = replaced([young, newest, older, ancient], now_ms=10_000, grace_ms=GRACE)

    assert gone == [older, ancient]
    assert replaced([ancient], now_ms=10_000, grace_ms=GRACE) == [ancient]


def test_another_stream_of_a_similar_name_is_not_looked_at(tier: Tier) -> None:
    tier.claimed(stream=STREAM + "0")
    paths = tier.upload(*chain(2, stream=STREAM + "0"))
    tier.settle()

    assert set(paths) <= set(tier.memory.objects)
    assert isinstance(tier.context, Context)


@pytest.mark.parametrize("ahead", [0, GRACE, 2 * GRACE])
def test_a_clock_that_is_ahead_shortens_no_grace_time(tier: Tier, ahead: int) -> None:
    def look() -> Collection:
        return collect(
            tier.context, tier.memory, STREAM, grace_ms=GRACE, run_ms=tier.now + ahead,
            now_ms=tier.now + ahead, held=lambda _: False,
        )  # fmt: skip

    (old,) = tier.upload(piece(0, 10, uid=900))
    tier.now += 2 * GRACE
    look()
    (young,) = tier.upload(piece(10, 20, uid=901))
    look()  # with a clock that is ahead, the young one is seen at once

    tier.now += GRACE - 1
    look()
    assert {old, young} <= set(tier.memory.objects)
    tier.now += 1
    look()
    assert old not in tier.memory.objects
    assert young in tier.memory.objects  # it may have been on its way into the manifest
    tier.now += GRACE - 1
    look()
    assert young in tier.memory.objects
    tier.now += GRACE + 1
    look()
    assert young not in tier.memory.objects


def test_a_stream_at_rest_costs_three_looks_at_the_bucket(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten thousand, each LIST more is a dollar and a half a month."""
    for _ in range(3):
        tier.settle()
    asked: list[str] = []
    there = tier.memory.list

    def counted(under: str, **more: Any) -> list[ObjectInfo]:
        asked.append(under)
        return there(under, **more)

    monkeypatch.setattr(tier.memory, "list", counted)
    tier.collect()
    assert len(asked) == 3, asked
