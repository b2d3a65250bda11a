"""Scenarios of the exhaustive search: a few use cases on one small stream, and how it must end.

Fragments are ten records of two chunks; M is 4. What every end is checked for: the named invariants
hold and everything reads back; one more commit, run alone, leaves nothing out that the ledger
accepts; no task has failed. What every change of the item is checked for: the invariants of a state
and of a step, and that a reader of the first root still finds all that it refers to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count

from coldstream.adapters.memory import MemoryObjectStore
from coldstream.errors import FencedError
from coldstream.plans.claim import LocalChunk
from coldstream.plans.policy import PolicySet, Rule
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.usecases.collect import collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.consolidate import consolidate
from coldstream.usecases.extend import extend
from coldstream.usecases.rebalance import rebalance
from coldstream.usecases.retention import retain
from coldstream_devkit.bucket import compare
from coldstream_devkit.fragments import START_MS, SyntheticFragment
from coldstream_devkit.simulation.explore import (
    Results,
    Scenario,
)
from coldstream_devkit.simulation.points import Place
from tests.support.stage import (
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
    none,
    once,
    piece,
    upload,
)


def commits(context: Context) -> object:
    return commit_runs(context, STREAM, pause=no_pause)


#: What the new writer has: all that the old one wrote, and one chunk of its own after it.
LOG = history((0, 40, 1), (40, 45, 2))
#: Or it lacks the last fragment of the old one, and has written other chunks there.
DIVERGED = history((0, 30, 1), (30, 45, 2))


def claims(epoch: int, log: tuple[LocalChunk, ...]) -> Callable[[Context], object]:
    return lambda context: claiming(context, epoch, log)


def puts(fragment: SyntheticFragment) -> Callable[[Context], object]:
    def act(context: Context) -> object:
        context.store.put(fragment.path(PREFIX), fragment.data, write_id="late")
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
    commits(context_of(place))
    context = context_of(place)
    extension = extend(context, STREAM, load(context, STREAM).root, limit=500)
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
    tasks: dict[str, Callable[[Context], object]] = {
        f"commit {number}": commits for number in range(1, committers + 1)
    }
    tasks |= {f"claim {epoch}": claims(epoch, log) for epoch in epochs}
    tasks |= {f"PUT {each}": puts(piece(*each, uid=31)) for each in late}
    look = partial(after_a_claim, log=log, epoch=max(epochs))
    return Scenario(STREAM, PREFIX, place, tasks, Steps(place), ends(look), lost_answers)


def regroups(context: Context) -> object:
    return rebalance(context, STREAM, branching=M, pause=no_pause)


def retires(max_bytes: int) -> Callable[[Context], object]:
    rules = PolicySet((Rule("r", max_bytes=max_bytes),))
    return lambda context: retain(context, STREAM, rules, now_ms=START_MS, pause=no_pause)


def after_a_rebalance(place: Place, *, limit: int) -> str:
    nothing_is_left_out(place)
    root = holds(place)
    assert root is not None
    assert root.next_offset == 90
    said = f"[{root.first_offset}, 90) {len(root.entries)} entries"
    regroups(context_of(place))
    retires(limit)(context_of(place))
    root = holds(place)
    assert root is not None
    assert len(root.entries) < 2 * M
    assert root.total_size <= limit or root.fragments == 1
    return said


def a_rebalance_among_others(
    *, fragments_kept: int = 3, committers: int = 1, lost_answers: int = 0
) -> Scenario:
    place = anchored()
    pieces = [piece(at, at + 10, uid=at + 1) for at in range(0, 90, 10)]
    upload(place, *pieces[:8])
    commits(context_of(place, count(2000)))
    upload(place, pieces[8])
    limit = fragments_kept * len(pieces[8].data)
    tasks: dict[str, Callable[[Context], object]] = {
        "rebalance": regroups,
        "retain": retires(limit),
    }
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


def consolidates(context: Context) -> object:
    return consolidate(
        context,
        bucket_of(context),
        STREAM,
        target_size=TARGET,
        branching=M,
        pause=no_pause,
    )


def collects(now_ms: int) -> Callable[[Context], object]:
    return lambda context: collect(
        context,
        bucket_of(context),
        STREAM,
        grace_ms=GRACE_MS,
        run_ms=now_ms,
        now_ms=now_ms,
        held=lambda _: False,
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
        collects(at)(context_of(later))
    root = holds(later)
    assert root is not None
    item = item_of(later)
    fetch = context_of(later).fetch(STREAM)
    none(
        compare(
            later.store,
            PREFIX,
            item,
            root,
            fetch,
            accounted_for=[k for k in later.store.objects if ".record" in k],
        )
    )
    return said


def a_collection_among_others(
    *, lost_answers: int = 0, tasks: str = "collect consolidate commit"
) -> Scenario:
    now = 0
    place = anchored(lambda: now)
    ids = count(2000)
    pieces = [piece(at, at + 10, uid=at + 1) for at in range(0, 60, 10)]
    for some in (pieces[:2], pieces[2:4], pieces[4:5]):
        upload(place, *some)
        commits(context_of(place, ids))
    upload(place, piece(10, 20, uid=201), piece(20, 40, uid=202))  # nobody needs them
    now += 2 * GRACE_MS
    collects(now)(context_of(place, ids))
    now += 2 * GRACE_MS
    upload(place, pieces[5])
    all_tasks = {
        "collect": collects(now),
        "consolidate": consolidates,
        "commit": commits,
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
