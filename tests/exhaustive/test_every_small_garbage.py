"""Every small manifest and every possible key: garbage is exactly what nothing can ever need.

Scope: `classify_data` for all manifests of fragments and holes of one or two offsets in [0, 3), all
ledgers of epochs 1 to 3 with floors 0 to 3, all keys over [0, 4), held or not (140,000 cases); with
each quarantine record of one or two claims (290,000); groups and leaves of every tree of up to two
levels over 4 leaves; and every pair of items.

Why it is enough: a rule compares a key's two ends with the first offset, the end, floors and holes.
With three offsets each of these can lie below, at, inside and above the others, in every order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import pytest

from coldstream.errors import CorruptDataError, NotFoundError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.node import Node
from coldstream.manifest.quarantine import Dropped, QuarantineRecord, Timeline
from coldstream.manifest.root import Root
from coldstream.manifest.tree import over_hole
from coldstream.names import DataKey, GroupKey, RootKey
from coldstream.plans.collect import (
    ObjectKind,
    classify_data,
    classify_group,
    classify_root,
    named_by,
    refers,
    survives,
)
from tests.exhaustive.small_trees import STREAM, masks, row, trees

Claims = Sequence[tuple[int, int]]
UNTIL = 10


def no_groups(_: Entry) -> Node:
    raise AssertionError("there is no group")


def tilings(first: int, next_offset: int) -> Iterator[list[Entry]]:
    """All rows of fragments and holes of one or two offsets over a range."""
    if first == next_offset:
        yield []
    for length, kind in product((1, 2), (EntryKind.FRAGMENT, EntryKind.HOLE)):
        if first + length <= next_offset:
            entry = Entry(first, first + length, 0, 0, kind, 1, 1, 1, 50 + first)
            for rest in tilings(first + length, next_offset):
                yield [entry, *rest]


def ledgers() -> Iterator[Claims]:
    """Epoch 1 from the beginning, or forgotten; then claims of 2, 3, or both, anywhere."""
    for second, third in product((None, 0, 1, 2, 3), repeat=2):
        later = [(epoch, floor) for epoch, floor in ((2, second), (3, third)) if floor is not None]
        yield [(1, 0), *later]
        if len(later) == 2:
            yield later


def keys() -> Iterator[DataKey]:
    for first, next_offset, epoch in product(range(4), range(1, 5), (1, 2, 3)):
        if first < next_offset:
            yield DataKey(STREAM, first, next_offset, epoch, 9)
            yield DataKey(STREAM, first, next_offset, epoch, 9, "hole")


def what_it_is(
    key: DataKey,
    root: Root,
    *,
    claims: Claims,
    holes: set[int],
    held: bool,
    record: QuarantineRecord = QuarantineRecord(),  # noqa: B008
    taken_ms: int = 0,
) -> ObjectKind:
    """Word by word, by the offsets of the key: why somebody may need it, or why nobody will."""
    offsets = set(range(key.first_offset, key.next_offset))
    lost = [(each.epoch, each.floor) for each in record.timelines]
    gone = [(each.epoch, each.floor) for each in record.dropped]

    def cutting(some: Claims) -> list[int]:
        """The epochs after the key's own that took some of its offsets away."""
        return [
            epoch for epoch, floor in some if epoch > key.epoch and any(o >= floor for o in offsets)
        ]

    below = all(offset < root.first_offset for offset in offsets)
    above = any(offset >= root.next_offset for offset in offsets)
    if below and not cutting([*lost, *gone]):
        return ObjectKind.RETIRED
    cut = cutting([*claims, *lost, *gone])
    if key.kind == "hole":
        return ObjectKind.PENDING if above and not cut else ObjectKind.OLD_HOLE
    if offsets & holes and not below:
        return ObjectKind.PENDING if above else ObjectKind.UNIQUE
    own = [floor for epoch, floor in claims if epoch == key.epoch]
    may_enter = bool(own) and min(offsets) >= own[0] and not cutting(claims)
    by = sorted(cut)[:1]
    given_up = any([each.epoch] == by and taken_ms <= each.until_ms for each in record.dropped)
    if above:
        return ObjectKind.PENDING if may_enter or not given_up else ObjectKind.DROPPED
    if may_enter and not below:
        return ObjectKind.SUPERSEDED
    if given_up:
        return ObjectKind.DROPPED
    return ObjectKind.FENCED if held else ObjectKind.UNIQUE


def rooted(first: int, next_offset: int, tiles: Sequence[Entry], claims: Claims) -> Root:
    return Root(
        first,
        next_offset,
        epoch=claims[-1][0],
        ledger=Ledger.of(claims),
        entries=Entries.of(tiles),
    )


def check(
    key: DataKey,
    root: Root,
    tiles: Sequence[Entry],
    claims: Claims,
    holes: set[int],
    *,
    record: QuarantineRecord = QuarantineRecord(),  # noqa: B008
    held: bool,
    taken_ms: int = 0,
) -> None:
    at = max(key.first_offset, root.first_offset)
    kind = classify_data(
        key,
        root,
        next((each for each in tiles if each.first_offset <= at < each.next_offset), None),
        lambda _: held,
        over_hole=lambda _: over_hole(root, key.first_offset, key.next_offset, no_groups),
        record=record,
        modified_ms=taken_ms,
    )
    expected = what_it_is(
        key, root, claims=claims, holes=holes, held=held, record=record, taken_ms=taken_ms
    )
    assert kind is expected, (key, root, record)
    assert kind.garbage == (
        kind
        in {
            ObjectKind.RETIRED,
            ObjectKind.OLD_HOLE,
            ObjectKind.SUPERSEDED,
            ObjectKind.DROPPED,
            ObjectKind.FENCED,
        }
    )


def cells(tiles: Sequence[Entry]) -> set[int]:
    return {
        offset
        for each in tiles
        if each.kind is EntryKind.HOLE
        for offset in range(each.first_offset, each.next_offset)
    }


def test_every_key_beside_every_manifest_is_garbage_only_if_nothing_can_ever_need_it() -> None:
    for first, next_offset in product(range(4), repeat=2):
        for tiles, claims in product(list(tilings(first, next_offset)), list(ledgers())):
            root, holes = rooted(first, next_offset, tiles, claims), cells(tiles)
            for key in keys():
                for held in (False, True) if key.kind == "fragment" else (True,):
                    check(key, root, tiles, claims, holes, held=held)


def records(claims: Claims) -> Iterator[QuarantineRecord]:
    """Each claim but the first has cut something off, which is kept or given up.

    Retention may have taken the claim out of the ledger since; one that began the stream anew says
    that its timeline begins where the manifest did.
    """
    floors = dict(claims)
    choices: list[list[Timeline | Dropped | None]] = []
    for epoch in (2, 3):
        floor = floors.get(epoch, 1)
        choices.append(
            [None]
            + [Timeline(epoch, each, 3) for each in sorted({0, floor})]
            + [Dropped(epoch, floor, UNTIL)]
        )
    for chosen in product(*choices):
        record = QuarantineRecord(
            tuple(each for each in chosen if isinstance(each, Timeline)),
            tuple(each for each in chosen if isinstance(each, Dropped)),
        )
        if not record.empty:
            yield record


@pytest.mark.parametrize(("first", "next_offset"), [(0, 3), (1, 2), (2, 2), (2, 3)])
def test_what_a_quarantine_record_speaks_of_stays_until_it_is_given_up(
    first: int, next_offset: int
) -> None:
    entry = Entry(first, max(next_offset, first + 1), 0, 0, EntryKind.FRAGMENT, 1, 1, 1, 50)
    tiles = [entry] if first < next_offset else []
    for claims in ledgers():
        root = rooted(first, next_offset, tiles, claims)
        for record, key in product(list(records(claims)), list(keys())):
            if key.kind == "hole":
                check(key, root, tiles, claims, set(), record=record, held=True)
                continue
            for held, taken in ((False, UNTIL), (False, UNTIL + 1), (True, UNTIL + 1)):
                check(key, root, tiles, claims, set(), record=record, held=held, taken_ms=taken)


def test_data_over_a_hole_stays_also_where_it_was_given_up() -> None:
    tiles = [Entry(0, 1, 0, 0, EntryKind.FRAGMENT, 1, 1, 1, 50)]
    tiles.append(Entry(1, 2, 0, 0, EntryKind.HOLE, 0, 0, 1, 51))
    for claims in ledgers():
        root = rooted(0, 2, tiles, claims)
        for record, key in product(list(records(claims)), list(keys())):
            check(key, root, tiles, claims, {1}, record=record, held=True, taken_ms=UNTIL)


def test_only_the_very_object_that_a_leaf_names_is_referenced() -> None:
    for tiles, claims in product(list(tilings(0, 3)), list(ledgers())):
        root = rooted(0, 3, tiles, claims)
        for each in tiles:
            own = each.data_key(STREAM)
            others = [
                replace(own, uid=9),
                replace(own, epoch=2),
                replace(own, next_offset=own.next_offset + 1),
                replace(own, kind="hole" if own.kind == "fragment" else "fragment"),
            ]
            for key in (own, *others):
                kind = classify_data(key, root, each, lambda _: True)
                assert (kind is ObjectKind.REFERENCED) == (key == own)
            assert named_by(root, own, no_groups)
            assert not any(named_by(root, key, no_groups) for key in others)


def test_in_every_tree_a_group_is_referenced_exactly_while_a_live_leaf_is_below_it() -> None:
    for number in range(1, 5):
        for made in trees(row([1] * number)):
            live = {each.uid for each in made.live}
            for uid, node in made.nodes.items():
                entry = node.entry()
                own = GroupKey(STREAM, entry.first_offset, uid, int(node.kind))
                alive = any(each.uid in live for each in made.below(entry))
                assert classify_group(own, made.root, made.fetch) is (
                    ObjectKind.REFERENCED if alive else ObjectKind.OLD_GROUP
                )
                assert refers(made.root, own, made.fetch) == alive
                for other in (
                    replace(own, uid=uid + 500),
                    replace(own, first_offset=own.first_offset + 1),
                    replace(own, first_offset=own.first_offset - 1),
                    *(replace(own, level=level) for level in (1, 2, 3) if level != own.level),
                ):
                    assert classify_group(other, made.root, made.fetch) is ObjectKind.OLD_GROUP
            for each in made.flat:
                key = each.data_key(STREAM)
                assert named_by(made.root, key, made.fetch) == (each.uid in live)
                assert not named_by(made.root, replace(key, uid=9), made.fetch)


def test_a_group_beside_every_tree_is_garbage_wherever_it_begins() -> None:
    for number in (1, 2, 3):
        for made in trees(row([1] * number)):
            for first, level in product(range(made.root.next_offset + 2), (1, 2, 3)):
                key = GroupKey(STREAM, first, 77, level)
                assert classify_group(key, made.root, made.fetch) is ObjectKind.OLD_GROUP


def test_a_root_stays_while_it_is_current_or_may_land() -> None:
    for version, item, current in product(range(4), range(4), (False, True)):
        kind = classify_root(RootKey(STREAM, 1, version, 7), version=item, current=current)
        assert kind.garbage == (not current and version <= item)
        assert (kind is ObjectKind.REFERENCED) == current


def test_garbage_stays_garbage_only_through_commits_that_cannot_refer_to_it_again() -> None:
    claims = ((1, 0), (2, 3))
    before = CatalogItem(
        stream=STREAM,
        table_id="t",
        epoch=2,
        version=5,
        first_offset=2,
        next_offset=6,
        ledger=Ledger.of(claims),
        revision=4,
        state_token=8,
    )
    ledgers_after: list[tuple[tuple[int, int], ...]] = [
        claims,
        claims[1:],
        (),
        claims[:1],
        (*claims, (3, 6)),
        ((1, 0), (2, 4)),
        ((0 + 1, 1), (2, 3)),
    ]
    for table, state, revision, token, version, epoch, ledger, first, next_offset in product(
        ("t", "u"),
        (StreamState.LIVE, StreamState.DELETING),
        (4, 5),
        (8, 9),
        (4, 5, 6),
        (1, 2, 3),
        ledgers_after,
        (1, 2, 3),
        (5, 6, 7),
    ):
        now = replace(
            before,
            table_id=table,
            state=state,
            revision=revision,
            state_token=token,
            version=version,
            epoch=epoch,
            ledger=Ledger.of(ledger),
            first_offset=first,
            next_offset=next_offset,
        )
        same_state = (table, state, revision, token) == ("t", StreamState.LIVE, 4, 8)
        no_claim = epoch == 2 and ledger in (claims, claims[1:], ())
        forward = version >= 5 and first >= 2 and next_offset >= 6
        assert survives(before, now) == (same_state and no_claim and forward)


@pytest.mark.parametrize("gone", [False, True])
def test_a_root_whose_own_group_is_gone_refers_to_nothing_below_it(gone: bool) -> None:
    error = NotFoundError("gone") if gone else CorruptDataError("damaged")

    def fetch(_: Entry) -> Node:
        raise error

    for number, holes in ((n, holes) for n in (1, 2, 3) for holes in masks(n)):
        for made in trees(row([1] * number, holes)):
            direct = {each.uid for each in made.root.entries}
            for each in made.live:
                key = each.data_key(STREAM)
                assert refers(made.root, key, fetch) == (each.uid in direct)
                if each.uid not in direct:
                    with pytest.raises(type(error)):
                        named_by(made.root, key, fetch)
