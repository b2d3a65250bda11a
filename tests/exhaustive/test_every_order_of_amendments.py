"""Every order of repair, consolidation, retention, rebalancing, claims and commits: no stale plan.

Each of these loads a root, plans a change of it, and commits; each may lose to another in between,
and must then plan anew from the root that is there. The stream is small: a few fragments, one of
them damaged with a good copy beside it, one more behind the manifest.

Every change of the item is compared with the root before it, leaf by leaf, as bare bytes are read:
a change is an append, or retention, or a replacement of some leaves by others over the very same
offsets, or a claim's cut; nothing else. What a manifest has let go never comes back, the first
offset never falls, and the next offset falls by a claim alone. A plan that was made from another
root breaks one of these, because each of the others' changes would be undone by it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from coldstream.adapters.memory import MemoryCatalog
from coldstream.errors import ConflictError, CorruptDataError
from coldstream.manifest.catalog import CatalogItem, Commit
from coldstream.plans.policy import PolicySet, Rule
from coldstream.ports import CommitOutcome, NotLanded
from coldstream.remote.context import Context
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.consolidate import consolidate
from coldstream.usecases.rebalance import rebalance
from coldstream.usecases.repair import repair
from coldstream.usecases.retention import RetentionReport, retain
from coldstream_devkit.fragments import START_MS
from coldstream_devkit.simulation.explore import Explored, Results, Scenario, explore
from coldstream_devkit.simulation.points import Place
from coldstream_devkit.simulation.reading import Leaf, Manifest
from tests.exhaustive.bare import chunks_of, key_of, manifest_at, manifest_of
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
    once,
    piece,
    upload,
)

SIZE = len(piece(0, 10, uid=1).data)
DAMAGED = piece(20, 30, uid=21).path(PREFIX)


def retires(keep: int) -> Callable[[Context], object]:
    rules = PolicySet((Rule("r", max_bytes=keep * SIZE or 1),))
    return lambda context: retain(context, STREAM, rules, now_ms=START_MS, pause=no_pause)


def claims(first: int, end: int) -> Callable[[Context], object]:
    return lambda context: claiming(context, 2, history((0, first, 1), (first, end + 5, 2)))


def commits(context: Context) -> object:
    return commit_runs(context, STREAM, pause=no_pause)


TASKS: dict[str, Callable[[Context], object]] = {
    "commit": commits,
    "rebalance": lambda context: rebalance(context, STREAM, branching=M, pause=no_pause),
    "consolidate": lambda context: consolidate(
        context, bucket_of(context), STREAM, target_size=2 * SIZE, branching=M, pause=no_pause
    ),
    "retain": retires(3),
    "retain more": retires(2),
    "retain nothing": retires(0),
    "repair": lambda context: repair(
        context, STREAM, ranges=[(20, 30)], branching=M, pause=no_pause
    ),
    "claim": lambda context: claims(world_end(context), world_end(context))(context),
    "claim that cuts at 25": claims(25, 100),
    "claim that cuts at 45": claims(45, 100),
}


def world_end(context: Context) -> int:
    """Where the uploads end: of the small stream, or of the one that is due for a group."""
    item = context.catalog.get(STREAM)
    assert item is not None
    return 90 if item.next_offset > 50 else 50


def small() -> Place:
    """[0, 40) and one more fragment behind it; [20, 30) is damaged, and there is a good copy."""
    return _stream(4, damaged=True)


def sound() -> Place:
    """The same without damage."""
    return _stream(4, damaged=False)


def due_for_a_group() -> Place:
    """[0, 80) and one more behind it."""
    return _stream(8, damaged=False)


def _stream(fragments: int, *, damaged: bool) -> Place:
    place = anchored()
    ids = count(2000)
    upload(place, *(piece(at, at + 10, uid=at + 1) for at in range(0, fragments * 10, 10)))
    commits(context_of(place, ids))
    end = fragments * 10
    upload(place, piece(end, end + 10, uid=end + 1))
    if damaged:
        data = bytearray(place.store.objects[DAMAGED])
        data[100] ^= 1
        place.store.objects[DAMAGED] = bytes(data)
        upload(place, piece(20, 30, uid=201))
    return place


class Steps:
    """What every change of the item is compared with: the root before it."""

    def __init__(self, begin: Place) -> None:
        manifest = manifest_of(begin)
        assert manifest is not None
        self._first = {key_of(leaf) for leaf in manifest.leaves}
        self._seen: set[object] = set()

    def __call__(self, place: Place, before: CatalogItem | None) -> None:
        item = place.catalog.items[STREAM]
        assert before is not None
        assert item.version == before.version + 1
        seen = (before.root_key, item.root_key, tuple(sorted(place.store.objects.items())))
        if seen in self._seen:
            return
        self._seen.add(seen)
        old, new = manifest_at(place, before.root_key), manifest_at(place, item.root_key)
        was, now = ({key_of(leaf) for leaf in each.leaves} for each in (old, new))
        assert not (now - was) & self._first, "what was let go has come back"
        _is_one_change(old, new)
        chunks_of(place, new, [DAMAGED])


def _is_one_change(old: Manifest, new: Manifest) -> None:
    was, now = list(old.leaves), list(new.leaves)
    if new.epoch > old.epoch:
        floor = dict(new.ledger)[new.epoch]
        if floor < old.first:  # nothing is common any more: the stream begins anew
            assert not now
            assert new.first == new.next == floor
            return
        kept = [leaf for leaf in was if leaf.next <= floor]
        assert now[: len(kept)] == kept
        assert new.next == floor
        assert new.first == old.first
        return
    assert new.ledger == old.ledger, "only a claim changes the ledger"
    if new.next != old.next:
        assert new.next > old.next
        assert now[: len(was)] == was, "an append changes nothing that is there"
        assert new.first == old.first, "an append takes nothing away"
    elif new.first != old.first:
        assert now == was[len(was) - len(now) :], "retention changes nothing that stays"
        assert now, "retention never takes the last one"
        assert new.first > old.first, "the first offset has fallen"
    else:
        assert _borders_where_changed(was, now), "a replacement that covers other offsets"


def _borders_where_changed(was: list[Leaf], now: list[Leaf]) -> bool:
    gone, come = (
        [each for each in was if each not in now],
        [each for each in now if each not in was],
    )
    return _ranges(gone) == _ranges(come)


def _ranges(leaves: list[Leaf]) -> list[tuple[int, int]]:
    """What leaves cover, as ranges that do not touch."""
    found: list[tuple[int, int]] = []
    for leaf in leaves:
        if found and found[-1][1] == leaf.first:
            found[-1] = (found[-1][0], leaf.next)
        else:
            found.append((leaf.first, leaf.next))
    return found


def in_all_orders(begin: Callable[[], Place], *tasks: str, lost_answers: int = 0) -> Explored:
    place = begin()
    repaired = "repair" in tasks
    cuts = [int(name.rpartition(" ")[2]) for name in tasks if "cuts" in name]

    def look(end: Place) -> str:
        for name in ("commit", *tasks):
            if not name.startswith("claim"):  # it comes to rest, and nothing is left to do
                TASKS[name](context_of(end))
        manifest = manifest_of(end)
        assert manifest is not None
        if manifest.first == manifest.next:
            return "anew"
        whole = 90 if begin is due_for_a_group else 50
        claimed = [] if manifest.epoch == 1 else cuts  # a claim stops at damage
        assert manifest.next == min([whole, *claimed])
        if repaired:
            assert DAMAGED not in {key_of(leaf) for leaf in manifest.leaves}
        assert all(chunks_of(end, manifest, [] if repaired else [DAMAGED])) or not repaired
        keep = {"retain": 3, "retain more": 2, "retain nothing": 0}
        for name in set(tasks) & keep.keys():
            assert manifest.size <= keep[name] * SIZE or len(manifest.leaves) == 1
        if "rebalance" in tasks:
            assert len(manifest.leaves) - M * len(manifest.nodes) < 2 * M
        return f"[{manifest.first}, {manifest.next})"

    looked = once(look)

    def ended(end: Place, results: Results) -> str:
        for name, result in results.items():
            stuck = isinstance(result, CorruptDataError) and name.startswith("claim")
            assert not isinstance(result, Exception) or stuck, (name, result)
        return looked(end)

    scenario = Scenario(
        STREAM, PREFIX, place, {n: TASKS[n] for n in tasks}, Steps(place), ended, lost_answers
    )
    explored = explore(scenario, most_states=120_000)
    print(explored)
    return explored


@pytest.mark.parametrize(
    "tasks",
    [
        ("repair", "consolidate", "retain"),
        ("repair", "consolidate", "commit"),
        ("repair", "retain", "commit"),
        ("consolidate", "retain", "commit"),
        ("repair", "claim that cuts at 25"),
        ("consolidate", "retain nothing", "commit"),
    ],
    ids=", ".join,
)
def test_no_plan_is_applied_to_another_root_than_its_own_in_any_order(
    tasks: tuple[str, ...],
) -> None:
    in_all_orders(small, *tasks)


@pytest.mark.parametrize("others", [(), ("retain",)])
def test_what_was_joined_is_not_put_where_a_claim_has_cut_a_piece_of_it(
    others: tuple[str, ...],
) -> None:
    in_all_orders(sound, "consolidate", "claim that cuts at 25", *others)


@pytest.mark.parametrize(
    "tasks",
    [
        ("rebalance", "claim", "retain"),
        ("rebalance", "claim that cuts at 45", "retain"),
        ("rebalance", "retain", "retain more"),
    ],
    ids=", ".join,
)
def test_rebalancing_claims_and_retention_undo_nothing_of_each_other(
    tasks: tuple[str, ...],
) -> None:
    in_all_orders(due_for_a_group, *tasks)


@pytest.mark.parametrize("tasks", [("repair", "retain"), ("retain", "commit")], ids=", ".join)
def test_a_change_whose_answer_is_lost_is_not_made_a_second_time(tasks: tuple[str, ...]) -> None:
    in_all_orders(small, *tasks, lost_answers=1)


def test_a_change_that_lands_says_so_and_one_that_never_does_is_given_up() -> None:
    """Every number of conflicts before it lands, up to one too many."""
    for conflicts in range(10):
        place = small()
        catalog = Losing(conflicts)
        catalog.items.update(place.catalog.items)
        begin = catalog.items[STREAM]
        context = context_of(Place(place.store, catalog))
        if conflicts >= 8:
            with pytest.raises(ConflictError):
                TASKS["retain"](context)
            assert (catalog.asked, catalog.items[STREAM]) == (8, begin)
            continue
        report = TASKS["retain"](context)
        assert isinstance(report, RetentionReport)
        assert (report.landed, report.conflicts) == (True, conflicts)
        assert (catalog.asked, catalog.items[STREAM].version) == (conflicts + 1, begin.version + 1)


class Losing(MemoryCatalog):
    """A table in which the first commits do not land."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._times, self.asked = times, 0

    def commit(self, commit: Commit) -> CommitOutcome:
        self.asked += 1
        assert self.asked < 20
        if self.asked <= self._times:
            return NotLanded(self.items[STREAM])
        return super().commit(commit)
