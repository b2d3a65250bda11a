"""Every order of deleting, calling off, holding, sweeping and writing, on one small stream.

The stream has four fragments and one more behind its manifest. The rules are an item of the same
table, as they are in DynamoDB: whoever writes a tombstone does so under the condition that they
have not changed. Each task is what a front end does: read the rules, then act by them. A sweep is
the state machine of one tombstone: it begins when it has seen it, and knows its revision.

Why that is enough: a deletion has one item, one set of rules and one prefix; two tasks of each kind
are never needed to break a rule of one tombstone, and a second tombstone is a scope of its own.

After every change and every delete it is looked at what lies in the bucket and what the item and
the rules say, by nothing of the product: no tombstone while a hold stands; no object goes unless
the tombstone is final and its time was over; what was called off is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.errors import (
    ConflictError,
    NotFoundError,
    UnavailableError,
    UnknownOutcomeError,
)
from coldstream.manifest.catalog import CatalogItem, QueueName, StreamState
from coldstream.plans.policy import PolicySet, Rule
from coldstream.remote.context import Context
from coldstream.usecases.collect import collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.consolidate import consolidate
from coldstream.usecases.delete_stream import (
    Sweep,
    SweepState,
    delete_stream,
    sweep,
    undelete_stream,
)
from coldstream.usecases.hold import hold, hold_name, release
from coldstream.usecases.rebalance import rebalance
from coldstream_devkit.simulation.explore import Explored, Results, Scenario, explore
from coldstream_devkit.simulation.points import Place
from tests.exhaustive.bare import chunks_of, manifest_of, named_by, objects_below
from tests.support.stage import (
    PREFIX,
    STREAM,
    M,
    anchored,
    bucket_of,
    claiming,
    context_of,
    history,
    no_pause,
    piece,
    upload,
)

NOW_MS, UNDELETE_MS = 1000, 500
UNTIL_MS = NOW_MS + UNDELETE_MS
RULES = "#rules"
NO_RULES = PolicySet()
LIVE, DELETING, DELETED = StreamState.LIVE, StreamState.DELETING, StreamState.DELETED


class RuledCatalog(MemoryCatalog):
    """A table with the operator's rules in an item of their own, of which only the hold matters."""

    def load(self) -> tuple[PolicySet, int]:
        item = self.items[RULES]
        rule = Rule(hold_name(STREAM), priority=-(2**31), directory=STREAM, hold=True)
        return PolicySet((rule,) if item.version else ()), item.revision

    def save(self, policies: PolicySet, read_revision: int) -> bool:
        item = self.items[RULES]
        if item.revision != read_revision:
            return False
        held = any(rule.hold for rule in policies.rules)
        self.items[RULES] = replace(item, version=int(held), revision=item.revision + 1)
        return True

    @contextmanager
    def _unchanged_rules(self, revision: int | None) -> Iterator[bool]:
        yield revision is None or self.items[RULES].revision == revision


@dataclass(frozen=True, slots=True)
class RuledPlace(Place):
    """A bucket and such a table."""

    def copy(self) -> Place:
        store = MemoryObjectStore(self.clock_ms)
        store.take_over(self.store)
        catalog = RuledCatalog(self.catalog.table_id())
        catalog.items.update(self.catalog.items)
        return RuledPlace(store, catalog, self.clock_ms)


def held(place: Place) -> bool:
    return bool(place.catalog.items[RULES].version)


def rules_of(context: Context) -> tuple[PolicySet, int]:
    return cast(RuledCatalog, context.catalog).load()


def a_stream(*, is_held: bool = False) -> Place:
    place = anchored()
    upload(place, *(piece(at, at + 10, uid=at + 1) for at in (0, 10, 20, 30)))
    commit_runs(context_of(place), STREAM, pause=no_pause)
    upload(place, piece(40, 50, uid=41))
    catalog = RuledCatalog()
    catalog.items.update(place.catalog.items)
    catalog.items[RULES] = CatalogItem(RULES, "", version=int(is_held), name=QueueName())
    return RuledPlace(place.store, catalog, place.clock_ms)


def tombstoned(*, is_held: bool = False) -> Place:
    place = a_stream()
    deletes(context_of(place))
    place.catalog.items[RULES] = replace(place.catalog.items[RULES], version=int(is_held))
    return place


# --- tasks ---


def deletes(
    context: Context, now_ms: int = NOW_MS, *, rules: PolicySet | None = None
) -> CatalogItem:
    found, revision = rules_of(context)
    rules = found if rules is None else rules
    return delete_stream(
        context, STREAM, rules, now_ms=now_ms, undelete_ms=UNDELETE_MS, rules_revision=revision
    )


def sweeps(now_ms: int) -> Callable[[Context], object]:
    """The machine of the tombstone that it sees first, with a Lambda a page; None without one."""

    def act(context: Context) -> Sweep | None:
        found = context.catalog.get(STREAM)
        if found is None or found.state is not DELETING:
            return None
        empty = 0
        while True:
            rules, revision = rules_of(context)
            step = sweep(
                context,
                bucket_of(context),
                STREAM,
                rules,
                revision=found.revision,
                empty=empty,
                now_ms=now_ms,
                time_left=lambda: False,
                rules_revision=revision,
            )
            empty = step.empty
            if step.state in (SweepState.DONE, SweepState.CALLED_OFF):
                return step

    return act


def deletes_again(context: Context) -> object:
    """Whoever deletes a stream a second time, after it was called off: a tombstone of its own."""
    return deletes(context, NOW_MS + UNDELETE_MS)


def uploads(context: Context) -> object:
    late = piece(50, 60, uid=51)
    context.store.put(late.path(PREFIX), late.data, write_id="late")
    return None


def commits(context: Context) -> object:
    return commit_runs(context, STREAM, pause=no_pause)


def claims(context: Context) -> object:
    return claiming(context, 2, history((0, 50, 1), (50, 55, 2)))


TASKS: dict[str, Callable[[Context], object]] = {
    "delete": deletes,
    "delete again": deletes_again,
    "undelete": lambda context: undelete_stream(context, STREAM),
    "sweep": sweeps(UNTIL_MS),
    "sweep too early": sweeps(UNTIL_MS - 1),
    "hold": lambda context: hold(cast(Any, context.catalog), STREAM),
    "release": lambda context: release(cast(Any, context.catalog), STREAM),
    "commit": commits,
    "claim": claims,
    "upload": uploads,
}


# --- what must hold ---


def changed(begin: Place, *, latest_ms: int) -> Callable[[Place, CatalogItem | None], None]:
    """After every change of the item and every delete."""
    was = objects_below(begin)

    def look(place: Place, before: CatalogItem | None) -> None:
        item = place.catalog.items[STREAM]
        assert before is not None
        if item.state is not before.state:
            step = (before.state, item.state)
            assert step in ((LIVE, DELETING), (DELETING, LIVE), (DELETING, DELETED)), step
            assert item.revision == before.revision + 1
            if step[1] is not LIVE:
                assert not held(place), f"{step[1]} under a hold"
            if step[1] is DELETED:
                assert before.undelete_until <= latest_ms, "the undelete time was not over"
        if item.state is not LIVE or before.state is not LIVE:
            assert (item.version, item.root_key) == (before.version, before.root_key)
        if item.state is not DELETED:
            assert was <= objects_below(place), "something is gone, and nothing is deleted"

    return look


def ended(place: Place, results: Results) -> str:
    item = place.catalog.items[STREAM]
    allowed: tuple[type[Exception], ...] = (ConflictError, UnavailableError, UnknownOutcomeError)
    if item.state is DELETED:
        allowed += (NotFoundError,)  # for whoever had begun before the objects went
    for name, result in results.items():
        assert not isinstance(result, Exception) or isinstance(result, allowed), (name, result)
    swept = [each for each in results.values() if isinstance(each, Sweep)]
    if item.state is DELETED:
        _goes_on_to_the_end(place, item)
        return "deleted"
    assert all(each.state is SweepState.CALLED_OFF and not each.objects for each in swept)
    if item.state is DELETING:
        with pytest.raises(ConflictError):
            commits(context_of(place))
        undelete_stream(context_of(place), STREAM)
    commits(context_of(place))
    manifest = manifest_of(place)
    assert manifest is not None
    assert manifest.next in (50, 60)
    assert chunks_of(place, manifest) == [1] * (manifest.next // 5)
    return str(item.state)


def _goes_on_to_the_end(place: Place, item: CatalogItem) -> None:
    """The machine of the same tombstone takes what is left, once no rule holds the stream."""

    def goes_on(rules: PolicySet) -> Sweep:
        return sweep(
            context_of(place),
            place.store,
            STREAM,
            rules,
            revision=item.revision - 1,
            empty=empty,
            now_ms=UNTIL_MS,
            time_left=lambda: True,
        )

    empty, left = 0, objects_below(place)
    if held(place):  # too late for what is gone, and not for the rest
        with pytest.raises(ConflictError):
            goes_on(PolicySet((Rule("h", directory=STREAM, hold=True),)))
        assert objects_below(place) == left
    while empty < 2:
        step = goes_on(PolicySet())
        assert step.state in (SweepState.SETTLE, SweepState.DONE)
        empty = step.empty
    assert not objects_below(place)
    with pytest.raises(ConflictError):
        undelete_stream(context_of(place), STREAM)


def in_all_orders(begin: Place, *tasks: str, latest_ms: int = UNTIL_MS, lost: int = 0) -> Explored:
    explored = explore(
        Scenario(
            STREAM,
            PREFIX,
            begin,
            {name: TASKS[name] for name in tasks},
            changed(begin, latest_ms=latest_ms),
            ended,
            lost,
        ),
        most_states=100_000,
    )
    print(explored)
    return explored


@pytest.mark.parametrize(
    "tasks",
    [
        ("delete", "hold", "undelete", "sweep"),
        ("delete", "hold", "release", "sweep"),
        ("delete", "undelete", "sweep", "commit"),
        ("delete", "undelete", "sweep", "claim"),
        ("delete", "hold", "sweep", "upload"),
        ("delete", "undelete", "delete again", "sweep"),
        ("delete", "undelete", "hold", "release", "sweep"),
        ("delete", "commit", "sweep", "upload"),
        ("delete", "hold", "sweep", "upload", "commit"),
    ],
    ids=", ".join,
)
def test_no_object_goes_before_its_tombstone_is_final_in_any_order(tasks: tuple[str, ...]) -> None:
    explored = in_all_orders(a_stream(), *tasks)

    assert "deleted" in explored.outcomes
    assert "live" in explored.outcomes or "deleting" in explored.outcomes


def test_a_sweep_before_the_undelete_time_is_over_deletes_nothing_in_any_order() -> None:
    explored = in_all_orders(
        a_stream(), "delete", "undelete", "sweep too early", "commit", latest_ms=UNTIL_MS - 1
    )

    assert set(explored.outcomes) == {"live", "deleting"}


def test_a_machine_never_sweeps_for_another_tombstone_than_its_own() -> None:
    """Its tombstone was called off, and another stands whose time is not over."""
    begin = tombstoned()
    explored = in_all_orders(begin, "undelete", "delete again", "sweep")

    assert set(explored.outcomes) == {"live", "deleting", "deleted"}


def test_a_machine_of_a_tombstone_that_was_called_off_leaves_the_next_one_alone() -> None:
    """Also once the time of the next one is over: that is for the machine of the next one."""
    place = tombstoned()
    undelete_stream(context_of(place), STREAM)
    deletes(context_of(place))
    kept = objects_below(place)

    for revision in (1, 2):
        step = sweep(
            context_of(place),
            place.store,
            STREAM,
            PolicySet(),
            revision=revision,
            empty=0,
            now_ms=10 * UNTIL_MS,
            time_left=lambda: True,
        )
        assert step.state is SweepState.CALLED_OFF

    assert (objects_below(place), place.catalog.items[STREAM].state) == (kept, DELETING)


@pytest.mark.parametrize("tasks", [("delete", "commit"), ("delete", "sweep", "release")])
def test_nothing_of_a_held_stream_goes_unless_the_hold_is_released(tasks: tuple[str, ...]) -> None:
    explored = in_all_orders(a_stream(is_held=True), *tasks)

    if "release" not in tasks:
        assert set(explored.outcomes) == {"live"}


def test_a_tombstone_that_a_hold_came_after_stays_one_until_the_hold_is_released() -> None:
    explored = in_all_orders(tombstoned(is_held=True), "sweep", "undelete", "commit")
    assert set(explored.outcomes) == {"live"}

    explored = in_all_orders(tombstoned(is_held=True), "sweep", "upload")
    assert set(explored.outcomes) == {"deleting"}

    explored = in_all_orders(tombstoned(is_held=True), "sweep", "release", "undelete")
    assert set(explored.outcomes) == {"live", "deleted"}


@pytest.mark.parametrize("final", [False, True])
def test_only_the_sweep_touches_a_stream_that_is_being_deleted(final: bool) -> None:
    begin = tombstoned()
    if final:
        item = begin.catalog.items[STREAM]
        begin.catalog.items[STREAM] = replace(item, state=DELETED, revision=item.revision + 1)
    others: list[Callable[[Context], object]] = [
        commits,
        claims,
        lambda context: rebalance(context, STREAM, branching=M, pause=no_pause),
        lambda context: consolidate(
            context, bucket_of(context), STREAM, target_size=2**10, branching=M, pause=no_pause
        ),
        lambda context: collect(
            context,
            bucket_of(context),
            STREAM,
            grace_ms=1,
            run_ms=NOW_MS,
            now_ms=NOW_MS,
            held=lambda _: False,
        ),
    ]
    for act in others:
        place = begin.copy()
        with pytest.raises(ConflictError):
            act(context_of(place))
        assert place.catalog.items == begin.catalog.items
        assert objects_below(place) == objects_below(begin), "nothing was written or deleted"


def test_a_hold_by_a_name_that_nobody_has_recorded_holds_all_the_same() -> None:
    by_name = PolicySet((Rule("h", queue="orders", hold=True),))
    cases: list[tuple[Place, Callable[..., object]]]
    cases = [(a_stream(), deletes), (tombstoned(), _one_sweep)]
    for begin, act in cases:
        place = begin.copy()
        item = replace(place.catalog.items[STREAM], name=QueueName())
        place.catalog.items[STREAM] = item
        with pytest.raises(ConflictError):
            act(context_of(place), rules=by_name)
        assert (place.catalog.items[STREAM], objects_below(place)) == (item, objects_below(begin))


def test_a_sweep_that_cannot_delete_anything_says_so_and_is_never_done() -> None:
    class Locked(MemoryObjectStore):
        def delete(self, keys: Sequence[str]) -> list[str]:
            del keys
            return []

    place = tombstoned()
    locked = Locked()
    locked.take_over(place.store)

    with pytest.raises(UnavailableError):
        _one_sweep(context_of(replace(place, store=locked)))

    assert locked.objects == place.store.objects
    assert place.catalog.items[STREAM].state is DELETED


def test_what_may_become_of_a_state_is_a_table_of_three_lines() -> None:
    """Delete, undelete and sweep, from every state, of this table and of another, and of none."""
    expected = {
        ("delete", LIVE): DELETING,
        ("delete", DELETING): DELETING,
        ("delete", DELETED): DELETED,
        ("undelete", DELETING): LIVE,
        ("sweep", DELETING): DELETED,
        ("sweep", DELETED): DELETED,
    }
    for name in ("delete", "undelete", "sweep"):
        for state in StreamState:
            for mine in (True, False):
                place = a_stream()
                item = replace(
                    place.catalog.items[STREAM],
                    state=state,
                    revision=2 if state is DELETED else 1,
                    undelete_until=UNTIL_MS,
                    table_id="memory" if mine else "another",
                )
                place.catalog.items[STREAM] = item
                act = TASKS[name] if name != "sweep" else _one_sweep
                to = expected.get((name, state)) if mine else None
                if to is None and (name, mine) != ("sweep", True):
                    with pytest.raises(ConflictError):
                        act(context_of(place))
                else:
                    act(context_of(place))
                after = place.catalog.items[STREAM]
                assert after.state is (to or state), (name, state, mine)
                assert (after == item) == (after.state is state)
                gone = name == "sweep" and to is DELETED
                manifest = manifest_of(place) if not gone else None
                assert bool(objects_below(place)) != gone
                assert gone or (manifest and named_by(manifest) <= objects_below(place))
    for act in (deletes, TASKS["undelete"], _one_sweep):
        place = a_stream()
        del place.catalog.items[STREAM]
        with pytest.raises(NotFoundError):
            act(context_of(place))


def _one_sweep(context: Context, *, rules: PolicySet = NO_RULES) -> object:
    return sweep(
        context,
        bucket_of(context),
        STREAM,
        rules,
        revision=1,
        empty=0,
        now_ms=UNTIL_MS,
        time_left=lambda: False,
    )
