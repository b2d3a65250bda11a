"""All orders of calls of a few use cases on one small stream: each ends well.

Fragments are ten records of two chunks; M is 4. What every end is checked for: the named invariants
hold and everything reads back; one more commit, run alone, leaves nothing out that the ledger
accepts; no task has failed. What every change of the item is checked for: the invariants of a state
and of a step, and that a reader of the first root still finds all that it refers to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

import pytest

import coldstream.plans.claim as plans_claim
from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.errors import FencedError
from coldstream.manifest.catalog import Commit, moved
from coldstream.manifest.root import Root
from coldstream.names import group_path
from coldstream.plans.claim import LocalChunk
from coldstream.plans.policy import PolicySet, Rule
from coldstream.ports import CommitOutcome, Landed
from coldstream.testing.bucket import compare
from coldstream.testing.fragments import START_MS, SyntheticFragment
from coldstream.testing.simulation.explore import (
    FoundError,
    Place,
    Results,
    Scenario,
    explore,
    replay,
)
from coldstream.usecases.collect import collect
from coldstream.usecases.commit_runs import commit_runs, extend
from coldstream.usecases.consolidate import consolidate
from coldstream.usecases.load import Loaded, World, load, publish
from coldstream.usecases.rebalance import rebalance
from coldstream.usecases.retention import retain
from tests.simulation.stage import (
    CHUNK,
    PREFIX,
    STREAM,
    M,
    Steps,
    anchored,
    claiming,
    history,
    holds,
    item_of,
    leaves_of,
    no_pause,
    none,
    once,
    piece,
    upload,
    world_of,
)


def commits(world: World) -> object:
    return commit_runs(world, STREAM, pause=no_pause)


#: What the new writer has: all that the old one wrote, and one chunk of its own after it.
LOG = history((0, 40, 1), (40, 45, 2))
#: Or it lacks the last fragment of the old one, and has written other chunks there.
DIVERGED = history((0, 30, 1), (30, 45, 2))


def claims(epoch: int, log: tuple[LocalChunk, ...]) -> Callable[[World], object]:
    return lambda world: claiming(world, epoch, log)


def puts(fragment: SyntheticFragment) -> Callable[[World], object]:
    def act(world: World) -> object:
        world.store.put(fragment.path(PREFIX), fragment.data, write_id="late")
        return None

    return act


def ends(look: Callable[[Place], str]) -> Callable[[Place, Results], str]:
    """No task has failed, and the place is as `look` wants it."""
    looked = once(look)

    def ended(place: Place, results: Results) -> str:
        all_went_well(results)
        return looked(place)

    return ended


def all_went_well(results: Results) -> None:
    for name, result in results.items():
        # A claim that comes after that of a higher epoch is told so.
        assert not isinstance(result, Exception) or (
            isinstance(result, FencedError) and name.startswith("claim")
        ), f"{name}: {result!r}"


def nothing_is_left_out(place: Place) -> None:
    """One more commit, run alone, takes all that can be taken."""
    commits(world_of(place))
    world = world_of(place)
    extension = extend(world, STREAM, load(world, STREAM).root, limit=500)
    assert not extension.run
    assert not extension.refused


def after_a_claim(place: Place, *, log: tuple[LocalChunk, ...], epoch: int) -> str:
    nothing_is_left_out(place)
    root = holds(place)
    assert root is not None
    ledger = item_of(place).ledger
    floor = ledger.floor(epoch)
    assert floor is not None, "the claim is not in the ledger"
    for leaf in leaves_of(place, root):
        above = [c.floor for c in ledger.claims if c.epoch > leaf.epoch]
        assert leaf.next_offset <= min(above, default=leaf.next_offset), f"above a floor: {leaf}"
    assert root.next_offset >= 30
    # The new writer uploads what the manifest lacks, and it is taken.
    first = root.next_offset
    epochs = tuple(each.epoch for each in log if each.chunk_id >= first)
    upload(place, piece(first, 45, epoch=epoch, uid=77, floor=floor, chunk_epochs=epochs))
    nothing_is_left_out(place)
    after = holds(place)
    assert after is not None
    assert after.next_offset == 45
    return f"next {root.next_offset} floor {floor}"


def a_claim_among_commits(
    *,
    late: Sequence[tuple[int, int]] = (),
    again: Sequence[tuple[int, int]] = (),
    committers: int = 2,
    epochs: Sequence[int] = (2,),
    log: tuple[LocalChunk, ...] = LOG,
    lost_answers: int = 0,
) -> Scenario:
    """Three fragments are there, and some ranges again; others come at any moment."""
    place = anchored()
    upload(place, *(piece(at, at + 10, uid=at + 1) for at in (0, 10, 20)))
    upload(place, *(piece(*each, uid=100 + number) for number, each in enumerate(again)))
    tasks: dict[str, Callable[[World], object]] = {
        f"commit {number}": commits for number in range(1, committers + 1)
    }
    tasks |= {f"claim {epoch}": claims(epoch, log) for epoch in epochs}
    tasks |= {f"PUT {each}": puts(piece(*each, uid=31)) for each in late}
    look = partial(after_a_claim, log=log, epoch=max(epochs))
    return Scenario(STREAM, PREFIX, place, tasks, Steps(place), ends(look), lost_answers)


def regroups(world: World) -> object:
    return rebalance(world, STREAM, branching=M, pause=no_pause)


def retires(max_bytes: int) -> Callable[[World], object]:
    rules = PolicySet((Rule("r", max_bytes=max_bytes),))
    return lambda world: retain(world, STREAM, rules, now_ms=START_MS, pause=no_pause)


def after_a_rebalance(place: Place, *, limit: int) -> str:
    nothing_is_left_out(place)
    root = holds(place)
    assert root is not None
    assert root.next_offset == 90
    said = f"[{root.first_offset}, 90) {len(root.entries)} entries"
    regroups(world_of(place))
    retires(limit)(world_of(place))
    root = holds(place)
    assert root is not None
    assert len(root.entries) < 2 * M
    assert root.total_size <= limit or root.fragments == 1
    return said


def a_rebalance_among_others(*, fragments_kept: int = 3, committers: int = 1, lost_answers: int = 0) -> Scenario:
    place = anchored()
    pieces = [piece(at, at + 10, uid=at + 1) for at in range(0, 90, 10)]
    upload(place, *pieces[:8])
    commits(world_of(place, count(2000)))
    upload(place, pieces[8])
    limit = fragments_kept * len(pieces[8].data)
    tasks: dict[str, Callable[[World], object]] = {"rebalance": regroups, "retain": retires(limit)}
    tasks |= {f"commit {number}": commits for number in range(1, committers + 1)}
    return Scenario(
        STREAM,
        PREFIX,
        place,
        tasks,
        Steps(place),
        ends(partial(after_a_rebalance, limit=limit)),
        lost_answers,
    )


GRACE_MS = 1000
TARGET = 2 * len(piece(0, 10, uid=1).data)


def consolidates(world: World) -> object:
    return consolidate(
        world, world.store, STREAM, target_size=TARGET, branching=M, pause=no_pause  # type: ignore[arg-type]
    )


def collects(now_ms: int) -> Callable[[World], object]:
    return lambda world: collect(
        world,
        world.store,  # type: ignore[arg-type]
        STREAM,
        grace_ms=GRACE_MS,
        run_ms=now_ms,
        now_ms=now_ms,
    )


def after_a_collection(place: Place, *, now_ms: int) -> str:
    nothing_is_left_out(place)
    root = holds(place)
    assert root is not None
    assert root.next_offset == 60
    merged = sum(leaf.next_offset - leaf.first_offset > 10 for leaf in leaves_of(place, root))
    said = f"{merged} merged"
    at = now_ms
    later = Place(MemoryObjectStore(lambda: at), place.catalog)
    later.store.take_over(place.store)
    for _ in range(6):
        at += 2 * GRACE_MS
        collects(at)(world_of(later))
    root = holds(later)
    item = item_of(later)
    fetch = world_of(later).fetch(STREAM)
    none(compare(later.store, PREFIX, item, root, fetch, accounted_for=[k for k in later.store.objects if ".record" in k]))
    return said


def a_collection_among_others(*, lost_answers: int = 0, tasks: str = "collect consolidate commit") -> Scenario:
    now = 0
    place = anchored(lambda: now)
    ids = count(2000)
    pieces = [piece(at, at + 10, uid=at + 1) for at in range(0, 60, 10)]
    for some in (pieces[:2], pieces[2:4], pieces[4:5]):
        upload(place, *some)
        commits(world_of(place, ids))
    upload(place, piece(10, 20, uid=201), piece(20, 40, uid=202))  # nobody needs them
    now += 2 * GRACE_MS
    collects(now)(world_of(place, ids))
    now += 2 * GRACE_MS
    upload(place, pieces[5])
    all_tasks = {
        "collect": collects(now),
        "consolidate": consolidates,
        "commit": commits,
        "rebalance": regroups,
        "retain": retires(3 * len(pieces[0].data)),
    }
    return Scenario(
        STREAM,
        PREFIX,
        place,
        {name: all_tasks[name] for name in tasks.split()},
        Steps(place),
        ends(partial(after_a_collection, now_ms=now)),
        lost_answers,
    )


# --- the scenarios ---

#: A writer's claim, while commits run and uploads of the old writer come in.
CLAIMS = {
    "two committers and a claim": {},
    "an upload of the old writer comes late": {"late": [(30, 40)]},
    "and one that joins elsewhere": {"late": [(30, 40), (20, 40)]},
    "ranges were uploaded twice with other cuts": {
        "late": [(30, 40)],
        "again": [(10, 20), (10, 30), (20, 25), (25, 30)],
    },
    "an answer is lost": {"lost_answers": 1},
    "an answer is lost, and an upload comes late": {"late": [(30, 40)], "lost_answers": 1},
    "two answers are lost": {"committers": 1, "late": [(30, 40)], "lost_answers": 2},
    "two writers claim": {"committers": 1, "epochs": (2, 3), "late": [(30, 40)]},
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_among_commits_ends_well_in_every_order(name: str) -> None:
    explored = explore(a_claim_among_commits(**CLAIMS[name]))

    print(explored)
    both = {"next 30 floor 30", "next 40 floor 40"}
    assert set(explored.outcomes) == (both if "late" in CLAIMS[name] else {"next 30 floor 30"})


@pytest.mark.skipif(not hasattr(plans_claim, "KnownHistory"), reason="claims do not truncate yet")
@pytest.mark.parametrize("lost_answers", [0, 1])
def test_a_claim_that_cuts_another_history_off_ends_well_in_every_order(lost_answers: int) -> None:
    """Whether the old writer's last upload came before the claim or after it."""
    explored = explore(
        a_claim_among_commits(
            committers=2 - lost_answers,
            late=[(30, 40)],
            log=DIVERGED,
            lost_answers=lost_answers,
        )
    )

    print(explored)
    assert set(explored.outcomes) == {"next 30 floor 30"}


REBALANCES = {
    "nobody else": {},
    "retention ends in a group": {"fragments_kept": 6},
    "two committers": {"committers": 2},
    "an answer is lost": {"fragments_kept": 6, "lost_answers": 1},
    "two committers, and an answer is lost": {"committers": 2, "lost_answers": 1},
}


@pytest.mark.parametrize("name", REBALANCES)
def test_rebalance_commit_and_retain_end_well_in_every_order(name: str) -> None:
    explored = explore(a_rebalance_among_others(**REBALANCES[name]))

    print(explored)
    assert len(explored.outcomes) > 1


COLLECTIONS = {
    "collect, consolidate, commit": {},
    "collect, retain, commit": {"tasks": "collect retain commit"},
    "collect, rebalance, commit": {"tasks": "collect rebalance commit"},
    "an answer is lost": {"tasks": "collect consolidate", "lost_answers": 1},
}


@pytest.mark.parametrize("name", COLLECTIONS)
def test_a_collection_deletes_nothing_that_others_need_in_any_order(name: str) -> None:
    explored = explore(a_collection_among_others(**COLLECTIONS[name]))

    print(explored)
    assert len(explored.ends) > 1


# --- whether the search sees everything ---


@pytest.mark.parametrize(
    "scenario",
    [
        a_claim_among_commits(committers=1, late=[(30, 40)]),
        a_claim_among_commits(committers=1, lost_answers=1),
        a_rebalance_among_others(),
        a_collection_among_others(tasks="collect commit"),
    ],
    ids=["claim", "lost answer", "rebalance", "collect"],
)
def test_a_search_that_takes_quiet_calls_at_once_finds_the_same_ends_and_changes(
    scenario: Scenario,
) -> None:
    quiet = explore(scenario)
    loud = explore(scenario, everything_is_loud=True)

    assert quiet.ends == loud.ends
    assert quiet.changes == loud.changes
    assert quiet.outcomes == loud.outcomes
    assert quiet.states < loud.states


def test_a_search_that_continues_a_state_once_finds_what_all_orders_find() -> None:
    scenario = a_claim_among_commits(committers=1, late=[(30, 40)])

    pruned = explore(scenario)
    every_order = explore(scenario, prune=False)

    assert pruned.ends == every_order.ends
    assert pruned.changes == every_order.changes
    assert pruned.histories == every_order.histories == sum(every_order.outcomes.values())


def test_the_same_scenario_gives_the_same_figures() -> None:
    one, other = (explore(a_claim_among_commits(late=[(30, 40)])) for _ in range(2))

    assert one == other


def test_a_committer_that_deletes_what_it_put_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of the histories in facts/protocol-review.md, with its rule removed."""

    def cleans_up(world: World, loaded: Loaded, root: Root, **more: Any) -> CommitOutcome:
        outcome = publish(world, loaded, root, **more)
        if not isinstance(outcome, Landed):
            paths = [
                group_path(PREFIX, STREAM, node.entry().first_offset, node.uid, node.kind)
                for node in more.get("nodes", ())
            ]
            if paths:
                world.store.delete(paths)  # type: ignore[attr-defined]
        return outcome

    monkeypatch.setattr("coldstream.usecases.amend.publish", cleans_up)
    scenario = a_rebalance_among_others(lost_answers=1)

    with pytest.raises(FoundError) as found:
        explore(scenario)

    assert "the answer is lost" in str(found.value)
    with pytest.raises(FoundError):
        replay(scenario, found.value.choices)


def test_a_commit_without_its_condition_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def commits_blindly(self: MemoryCatalog, commit: Commit) -> CommitOutcome:
        item = self.items[commit.stream]
        self.items[commit.stream] = moved(item, commit)
        return Landed(self.items[commit.stream])

    monkeypatch.setattr(MemoryCatalog, "commit", commits_blindly)

    with pytest.raises(FoundError):
        explore(a_claim_among_commits(late=[(30, 40)]))
