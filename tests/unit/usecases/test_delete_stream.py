"""Deleting a stream: when it may be called off, and what it never touches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore, MemoryPolicies
from coldstream.errors import ConflictError, NotFoundError, UnavailableError
from coldstream.manifest.catalog import CatalogItem, QueueName, StreamState
from coldstream.names import stream_prefix
from coldstream.plans.delete import OVERDUE_MS, expiry, is_overdue, reason, tombstone, undeletion
from coldstream.plans.policy import PolicySet, Rule, effective
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.usecases.claim import anchor
from coldstream.usecases.collect import Collection, collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.delete_stream import (
    Sweep,
    SweepState,
    delete_stream,
    sweep,
    undelete_stream,
)
from coldstream.usecases.hold import hold, release
from coldstream.usecases.marks import list_records
from coldstream.usecases.stragglers import sweep_stragglers
from coldstream_devkit.odd_keys import odd_keys
from tests.support.remote import PREFIX, STREAM, Counting, Remote, chain, no_pause

UNDELETE = 1000
HOLD = PolicySet((Rule("court", hold=True),))
OTHER = "__orders_1745252105682999999"


@pytest.fixture
def remote() -> Remote:
    remote = Remote().claimed()
    remote.upload(*chain(3))
    commit_runs(remote.context, STREAM, pause=no_pause)
    return remote


def delete(remote: Remote, policies: PolicySet | None = None) -> CatalogItem:
    return delete_stream(
        remote.context, STREAM, policies or PolicySet(), now_ms=0, undelete_ms=UNDELETE
    )


def step(remote: Remote, *, now: int = UNDELETE, empty: int = 0, revision: int = 1) -> Sweep:
    return sweep(
        remote.context,
        remote.memory,
        STREAM,
        PolicySet(),
        revision=revision,
        empty=empty,
        now_ms=now,
        time_left=lambda: True,
    )


def stragglers(
    remote: Remote,
    *,
    context: Context | None = None,
    deleter: Any = None,
    grace_ms: int = 0,
    now_ms: int = UNDELETE,
    held: Callable[[CatalogItem], bool] = lambda _: False,
    **given: Any,
) -> Collection:
    """One step of `collect` on a tombstone."""
    return sweep_stragglers(
        context or remote.new_context(),
        deleter or remote.memory,
        STREAM,
        grace_ms=grace_ms,
        run_ms=now_ms,
        now_ms=now_ms,
        held=held,
        **given,
    )


def fragments(remote: Remote) -> list[str]:
    return [key for key in objects(remote) if key.endswith(".fragment")]


def objects(remote: Remote, stream: str = STREAM) -> list[str]:
    return [key for key in remote.memory.objects if key.startswith(stream_prefix(PREFIX, stream))]


def test_a_tombstone_deletes_nothing_yet_and_stops_commits(remote: Remote) -> None:
    before = objects(remote)

    item = delete(remote)

    assert (item.state, item.undelete_until) == (StreamState.DELETING, UNDELETE)
    assert objects(remote) == before
    with pytest.raises(ConflictError):
        commit_runs(remote.context, STREAM, pause=no_pause)


def test_deleting_twice_keeps_the_first_undelete_time(remote: Remote) -> None:
    first = delete(remote)

    assert (
        delete_stream(remote.context, STREAM, PolicySet(), now_ms=900, undelete_ms=UNDELETE)
        == first
    )


def test_an_undelete_gives_everything_back(remote: Remote) -> None:
    before = load(remote.context, STREAM).root
    delete(remote)

    item = undelete_stream(remote.context, STREAM)

    assert (item.state, item.undelete_until, item.revision) == (StreamState.LIVE, 0, 2)
    assert load(remote.context, STREAM).root == before
    remote.upload(*chain(1, start=30))
    assert commit_runs(remote.context, STREAM, pause=no_pause).next_offset == 40


def test_before_the_undelete_time_is_over_no_object_goes(remote: Remote) -> None:
    delete(remote)
    before = objects(remote)

    with pytest.raises(UnavailableError):
        step(remote, now=UNDELETE - 1)

    assert objects(remote) == before
    assert remote.items.items[STREAM].state is StreamState.DELETING


def test_a_sweep_ends_only_when_the_prefix_was_empty_twice(remote: Remote) -> None:
    delete(remote)

    first = step(remote)
    straggler = remote.upload(*chain(1, start=30))
    second = step(remote, empty=first.empty)
    third = step(remote, empty=second.empty)

    assert (first.state, first.empty) == (SweepState.SETTLE, 1)
    assert second.objects == len(straggler)
    assert (second.state, second.empty) == (SweepState.SETTLE, 1)
    assert third.state is SweepState.DONE
    assert not objects(remote)
    assert remote.items.items[STREAM].state is StreamState.DELETED


def test_a_sweep_that_runs_out_of_time_goes_on_later(remote: Remote) -> None:
    delete(remote)

    done = sweep(
        remote.context,
        remote.memory,
        STREAM,
        PolicySet(),
        revision=1,
        empty=0,
        now_ms=UNDELETE,
        time_left=lambda: False,
    )

    assert done.state is SweepState.SWEEPING
    assert step(remote).state is SweepState.SETTLE


def test_a_deleted_stream_cannot_be_had_back(remote: Remote) -> None:
    delete(remote)
    step(remote)

    with pytest.raises(ConflictError, match="undelete time is over"):
        undelete_stream(remote.context, STREAM)
    with pytest.raises(ConflictError):
        commit_runs(remote.context, STREAM, pause=no_pause)


def test_the_machine_of_an_older_tombstone_does_not_sweep_a_newer_one(remote: Remote) -> None:
    delete(remote)
    undelete_stream(remote.context, STREAM)
    delete_stream(remote.context, STREAM, PolicySet(), now_ms=5_000, undelete_ms=UNDELETE)
    before = objects(remote)

    done = step(remote, now=5_500, revision=1)

    assert done.state is SweepState.CALLED_OFF
    assert objects(remote) == before


def test_a_legal_hold_forbids_the_deletion_and_stops_one_that_has_begun(remote: Remote) -> None:
    with pytest.raises(ConflictError, match="court"):
        delete(remote, HOLD)
    delete(remote)
    before = objects(remote)

    with pytest.raises(ConflictError, match="court"):
        sweep(
            remote.context,
            remote.memory,
            STREAM,
            HOLD,
            revision=1,
            empty=0,
            now_ms=UNDELETE,
            time_left=lambda: True,
        )

    assert objects(remote) == before
    assert remote.items.items[STREAM].state is StreamState.DELETING


def test_a_new_stream_of_the_same_queue_is_untouched(remote: Remote) -> None:
    remote.claimed(stream=OTHER)
    remote.upload(*chain(3, stream=OTHER))
    commit_runs(remote.context, OTHER, pause=no_pause)
    delete(remote)
    step(remote)

    assert len(objects(remote, OTHER)) == 5
    assert load(remote.context, OTHER).root.next_offset == 30


def test_an_anchor_never_revives_a_tombstone(remote: Remote) -> None:
    delete(remote)
    step(remote)

    item = anchor(remote.context, STREAM, 0, remote.items.items[STREAM].name)

    assert item.state is StreamState.DELETED


def test_a_restored_tombstone_is_refused(remote: Remote) -> None:
    delete(remote)
    item = remote.items.items[STREAM]
    remote.items.items[STREAM] = replace(item, table_id="another")
    before = objects(remote)

    with pytest.raises(ConflictError):
        step(remote)

    assert objects(remote) == before


def test_a_store_that_deletes_nothing_is_an_error_and_no_endless_loop(remote: Remote) -> None:
    class Refusing:
        def delete(self, keys: object) -> list[str]:
            del keys
            return []

    delete(remote)
    with pytest.raises(UnavailableError):
        sweep(
            remote.context,
            Refusing(),
            STREAM,
            PolicySet(),
            revision=1,
            empty=0,
            now_ms=UNDELETE,
            time_left=lambda: True,
        )


def test_a_stream_that_nobody_knows_cannot_be_deleted_or_had_back(remote: Remote) -> None:
    del remote.items.items[STREAM]
    for act in (lambda: delete(remote), lambda: undelete_stream(remote.context, STREAM)):
        with pytest.raises(NotFoundError):
            act()


def test_a_tombstone_of_a_restored_table_is_not_taken_for_an_earlier_one(remote: Remote) -> None:
    first = delete(remote)
    # Restored: the revision counts the same number a second time.
    later = replace(first, undelete_until=first.undelete_until + 1, state_token=7)

    assert reason(first) != reason(later)
    swept = replace(first, state=StreamState.DELETED, revision=first.revision + 1, state_token=9)
    assert reason(swept) == reason(first)


def test_a_stream_without_a_name_is_not_deleted_while_a_hold_asks_for_names(
    remote: Remote,
) -> None:
    rules = PolicySet((Rule("court", queue="orders", hold=True),))

    with pytest.raises(ConflictError, match="court"):
        delete(remote, rules)
    remote.items.set_name(STREAM, QueueName("c", "/", "payments"))

    assert delete(remote, rules).state is StreamState.DELETING


class Locked:
    """A bucket of which some objects cannot be deleted."""

    def __init__(self, remote: Remote, *locked: str) -> None:
        self.remote, self.locked = remote, locked

    def delete(self, keys: Sequence[str]) -> list[str]:
        free = [key for key in keys if key not in self.locked]
        if keys and not free:
            raise UnavailableError("locked", key=keys[0])
        return self.remote.memory.delete(free)


@pytest.mark.parametrize("page_size", [1, 2, 1000])
def test_what_cannot_be_deleted_keeps_nothing_behind_it_and_is_named(
    remote: Remote, page_size: int
) -> None:
    delete(remote)
    everything = sorted(objects(remote))
    locked = everything[:2]
    context = replace(remote.new_context(), page_size=page_size)

    def swept() -> Sweep:
        return sweep(
            context, Locked(remote, *locked), STREAM, PolicySet(), revision=1, empty=0,
            now_ms=UNDELETE, time_left=lambda: True,
        )  # fmt: skip

    with pytest.raises(UnavailableError) as caught:
        swept()

    assert sorted(objects(remote)) == locked
    assert caught.value.key == locked[0]
    assert "2 objects" in str(caught.value)


@pytest.mark.parametrize("seed", range(5))
def test_objects_with_odd_keys_below_a_deleted_stream_go_with_it_and_no_other(
    remote: Remote, seed: int
) -> None:
    for key in odd_keys(seed, PREFIX, STREAM, 60):
        remote.memory.put(key, b"x", write_id="w")
    others = {key for key in remote.memory.objects if key not in objects(remote)}
    delete(remote)

    first = step(remote)
    done = step(remote, empty=first.empty)

    assert (first.state, done.state) == (SweepState.SETTLE, SweepState.DONE)
    assert set(remote.memory.objects) == others


@pytest.mark.parametrize("page_size", [1, 2])
def test_a_sweep_without_time_stops_behind_a_page_and_goes_on(
    remote: Remote, page_size: int
) -> None:
    delete(remote)
    context = replace(remote.new_context(), page_size=page_size)
    states = []
    for _ in range(20):
        done = sweep(
            context, remote.memory, STREAM, PolicySet(), revision=1, empty=0,
            now_ms=UNDELETE, time_left=lambda: False,
        )  # fmt: skip
        states.append(done.state)
        if done.state is not SweepState.SWEEPING:
            break

    assert states[-1] is SweepState.SETTLE
    assert len(states) > 2
    assert not objects(remote)


def test_a_hold_that_came_into_force_after_the_rules_were_read_stops_the_deletion() -> None:
    policies = MemoryPolicies()
    remote = Remote()
    remote.items = MemoryCatalog(policies=policies)
    remote.catalog = Counting(remote.items)
    remote.context = remote.new_context()
    remote.claimed()
    rules, revision = policies.load()

    def in_between(*_: object) -> None:
        hold(policies, STREAM)

    remote.catalog.before["change_state"] = in_between
    with pytest.raises(ConflictError):
        delete_stream(
            remote.new_context(), STREAM, rules, now_ms=0, undelete_ms=1, rules_revision=revision
        )
    assert remote.items.items[STREAM].state is StreamState.LIVE

    release(policies, STREAM)
    rules, revision = policies.load()
    delete_stream(
        remote.new_context(), STREAM, rules, now_ms=0, undelete_ms=1, rules_revision=revision
    )
    remote.catalog.before["change_state"] = in_between
    with pytest.raises(ConflictError):
        sweep(
            remote.new_context(), remote.memory, STREAM, rules, revision=1, empty=0, now_ms=9,
            time_left=lambda: True, rules_revision=revision,
        )  # fmt: skip
    assert remote.items.items[STREAM].state is StreamState.DELETING


def test_the_sweep_of_stragglers_stops_with_the_time_and_passes_what_is_locked(
    remote: Remote,
) -> None:
    delete(remote)
    step(remote)
    late = sorted(remote.upload(*chain(5)))
    context = replace(remote.new_context(), page_size=2)
    deleter = Locked(remote, late[0], late[1])
    stragglers(remote)
    cursor, steps = None, []
    for _ in range(10):
        report = stragglers(
            remote, context=context, deleter=deleter, cursor=cursor, time_left=lambda: False
        )
        steps.append(report)
        cursor = report.cursor
        if cursor is None:
            break

    assert cursor is None
    assert len(steps) >= 3
    assert sorted(fragments(remote)) == late[:2]
    assert sum(each.refused.objects for each in steps) == 2
    assert steps[0].trouble is not None


@pytest.mark.parametrize("state", list(StreamState))
def test_each_step_of_a_deletion_begins_in_one_state_only(state: StreamState) -> None:
    item = CatalogItem(STREAM, "table", state=state, revision=4, undelete_until=50)
    steps = {
        StreamState.LIVE: lambda: tombstone(item, until_ms=50, uid=7),
        StreamState.DELETING: lambda: expiry(item, uid=7),
    }
    for begin, plan in steps.items():
        if state is begin:
            change = plan()
            assert (change.read_state, change.read_revision, change.uid) == (state, 4, 7)
            assert change.undelete_until == 50
        else:
            with pytest.raises(ConflictError):
                plan()
    if state is StreamState.DELETING:
        assert undeletion(item, uid=7).state is StreamState.LIVE
        assert expiry(item, uid=7).state is StreamState.DELETED
    else:
        with pytest.raises(ConflictError):
            undeletion(item, uid=7)


@pytest.mark.parametrize("state", list(StreamState))
def test_only_a_tombstone_can_be_overdue_and_not_before_an_hour(state: StreamState) -> None:
    item = CatalogItem(STREAM, "table", state=state, undelete_until=50)

    assert not is_overdue(item, now_ms=57 + OVERDUE_MS, grace_ms=7)
    assert is_overdue(item, now_ms=58 + OVERDUE_MS, grace_ms=7) == (state is StreamState.DELETING)


@pytest.mark.parametrize("revision", [0, 2, 7])
def test_a_sweep_for_another_tombstone_is_called_off(remote: Remote, revision: int) -> None:
    delete(remote)
    before = objects(remote)

    assert step(remote, revision=revision).state is SweepState.CALLED_OFF
    assert objects(remote) == before

    item = remote.items.items[STREAM]
    remote.items.items[STREAM] = replace(item, state=StreamState.DELETED, revision=2)
    assert step(remote, revision=revision).state is SweepState.CALLED_OFF
    assert objects(remote) == before


@pytest.mark.parametrize("state", [s for s in StreamState if s is not StreamState.DELETED])
def test_a_sweep_deletes_nothing_of_a_stream_that_is_not_deleted_whatever_its_revision(
    remote: Remote, state: StreamState
) -> None:
    # An undelete has the revision that the end of the undelete time would have had.
    item = remote.items.items[STREAM]
    remote.items.items[STREAM] = replace(item, state=state, revision=2)
    before = objects(remote)

    assert step(remote, revision=1).state is SweepState.CALLED_OFF
    assert objects(remote) == before


@pytest.mark.parametrize(
    "change", [{"table_id": "restored"}, *({"state": s} for s in StreamState if s != "deleted")]
)
def test_no_straggler_goes_without_a_tombstone_of_this_very_table(
    remote: Remote, change: dict[str, Any]
) -> None:
    item = remote.items.items[STREAM]
    remote.items.items[STREAM] = replace(item, **{"state": StreamState.DELETED, **change})
    before = objects(remote)

    with pytest.raises(ConflictError):
        stragglers(remote)
    assert objects(remote) == before


def test_no_change_of_a_state_has_the_token_of_a_state_that_never_changed(remote: Remote) -> None:
    context = replace(remote.context, new_uid=lambda: 0)

    deleted = delete_stream(context, STREAM, PolicySet(), now_ms=0, undelete_ms=UNDELETE)

    assert deleted.state_token != 0


def test_a_dry_run_over_stragglers_counts_and_deletes_nothing(remote: Remote) -> None:
    item = remote.items.items[STREAM]
    remote.items.items[STREAM] = replace(item, state=StreamState.DELETED)
    before = objects(remote)

    first = stragglers(remote, dry_run=True)
    assert objects(remote) == before
    stragglers(remote)
    marked = objects(remote)
    second = stragglers(remote, dry_run=True)

    assert objects(remote) == marked
    for report in (first, second):
        assert sum(each.objects for each in report.found.values()) == len(before)
        assert not report.deleted
    assert (first.waiting.objects, first.provable.objects) == (len(before), 0)
    assert (second.waiting.objects, second.provable.objects) == (0, len(before))


def a_late_upload(clock: list[int]) -> tuple[Remote, list[str]]:
    """A stream that is said to be deleted, with one fragment, in a bucket with a clock."""
    remote = Remote()
    remote.memory = MemoryObjectStore(lambda: clock[0])
    remote.store = Counting(remote.memory)
    remote.context = remote.new_context()
    remote.claimed()
    late = remote.upload(*chain(1))
    item = remote.items.items[STREAM]
    # As under the oldest releases, or by a thief: nothing says when it was asked for.
    remote.items.items[STREAM] = replace(item, state=StreamState.DELETED, undelete_until=0)
    return remote, late


def test_a_tombstone_that_collect_has_not_seen_for_a_grace_time_deletes_nothing() -> None:
    clock = [10_000]
    remote, _ = a_late_upload(clock)
    before = objects(remote)

    for clock[0] in (10_000, 10_001, 10_999):
        report = stragglers(remote, grace_ms=1000, now_ms=clock[0])
        assert (report.deleted, report.waiting.objects) == ({}, len(before))
    assert set(before) <= set(objects(remote))
    clock[0] = 11_000
    report = stragglers(remote, grace_ms=1000, now_ms=clock[0])

    assert sum(each.objects for each in report.deleted.values()) == len(before)
    assert not objects(remote)  # nor the records themselves


def test_a_clock_of_a_function_that_is_fast_lets_no_straggler_go_early() -> None:
    clock = [10_000]
    remote, late = a_late_upload(clock)

    for _ in range(3):
        report = stragglers(remote, grace_ms=1000, now_ms=99_000)

    assert not report.deleted
    assert set(late) <= set(objects(remote))


def test_a_record_of_another_state_proves_nothing_of_this_tombstone() -> None:
    clock = [10_000]
    remote, late = a_late_upload(clock)
    stragglers(remote, grace_ms=1000, now_ms=clock[0])
    item = remote.items.items[STREAM]
    remote.items.items[STREAM] = replace(item, revision=item.revision + 2)
    clock[0] = 20_000

    report = stragglers(remote, grace_ms=1000, now_ms=clock[0])

    assert not report.deleted
    assert set(late) <= set(objects(remote))


def test_what_collect_saw_of_a_live_stream_is_no_proof_of_a_tombstone_with_its_revision() -> None:
    clock = [10_000]
    remote = Remote()
    remote.memory = MemoryObjectStore(lambda: clock[0])
    remote.store = Counting(remote.memory)
    remote.context = remote.new_context()
    remote.claimed()
    for fragment in chain(2):  # a commit each, so that there is an old root
        remote.upload(fragment)
        commit_runs(remote.context, STREAM, pause=lambda _: None)
    clock[0] = 12_000
    collect(
        remote.context,
        remote.memory,
        STREAM,
        grace_ms=1000,
        run_ms=clock[0],
        now_ms=clock[0],
        held=lambda _: False,
    )
    assert list_records(remote.context, STREAM)
    item, before = remote.items.items[STREAM], objects(remote)
    # One UpdateItem, which sets the state and nothing else: revision and token stay.
    remote.items.items[STREAM] = replace(item, state=StreamState.DELETED)
    clock[0] = 20_000

    report = stragglers(remote, grace_ms=1000, now_ms=clock[0])

    assert not report.deleted
    assert set(before) <= set(objects(remote))


def test_no_straggler_goes_before_the_undelete_time_nor_under_a_hold() -> None:
    clock = [10_000]
    remote, late = a_late_upload(clock)
    stragglers(remote, now_ms=clock[0])
    item = remote.items.items[STREAM]
    remote.items.items[STREAM] = replace(item, undelete_until=20_000)

    with pytest.raises(ConflictError, match="not over"):
        stragglers(remote, now_ms=19_999)
    report = stragglers(remote, now_ms=20_000, held=lambda _: True)

    assert not report.deleted
    assert report.held.objects >= len(late)
    assert set(late) <= set(objects(remote))
    stragglers(remote, now_ms=20_000)
    assert not objects(remote)


def test_a_prefix_in_which_nothing_is_left_gets_no_record(remote: Remote) -> None:
    remote.memory.delete(objects(remote))
    item = remote.items.items[STREAM]
    remote.items.items[STREAM] = replace(item, state=StreamState.DELETED)

    stragglers(remote)

    assert not objects(remote)


def test_a_hold_stops_a_sweep_also_where_the_item_says_deleted(remote: Remote) -> None:
    item = remote.items.items[STREAM]
    remote.items.items[STREAM] = replace(item, state=StreamState.DELETED, revision=2)
    before = objects(remote)

    with pytest.raises(ConflictError, match="legal hold"):
        sweep(
            remote.context, remote.memory, STREAM, HOLD, revision=1, empty=0,
            now_ms=UNDELETE, time_left=lambda: True,
        )  # fmt: skip

    assert objects(remote) == before


def test_a_hold_changes_no_other_rule_of_the_stream() -> None:
    policies = MemoryPolicies()
    limits = Rule("limits", priority=-5, max_age_ms=1000)
    assert policies.save(PolicySet((limits,)), 0)

    hold(policies, STREAM)

    said = effective(policies.load()[0], STREAM, QueueName())
    assert (said.hold, said.retention_rule, said.max_age_ms) == (True, "limits", 1000)
