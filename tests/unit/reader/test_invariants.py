from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.manifest.entries import Entries
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import Root
from coldstream.testing.invariants import (
    Invariant,
    contiguous_advance,
    coverage,
    fencing,
    prefix_retention,
)
from tests.unit.reader.tier import Tier, chunk


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
