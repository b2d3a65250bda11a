"""Every position of a reader in a small stream, and every way in which the manifest then changes.

The stream has forty messages in chunks of five, in a flat tree, in one with a group, or with a
hole. A reader has handed on the first so many; then the stream is changed by the real use cases: it
grows, retention passes the reader or comes behind it, a claim cuts it at every chunk border, below,
at or above the position, and it grows again or not, it is consolidated or repaired, a hole comes
ahead; and pairs of these. The reader then looks at the manifest before each fragment, or once
because it has grown old to the very second, or not at all until an object that it needs has been
deleted.

What it must have given is computed naively, offset by offset, from the two manifests as
`simulation.reading` reads them: what it handed on before it looked is the old history's,
and everything else the new one's; each offset is given once, in order, or told as a gap with its
reason. Chunks of different epochs have different times, so a message tells whose history it is of.

Why that is enough: a reader's state is its position, its end, its epoch and its snapshot; each pair
of positions in a fragment, at a chunk's border, at a fragment's border, at the end and at the cut
occurs, in each order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import count, islice
from typing import Any

import pytest

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.errors import NotFoundError
from coldstream.names import DataKey
from coldstream.plans.claim import KnownHistory, LocalChunk
from coldstream.plans.policy import PolicySet, Rule
from coldstream.reader import (
    First,
    Gap,
    MemoryBudget,
    Offset,
    OffsetSpec,
    ReaderSettings,
    StreamReader,
)
from coldstream.remote.nodes import NodeCache
from coldstream.remote.roots import Snapshots
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.consolidate import consolidate
from coldstream.usecases.rebalance import rebalance
from coldstream.usecases.repair import repair
from coldstream.usecases.retention import retain
from coldstream_devkit.claims import claim
from coldstream_devkit.fragments import START_MS, SyntheticFragment, build_fragment
from coldstream_devkit.simulation.inline import Inline
from coldstream_devkit.simulation.points import Place
from coldstream_devkit.simulation.reading import HOLE, Manifest
from tests.exhaustive.bare import key_of, manifest_of, named_by, objects_below
from tests.support.stage import (
    CHUNK,
    PREFIX,
    STREAM,
    M,
    anchored,
    context_of,
    no_pause,
    upload,
)

END = 40
#: ms by which the chunks of an epoch are later than those of the one before.
EPOCH_MS = 10**6
_ids = count(10**6, 10**4)


def part(first: int, end: int, *, epoch: int = 1, floor: int = 0, per: int = CHUNK, uid: int = 0,
         whose: int = 0) -> SyntheticFragment:  # fmt: skip
    """A fragment whose chunks tell by their time which epoch has written them."""
    times = tuple(START_MS + at + EPOCH_MS * (whose or epoch) for at in range(first, end, per))
    return build_fragment(
        first, end, stream=STREAM, epoch=epoch, floor=floor, uid=uid or 1 + first,
        chunk_epochs=(whose or epoch,), timestamps=times, records_per_chunk=per,
        segment_offset=0, segment_position=8 + first * 100,
    )  # fmt: skip


def new_context(place: Place) -> Any:
    return context_of(place, count(next(_ids)))


def commits(place: Place) -> None:
    commit_runs(new_context(place), STREAM, pause=no_pause)


# --- streams ---


def flat() -> Place:
    return _stream(part(at, at + 10) for at in range(0, END, 10))


def with_a_group() -> Place:
    place = _stream(part(at, at + 5) for at in range(0, END, 5))
    rebalance(new_context(place), STREAM, branching=M, pause=no_pause)
    return place


def with_a_hole() -> Place:
    place = anchored()
    place.store.put(DataKey(STREAM, 15, 25, 1, 16, "hole").path(PREFIX), b"", write_id="h")
    upload(place, part(0, 10), part(10, 15), part(25, 30), part(30, 40))
    commits(place)
    return place


def _stream(parts: Iterable[SyntheticFragment]) -> Place:
    place = anchored()
    upload(place, *parts)
    commits(place)
    return place


# --- changes ---

Change = Callable[[Place], None]


def grows(place: Place, *, to: int = 60, epoch: int = 1, floor: int = 0, per: int = CHUNK) -> None:
    manifest = manifest_of(place)
    assert manifest is not None
    if manifest.next < to:
        upload(place, part(manifest.next, to, epoch=epoch, floor=floor, per=per, uid=epoch * 1000))
        commits(place)


def retires(place: Place, first: int) -> None:
    manifest = manifest_of(place)
    assert manifest is not None
    kept = sum(leaf.size for leaf in manifest.leaves if leaf.next > first)
    rules = PolicySet((Rule("r", max_bytes=kept),))
    retain(new_context(place), STREAM, rules, now_ms=START_MS, pause=no_pause)


def is_cut(place: Place, at: int, *, to: int = 0, epoch: int = 2, per: int = CHUNK) -> None:
    """A writer of `epoch` has what was there up to `at`, and then its own, up to `to`."""
    manifest = manifest_of(place)
    assert manifest is not None
    log = [LocalChunk(c, c + CHUNK, _epoch(manifest, c)) for c in range(0, at, CHUNK)]
    fresh = [LocalChunk(c, c + per, epoch) for c in range(at, max(to, at + per), per)]
    claim(new_context(place), STREAM, epoch, log=KnownHistory((*log, *fresh)), pause=no_pause)
    if to:
        grows(place, to=to, epoch=epoch, floor=at, per=per)


def _epoch(manifest: Manifest, offset: int) -> int:
    return next((x.epoch for x in manifest.leaves if x.first <= offset < x.next), 1)


def is_joined(place: Place) -> None:
    context = new_context(place)
    size = 2 * max(len(data) for key, data in place.store.objects.items() if "/data/" in key)
    consolidate(context, place.store, STREAM, target_size=size, branching=M, pause=no_pause)


def is_repaired(place: Place, *, lost: bool) -> None:
    """The object at [20, 30) is gone; its data is found in another upload, or nowhere."""
    manifest = manifest_of(place)
    assert manifest is not None
    for leaf in manifest.leaves:
        if 20 <= leaf.first < 30 and leaf.kind != HOLE:
            place.store.delete([key_of(leaf)])
    if not lost:
        upload(place, part(20, 30, uid=777))
    repair(new_context(place), STREAM, ranges=[(20, 30)], branching=M, pause=no_pause, lost=lost)


CHANGES: dict[str, tuple[Change, ...]] = {
    "nothing": (),
    "it grows": (grows,),
    "it is joined": (is_joined,),
    "it is repaired": (partial(is_repaired, lost=False),),
    "some is lost": (partial(is_repaired, lost=True),),
    "some is lost, and it is cut at 35": (partial(is_repaired, lost=True), partial(is_cut, at=35)),
    "it is joined and grows": (is_joined, grows),
    "it is cut at 20 to 60, and joined": (partial(is_cut, at=20, to=60), is_joined),
    "it is cut at 10 to 60, at 30 to 60": (
        partial(is_cut, at=10, to=60),
        partial(is_cut, at=30, to=60, epoch=3),
    ),
    "it is cut at 30 to 60, at 10 to 60": (
        partial(is_cut, at=30, to=60),
        partial(is_cut, at=10, to=60, epoch=3),
    ),
    "it is cut at 10 to 60, and retired to 20": (
        partial(is_cut, at=10, to=20),
        partial(grows, to=30, epoch=2, floor=10),
        partial(retires, first=20),
    ),
    "it is retired to 20, and cut at 30 to 60": (
        partial(retires, first=20),
        partial(is_cut, at=30, to=60),
    ),
    "it grows, and is retired to 40": (grows, partial(retires, first=40)),
}
CHANGES |= {f"it is retired to {n}": (partial(retires, first=n),) for n in range(5, END, 5)}
for _at in range(0, END + 1, 5):
    for _to in (0, 15, 30, 60):
        if _to == 0 or _to > _at:
            CHANGES[f"it is cut at {_at} to {_to}"] = (partial(is_cut, at=_at, to=_to),)
    CHANGES[f"it is cut at {_at} to 60, in long chunks"] = (
        partial(is_cut, at=_at, to=_at + 60 - _at % 10, per=20),
    )


@dataclass(frozen=True, slots=True)
class History:
    """A stream before and after a change.

    Attributes:
        before: the place.
        after: the place, with all objects that there were.
        old: the manifest before.
        new: the manifest after.
    """

    before: Place
    after: Place
    old: Manifest
    new: Manifest


@cache
def history_of(begin: Callable[[], Place], change: str) -> History:
    before = begin()
    after = before.copy()
    for step in CHANGES[change]:
        step(after)
    old, new = manifest_of(before), manifest_of(after)
    assert old is not None
    assert new is not None
    return History(before, after, old, new)


# --- the naive oracle ---


def whose_is(place: Place, manifest: Manifest, offset: int) -> int | None:
    """The epoch whose message a manifest has at an offset; None in a hole.

    Its time tells, which stands in the index; the product's own entries have it as bounds only.
    """
    leaf = next(x for x in manifest.leaves if x.first <= offset < x.next)
    return None if leaf.kind == HOLE else (leaf.low_ms - START_MS) // EPOCH_MS


def told(history: History, start: int, seen_to: int) -> list[tuple[object, ...]]:
    """What a reader gives that begins at `start` and reads the new manifest from `seen_to` on."""
    old, new = history.old, history.new
    said: list[tuple[object, ...]] = []
    run: list[int] = []
    reason = ""

    def lost(offset: int, why: str) -> None:
        nonlocal reason
        if run and (reason, run[-1] + 1) != (why, offset):
            flush()
        run.append(offset)
        reason = why

    def flush() -> None:
        if run:
            said.append(("gap", run[0], run[-1] + 1, reason))
            run.clear()

    def give(offset: int, place: Place, manifest: Manifest) -> None:
        epoch = whose_is(place, manifest, offset)
        if epoch is None:
            if any(x.first == offset for x in manifest.leaves):
                flush()  # each hole is told by itself
            lost(offset, "hole")
        else:
            flush()
            said.append((offset, epoch))

    for offset in range(start, seen_to):
        give(offset, history.before, old)
    flush()
    if seen_to >= old.next:
        return said
    floors = [floor for epoch, floor in new.ledger if epoch > old.epoch]
    for offset in range(max(start, min([*floors, seen_to])), seen_to):
        lost(offset, "truncation")
    if new.next > seen_to:
        flush()
    for offset in range(seen_to, old.next):
        if offset >= new.next:
            lost(offset, "truncation")
        elif offset < new.first:
            lost(offset, "retention")
        else:
            give(offset, history.after, new)
    flush()
    return said


# --- readers ---

BY_RANGES = {"range_size": 1, "first_range_size": 1}


class Read:
    """A reader that is stopped after so many messages, while the stream changes under it."""

    def __init__(
        self,
        history: History,
        spec: OffsetSpec,
        refresh: float,
        *,
        wait: Callable[[], bool] | None = None,
        **settings: int,
    ) -> None:
        self.now = 0.0
        self.place = history.before.copy()
        self.said: list[tuple[object, ...]] = []
        reader = StreamReader(
            self.place.store,
            self.place.catalog,
            PREFIX,
            STREAM,
            settings=ReaderSettings(
                in_flight=1,
                refresh_seconds=refresh,
                pool=Inline,
                **settings,
            ),
            budget=MemoryBudget(),
            nodes=NodeCache(),
            clock=lambda: self.now,
        )
        self._messages = (
            reader.messages(spec, on_gap=self._gap)
            if wait is None
            else reader.follow(spec, wait, on_gap=self._gap)
        )

    def _gap(self, gap: Gap) -> None:
        self.said.append(("gap", gap.first_offset, gap.next_offset, str(gap.reason)))

    def goes_on(self, messages: int | None = None) -> None:
        for offset, timestamp, _ in islice(self._messages, messages):
            self.said.append((offset, (timestamp - START_MS) // EPOCH_MS))

    def changes(self, history: History, *, deleted: bool) -> None:
        self.place.store.take_over(history.after.store)
        self.place.catalog.items.update(history.after.catalog.items)
        if deleted:
            item = self.place.catalog.items[STREAM]
            kept = named_by(history.new) | {item.root_key}
            self.place.store.delete(sorted(objects_below(self.place) - kept))


def reached(history: History, start: int, given: int) -> tuple[int, int]:
    """The position behind so many messages, and the end of the fragment that holds the last one."""
    here = [
        offset
        for offset in range(start, history.old.next)
        if whose_is(history.before, history.old, offset) is not None
    ]
    last = here[given - 1] if given else here[0]
    leaf = next(x for x in history.old.leaves if x.first <= last < x.next)
    return (last + 1 if given else start), leaf.next


def positions(history: History, start: int) -> range:
    return range(sum(1 for x in range(start, END) if whose_is(history.before, history.old, x)) + 1)


def look_at(history: History, spec: OffsetSpec, given: int, how: str, **settings: int) -> None:
    start = spec.value if isinstance(spec, Offset) else 0
    read = Read(history, spec, 0 if how == "always" else 10, **settings)
    read.goes_on(given)
    read.changes(history, deleted="deleted" in how)
    read.now = 10 if "old" in how else 9.99
    position, next_offset = reached(history, start, given)
    read.goes_on()

    gone = {key_of(x) for x in history.old.leaves} - objects_below(read.place)
    if "always" in how or "old" in how:
        first = next(x for x in history.old.leaves if x.next > position) if not given else None
        ends = [position if first is not None and key_of(first) in gone else next_offset]
    else:
        ends = list(missing_from(history, gone, position))
        if not set(history.old.nodes) <= objects_below(read.place):
            ends += range(position + (-position) % CHUNK, history.old.next, CHUNK)
    wanted = [told(history, start, end) for end in ends]
    assert read.said in wanted, f"{given}: {read.said} is none of {wanted}"


def missing_from(history: History, gone: set[str], position: int) -> Iterator[int]:
    """Where a reader may have met an object that is gone: at a chunk of it, or nowhere.

    What had been fetched ahead is given, though it is gone.
    """
    for leaf in history.old.leaves:
        if key_of(leaf) in gone:
            yield from (at for at in range(leaf.first, leaf.next, CHUNK) if at >= position)
    yield history.old.next


#: See `test_what_was_told_as_a_hole_is_not_given_behind_it`.
TOLD_AND_GIVEN = (with_a_hole, "young, deleted", "in long chunks")


def test_what_was_told_as_a_hole_is_not_given_behind_it() -> None:
    """A reader has told of the hole [15, 25); behind it an object is gone, for a claim has cut all.

    In the new history one chunk holds [20, 40). The reader tells that [0, 25) was cut off, and goes
    on with 20, not with 25: five offsets are told as a hole, told as cut off, and given.
    """
    begin, how, change = TOLD_AND_GIVEN
    history = history_of(begin, f"it is cut at 0 to 60, {change}")
    for given in positions(history, 0):
        look_at(history, First(), given, how)


@pytest.mark.parametrize("begin", [flat, with_a_group, with_a_hole])
@pytest.mark.parametrize("how", ["always", "old", "old, deleted", "young", "young, deleted"])
def test_each_offset_is_given_once_in_order_out_of_one_history_or_told(
    begin: Callable[[], Place], how: str
) -> None:
    for change in CHANGES:
        history = history_of(begin, change)
        every = 1 if (how, begin) == ("always", flat) else 7 if how == "young" else 4
        for given in positions(history, 0)[::every]:
            try:
                look_at(history, First(), given, how)
            except Exception as exc:
                raise AssertionError(f"{change}, {given} were given") from exc


@pytest.mark.parametrize("start", [7, 10, 23])
def test_a_reader_is_told_of_nothing_below_what_it_has_asked_for(start: int) -> None:
    for change in CHANGES:
        history = history_of(flat, change)
        for given in positions(history, start)[::4]:
            try:
                look_at(history, Offset(start), given, "always")
            except Exception as exc:
                raise AssertionError(f"{change}, {given} were given") from exc


@pytest.mark.parametrize("how", ["always", "young, deleted"])
def test_a_reader_that_fetches_single_chunks_gives_the_same(how: str) -> None:
    for change in CHANGES:
        history = history_of(flat, change)
        for given in positions(history, 0)[::6]:
            try:
                look_at(history, First(), given, how, **BY_RANGES)
            except Exception as exc:
                raise AssertionError(f"{change}, {given} were given") from exc


@pytest.mark.parametrize("begin", [flat, with_a_group, with_a_hole])
@pytest.mark.parametrize("deleted", [False, True])
def test_a_follower_that_waits_at_the_end_is_given_what_comes_and_told_what_went(
    begin: Callable[[], Place], deleted: bool
) -> None:
    for change in CHANGES:
        history = history_of(begin, change)
        old, new = history.old, history.new
        looks = count()

        def wait() -> bool:
            if next(looks) == 0:  # noqa: B023
                read.changes(history, deleted=deleted)  # noqa: B023
                return True
            return False

        read = Read(history, First(), 10, wait=wait)
        read.goes_on()

        wanted = told(history, 0, old.next)
        cut = min([floor for epoch, floor in new.ledger if epoch > old.epoch], default=old.next)
        if cut < old.next:
            wanted.append(("gap", cut, old.next, "truncation"))
        if new.first > old.next:
            wanted.append(("gap", old.next, new.first, "retention"))
        wanted += [
            (offset, whose_is(history.after, new, offset))
            for offset in range(max(old.next, new.first), new.next)
        ]
        assert read.said == wanted, change


@pytest.mark.parametrize("begin", [flat, with_a_hole])
def test_a_follower_under_which_all_changes_gives_no_offset_twice_and_hides_none(
    begin: Callable[[], Place],
) -> None:
    for change in CHANGES:
        history = history_of(begin, change)
        for given in positions(history, 0)[::5]:
            looks = iter((True, True, False))
            read = Read(history, First(), 0, wait=lambda looks=looks: next(looks))  # type: ignore[misc]
            read.goes_on(given)
            read.changes(history, deleted=True)
            read.goes_on()

            offsets = [each[0] for each in read.said if each[0] != "gap"]
            assert offsets == sorted(set(offsets)), (change, given)
            covered = set(offsets)
            for each in read.said:
                if each[0] == "gap":
                    covered |= set(range(each[1], each[2]))  # type: ignore[call-overload]
            end = max(history.new.next, history.old.next)
            assert covered >= set(range(history.new.next)), (change, given)
            assert covered <= set(range(end)), (change, given)


def test_an_object_that_is_gone_while_the_manifest_stands_is_an_error_that_names_it() -> None:
    history = history_of(flat, "nothing")
    for refresh in (0, 10):
        for leaf in history.old.leaves:
            read = Read(history, First(), refresh)
            read.place.store.delete([key_of(leaf)])
            with pytest.raises(NotFoundError) as caught:
                read.goes_on()
            assert caught.value.key == key_of(leaf)
            assert read.said == [(offset, 1) for offset in range(leaf.first)]


def test_a_root_that_is_gone_is_looked_up_again_once() -> None:
    """Every pair of items that two looks find, and every set of roots that are there."""

    class Looks(MemoryCatalog):
        def __init__(self, found: list[Any]) -> None:
            super().__init__()
            self.found = found

        def get(self, stream: str) -> Any:
            return self.found.pop(0)

    history = history_of(flat, "it grows")
    items = {
        "old": history.before.catalog.items[STREAM],
        "new": history.after.catalog.items[STREAM],
    }
    for first in (*items, "none"):
        for second in (*items, "none"):
            for there in ((), ("old",), ("new",), ("old", "new")):
                store = MemoryObjectStore()
                store.take_over(history.after.store)
                for name, item in items.items():
                    if name not in there:
                        store.delete([item.root_key])
                looks = Looks([items.get(first), items.get(second)])
                wanted = first if first in there else second
                if first == "none" or wanted not in there:
                    with pytest.raises(NotFoundError):
                        Snapshots(store, looks, PREFIX).load(STREAM)
                    continue
                snapshot = Snapshots(store, looks, PREFIX).load(STREAM)
                assert snapshot.item == items[wanted]
                assert snapshot.root.next_offset == items[wanted].next_offset
                assert len(looks.found) == (1 if wanted == first and first in there else 0)
