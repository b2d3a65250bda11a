from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.invariants import Invariant, coverage, fencing, tree_sums
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import Root
from coldstream_devkit.steps import contiguous_advance, prefix_retention
from tests.support.tier import BRANCHING, Tier, chunk


@pytest.fixture
def root() -> Root:
    return Tier().add("s", [[chunk(n, b"a", b"b")] for n in range(0, 10, 2)])


def test_every_invariant_has_a_rule_in_words() -> None:
    assert all(len(each.rule) > 20 for each in Invariant)


def test_a_root_as_it_was_built_holds(root: Root) -> None:
    assert coverage(root) == fencing(root) == contiguous_advance(root, root) == []


def test_entries_that_end_elsewhere_than_the_root_do_not_cover_it(root: Root) -> None:
    assert coverage(replace(root, next_offset=12))
    assert coverage(replace(root, first_offset=2))
    assert coverage(replace(root, entries=Entries()))


def test_growing_by_entries_from_the_old_end_is_an_advance(root: Root) -> None:
    before = replace(root, next_offset=6, entries=Entries.of(list(root.entries)[:3]))

    assert contiguous_advance(before, root) == []


def test_next_falls_only_under_a_higher_epoch(root: Root) -> None:
    shorter = replace(root, next_offset=6, entries=Entries.of(list(root.entries)[:3]))
    claimed = replace(shorter, epoch=2, ledger=Ledger.of([(1, 0), (2, 6)]))

    assert contiguous_advance(root, shorter)
    assert contiguous_advance(root, claimed) == []


def test_first_never_falls_and_the_last_fragment_stays(root: Root) -> None:
    retained = replace(root, first_offset=4, entries=Entries.of(list(root.entries)[2:]))
    emptied = replace(root, first_offset=10, entries=Entries())

    assert prefix_retention(root, retained) == []
    assert prefix_retention(retained, root)
    assert prefix_retention(root, emptied)


def test_a_fragment_of_an_epoch_that_never_claimed_is_fenced(root: Root) -> None:
    assert fencing(replace(root, epoch=2, ledger=Ledger.of([(2, 0)])))


def tree(count: int = 45) -> tuple[Tier, Root]:
    tier = Tier()
    return tier, tier.add_tree("s", [[chunk(n, b"a")] for n in range(count)])


def test_the_sums_of_a_tree_hold() -> None:
    tier, root = tree()

    assert tree_sums(root, tier.fetch("s"), longest=BRANCHING) == []
    assert tree_sums(root, tier.fetch("s"), longest=BRANCHING - 1)


def test_a_group_that_says_something_else_than_its_entry_is_found() -> None:
    tier, root = tree()
    fetch, first = tier.fetch("s"), root.entries[0]
    lie = replace(fetch(first), uid=99)

    found = tree_sums(root, lambda entry: lie if entry == first else fetch(entry))

    assert [(each.invariant, each.first_offset) for each in found] == [(Invariant.TREE_SUMS, 0)]


def test_a_group_behind_a_fragment_is_found() -> None:
    tier, root = tree()
    entries = list(root.entries)
    moved = replace(entries[0], first_offset=root.next_offset, next_offset=root.next_offset + 16)

    found = tree_sums(replace(root, entries=Entries.of([*entries, moved])), tier.fetch("s"))

    assert "behind an entry of a lower level" in found[0].message


def test_a_total_that_no_fragment_accounts_for_is_found() -> None:
    tier, root = tree()
    assert root.head is not None
    wrong = replace(root, head=replace(root.head, dead_fragments=1))

    assert {each.invariant for each in tree_sums(wrong, tier.fetch("s"))} == {Invariant.TREE_SUMS}


@pytest.fixture
def flat() -> list[Entry]:
    """Five fragments of two records: offsets 0 to 9."""
    tier = Tier()
    root = tier.add("s", [[chunk(n, b"a", b"b", timestamp=n)] for n in range(0, 10, 2)])
    return list(root.entries)


def merged(entries: list[Entry], **changes: object) -> Entry:
    values = {
        "next_offset": entries[-1].next_offset,
        "max_timestamp": entries[-1].max_timestamp,
        "records": sum(e.records for e in entries),
        "uid": 1000,
        **changes,
    }
    return replace(entries[0], **values)  # type: ignore[arg-type]


def kept(before: list[Entry], after: list[Entry], **of_after: object) -> list[str]:
    """What `prefix_retention` says of two flat manifests."""
    ledger = Ledger.of([(1, 0)])
    old = Root(before[0].first_offset, before[-1].next_offset, epoch=1, ledger=ledger)
    new = replace(old, **{"first_offset": after[0].first_offset,
                          "next_offset": after[-1].next_offset, **of_after})  # fmt: skip
    return [each.message for each in prefix_retention(old, new, before, after)]


def test_fragments_may_be_replaced_by_one_that_holds_the_same(flat: list[Entry]) -> None:
    assert kept(flat, [flat[0], merged(flat[1:4]), flat[4]]) == []
    assert kept(flat, [merged(flat)]) == []
    assert kept([merged(flat)], flat) == []
    assert kept(flat, [merged(flat[1:3]), *flat[3:]]) == []  # retention took the first


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"records": 5}, "records"),
        ({"max_timestamp": 5}, "timestamps"),
        ({"min_timestamp": -1}, "timestamps"),
        ({"epoch": 2}, "epochs"),
        ({"kind": EntryKind.HOLE}, "a hole has taken"),
    ],
)
def test_a_replacement_that_does_not_hold_the_same_is_found(
    flat: list[Entry], changes: dict[str, object], words: str
) -> None:
    (problem,) = kept(flat, [flat[0], merged(flat[1:4], **changes), flat[4]])

    assert words in problem


def test_a_fragment_that_is_not_there_any_more_is_found(flat: list[Entry]) -> None:
    assert kept(flat, [flat[0], *flat[2:]])
    assert kept(flat, flat[:3])
    assert kept(flat, [flat[0], merged(flat[1:4], next_offset=7), flat[4]])


def test_only_what_a_claim_has_cut_off_may_go(flat: list[Entry]) -> None:
    claimed = {"epoch": 2, "ledger": Ledger.of([(1, 0), (2, 6)])}

    assert kept(flat, flat[:3], **claimed) == []
    assert kept(flat, flat[:2], **claimed)
    assert kept(flat, [*flat[:2], merged(flat[2:3], epoch=2, uid=7)], **claimed)
    cut = merged(flat[2:3], next_offset=5, records=1)
    five = {"epoch": 2, "ledger": Ledger.of([(1, 0), (2, 5)])}
    assert kept(flat, [*flat[:2], cut], **five) == []


def test_data_may_take_the_place_of_a_hole(flat: list[Entry]) -> None:
    holey = [flat[0], replace(flat[1], kind=EntryKind.HOLE, records=0, size=0), *flat[2:]]

    assert kept(holey, flat) == []
    assert kept(flat, holey)


def test_the_last_fragment_is_no_hole(flat: list[Entry]) -> None:
    hole = replace(flat[4], kind=EntryKind.HOLE, records=0, size=0)

    assert kept([*flat[:4], hole], [hole]) == ["the last fragment is gone"]


def test_what_is_new_begins_at_the_old_end(flat: list[Entry]) -> None:
    old = Root(0, 6, epoch=1, ledger=Ledger.of([(1, 0)]))
    new = replace(old, next_offset=10)

    assert contiguous_advance(old, new, flat) == []
    assert contiguous_advance(old, new, [*flat[:2], merged(flat[2:4]), flat[4]])


def test_what_follows_a_cut_begins_at_the_cut(flat: list[Entry]) -> None:
    old = Root(0, 8, epoch=1, ledger=Ledger.of([(1, 0)]))
    new = Root(0, 10, epoch=2, ledger=Ledger.of([(1, 0), (2, 6)]))

    assert contiguous_advance(old, new, [*flat[:3], merged(flat[3:], epoch=2)]) == []
    assert contiguous_advance(old, new, [*flat[:2], merged(flat[2:], epoch=2)])
