"""What an object is to its stream, case by case, against the words of docs/workflows.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from coldstream.errors import ColdstreamError, CorruptDataError, NotFoundError
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.node import Node
from coldstream.manifest.quarantine import Dropped, QuarantineRecord
from coldstream.manifest.root import Root
from coldstream.names import DataKey, GroupKey, RootKey
from coldstream.plans.collect import (
    ObjectKind,
    classify_data,
    classify_group,
    classify_root,
    named_by,
    refers,
)
from tests.support.remote import STREAM

FIRST, NEXT = 3, 6
LEDGER = Ledger.of([(1, 0), (2, 2), (3, 5)])


def leaf(first: int, next_offset: int, uid: int, epoch: int = 1) -> Entry:
    return Entry(first, next_offset, 0, 0, EntryKind.FRAGMENT, 1, 1, epoch, uid)


# [2, 4) reaches over the first offset, as after a retention inside a group.
ROOT = Root(
    first_offset=FIRST,
    next_offset=NEXT,
    epoch=3,
    ledger=LEDGER,
)
LEAVES = (leaf(2, 4, 51, 2), leaf(4, 5, 52, 2), leaf(5, 6, 53, 3))


def keys() -> Iterator[DataKey]:
    for first, next_offset, epoch in product(range(8), range(9), (*range(5), 2**20)):
        if first < next_offset:
            yield DataKey(STREAM, first, next_offset, epoch, 9)
            yield DataKey(STREAM, first, next_offset, epoch, 9, "hole")


def accepted(key: DataKey) -> bool:
    """Who may write (docs/architecture.md), word by word."""
    floors = {claim.epoch: claim.floor for claim in LEDGER.claims}
    above = [floor for epoch, floor in floors.items() if epoch > key.epoch]
    return (
        key.epoch in floors
        and floors[key.epoch] <= key.first_offset
        and all(key.next_offset <= floor for floor in above)
    )


def may_go(key: DataKey, *, held: bool, over_hole: bool, given_up: bool) -> bool:
    """The proof's second part, word by word, for what no tree, record or root refers to."""
    if of_undo(key):
        return False  # its claim may be on its way, with a floor anywhere
    if key.next_offset <= FIRST:
        return True  # wholly below what is kept
    if key.kind == "hole":
        return key.next_offset <= NEXT or cut(key)
    if key.next_offset > NEXT:
        return given_up and cut(key) and not accepted(key) and not over_hole
    if over_hole:
        return False  # the only copy of what was thought to be lost
    return accepted(key) or held or (given_up and cut(key))


def of_undo(key: DataKey) -> bool:
    """Whether an undo may be about to claim by its epoch."""
    return key.epoch >= 2**20


def cut(key: DataKey) -> bool:
    return any(c.epoch > key.epoch and c.floor < key.next_offset for c in LEDGER.claims)


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("over_hole", [True, False])
def test_every_unreferenced_object_is_garbage_exactly_where_the_design_says_so(
    held: bool, over_hole: bool
) -> None:
    for key in keys():
        kind = classify_data(
            key,
            ROOT,
            next(
                (
                    each
                    for each in LEAVES
                    if each.first_offset <= key.first_offset < each.next_offset
                ),
                None,
            ),
            lambda _: held,
            over_hole=lambda _: over_hole,
        )

        expected = may_go(key, held=held, over_hole=over_hole, given_up=False)
        assert kind.garbage == expected, (key, kind)
        assert kind is not ObjectKind.REFERENCED


def test_a_fragment_that_reaches_over_the_first_offset_is_never_retired() -> None:
    # It may hold the only copy of a lost timeline's end, above what retention has taken.
    for key in keys():
        kind = classify_data(key, ROOT, None, lambda _: False)

        retired = key.next_offset <= FIRST and not of_undo(key)
        assert (kind is ObjectKind.RETIRED) == retired, (key, kind)
    lost = DataKey(STREAM, FIRST - 1, FIRST + 2, 1, 9)
    assert classify_data(lost, ROOT, None, lambda _: False) is ObjectKind.UNIQUE


@pytest.mark.parametrize("taken_ms", [10, 11])
def test_what_a_person_has_given_up_goes_and_what_came_later_stays(taken_ms: int) -> None:
    # The claim of epoch 2 cut at 2, that of epoch 3 at 5; both are given up as of 10 ms.
    record = QuarantineRecord(dropped=(Dropped(2, 2, 10), Dropped(3, 5, 10)))
    for key in keys():
        if key.kind == "hole" or not key.epoch:
            continue  # epoch 0 was cut off by the first claim, which nobody has given up
        kind = classify_data(key, ROOT, None, lambda _: False, record=record, modified_ms=taken_ms)

        if not cut(key):
            assert kind is not ObjectKind.DROPPED
        elif taken_ms > 10:
            assert kind in (ObjectKind.UNIQUE, ObjectKind.PENDING, ObjectKind.SUPERSEDED), (
                key,
                kind,
            )
        elif not accepted(key):
            assert kind is ObjectKind.DROPPED, (key, kind)


@pytest.mark.parametrize("entry", LEAVES)
def test_only_the_very_object_that_a_leaf_names_is_referenced(entry: Entry) -> None:
    key = entry.data_key(STREAM)

    assert classify_data(key, ROOT, entry, lambda _: False) is ObjectKind.REFERENCED
    for change in ({"uid": 9}, {"epoch": key.epoch + 1}, {"next_offset": key.next_offset + 1},
                   {"kind": "hole"}):  # fmt: skip
        other = replace(key, **change)  # type: ignore[arg-type]
        assert classify_data(other, ROOT, entry, lambda _: False) is not ObjectKind.REFERENCED


@pytest.mark.parametrize("version", range(5, 10))
def test_a_root_goes_unless_it_is_current_or_above_the_items_version(version: int) -> None:
    key = RootKey(STREAM, 1, version, 7)

    assert classify_root(key, version=7, current=True) is ObjectKind.REFERENCED
    assert classify_root(key, version=7, current=False).garbage == (version <= 7)


def test_a_group_goes_unless_the_path_to_its_first_live_offset_leads_through_it() -> None:
    group = Entry(0, 6, 0, 0, EntryKind.GROUP, 1, 3, 0, 77)
    root = replace(ROOT, entries=Entries.of([group]))

    def fetch(_: Entry) -> object:
        raise AssertionError("nothing below a group of the lowest level is asked for")

    def kind(first: int, uid: int, level: int) -> ObjectKind:
        return classify_group(GroupKey(STREAM, first, uid, level), root, fetch)  # type: ignore[arg-type]

    assert kind(0, 77, 1) is ObjectKind.REFERENCED
    assert kind(0, 78, 1) is ObjectKind.OLD_GROUP
    assert kind(1, 77, 1) is ObjectKind.OLD_GROUP
    assert kind(0, 77, 2) is ObjectKind.OLD_GROUP
    assert kind(7, 77, 1) is ObjectKind.OLD_GROUP


def test_a_dead_group_inside_a_live_kilo_group_is_garbage_and_is_not_read() -> None:
    dead = Entry(0, 2, 0, 0, EntryKind.GROUP, 1, 3, 0, 71)
    alive = Entry(2, 6, 0, 0, EntryKind.GROUP, 1, 3, 0, 72)
    kilo = Entry(0, 6, 0, 0, EntryKind.KILO_GROUP, 2, 6, 0, 73)
    root = replace(ROOT, entries=Entries.of([kilo]))

    def fetch(entry: Entry) -> Node:
        assert entry == kilo
        return Node(EntryKind.KILO_GROUP, 73, Entries.of([dead, alive]))

    assert classify_group(GroupKey(STREAM, 0, 73, 2), root, fetch) is ObjectKind.REFERENCED
    assert classify_group(GroupKey(STREAM, 2, 72, 1), root, fetch) is ObjectKind.REFERENCED
    assert classify_group(GroupKey(STREAM, 0, 71, 1), root, fetch) is ObjectKind.OLD_GROUP


def test_a_root_names_the_fragment_that_reaches_over_its_first_offset_and_none_below() -> None:
    below = leaf(0, 2, 50)
    root = replace(ROOT, entries=Entries.of([below, *LEAVES]))

    def fetch(_: Entry) -> Node:
        raise AssertionError("there is no group")

    assert [named_by(root, each.data_key(STREAM), fetch) for each in (below, *LEAVES)] == [
        False, True, True, True,
    ]  # fmt: skip
    assert refers(root, LEAVES[0].data_key(STREAM), fetch)


@pytest.mark.parametrize("error", [CorruptDataError, NotFoundError])
def test_a_root_whose_own_group_is_damaged_or_gone_names_nothing(
    error: type[ColdstreamError],
) -> None:
    root = replace(ROOT, entries=Entries.of([Entry(0, 6, 0, 0, EntryKind.GROUP, 1, 3, 0, 77)]))

    def fetch(_: Entry) -> Node:
        raise error("gone")

    assert not refers(root, LEAVES[1].data_key(STREAM), fetch)
    with pytest.raises(error):
        named_by(root, LEAVES[1].data_key(STREAM), fetch)
