"""Every use case may die at every one of its calls: begun again, it ends as if nothing had been.

For each call: the process dies before it takes effect; or after; or, if it writes, its answer is
lost and the process goes on as it does then. What is left must hold all the named invariants. Then
the use case is begun again by a new process, and the end must be that of a run that nobody
disturbed: the same manifest up to uids and versions; and once one more fragment was appended and
`collect` has had its time, the same bucket up to uids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest

from coldstream.adapters.memory import MemoryCatalog
from coldstream.errors import (
    ColdstreamError,
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
)
from coldstream.manifest.catalog import StreamState
from coldstream.manifest.entries import Entry
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch
from coldstream.names import (
    DataKey,
    MarkKey,
    RootKey,
    parse_data_key,
    parse_metadata_key,
)
from coldstream.remote.context import Context
from coldstream.remote.publish import publish
from coldstream.remote.roots import Snapshot
from coldstream.usecases.adopt import adopt
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.stragglers import sweep_stragglers
from coldstream_devkit.bucket import referenced
from coldstream_devkit.simulation.points import Place
from tests.simulation.crash_cases import (
    CASES,
    GRACE_MS,
    Case,
    collects,
    fresh,
    over,
    process,
    wait,
)
from tests.support.crashes import WRITES, Crash, Wire
from tests.support.slow import in_part_and_in_full, some
from tests.support.stage import (
    PREFIX,
    STREAM,
    holds,
    item_of,
    no_pause,
    piece,
    root_at,
    upload,
)

# --- what is compared ---


def sound(place: Place) -> None:
    """The invariants of a state, as far as the stream has one just now."""
    item = place.catalog.items.get(STREAM)
    if item is None or item.table_id != place.catalog.table_id():
        return  # nobody believes it before it is adopted
    if item.state is StreamState.DELETED:
        return
    if place.store.objects.get(item.root_key) == b"damaged":
        return
    holds(place, damaged=known_to_be_damaged(place))


def known_to_be_damaged(place: Place) -> list[str]:
    """Keys of what `damaged` has damaged."""
    found = []
    for at in (10, 40, 80):
        fragment = piece(at, at + 10, uid=1 + at)
        there = place.store.objects.get(fragment.path(PREFIX))
        if there is not None and there != fragment.data:
            found.append(fragment.path(PREFIX))
    return found


def picture(place: Place) -> tuple[object, ...]:
    """The catalog item and the tree, without uids and versions."""
    item = item_of(place)
    said = (
        item.state,
        item.epoch,
        (item.first_offset, item.next_offset),
        (item.first_timestamp, item.last_timestamp),
        (item.total_size, item.fragments),
        item.ledger,
        item.table_id == place.catalog.table_id(),
    )
    if item.root_key not in place.store.objects:
        return said, None
    root = root_at(place, item.root_key)
    fetch = process(place).fetch(STREAM)
    tree = [_shape(entry, fetch) for entry in root.entries]
    return said, tree, root.head, root.last_chunk, bool(root.quarantine_key)


def _shape(entry: Entry, fetch: Fetch) -> object:
    below = [_shape(each, fetch) for each in fetch(entry).entries] if entry.kind.level else []
    return replace(entry, uid=0), below


def contents(place: Place) -> Counter[object]:
    """What is in the bucket, without uids, versions, and the records of `collect`."""
    found: Counter[object] = Counter()
    for path, data in place.store.objects.items():
        key = key_of(path)
        if isinstance(key, DataKey):
            found[replace(key, uid=0), data] += 1
        elif isinstance(key, RootKey):
            found[replace(key, uid=0, version=0)] += 1
        elif not isinstance(key, MarkKey):
            found[replace(key, uid=0)] += 1
    return found


def key_of(path: str) -> Any:
    """What a key says."""
    try:
        return parse_data_key(path, PREFIX)
    except InvalidInputError:
        return parse_metadata_key(path, PREFIX)


def settle(place: Place) -> None:
    """Life goes on: one more fragment is appended, and `collect` takes what nobody needs."""
    item = item_of(place)
    if item.state is StreamState.DELETED:
        for _ in range(2):
            now = place.clock_ms()
            sweep_stragglers(
                process(place),
                place.store,
                STREAM,
                grace_ms=GRACE_MS,
                run_ms=now,
                now_ms=now,
                held=lambda _: False,
            )
            wait(place, 2 * GRACE_MS)
        return
    if item.state is not StreamState.LIVE:
        return
    if item.table_id == place.catalog.table_id():
        commit_runs(process(place), STREAM, pause=no_pause)
        item = item_of(place)
        first, epoch = item.next_offset, item.epoch
        floor = item.ledger.floor(epoch)
        assert floor is not None
        upload(place, piece(first, first + 10, epoch=epoch, uid=9999, floor=floor))
        report = commit_runs(process(place), STREAM, pause=no_pause)
        assert report.next_offset == first + 10
    for _ in range(6):
        wait(place, 2 * GRACE_MS)
        collected = collects(process(place), place)
    root = holds(place, damaged=known_to_be_damaged(place))
    assert root is not None
    wanted = referenced(PREFIX, item_of(place), root, process(place).fetch(STREAM))
    rest = [p for p in place.store.objects if p not in wanted]
    # Kept on purpose: what a person has to look at, and what `collect` itself needs.
    why = {kind.value: count.objects for kind, count in collected.found.items()}
    kept = sum(why.get(each, 0) for each in ("unique", "quarantined", "record"))
    assert len(rest) == kept, f"{why}, {rest}"


MODES: dict[str, Any] = {
    "dies before": {},
    "dies after": {"carried_out": True},
    "has no answer to": {"answer_lost": True},
}


def nothing(place: Place) -> Place:
    return place


def days_pass(place: Place) -> Place:
    """`collect` has all the time that it wants, if the stream is one that it may work on."""
    for _ in range(4):
        wait(place, 2 * GRACE_MS)
        try:
            collects(process(place), place)
        except (ConflictError, CorruptDataError, NotFoundError):
            break  # it is not live, or there is no manifest that could prove anything
    return place


def the_table_is_lost(place: Place) -> Place:
    """And the best root of the bucket is adopted, also one that never landed."""
    other = Place(place.store, MemoryCatalog("another"), place.clock_ms)
    try:
        adopt(process(other), STREAM)
    except CorruptDataError:
        assert any(data == b"damaged" for data in place.store.objects.values())
    return other


def days_pass_and_the_table_is_lost(place: Place) -> Place:
    return the_table_is_lost(days_pass(place))


#: What may happen before a use case that died is begun again.
BETWEEN = {
    each.__name__.replace("_", " "): each
    for each in (nothing, days_pass, the_table_is_lost, days_pass_and_the_table_is_lost)
}
#: A tombstone that is lost is none; and `repair` may find its source gone after some days.
NOT_THE_SAME_LATER = ("delete_stream", "sweep", "repair")


@dataclass(frozen=True)
class Undisturbed:
    """A stream, and what becomes of it."""

    begin: Place
    calls: list[str]
    picture: tuple[object, ...]
    contents: Counter[object]

    @classmethod
    def of(cls, case: Case) -> Undisturbed:
        begin = case.begin()
        sound(begin)
        place, wire = fresh(begin), Wire()
        case.act(over(place, wire), place)
        sound(place)
        expected = picture(place)
        settle(place)
        return cls(begin, wire.made, expected, contents(place))

    def points(self) -> Iterator[tuple[int, str]]:
        """Every call and what may happen there."""
        for number, call in enumerate(self.calls):
            for mode in MODES:
                # A call that only reads has no effect, and no answer to it is a refusal.
                if call in WRITES or mode == "dies before":
                    yield number, mode


def disturb(case: Case, place: Place, number: int, mode: str) -> None:
    try:
        case.act(over(place, Wire(number, **MODES[mode])), place)
    except Crash:
        pass
    except case.again:
        pass
    except ColdstreamError:
        assert mode == "has no answer to"
    sound(place)


def finish(case: Case, place: Place, wanted: Undisturbed) -> None:
    """Begin the use case again, and see that the end is what it would have been."""
    with suppress(*case.again):
        case.act(process(place), place)
    sound(place)
    assert picture(place) == wanted.picture
    settle(place)
    assert contents(place) == wanted.contents


@pytest.mark.parametrize("name", CASES)
def test_a_use_case_that_dies_at_any_call_ends_as_if_nothing_had_been(name: str) -> None:
    case = CASES[name]
    wanted = Undisturbed.of(case)
    trouble = []
    for number, mode in wanted.points():
        place = fresh(wanted.begin)
        try:
            disturb(case, place, number, mode)
            finish(case, place, wanted)
        except (AssertionError, ColdstreamError) as exc:
            trouble.append(f"{mode} call {number} ({wanted.calls[number]}): {exc!r}")
    print(f"{name}: {len(wanted.calls)} calls, {len(list(wanted.points()))} disturbances")
    assert not trouble, f"{name} {wanted.calls}:\n" + "\n".join(trouble)


@pytest.mark.parametrize("between", list(BETWEEN)[1:])
@pytest.mark.parametrize("name", [each for each in CASES if each not in NOT_THE_SAME_LATER])
def test_whatever_happens_before_a_dead_use_case_is_begun_again_it_ends_the_same(
    name: str, between: str
) -> None:
    case = CASES[name]
    wanted = Undisturbed.of(case)
    trouble = []
    for number, mode in wanted.points():
        place = fresh(wanted.begin)
        try:
            disturb(case, place, number, mode)
            place = BETWEEN[between](place)
            sound(place)
            finish(case, place, wanted)
        except (AssertionError, ColdstreamError) as exc:
            trouble.append(f"{mode} call {number} ({wanted.calls[number]}), {between}: {exc!r}")
    assert not trouble, f"{name} {wanted.calls}:\n" + "\n".join(trouble)


@in_part_and_in_full
@pytest.mark.parametrize("name", CASES)
def test_a_use_case_that_dies_twice_ends_as_if_nothing_had_been(name: str, full: bool) -> None:
    """At any call that writes; and the process after it at any call that writes.

    In part: the first death is at the first, the middle or the last of them.
    """
    case = CASES[name]
    wanted = Undisturbed.of(case)
    trouble, looked = [], 0
    deaths = [(n, mode) for n, mode in wanted.points() if wanted.calls[n] in WRITES]
    for number, mode in (deaths[at] for at in some(len(deaths), full)):
        first = fresh(wanted.begin)
        disturb(case, first, number, mode)
        wire, dry = Wire(), fresh(first)
        with suppress(*case.again):
            case.act(over(dry, wire), dry)
        again = replace(wanted, calls=wire.made)
        for second, how in again.points():
            if wire.made[second] not in WRITES:
                continue
            looked += 1
            place = fresh(first)
            try:
                disturb(case, place, second, how)
                finish(case, place, wanted)
            except (AssertionError, ColdstreamError) as exc:
                trouble.append(
                    f"{mode} call {number} ({wanted.calls[number]}),"
                    f" {how} call {second} ({wire.made[second]}): {exc!r}"
                )
    print(f"{name}: {looked} pairs")
    assert not trouble, f"{name} {wanted.calls}:\n" + "\n".join(trouble)


def test_a_root_that_is_put_before_its_groups_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be adopted before they are there: the rule of `publish`, removed."""

    def hasty(
        context: Context, loaded: Snapshot, root: Root, *, nodes: Any = (), **more: Any
    ) -> Any:
        outcome = publish(context, loaded, root, **more)
        publish(context, loaded, root, nodes=nodes, **more)
        return outcome

    monkeypatch.setattr("coldstream.usecases.amend.publish", hasty)

    with pytest.raises(AssertionError):
        test_a_use_case_that_dies_at_any_call_ends_as_if_nothing_had_been("rebalance")
