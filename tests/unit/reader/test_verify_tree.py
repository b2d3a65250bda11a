"""Verifying trees: groups are read and summed up, and nothing is held that grows with them."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from itertools import pairwise

import pytest

from coldstream.manifest.entries import Entry
from coldstream.manifest.invariants import Invariant
from coldstream.manifest.root import Root
from coldstream.manifest.tree import nodes
from coldstream.manifest.walk import object_path
from coldstream.plans.retention import RetentionLimits, plan_retention
from coldstream.ports import ObjectInfo
from coldstream.reader import MemoryBudget, report
from coldstream.reader.report import VerifyReport
from coldstream.reader.verify import verify_stream
from coldstream.remote.listing import SizesInOrder
from tests.support.tier import BRANCHING, PREFIX, SMALL, Tier, chunk

FRAGMENTS = 45


def verify(tier: Tier, *, deep: bool = False) -> VerifyReport:
    return verify_stream(
        tier.store, tier.catalog, PREFIX, "s", deep=deep, settings=SMALL, budget=MemoryBudget()
    )


def ranges(found: VerifyReport) -> list[tuple[int, int, str]]:
    return [(each.first_offset, each.next_offset, str(each.status)) for each in found.ranges]


@pytest.fixture
def tier() -> Tier:
    return Tier()


@pytest.fixture
def root(tier: Tier) -> Root:
    return tier.add_tree("s", [[chunk(n, b"m%d" % n)] for n in range(FRAGMENTS)])


def groups_of(tier: Tier, root: Root) -> list[Entry]:
    return list(nodes(root.entries, tier.fetch("s"), first_offset=root.first_offset))


def retained(tier: Tier, root: Root, fragments: int) -> Root:
    size = sum(e.size for e in tier.leaves("s", root)[-fragments:])
    plan = plan_retention(root, RetentionLimits(max_bytes=size), now_ms=0, fetch=tier.fetch("s"))
    return tier.commit("s", plan.root)


@pytest.mark.parametrize("deep", [False, True])
def test_a_tree_as_it_was_built_is_sound(tier: Tier, root: Root, deep: bool) -> None:
    found = verify(tier, deep=deep)

    assert found.violations == ()
    assert ranges(found) == [(0, FRAGMENTS, "PRESENT")]
    assert [each.fragments for each in found.ranges] == [FRAGMENTS]
    assert found.groups == len(groups_of(tier, root)) > 10


@pytest.mark.parametrize("left", range(1, FRAGMENTS))
def test_a_tree_that_retention_has_cut_anywhere_is_sound(tier: Tier, root: Root, left: int) -> None:
    dead = tier.leaves("s", root)[:-left]
    cut = retained(tier, root, left)
    for entry in dead:
        del tier.store.objects[object_path(PREFIX, "s", entry)]

    found = verify(tier)

    assert found.violations == ()
    assert ranges(found) == [(cut.first_offset, FRAGMENTS, "PRESENT")]


@pytest.mark.parametrize("damage", ["MISSING", "CORRUPT"])
def test_a_group_that_cannot_be_read_is_a_finding_with_its_key_and_range(
    tier: Tier, root: Root, damage: str
) -> None:
    for group in groups_of(tier, root):
        key = object_path(PREFIX, "s", group)
        kept = tier.store.objects[key]
        if damage == "MISSING":
            del tier.store.objects[key]
        else:
            tier.flip(key, len(kept) // 2)

        found = verify(tier)
        tier.store.objects[key] = kept

        bad = [each for each in found.ranges if str(each.status) == damage]
        assert [(each.first_offset, each.next_offset, each.key) for each in bad] == [
            (group.first_offset, group.next_offset, key)
        ]
        assert {each.invariant for each in found.violations} == {Invariant.DURABILITY}
        assert {each.key for each in found.violations} == {key}
        assert found.ranges[0].first_offset == 0
        assert found.ranges[-1].next_offset == FRAGMENTS
        assert all(a.next_offset == b.first_offset for a, b in pairwise(found.ranges))


def test_a_missing_group_that_holds_the_first_offset_hides_only_what_was_alive(
    tier: Tier, root: Root
) -> None:
    cut = retained(tier, root, FRAGMENTS - 2)
    group = groups_of(tier, cut)[0]
    del tier.store.objects[object_path(PREFIX, "s", group)]

    found = verify(tier)

    assert ranges(found)[0] == (2, group.next_offset, "MISSING")
    assert {each.invariant for each in found.violations} == {Invariant.DURABILITY}


def test_a_head_that_is_wrong_is_found(tier: Tier, root: Root) -> None:
    cut = retained(tier, root, FRAGMENTS - 2)
    assert cut.head is not None
    tier.commit("s", replace(cut, head=replace(cut.head, dead_size=cut.head.dead_size + 1)))

    found = verify(tier)

    assert {each.invariant for each in found.violations} == {Invariant.TREE_SUMS}
    assert len(found.violations) == 2  # the head, and the total that follows from it


def test_a_fragment_that_the_ledger_refuses_is_found_below_a_group(tier: Tier, root: Root) -> None:
    ledger = root.ledger.claimed(2, 3)
    tier.commit("s", replace(root, epoch=2, ledger=ledger))

    fenced = verify(tier).violations_of(Invariant.FENCING)

    assert [each.first_offset for each in fenced] == list(range(3, FRAGMENTS))


def test_groups_that_are_rewritten_while_verifying_are_no_finding(tier: Tier, root: Root) -> None:
    listing = tier.store.list
    old = groups_of(tier, root)

    def retain_then_list(prefix: str, *, start_after: str = "", limit: int = 1000) -> object:
        tier.store.list = listing
        cut = retained(tier, root, 5)
        gone = {object_path(PREFIX, "s", e) for e in (*old, *tier.leaves("s", root))}
        gone -= {object_path(PREFIX, "s", e) for e in groups_of(tier, cut)}
        gone -= {object_path(PREFIX, "s", e) for e in tier.leaves("s", cut)}
        for key in gone:
            del tier.store.objects[key]
        return listing(prefix, start_after=start_after, limit=limit)

    tier.store.list = retain_then_list

    found = verify(tier)

    assert found.sound
    assert ranges(found) == [(FRAGMENTS - 5, FRAGMENTS, "PRESENT")]


@pytest.mark.parametrize("of", ["group", "fragment"])
def test_a_loss_is_told_at_once_though_the_manifest_never_stands_still(
    tier: Tier, root: Root, of: str
) -> None:
    entry = groups_of(tier, root)[1] if of == "group" else tier.leaves("s", root)[7]
    del tier.store.objects[object_path(PREFIX, "s", entry)]
    get, looks = tier.catalog.get, 0

    def restless(stream: str) -> object:
        nonlocal looks
        looks += 1
        tier.catalog.get = get  # type: ignore[method-assign]
        tier.commit("s", root)
        tier.catalog.get = restless  # type: ignore[method-assign,assignment]
        return get(stream)

    tier.catalog.get = restless  # type: ignore[method-assign,assignment]

    found = verify(tier)

    assert (entry.first_offset, entry.next_offset, "MISSING") in ranges(found)
    assert looks == 2


def test_findings_without_end_are_counted_and_not_kept(
    tier: Tier, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "MAX_LISTED", 6)
    for entry in tier.leaves("s", root)[::2]:
        del tier.store.objects[object_path(PREFIX, "s", entry)]

    found = verify(tier)

    assert len(found.violations) == len(found.ranges) == 6
    assert found.count_of(Invariant.DURABILITY) == -(-FRAGMENTS // 2)
    assert ranges(found)[-1] == (5, FRAGMENTS, "MISSING")
    assert not found.sound


class Rows:
    """A bucket of so many listed objects that nobody holds."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.pages = 0

    def list(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        self.pages += 1
        digits = (start_after.removeprefix(prefix) + "0" * 9)[:9]
        first = int(digits) + (len(start_after.removeprefix(prefix)) == 9)
        rows = range(first, min(first + limit, self.count))
        return [ObjectInfo(f"{prefix}{n:09d}", n, 0) for n in rows]


def test_a_listing_is_read_one_page_at_a_time_whatever_its_length() -> None:
    rows = Rows(60_000)
    listing = SizesInOrder(rows, "p/")  # type: ignore[arg-type]
    tracemalloc.start()

    for number in range(1000, 60_000):
        assert listing.size(f"p/{number:09d}") == number
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert listing.size("p/999999999") is None
    assert rows.pages <= 62
    assert peak < 2_000_000


def test_a_listing_passes_over_what_nobody_asks_for() -> None:
    rows = Rows(1_000_000)
    listing = SizesInOrder(rows, "p/")  # type: ignore[arg-type]

    found = [listing.size(f"p/{number:09d}") for number in (5, 500_000, 999_999)]

    assert found == [5, 500_000, 999_999]
    assert rows.pages == 3


def test_the_tree_is_of_several_levels(root: Root) -> None:
    assert {entry.kind.level for entry in root.entries} == {0, 1, 2}
    assert len(root.entries) < 4 * BRANCHING * 2
