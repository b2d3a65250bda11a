"""Every use case, and a stream in which it has much to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count

import pytest

from coldstream.adapters.memory import MemoryCatalog
from coldstream.errors import (
    ColdstreamError,
    ConflictError,
)
from coldstream.plans.policy import PolicySet, Rule
from coldstream.remote.context import Context
from coldstream.usecases.adopt import adopt
from coldstream.usecases.collect import Collection, collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.consolidate import consolidate
from coldstream.usecases.delete_stream import SweepState, delete_stream, sweep, undelete_stream
from coldstream.usecases.rebalance import rebalance
from coldstream.usecases.rebuild import rebuild
from coldstream.usecases.reconcile import reconcile
from coldstream.usecases.repair import repair
from coldstream.usecases.retention import retain
from coldstream_devkit.fragments import START_MS, SyntheticFragment
from coldstream_devkit.simulation.inline import Inline
from coldstream_devkit.simulation.points import Place
from tests.support.crashes import Crash, OverWire, Wire
from tests.support.stage import (
    CHUNK,
    PREFIX,
    STREAM,
    M,
    anchored,
    bucket_of,
    claiming,
    context_of,
    history,
    holds,
    item_of,
    no_pause,
    piece,
    upload,
)

GRACE_MS = 1000
UNDELETE_MS = 500
SIZE = len(piece(0, 10, uid=1).data)
_uids = count(10_000, 10_000)


class Clock:
    """S3's clock, which stands still unless it is set."""

    def __init__(self, ms: int = 0) -> None:
        self.ms = ms

    def __call__(self) -> int:
        return self.ms


def fresh(place: Place) -> Place:
    """A copy with a clock of its own."""
    assert isinstance(place.clock_ms, Clock)
    return replace(place, clock_ms=Clock(place.clock_ms.ms)).copy()


def now(place: Place) -> int:
    return place.clock_ms()


def wait(place: Place, ms: int) -> None:
    assert isinstance(place.clock_ms, Clock)
    place.clock_ms.ms += ms


def process(place: Place) -> Context:
    return context_of(place, count(next(_uids)))


def over(place: Place, wire: Wire) -> Context:
    """A process whose calls go over a wire."""
    ids = count(next(_uids))
    return Context(
        OverWire(place.store, wire),
        OverWire(place.catalog, wire),
        PREFIX,
        lambda: next(ids),
        pool=Inline,
    )


@dataclass(frozen=True)
class Case:
    """A use case, and a stream in which it has much to do.

    Attributes:
        begin: makes the stream.
        act: begins and finishes the use case.
        again: what the second run may be told, if the first one had done all.
    """

    begin: Callable[[], Place]
    act: Callable[[Context, Place], object]
    again: tuple[type[ColdstreamError], ...] = ()


# --- streams ---


def tens(
    first: int, next_offset: int, *, epoch: int = 1, uid: int = 1
) -> Iterator[SyntheticFragment]:
    for at in range(first, next_offset, 10):
        yield piece(at, at + 10, epoch=epoch, uid=uid + at)


def stream(committed: int, uploaded: int = 0) -> Place:
    """So many fragments in the manifest, two a commit, and so many behind it."""
    place = anchored(Clock())
    upload(place, *tens(0, committed * 10))
    commit_runs(process(place), STREAM, pause=no_pause, limit=2)
    upload(place, *tens(committed * 10, (committed + uploaded) * 10))
    return place


def with_a_tree(committed: int, uploaded: int = 0) -> Place:
    place = stream(committed, uploaded)
    regroups(process(place), place)
    holds(place)
    return place


def with_garbage() -> Place:
    """Superseded uploads, old roots, and a root that lost; seen a grace time ago."""
    place = with_a_tree(9)
    upload(place, piece(10, 20, uid=501), piece(20, 40, uid=502), piece(5, 15, uid=503))
    upload(place, *tens(90, 110))
    dies(place, "commit", lambda context: commit_runs(context, STREAM, pause=no_pause))
    commit_runs(process(place), STREAM, pause=no_pause)
    retires(process(place), place)
    wait(place, 2 * GRACE_MS)
    collects(process(place), place)
    wait(place, 2 * GRACE_MS)
    return place


def dies(place: Place, at: str, act: Callable[[Context], object]) -> None:
    """Let a use case die at its first call of this name."""
    wire = Wire()
    act(over(fresh(place), wire))
    with pytest.raises(Crash):
        act(over(place, Wire(wire.made.index(at))))


def with_a_lost_table() -> Place:
    place = with_a_tree(9, uploaded=2)
    dies(place, "commit", lambda context: commit_runs(context, STREAM, pause=no_pause))
    return Place(place.store, MemoryCatalog("another"), place.clock_ms)


def with_a_restored_table() -> Place:
    place = stream(8)
    backup = item_of(place)
    regroups(process(place), place)
    upload(place, *tens(80, 100))
    commit_runs(process(place), STREAM, pause=no_pause)
    upload(place, *tens(100, 120))
    restored = MemoryCatalog("restored")
    restored.items[STREAM] = backup
    return Place(place.store, restored, place.clock_ms)


def being_deleted() -> Place:
    place = with_a_tree(9)
    deletes(process(place), place)
    return place


def to_be_swept() -> Place:
    place = being_deleted()
    wait(place, 2 * UNDELETE_MS)
    return place


def damaged(*, copied: bool) -> Place:
    """Three fragments in a tree are damaged; there is another upload of them, or none."""
    place = with_a_tree(9)
    for at in (10, 40, 80):
        fragment = piece(at, at + 10, uid=1 + at)
        data = bytearray(fragment.data)
        data[len(data) // 3] ^= 1
        place.store.objects[fragment.path(PREFIX)] = bytes(data)
    if copied:
        upload(place, piece(5, 25, uid=901), piece(40, 50, uid=902), piece(75, 90, uid=903))
    return place


def without_its_root() -> Place:
    place = with_a_tree(9, uploaded=1)
    place.store.objects[item_of(place).root_key] = b"damaged"
    return place


# --- use cases ---


def commits(context: Context, place: Place) -> object:
    return commit_runs(context, STREAM, pause=no_pause, limit=2)


def claims(next_offset: int) -> Callable[[Context, Place], object]:
    log = history((0, next_offset, 1), (next_offset, next_offset + CHUNK, 2))
    return lambda context, _: claiming(context, 2, log)


def regroups(context: Context, place: Place) -> object:
    return rebalance(context, STREAM, branching=M, pause=no_pause)


def retires(context: Context, place: Place) -> object:
    rules = PolicySet((Rule("r", max_bytes=6 * SIZE),))
    return retain(context, STREAM, rules, now_ms=START_MS, pause=no_pause)


def consolidates(context: Context, place: Place) -> object:
    return consolidate(
        context,
        bucket_of(context),
        STREAM,
        target_size=2 * SIZE,
        branching=M,
        pause=no_pause,
    )


def collects(context: Context, place: Place) -> Collection:
    return collect(
        context,
        bucket_of(context),
        STREAM,
        grace_ms=GRACE_MS,
        run_ms=now(place),
        now_ms=now(place),
        held=lambda _: False,
    )


def adopts(context: Context, place: Place) -> object:
    return adopt(context, STREAM)


def reconciles(context: Context, place: Place) -> object:
    return reconcile(context, STREAM, pause=no_pause)


def deletes(context: Context, place: Place) -> object:
    return delete_stream(context, STREAM, PolicySet(), now_ms=now(place), undelete_ms=UNDELETE_MS)


def undeletes(context: Context, place: Place) -> object:
    return undelete_stream(context, STREAM)


def sweeps(context: Context, place: Place) -> object:
    """As the state machine does it, which knows the revision of its tombstone from its event."""
    empty = 0
    while True:
        step = sweep(
            context,
            bucket_of(context),
            STREAM,
            PolicySet(),
            revision=1,
            empty=empty,
            now_ms=now(place),
            time_left=lambda: True,
        )
        empty = step.empty
        if step.state in (SweepState.DONE, SweepState.CALLED_OFF):
            assert step.state is SweepState.DONE
            return step


def repairs(context: Context, place: Place) -> object:
    return repair(context, STREAM, ranges=None, branching=M, pause=no_pause, lost=True)


def rebuilds(context: Context, place: Place) -> object:
    return rebuild(context, STREAM, branching=M, dry_run=False)


CASES = {
    "commit_runs": Case(lambda: stream(2, uploaded=5), commits),
    "claim": Case(lambda: stream(2, uploaded=3), claims(50)),
    "rebalance": Case(lambda: stream(9, uploaded=1), regroups),
    "retain": Case(lambda: with_a_tree(11), retires),
    "consolidate": Case(lambda: with_a_tree(12), consolidates),
    "collect": Case(with_garbage, collects),
    "adopt, the table is lost": Case(with_a_lost_table, adopts),
    "adopt, the table is restored": Case(with_a_restored_table, adopts),
    "reconcile": Case(lambda: stream(3, uploaded=3), reconciles),
    "reconcile, the table is lost": Case(with_a_lost_table, reconciles),
    "delete_stream": Case(lambda: with_a_tree(9), deletes),
    "undelete": Case(being_deleted, undeletes, again=(ConflictError,)),
    "sweep": Case(to_be_swept, sweeps),
    "repair": Case(lambda: damaged(copied=True), repairs),
    "repair, nothing is left": Case(lambda: damaged(copied=False), repairs),
    "rebuild": Case(without_its_root, rebuilds),
    "rebuild of a whole stream": Case(lambda: with_a_tree(9), rebuilds),
    "claim that cuts another history off": Case(lambda: stream(4, uploaded=2), claims(25)),
}
