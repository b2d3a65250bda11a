"""What collect must not delete although nothing refers to it, and what must not stop it."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from coldstream.adapters.memory import MemoryCatalog
from coldstream.errors import PermissionDeniedError
from coldstream.manifest.tree import leaves, leaves_backwards
from coldstream.names import DataKey
from coldstream.plans.collect import ObjectKind
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.usecases.adopt import adopt
from coldstream.usecases.collect import collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.consolidate import consolidate
from coldstream.usecases.marks import ProofState, list_records, write_record
from coldstream.usecases.rebalance import rebalance
from coldstream_devkit.bucket import referenced
from coldstream_devkit.fragments import SyntheticFragment
from tests.support.remote import PREFIX, STREAM, Remote, chain, log_of, no_pause, piece
from tests.unit.usecases.test_collect import GRACE, Tier


class Killed(BaseException):
    """The process ends."""


def dies(*_: object) -> None:
    raise Killed


def joined(count: int, *, start: int = 0, position: int = 8) -> list[SyntheticFragment]:
    """Fragments of one segment, which a consolidation joins."""
    made: list[SyntheticFragment] = []
    for number in range(count):
        first = start + number * 10
        made.append(piece(first, first + 10, segment_offset=0, segment_position=position))
        position += made[-1].trailer.data_size
    return made


class Joinable(Tier):
    """A tier whose fragments can be joined."""

    def __init__(self, count: int = 12) -> None:
        Remote.__init__(self)
        self.now = 1_000_000
        self.memory._clock_ms = lambda: self.now
        self.claimed()
        self.upload(*joined(count))
        commit_runs(self.context, STREAM, pause=no_pause)
        self.now += 2 * GRACE

    def join(self) -> None:
        consolidate(
            self.new_context(),
            self.memory,
            STREAM,
            target_size=100_000,
            branching=4,
            pause=no_pause,
        )

    def die_before_the_commit(self, how: str) -> None:
        self.catalog.before["commit"] = dies
        group = partial(rebalance, self.new_context(), STREAM, branching=4, pause=no_pause)
        with pytest.raises(Killed):
            (self.join if how == "join" else group)()

    def restored(self) -> Context:
        """What a process sees after the table was restored from a backup of right now."""
        table = MemoryCatalog("restored")
        table.items[STREAM] = self.items.items[STREAM]
        return Context(self.store, table, PREFIX, self.context.new_uid)  # type: ignore[arg-type]

    def missing(self, context: Context) -> list[str]:
        loaded = load(context, STREAM)
        wanted = referenced(PREFIX, loaded.item, loaded.root, context.fetch(STREAM))
        return sorted(wanted - set(self.memory.objects))


@pytest.mark.parametrize("how", ["join", "group"])
def test_what_only_a_root_that_never_landed_names_outlives_a_restore_of_the_table(how: str) -> None:
    tier = Joinable()
    tier.die_before_the_commit(how)
    for _ in range(5):
        tier.now += 2 * GRACE
        tier.collect()
    context = tier.restored()

    adopt(context, STREAM)
    for _ in range(5):
        tier.now += 2 * GRACE
        collect(
            context,
            tier.memory,
            STREAM,
            grace_ms=GRACE,
            run_ms=tier.now,
            now_ms=tier.now,
            held=lambda _: False,
        )

    assert not tier.missing(context)
    root = load(context, STREAM).root
    assert (root.first_offset, root.next_offset) == (0, 120)


def test_what_a_root_that_lost_names_goes_only_after_a_later_version_has_landed() -> None:
    tier = Joinable()
    tier.die_before_the_commit("join")
    under = f"/data/{0:020d}-{120:020d}."
    (new,) = [key for key in tier.memory.objects if under in key]
    tier.settle()
    assert new in tier.memory.objects

    tier.upload(*joined(1, start=120, position=10**6))
    commit_runs(tier.new_context(), STREAM, pause=no_pause)
    tier.upload(*joined(1, start=130, position=2 * 10**6))
    commit_runs(tier.new_context(), STREAM, pause=no_pause)
    tier.settle()

    assert new not in tier.memory.objects


def test_a_root_that_cannot_be_deleted_keeps_what_it_names() -> None:
    tier = Joinable()
    tier.retire(tier.root().total_size // 2)
    version = f"{tier.items.items[STREAM].version:012d}"
    live = tier.items.items[STREAM]
    # A root that lost against the retention, planned from the one before it.
    older = min(k for k in tier.memory.objects if f".{int(version) - 1:012d}." in k)
    loser = older.replace(f".{int(version) - 1:012d}.", f".{version}.")
    from coldstream.manifest.root import parse_root

    before = parse_root(tier.memory.objects[older])
    tier.memory.put(loser, replace(before, version=int(version)).encode(), write_id="x")

    class Partial:
        def delete(self, keys: Sequence[str]) -> list[str]:
            return tier.memory.delete([key for key in keys if key != loser])

    for _ in range(4):
        tier.now += 2 * GRACE
        tier.collect(deleter=Partial())

    assert live == tier.items.items[STREAM]
    assert sum(key.endswith(".fragment") for key in tier.memory.objects) == 12
    tier.settle()
    tier.settle()
    assert sum(key.endswith(".fragment") for key in tier.memory.objects) == 6


def test_more_rivals_than_anybody_reads_keep_everything() -> None:
    tier = Joinable()
    tier.retire(1)
    item = tier.items.items[STREAM]
    for uid in range(40):
        later = item.root_key.replace(f".{item.version:012d}.", f".{item.version + 1:012d}.")
        tier.memory.put(f"{later[:-25]}{uid:016x}.manifest", b"x", write_id="x")

    report = tier.settle()

    assert sum(key.endswith(".fragment") for key in tier.memory.objects) == 12
    assert report.found[ObjectKind.PENDING].objects == 40 + 11


@pytest.mark.parametrize("when", ["before its commit", "while collect was listing"])
def test_what_was_seen_on_its_way_into_the_manifest_is_not_proved_by_that(when: str) -> None:
    tier = Joinable(8)
    if when == "before its commit":
        tier.catalog.before["commit"] = lambda *_: tier.collect()
        tier.join()
    else:
        tier.store.before["list"] = lambda *_: tier.join()
        tier.collect()
    assert tier.root().fragments == 1
    end = 8 + sum(each.trailer.data_size for each in joined(8))
    tier.now += 2 * GRACE
    tier.upload(*joined(12, start=80, position=end))
    commit_runs(tier.new_context(), STREAM, pause=no_pause)
    reader = load(tier.new_context(), STREAM)
    wanted = [
        entry.data_key(STREAM).path(PREFIX)
        for entry in leaves(reader.root, tier.context.fetch(STREAM))
    ]

    tier.now += 1
    tier.join()
    tier.now += 1
    tier.collect()

    assert tier.root().fragments < len(wanted)
    assert set(wanted) <= set(tier.memory.objects)


def test_what_was_seen_under_a_state_of_the_same_number_proves_nothing() -> None:
    tier = Tier()
    tier.retire(1)
    tier.collect()
    item = tier.items.items[STREAM]
    tier.items.items[STREAM] = replace(item, state_token=item.state_token + 1)
    tier.now += 2 * GRACE

    assert not tier.collect().deleted


def test_objects_that_s3_never_deletes_stop_nothing_behind_them() -> None:
    tier = Tier()
    locked = set(tier.upload(*(piece(0, 10, uid=10_000 + n) for n in range(1000))))
    free = set(tier.upload(*(piece(110, 120, uid=20_000 + n) for n in range(5))))

    class Locked:
        def delete(self, keys: Sequence[str]) -> list[str]:
            gone = tier.memory.delete([key for key in keys if key not in locked])
            if keys and not gone:
                raise PermissionDeniedError("S3 refused a delete: AccessDenied")
            return gone

    for _ in range(3):
        tier.now += 2 * GRACE
        report = tier.collect(deleter=Locked())

    assert locked <= set(tier.memory.objects)
    assert not free & set(tier.memory.objects)
    assert report.refused.objects == 1000
    assert isinstance(report.trouble, PermissionDeniedError)


def test_deletes_end_with_the_time_and_go_on_where_they_were() -> None:
    tier = Tier()
    tier.upload(*(piece(0, 10, uid=10_000 + n) for n in range(2_500)))
    tier.now += 2 * GRACE
    tier.collect()
    tier.now += 2 * GRACE

    first = tier.collect(time_left=lambda: False, time_to_list=lambda: True)
    deleted = [
        first.deleted[ObjectKind.SUPERSEDED].objects
        if ObjectKind.SUPERSEDED in first.deleted
        else 0
    ]
    cursor = first.cursor
    while cursor is not None:
        step = tier.collect(cursor=cursor, time_left=lambda: False, time_to_list=lambda: True)
        deleted.append(step.deleted[ObjectKind.SUPERSEDED].objects)
        cursor = step.cursor

    assert max(deleted) <= 1000
    assert sum(deleted) == 2_500


def test_retired_data_stays_under_a_hold_that_came_after_the_retention() -> None:
    tier = Tier()
    tier.retire(1)

    for _ in range(3):
        tier.now += 2 * GRACE
        report = tier.collect(held=lambda _: True)

    assert report.held.objects == 11
    assert sum(key.endswith(".fragment") for key in tier.memory.objects) == 12
    tier.now += 2 * GRACE
    tier.collect()
    assert sum(key.endswith(".fragment") for key in tier.memory.objects) == 1


def test_no_fragment_goes_under_a_hold_not_even_one_that_has_a_double() -> None:
    """Of a true upload and a forged twin the manifest may name the twin (docs/security.md)."""
    tier = Tier()
    tier.claim(2, *log_of(*chain(12)).chunks)
    doubles = tier.upload(
        piece(0, 10, uid=2**63), piece(10, 20, epoch=2, chunk_epochs=[1], uid=2**63 + 1)
    )

    for _ in range(3):
        tier.now += 2 * GRACE
        report = tier.collect(held=lambda _: True)

    for kind in (ObjectKind.SUPERSEDED, ObjectKind.FENCED):
        assert report.found[kind].objects == 1
    assert set(doubles) <= set(tier.memory.objects)
    assert report.held.objects == 2
    tier.settle()
    assert not set(doubles) & set(tier.memory.objects)


def test_collect_comes_to_rest_where_there_is_no_garbage() -> None:
    tier = Tier()
    tier.retire(1)
    for _ in range(12):
        tier.now += GRACE
        tier.collect()
    before = tier.tampered()

    tier.now += GRACE
    tier.collect()

    assert tier.tampered() == before
    assert not list_records(tier.context, STREAM)


def test_memory_does_not_grow_with_the_garbage_that_other_steps_saw() -> None:
    rnd = random.Random(1)

    def peak(records: int) -> int:
        tier = Tier()
        for number in range(records):
            keys = [
                DataKey(STREAM, at, at + 1, 1, rnd.getrandbits(64)).path(PREFIX)
                for at in range(number * 20_000, (number + 1) * 20_000)
            ]
            write_record(tier.context, STREAM, run_ms=tier.now, state=ProofState(0, 0), keys=keys)
        tier.upload(piece(0, 10, uid=900))
        tier.now += 3 * GRACE
        tracemalloc.start()
        tier.collect()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(6) < 1.5 * peak(1)


def test_a_step_reads_no_record_of_another_part_of_the_listing() -> None:
    tier = Tier()
    far = [DataKey(STREAM, at, at + 1, 1, 1).path(PREFIX) for at in range(10**6, 10**6 + 20_000)]
    record = write_record(tier.context, STREAM, run_ms=tier.now, state=ProofState(0, 0), keys=far)
    tier.upload(piece(0, 10, uid=900))
    tier.now += 3 * GRACE
    read: list[str] = []
    get_all = tier.memory.get_all

    def noting(key: str, *, limit: int) -> bytes:
        read.append(key)
        return get_all(key, limit=limit)

    tier.memory.get_all = noting  # type: ignore[method-assign]
    tier.collect(cursor="rest:")

    assert record.path not in read


@pytest.mark.parametrize("keep", range(2, 12))
def test_nobody_who_walks_backwards_asks_for_a_group_that_is_dead_and_gone(keep: int) -> None:
    tier = Tier()
    rebalance(tier.context, STREAM, branching=2, pause=no_pause)
    sizes = [entry.size for entry in leaves(tier.root(), tier.context.fetch(STREAM))]
    tier.retire(sum(sizes[-keep:]))
    tier.settle()

    context = tier.new_context()
    walked = list(leaves_backwards(load(context, STREAM).root, context.fetch(STREAM)))

    assert len(walked) == keep
