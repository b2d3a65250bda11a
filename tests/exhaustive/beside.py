"""A small stream with every kind of garbage and of what only looks like it, seen a grace time ago.

The manifest is [0, 80): seven fragments of ten records, the first four entries in a group, and a
hole over [60, 70). Behind it lies one more fragment. What may go is written down by hand: what no
manifest refers to and nobody ever will. Everything else must stay in all histories.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.names import DataKey
from coldstream.plans.policy import PolicySet, Rule
from coldstream.remote.context import Context
from coldstream.usecases.adopt import adopt
from coldstream.usecases.collect import collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.consolidate import consolidate
from coldstream.usecases.delete_stream import delete_stream, undelete_stream
from coldstream.usecases.rebalance import rebalance
from coldstream.usecases.rebuild import rebuild
from coldstream.usecases.reconcile import reconcile
from coldstream.usecases.repair import repair
from coldstream.usecases.retention import retain
from coldstream_devkit.fragments import START_MS
from coldstream_devkit.simulation.points import Place
from tests.exhaustive.bare import METADATA, Look, overheard
from tests.support import stage
from tests.support.crashes import Crash
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

GRACE_MS = 1000
NOW_MS = 4 * GRACE_MS
SIZE = len(piece(0, 10, uid=1).data)
#: Other uploads of ranges that the manifest has.
SPARE = tuple(
    piece(first, next_offset, uid=uid).path(PREFIX)
    for first, next_offset, uid in ((10, 20, 101), (30, 50, 301), (40, 50, 401))
)
#: What looks like garbage, and may be the only copy of something, or be appended or adopted yet.
OVER_HOLE = piece(60, 70, uid=601).path(PREFIX)
ACROSS_THE_END = piece(75, 85, uid=751).path(PREFIX)


def _commits(context: Context) -> object:
    return commit_runs(context, STREAM, pause=no_pause)


def _regroups(context: Context) -> object:
    return rebalance(context, STREAM, branching=M, pause=no_pause)


def _consolidates(context: Context) -> object:
    return consolidate(
        context, bucket_of(context), STREAM, target_size=2 * SIZE, branching=M, pause=no_pause
    )


def _retires(context: Context) -> object:
    rules = PolicySet((Rule("r", max_bytes=5 * SIZE),))
    return retain(context, STREAM, rules, now_ms=START_MS, pause=no_pause)


def collects(context: Context) -> list[Look]:
    """One run, and what it looked at before it deleted."""
    context, looks = overheard(context)
    collect(
        context,
        bucket_of(context),
        STREAM,
        grace_ms=GRACE_MS,
        run_ms=NOW_MS,
        now_ms=NOW_MS,
        held=lambda _: False,
    )
    return looks


def _claims(first: int) -> Callable[[Context], object]:
    return lambda context: claiming(context, 2, history((0, first, 1), (first, 95, 2)))


TASKS: dict[str, Callable[[Context], object]] = {
    "collect": collects,
    "commit": _commits,
    "rebalance": _regroups,
    "consolidate": _consolidates,
    "retain": _retires,
    "repair": lambda context: repair(
        context, STREAM, ranges=[(40, 50)], branching=M, pause=no_pause
    ),
    "claim": _claims(90),
    "claim that cuts at 45": _claims(45),
    "claim that cuts at 75": _claims(75),
    "adopt": lambda context: adopt(context, STREAM),
    "reconcile": lambda context: reconcile(context, STREAM, pause=no_pause),
    "rebuild": lambda context: rebuild(context, STREAM, branching=M, dry_run=False),
    "delete": lambda context: delete_stream(
        context, STREAM, PolicySet(), now_ms=NOW_MS, undelete_ms=GRACE_MS
    ),
    "undelete": lambda context: undelete_stream(context, STREAM),
}


class Clock:
    """S3's."""

    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        return self.ms


class _Dying:
    """A table at which every commit dies: the root has been PUT, and never lands."""

    def __init__(self, catalog: MemoryCatalog) -> None:
        self._catalog = catalog

    def __getattr__(self, method: str) -> object:
        if method == "commit":
            raise Crash
        return getattr(self._catalog, method)


def a_stream(*, rival: bool = True) -> Place:
    """The stream; with `rival`, a consolidation has died between its root and its commit."""
    clock = Clock()
    place = anchored(clock)
    ids = count(2000)
    upload(place, *(piece(at, at + 10, uid=at + 1) for at in range(0, 60, 10)))
    _commits(context_of(place, ids))
    hole = DataKey(STREAM, 60, 70, 1, 61, "hole")
    place.store.put(hole.path(PREFIX), b"", write_id="hole")
    upload(place, piece(70, 80, uid=71))
    _commits(context_of(place, ids))
    _regroups(context_of(place, ids))
    upload(place, piece(10, 20, uid=101), piece(30, 50, uid=301), piece(40, 50, uid=401))
    upload(place, piece(60, 70, uid=601), piece(75, 85, uid=751))
    if rival:
        try:
            dying: MemoryCatalog = _Dying(place.catalog)  # type: ignore[assignment]
            _consolidates(replace(context_of(place, ids), catalog=dying))
        except Crash:
            pass
    clock.ms = 2 * GRACE_MS
    collect(
        context_of(place, ids),
        place.store,
        STREAM,
        grace_ms=GRACE_MS,
        run_ms=clock.ms,
        now_ms=clock.ms,
        held=lambda _: False,
    )
    clock.ms = NOW_MS
    upload(place, piece(80, 90, uid=81))
    return place


def may_go(begin: Place) -> set[str]:
    """What nobody will ever refer to: spare uploads, and roots below the landed version."""
    landed = begin.catalog.items[STREAM].version if begin.catalog.items else 4
    roots = {key for key in begin.store.objects if key.startswith(f"{METADATA}root.")}
    old = {key for key in roots if int(key.split("root.")[1].split(".")[1]) < landed}
    return {*SPARE, *old}


def dead_roots(begin: Place) -> list[str]:
    """Keys of roots above the landed version, which never landed."""
    landed = begin.catalog.items[STREAM].version
    roots = (key for key in begin.store.objects if key.startswith(f"{METADATA}root."))
    return [key for key in roots if int(key.split("root.")[1].split(".")[1]) > landed]


def damaged() -> Place:
    """The fragment of [40, 50) is damaged; two spare uploads hold the same chunks."""
    return stage.with_damage(a_stream())


def of_another_table() -> Place:
    return stage.of_another_table(a_stream())


def without_a_table() -> Place:
    return stage.without_a_table(a_stream())


def later(place: Place, ms: int) -> Place:
    """The same place at another time of S3."""
    store = MemoryObjectStore(lambda: ms)
    store.take_over(place.store)
    catalog = MemoryCatalog(place.catalog.table_id())
    catalog.items.update(place.catalog.items)
    return Place(store, catalog, lambda: ms)


def collected_for_days(place: Place, runs: int = 5) -> Place:
    """The same place after some more runs, each two grace times after the one before."""
    now = NOW_MS
    for _ in range(runs):
        now += 2 * GRACE_MS
        place = later(place, now)
        collect(
            context_of(place),
            place.store,
            STREAM,
            grace_ms=GRACE_MS,
            run_ms=now,
            now_ms=now,
            held=lambda _: False,
        )
    return place
