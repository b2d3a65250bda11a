"""Which of several objects a rebuild takes: by what trees say, by trailers, and by data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from coldstream.errors import CorruptDataError, RefusedFragmentError
from coldstream.fragment import Trailer
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.node import Node
from coldstream.manifest.root import Root
from coldstream.manifest.tree import leaves
from coldstream.names import DataKey
from coldstream.plans.key_columns import KeyReader
from coldstream.plans.rebuild import KnownManifest, Named, Open, Rebuild, Rebuilt
from coldstream.plans.rebuild_ledger import MAX_EPOCHS, Witnesses
from coldstream.plans.rebuild_trees import MAX_TREES, Tree, asked, sections
from coldstream.plans.resolve import Listed, Verified
from coldstream.ports import ObjectInfo
from coldstream_devkit.fragments import SyntheticFragment
from tests.support.remote import PREFIX, STREAM, piece

OPEN = Ledger.of([(1, 0)])


def hole(first: int, next_offset: int, uid: int = 1) -> DataKey:
    return DataKey(STREAM, first, next_offset, 1, uid, "hole")


def entry(made: SyntheticFragment | DataKey) -> Entry:
    if isinstance(made, DataKey):
        return Entry(
            made.first_offset, made.next_offset, 5, 5, EntryKind.HOLE, 0, 0, made.epoch, made.uid
        )
    listed = Listed(made.key, made.path(PREFIX), len(made.data))
    return Verified(listed, made.trailer).entry()


class Bucket:
    """Objects, some of which are damaged, and a rebuild of them."""

    def __init__(self, *made: SyntheticFragment | DataKey) -> None:
        self.made = list(made)
        self.bad_trailers: list[SyntheticFragment] = []
        self.rotten: list[SyntheticFragment] = []
        self.read: list[int] = []

    def rebuilt(self, *trees: Named, **more: Any) -> tuple[Rebuilt, list[Entry]]:
        rows = sorted(
            (
                ObjectInfo(each.path(PREFIX), 0 if isinstance(each, DataKey) else len(each.data), 0)
                for each in self.made
            ),
            key=lambda row: row.key,
        )
        end = trees[-1].next_offset if trees else 0
        known: dict[str, Any] = {}
        if trees:
            first = trees[0].first
            known = {"sections": [*trees, Open(end, None)], "first_offset": first, "until": end}
        plan = Rebuild(
            PREFIX, STREAM, KnownManifest(more.pop("ledger", OPEN), **known, **more),
            branching=4, uids=count(1000), trailers=self._trailers, sound=self._sound,
        )  # fmt: skip
        nodes: dict[int, Node] = {}
        for node in plan.groups([rows[n : n + 2] for n in range(0, len(rows), 2)]):
            nodes[node.uid] = node
        rebuilt = plan.rebuilt(version=1)
        return rebuilt, list(leaves(rebuilt.root, lambda e: nodes[e.uid]))

    def _trailers(self, listed: Sequence[Listed]) -> list[Trailer | RefusedFragmentError]:
        by_key = {e.key: e for e in self.made if isinstance(e, SyntheticFragment)}
        bad = {each.key for each in self.bad_trailers}
        return [
            RefusedFragmentError("no", key=each.path)
            if each.data_key in bad or each.data_key not in by_key
            else by_key[each.data_key].trailer
            for each in listed
        ]

    def _sound(self, fragments: Sequence[Verified]) -> list[bool]:
        self.read += [each.listed.data_key.uid for each in fragments]
        rotten = {each.key for each in self.rotten}
        return [each.listed.data_key not in rotten for each in fragments]


def named(*made: SyntheticFragment | DataKey, certain: bool = True) -> Named:
    return Named(Entries.of(entry(each) for each in made), certain)


def uids(entries: Sequence[Entry]) -> list[int]:
    return [each.uid for each in entries]


A, B, C = piece(0, 10, uid=11), piece(10, 20, uid=12), piece(20, 30, uid=13)


def test_what_a_certain_tree_names_is_taken_though_it_is_rotten() -> None:
    other = piece(10, 20, uid=1)
    bucket = Bucket(A, B, C, other)
    bucket.rotten = [B]

    assert uids(bucket.rebuilt(named(A, B, C))[1]) == [11, 12, 13]
    assert bucket.read == []


def test_what_an_earlier_tree_names_is_taken_if_it_is_whole() -> None:
    bucket = Bucket(A, B, C, piece(10, 20, uid=1))

    assert uids(bucket.rebuilt(named(A, B, C, certain=False))[1]) == [11, 12, 13]
    assert bucket.read == [12]

    bucket.rotten = [B]
    assert uids(bucket.rebuilt(named(A, B, C, certain=False))[1]) == [11, 1, 13]


def test_a_hole_that_no_tree_has_is_no_choice_over_damaged_data_of_a_certain_tree() -> None:
    bucket = Bucket(A, B, C, hole(10, 20))
    bucket.bad_trailers = [B]

    rebuilt, entries = bucket.rebuilt(named(A, B, C))

    assert uids(entries) == [11, 12, 13]
    assert [(each.first, each.next_offset) for each in rebuilt.told.shortfalls] == [(10, 20)]


@pytest.mark.parametrize("certain", [True, False])
def test_a_declared_hole_in_the_place_of_what_is_gone_is_told(certain: bool) -> None:
    bucket = Bucket(A, C, hole(10, 20))

    rebuilt, entries = bucket.rebuilt(named(A, B, C, certain=certain))

    assert uids(entries) == [11, 1, 13]
    assert [(each.first, each.next_offset) for each in rebuilt.told.shortfalls] == [(10, 20)]


def test_a_declared_hole_in_the_place_of_damaged_data_of_an_earlier_tree_is_told() -> None:
    bucket = Bucket(A, B, C, hole(10, 20))
    bucket.bad_trailers = [B]

    rebuilt, entries = bucket.rebuilt(named(A, B, C, certain=False))

    assert uids(entries) == [11, 1, 13]
    assert [(each.first, each.next_offset) for each in rebuilt.told.shortfalls] == [(10, 20)]


def test_a_hole_that_a_tree_has_is_no_shortfall_and_keeps_its_times() -> None:
    bucket = Bucket(A, hole(10, 20), C)

    rebuilt, entries = bucket.rebuilt(named(A, hole(10, 20), C))

    assert entries[1] == entry(hole(10, 20))
    assert (rebuilt.told.shortfalls, rebuilt.made_up) == ([], ())


@pytest.mark.parametrize("late", [[], [piece(12, 15, uid=5)], [piece(15, 25, uid=5)]])
def test_a_hole_of_a_tree_without_an_object_is_to_be_written(late: list[Any]) -> None:
    bucket = Bucket(A, C, *late)

    rebuilt, entries = bucket.rebuilt(named(A, hole(10, 20), C))

    assert uids(entries) == [11, 1, 13]
    assert [each.uid for each in rebuilt.made_up] == [1]
    assert rebuilt.told.shortfalls == []


def test_data_that_a_tree_has_no_word_of_wins_over_a_hole_only_as_a_whole() -> None:
    whole, part = piece(10, 20, uid=5), piece(10, 15, uid=6)

    assert uids(Bucket(A, hole(10, 20), C, whole).rebuilt(named(A, hole(10, 20), C))[1]) == [
        11, 5, 13,
    ]  # fmt: skip
    assert uids(Bucket(A, hole(10, 20), C, part).rebuilt(named(A, hole(10, 20), C))[1]) == [
        11, 1, 13,
    ]  # fmt: skip


def test_pieces_of_which_one_is_gone_count_more_than_one_damaged_object_over_all() -> None:
    over = piece(0, 30, uid=5)
    bucket = Bucket(A, C, over)
    bucket.rotten = [over]

    rebuilt, entries = bucket.rebuilt(named(A, B, C, certain=False))

    assert [(e.first_offset, e.kind) for e in entries][1] == (10, EntryKind.HOLE)
    assert [(each.first, each.next_offset) for each in rebuilt.told.shortfalls] == [(10, 20)]


def test_a_damaged_object_is_better_than_none() -> None:
    other = piece(10, 20, uid=5)
    bucket = Bucket(A, C, other)
    bucket.rotten = [other]

    rebuilt, entries = bucket.rebuilt(named(A, B, C))

    assert uids(entries) == [11, 5, 13]
    assert rebuilt.told.damaged == [(10, 20)]
    assert bucket.read == [5]


def test_where_all_are_damaged_without_a_tree_one_is_taken_and_told() -> None:
    other = piece(10, 20, uid=5)
    bucket = Bucket(A, B, C, other)
    bucket.rotten = [B, other]

    rebuilt, entries = bucket.rebuilt()

    assert [each.first_offset for each in entries] == [0, 10, 20]
    assert rebuilt.told.damaged == [(10, 20)]


def test_without_a_tree_a_whole_object_beats_damaged_ones_that_are_fewer() -> None:
    over = piece(0, 30, uid=5)
    bucket = Bucket(A, B, C, over)
    assert uids(bucket.rebuilt()[1]) == [5]

    bucket.rotten = [over]
    assert uids(bucket.rebuilt()[1]) == [11, 12, 13]


def of_epochs(first: int, next_offset: int, uid: int, *epochs: int) -> SyntheticFragment:
    return piece(first, next_offset, epoch=3, uid=uid, chunk_epochs=epochs)


def test_chunk_epochs_never_fall_where_no_tree_says_what_follows() -> None:
    ledger = Ledger.of([(3, 0)])
    one, bad, good = of_epochs(0, 10, 1, 2), of_epochs(10, 20, 2, 1), of_epochs(10, 20, 3, 2)
    bucket = Bucket(one, bad, good, of_epochs(20, 30, 4, 3))

    rebuilt, entries = bucket.rebuilt(ledger=ledger)

    assert uids(entries) == [1, 3, 4]
    assert len(rebuilt.told.refused) == 1


def test_chunk_epochs_never_fall_from_what_takes_a_place_to_what_a_tree_names() -> None:
    ledger = Ledger.of([(3, 0)])
    one, gone, after = of_epochs(0, 10, 1, 1), of_epochs(10, 20, 9, 1), of_epochs(20, 30, 4, 2)
    bad, good = of_epochs(10, 20, 2, 3), of_epochs(10, 20, 3, 1)
    bucket = Bucket(one, bad, good, after, piece(10, 30, epoch=3, uid=77, chunk_epochs=(0,)))

    rebuilt, entries = bucket.rebuilt(named(one, gone, after), ledger=ledger)

    assert uids(entries) == [1, 3, 4]
    assert len(rebuilt.told.refused) >= 1


def test_a_gap_behind_the_end_is_told_at_its_first_offset() -> None:
    made = [piece(n, n + 10, uid=n + 1) for n in range(0, 60, 10)]
    bucket = Bucket(*made)
    bucket.bad_trailers = [made[2]]

    rebuilt, entries = bucket.rebuilt()

    assert (rebuilt.beyond, rebuilt.root.next_offset) == (30, 20)
    assert [(e.first, e.next_offset) for e in rebuilt.told.shortfalls] == [(20, 30), (20, 30)]
    assert len(entries) == 2


def test_without_trailers_it_is_told_what_is_gone() -> None:
    rows = [ObjectInfo(each.path(PREFIX), len(each.data), 0) for each in (A, C)]
    plan = Rebuild(
        PREFIX, STREAM, KnownManifest(OPEN, 0, [named(A, B, C), Open(30, None)], 30, False, True),
        branching=4, uids=count(9),
    )  # fmt: skip

    list(plan.groups([rows]))

    assert [(e.first, e.next_offset) for e in plan.told.shortfalls] == [(10, 20)]


def test_a_manifest_may_begin_inside_its_first_object() -> None:
    tree = Tree(
        Root(5, 30, epoch=1, ledger=OPEN, entries=Entries.of(map(entry, (A, B, C)))),
        lambda _: pytest.fail("there is no group"),
        OPEN,
        certain=True,
    )

    found = list(sections(lambda number: tree if not number else None, 5, 30))

    assert found == [named(A, B, C), Open(30, None)]


def test_of_an_earlier_tree_only_whole_objects_count() -> None:
    after = entry(piece(25, 40, uid=10))
    trees = [tree_of([group(0, 25), after], certain=True), tree_of([entry(A), entry(B), entry(C)])]

    found = list(sections(lambda n: trees[n] if n < 2 else None, 0, 40))

    assert found == [
        Named(Entries.of([entry(A), entry(B)]), False), Open(20, 25),
        Named(Entries.of([after]), True), Open(40, None),
    ]  # fmt: skip


def test_of_very_many_roots_the_newest_and_some_of_all_are_asked() -> None:
    assert asked(5) == [0, 1, 2, 3, 4]

    numbers = asked(100_000)

    assert len(numbers) == len(set(numbers)) == MAX_TREES
    assert numbers == sorted(numbers)
    assert numbers[: MAX_TREES // 2] == list(range(MAX_TREES // 2))
    assert numbers[-1] > 90_000


def test_more_epochs_than_any_stream_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.plans.rebuild_ledger.MAX_EPOCHS", 3)
    witnesses = Witnesses(KeyReader(PREFIX, STREAM))
    assert MAX_EPOCHS == 20_000

    with pytest.raises(CorruptDataError):
        witnesses.add(
            [ObjectInfo(piece(0, 10, epoch=e, uid=e).path(PREFIX), 9, 0) for e in range(1, 6)]
        )


def test_the_floor_is_asked_of_both_ends_of_an_epoch() -> None:
    witnesses = Witnesses(KeyReader(PREFIX, STREAM))
    made = [piece(n, n + 10, uid=1) for n in range(0, 1000, 10)]
    for begin in range(0, 100, 7):
        witnesses.add([ObjectInfo(e.path(PREFIX), 9, 0) for e in made[begin : begin + 7]])

    firsts = sorted(each.data_key.first_offset for each in witnesses.asked)

    assert firsts == [*range(0, 80, 10), *range(920, 1000, 10)]


def test_a_rotten_object_that_a_certain_tree_names_stays_beside_one_that_is_gone() -> None:
    other = piece(0, 10, uid=5)
    bucket = Bucket(A, C, other, piece(5, 20, uid=6))
    bucket.rotten = [A]

    rebuilt, entries = bucket.rebuilt(named(A, B, C))

    assert (entries[0].uid, entries[2].uid) == (11, 13)
    assert 11 not in bucket.read
    assert [(e.first, e.next_offset) for e in rebuilt.told.shortfalls] == [(10, 20)]


def test_a_hole_counts_more_than_a_damaged_object_also_where_another_one_is_needed() -> None:
    over, last, astray = piece(0, 30, uid=5), piece(30, 50, uid=6), piece(25, 35, uid=7)
    bucket = Bucket(A, C, hole(10, 20), over, last, astray)
    bucket.rotten = [over, last]

    assert uids(bucket.rebuilt()[1]) == [11, 1, 13, 6]


def test_the_fewest_objects_win_whichever_begins_first() -> None:
    three = [piece(0, 4, uid=1), piece(4, 8, uid=2), piece(8, 30, uid=3)]
    two = [piece(0, 10, uid=4), piece(10, 30, uid=5)]

    assert uids(Bucket(*three, *two).rebuilt()[1]) == [4, 5]


def unreadable(_: Entry) -> Node:
    raise CorruptDataError("damaged")


def tree_of(entries: Sequence[Entry], *, certain: bool = False) -> Tree:
    root = Root(
        entries[0].first_offset, entries[-1].next_offset, epoch=1, ledger=OPEN,
        entries=Entries.of(entries),
    )  # fmt: skip
    return Tree(root, unreadable, OPEN, certain)


def group(first: int, next_offset: int) -> Entry:
    return Node(EntryKind.GROUP, 5, Entries.of([entry(piece(first, next_offset, uid=9))])).entry()


def test_an_object_that_begins_before_a_lost_range_is_none_of_an_earlier_tree() -> None:
    earlier = tree_of([entry(A), entry(B), entry(C)])

    assert list(earlier.runs(15, 30, begin=0)) == [Entries.of([entry(C)])]
    assert list(earlier.runs(15, 30, begin=15)) == [Entries.of([entry(B), entry(C)])]


def test_an_earlier_tree_is_asked_for_the_end_of_the_newest() -> None:
    trees = [tree_of([group(0, 30)], certain=True), tree_of([entry(A), entry(B), entry(C)])]

    found = list(sections(lambda n: trees[n] if n < 2 else None, 0, 30))

    assert found == [named(A, B, C, certain=False), Open(30, None)]


def test_most_trailers_of_an_epoch_say_its_floor() -> None:
    witnesses = Witnesses(KeyReader(PREFIX, STREAM))
    made = [piece(n, n + 10, uid=1) for n in range(30, 90, 10)]
    witnesses.add([ObjectInfo(each.path(PREFIX), 9, 0) for each in made])
    said = {each.path(PREFIX): 20 for each in made} | {made[0].path(PREFIX): 5}

    ledger, disputed = witnesses.ledger(said, Ledger())

    assert (ledger, disputed) == (Ledger.of([(1, 20)]), (1,))


def test_what_no_trailer_holds_of_below_where_the_manifest_begins_is_told_as_missing() -> None:
    """Else a rebuild whose oldest objects are damaged begins above them without a word."""
    made = [piece(n, n + 10, uid=n + 1) for n in range(0, 60, 10)]
    bucket = Bucket(*made)
    bucket.bad_trailers = made[:2]

    rebuilt, _ = bucket.rebuilt()

    assert (rebuilt.root.first_offset, rebuilt.root.next_offset) == (20, 60)
    assert [(e.first, e.next_offset) for e in rebuilt.told.shortfalls] == [(0, 20)]


@pytest.mark.parametrize("certain", [True, False])
def test_rotten_data_never_takes_the_place_of_a_hole_that_a_tree_names(certain: bool) -> None:
    lost = hole(10, 20)
    bucket = Bucket(A, B, C, lost)
    bucket.rotten = [B]

    _, entries = bucket.rebuilt(named(A, lost, C, certain=certain))

    assert uids(entries) == [11, lost.uid, 13]
    assert bucket.read == [12]
