"""All orders of calls of the workflows on one stream with a tree: whatever meets, it ends well.

The stream has twelve fragments of ten records in its manifest, the first four in a group and four
more due for one, and one fragment behind it. Changes and ends are checked as in `scenarios`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from coldstream.errors import ConflictError, NotFoundError
from coldstream.manifest.catalog import StreamState
from coldstream.manifest.root import Root
from coldstream.names import parse_data_key
from coldstream.plans.policy import PolicySet, Rule
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.usecases.adopt import adopt
from coldstream.usecases.collect import collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.consolidate import consolidate
from coldstream.usecases.delete_stream import delete_stream, undelete_stream
from coldstream.usecases.extend import Extension, extend
from coldstream.usecases.rebalance import rebalance
from coldstream.usecases.rebuild import rebuild
from coldstream.usecases.reconcile import reconcile
from coldstream.usecases.repair import repair
from coldstream.usecases.retention import retain
from coldstream_devkit.fragments import START_MS
from coldstream_devkit.simulation.explore import (
    Explored,
    FoundError,
    Results,
    Scenario,
    explore,
)
from coldstream_devkit.simulation.points import Place
from tests.support import stage
from tests.support.slow import in_part_and_in_full, long, slow
from tests.support.stage import (
    CHUNK,
    PREFIX,
    STREAM,
    M,
    Steps,
    anchored,
    bucket_of,
    claiming,
    context_of,
    history,
    holds,
    item_of,
    leaves_of,
    no_pause,
    once,
    path_of,
    piece,
    root_at,
    upload,
)

GRACE_MS = 1000
SIZE = len(piece(0, 10, uid=1).data)
NOW_MS = 4 * GRACE_MS


def commits(context: Context) -> object:
    return commit_runs(context, STREAM, pause=no_pause)


def regroups(context: Context) -> object:
    return rebalance(context, STREAM, branching=M, pause=no_pause)


def retires(context: Context) -> object:
    rules = PolicySet((Rule("r", max_bytes=6 * SIZE),))
    return retain(context, STREAM, rules, now_ms=START_MS, pause=no_pause)


def consolidates(context: Context) -> object:
    store = bucket_of(context)
    return consolidate(context, store, STREAM, target_size=2 * SIZE, branching=M, pause=no_pause)


def collects(context: Context) -> object:
    return collect(
        context,
        bucket_of(context),
        STREAM,
        grace_ms=GRACE_MS,
        run_ms=NOW_MS,
        now_ms=NOW_MS,
        held=lambda _: False,
    )


def repairs(context: Context) -> object:
    return repair(context, STREAM, ranges=[(40, 50)], branching=M, pause=no_pause)


def claims(first: int) -> Callable[[Context], object]:
    """By a writer that has another history from `first` on."""
    return lambda context: claiming(context, 2, history((0, first, 1), (first, 135, 2)))


TASKS: dict[str, Callable[[Context], object]] = {
    "commit": commits,
    "rebalance": regroups,
    "retain": retires,
    "consolidate": consolidates,
    "consolidate again": consolidates,
    "collect": collects,
    "repair": repairs,
    "claim": claims(130),
    "claim that cuts at a border": claims(70),
    "claim that cuts a fragment": claims(75),
    "claim that cuts in a group": claims(25),
    "adopt": lambda context: adopt(context, STREAM),
    "adopt again": lambda context: adopt(context, STREAM),
    "reconcile": lambda context: reconcile(context, STREAM, pause=no_pause),
    "reconcile again": lambda context: reconcile(context, STREAM, pause=no_pause),
    "rebuild": lambda context: rebuild(context, STREAM, branching=M, dry_run=False),
    "delete": lambda context: delete_stream(
        context, STREAM, PolicySet(), now_ms=NOW_MS, undelete_ms=GRACE_MS
    ),
    "undelete": lambda context: undelete_stream(context, STREAM),
}


def a_tree() -> Place:
    """Garbage in it was seen a grace time ago."""
    now = 0
    place = anchored(lambda: now)
    ids = count(2000)
    for some in (range(0, 80, 10), range(80, 120, 10)):
        regroups(context_of(place, ids))
        upload(place, *(piece(at, at + 10, uid=at + 1) for at in some))
        commit_runs(context_of(place, ids), STREAM, pause=no_pause)
    upload(place, piece(40, 50, uid=401), piece(10, 20, uid=101))
    now = 2 * GRACE_MS
    context = context_of(place, ids)
    collect(
        context,
        place.store,
        STREAM,
        grace_ms=GRACE_MS,
        run_ms=now,
        now_ms=now,
        held=lambda _: False,
    )
    now = NOW_MS
    upload(place, piece(120, 130, uid=121))
    return place


def damaged() -> Place:
    return stage.with_damage(a_tree())


def of_another_table() -> Place:
    return stage.of_another_table(a_tree())


def without_a_table() -> Place:
    return stage.without_a_table(a_tree())


def in_all_orders(
    *tasks: str,
    begin: Callable[[], Place] = a_tree,
    lost_answers: int = 0,
    allowed: tuple[type[Exception], ...] = (),
) -> Explored:
    place = begin()
    damage = [piece(40, 50, uid=41).path(PREFIX)] if begin is damaged else []
    looked = once(_rests)

    def ended(place: Place, results: Results) -> str:
        for name, result in results.items():
            assert not isinstance(result, Exception) or isinstance(result, allowed), (
                f"{name}: {result!r}"
            )
        return looked(place)

    steps = Steps(place, damaged=damage)
    scenario = Scenario(
        STREAM, PREFIX, place, {name: TASKS[name] for name in tasks}, steps, ended, lost_answers
    )
    explored = explore(scenario, most_states=300_000)
    print(explored)
    return explored


def _rests(place: Place) -> str:
    item = item_of(place)
    if item.state is not StreamState.LIVE:
        return str(item.state)
    commits(context_of(place))
    context = context_of(place)
    extension = extend(context, STREAM, load(context, STREAM).root, limit=500)
    assert not extension.run
    assert not extension.refused
    root = holds(place, damaged=[piece(40, 50, uid=41).path(PREFIX)])
    assert root is not None
    # Only a claim of another history ends below; those of the first writer's end where it ended.
    assert root.next_offset in (130, 0, 25, 70, 75)
    assert root.next_offset == 130 or item.epoch == 2
    # And whoever writes next is taken.
    first, epoch = root.next_offset, item.epoch
    floor = root.ledger.floor(epoch)
    assert floor is not None
    upload(
        place,
        piece(first, first + CHUNK, epoch=epoch, uid=77, floor=floor, chunk_epochs=(epoch,)),
    )
    commits(context_of(place))
    assert item_of(place).next_offset == first + CHUNK
    _collects_for_days(place)
    return f"[{root.first_offset}, {root.next_offset})"


def _collects_for_days(place: Place) -> None:
    """Nothing goes that the manifest needs, or that a claim has cut off."""
    now = NOW_MS
    later = replace(place, clock_ms=lambda: now).copy()
    for _ in range(6):
        now += 2 * GRACE_MS
        store: Any = later.store
        collect(
            context_of(later),
            store,
            STREAM,
            grace_ms=GRACE_MS,
            run_ms=now,
            now_ms=now,
            held=lambda _: False,
        )
    root = holds(later, damaged=[piece(40, 50, uid=41).path(PREFIX)])
    assert root is not None
    if root.quarantine_key:
        _is_kept(later, root.quarantine_key)


def _is_kept(place: Place, record_key: str) -> None:
    from coldstream.manifest.quarantine import parse_record

    for timeline in parse_record(place.store.objects[record_key]).timelines:
        cut = root_at(place, timeline.root_key)
        lost = [
            path_of(leaf) for leaf in leaves_of(place, cut) if leaf.next_offset > timeline.floor
        ]
        lost += [each.key for each in timeline.listed]
        assert set(lost) <= place.store.objects.keys()
        spans = sorted(
            (key.first_offset, key.next_offset)
            for key in (parse_data_key(path, PREFIX) for path in lost)
        )
        at = max(timeline.floor, cut.first_offset)  # what retention took was not cut off
        for first, next_offset in spans:
            assert first <= at, f"[{at}, {first}) of what was cut off is nowhere"
            at = max(at, next_offset)
        assert at == timeline.next_offset >= 120


MEETINGS = [
    ("consolidate", "consolidate again", "retain"),
    ("consolidate", "rebalance", "retain"),
    ("consolidate", "rebalance", "commit"),
    ("collect", "rebalance", "retain"),
    ("collect", "claim", "consolidate"),
    ("claim", "rebalance", "commit"),
    ("claim", "retain", "consolidate"),
]


@pytest.mark.parametrize(
    "tasks",
    [MEETINGS[2], *slow([*MEETINGS[:2], MEETINGS[3], *MEETINGS[5:]]), *long([MEETINGS[4]])],
    ids=", ".join,
)
def test_three_that_meet_end_well_in_every_order(tasks: tuple[str, ...]) -> None:
    in_all_orders(*tasks)


@pytest.mark.parametrize("tasks", MEETINGS, ids=", ".join)
def test_two_that_meet_end_well_in_every_order_though_an_answer_is_lost(
    tasks: tuple[str, ...],
) -> None:
    in_all_orders(*tasks[:2], lost_answers=1)


@pytest.mark.parametrize(
    "other", ["retain", "rebalance", *slow(["collect"]), *long(["consolidate"])]
)
def test_a_repair_and_another_end_well_in_every_order(other: str) -> None:
    in_all_orders("repair", other, "commit", begin=damaged)


@pytest.mark.parametrize("other", ["commit", "rebalance", "retain", "consolidate", "collect"])
@pytest.mark.parametrize("where", ["at a border", "a fragment", "in a group"])
@in_part_and_in_full
def test_a_claim_that_cuts_and_another_end_well_in_every_order(
    where: str, other: str, full: bool
) -> None:
    in_all_orders(f"claim that cuts {where}", other, lost_answers=full or other == "commit")


@pytest.mark.parametrize(
    "other",
    [*slow(["rebalance", "retain", "collect"]), *long(["consolidate"])],
)
@pytest.mark.parametrize("where", ["at a border", "a fragment", "in a group"])
def test_a_claim_that_cuts_a_commit_and_another_end_well_in_every_order(
    where: str, other: str
) -> None:
    in_all_orders(f"claim that cuts {where}", other, "commit")


@pytest.mark.parametrize("begin", [of_another_table, without_a_table])
def test_two_adoptions_and_a_commit_end_well_in_every_order(begin: Callable[[], Place]) -> None:
    in_all_orders(
        "adopt", "adopt again", "commit", begin=begin, allowed=(ConflictError, NotFoundError)
    )


@pytest.mark.parametrize("begin", [of_another_table, without_a_table])
def test_two_reconciles_and_a_collection_end_well_in_every_order(
    begin: Callable[[], Place],
) -> None:
    in_all_orders(
        "reconcile",
        "reconcile again",
        "collect",
        begin=begin,
        allowed=(ConflictError, NotFoundError),
    )


@pytest.mark.parametrize("other", ["commit", "collect", "consolidate", "claim"])
def test_a_rebuild_and_another_end_well_in_every_order(other: str) -> None:
    in_all_orders("rebuild", other, allowed=(ConflictError,))


def test_a_deletion_that_is_called_off_leaves_a_stream_that_goes_on() -> None:
    explored = in_all_orders("delete", "undelete", "commit", "collect", allowed=(ConflictError,))

    assert set(explored.outcomes) == {"deleting", "[0, 130)"}


# --- whether rules that are removed are missed ---


def test_a_collection_that_trusts_what_it_sees_once_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It deletes what consolidate is about to name."""
    monkeypatch.setattr("tests.simulation.test_every_interleaving_of_workflows.GRACE_MS", 0)
    monkeypatch.setattr(
        "coldstream.usecases.collect._CollectStep._seen",
        lambda self, rows, limit_ms, records: set(rows),
    )
    # Else who consolidates finds by itself that what it wrote is gone.
    monkeypatch.setattr("coldstream.remote.publish._check_hold", lambda *_: None)

    with pytest.raises(FoundError, match="publish_before_delete"):
        in_all_orders("collect", "consolidate")


def test_a_consolidation_that_does_not_look_again_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It puts back what retention has taken, or what another has replaced."""
    monkeypatch.setattr("coldstream.usecases.consolidate._still_there", lambda *_: True)

    with pytest.raises(FoundError):
        in_all_orders("consolidate", "consolidate again", "retain")


def test_a_claim_that_forgets_what_was_uploaded_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its floor shuts a good fragment out for ever."""

    def forgets(context: Context, stream: str, root: Root, **_: Any) -> Extension:
        return Extension(root, (), (), more=False)

    monkeypatch.setattr("coldstream.usecases.claim.extend", forgets)

    with pytest.raises(FoundError):
        in_all_orders("claim", "commit")
