"""Every small tree against the flat list of leaves that it stands for.

Scope: look-ups in the trees of up to two levels over 1 to 4 leaves (81 shapes over 4), each leaf a
fragment or a hole, of one or two offsets, with each number of leaves that retention has taken
(2,942 trees, each asked at every offset); look-ups by time over all orders of three clocks;
the truncation at every offset; rebalancing with 1 to 3 entries a group; growth from every division
into batches; and the sizes at which an entry is full.

Why it is enough: a look-up decides at each level by one entry and its neighbours, so a border can
lie between two leaves, two groups, two kilo-groups, or a group and the root's own leaves, with
something dead before it or not. All of these occur, and a fetch of a dead group fails the test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, product
from typing import Any

import pytest

from coldstream.errors import CorruptDataError, InternalError
from coldstream.manifest.entries import MAX_RECORDS, MAX_SIZE, Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.node import Node
from coldstream.manifest.root import LastChunk, Root, parse_root
from coldstream.manifest.tree import (
    fragments_reaching,
    head_of,
    last_bytes,
    leaf_at,
    leaves,
    leaves_backwards,
    nodes,
    over_hole,
    path_to,
)
from coldstream.plans import grow as grow_module
from coldstream.plans import rebalance as rebalance_module
from coldstream.plans.claim import LocalChunk
from coldstream.plans.grow import Growth
from coldstream.plans.rebalance import crowd, fitting, rebalance
from coldstream.plans.truncate import Cut, cut_sums, remainder, truncated
from tests.exhaustive.small_trees import (
    BASE,
    Tree,
    leaf,
    masks,
    nested_of,
    row,
    shapes,
    size_of,
    tree,
    trees,
    with_first,
)


def every_tree(most: int) -> Iterator[Tree]:
    """All kinds of leaves in all trees; the lengths go 1, 2, 1, 2 or 2, 1, 2, 1."""
    for number, holes in ((n, holes) for n in range(1, most + 1) for holes in masks(n)):
        lengths = [1 + (each + sum(holes)) % 2 for each in range(number)]
        yield from trees(row(lengths, holes))


def test_a_tree_gives_the_same_leaves_as_the_flat_list_from_every_offset_on() -> None:
    for made in every_tree(4):
        root, live = made.root, made.live
        assert parse_root(root.encode()) == root
        assert list(leaves_backwards(root, made.fetch)) == live[::-1]
        for offset in range(BASE - 1, root.next_offset + 2):
            rest = [each for each in live if each.next_offset > offset]
            assert list(leaves(root, made.fetch, start=offset)) == rest
            inside = [each for each in live if each.first_offset <= offset < each.next_offset]
            made.fetched.clear()
            found = leaf_at(root, offset, made.fetch)
            assert found == (inside[0] if inside else None)
            assert len(made.fetched) <= 2
            if inside:
                path = path_to(root.entries, offset, made.fetch)
                assert path[-1] == inside[0]
                assert all(each.kind.level for each in path[:-1])
                assert all(made.nodes[one.uid].entries for one in path[:-1])
            else:
                outside = not BASE <= offset < root.next_offset
                if outside:
                    with pytest.raises(CorruptDataError):
                        path_to(root.entries, offset, made.fetch)


def test_a_hole_is_seen_over_a_range_exactly_where_a_live_one_shares_an_offset_with_it() -> None:
    for made in every_tree(3):
        holes = {
            offset
            for each in made.live
            if each.kind is EntryKind.HOLE
            for offset in range(each.first_offset, each.next_offset)
        }
        for first, next_offset in product(range(BASE - 1, made.root.next_offset + 2), repeat=2):
            if made.root.first_offset <= first < next_offset:
                shared = bool(holes & set(range(first, next_offset)))
                assert over_hole(made.root, first, next_offset, made.fetch) == shared


def test_the_sums_and_the_head_of_a_root_are_those_of_its_live_leaves() -> None:
    for made in every_tree(4):
        root, live = made.root, made.live
        assert root.total_size == sum(each.size for each in live)
        assert root.fragments == len(live)
        assert root.head == head_of(root.entries, root.first_offset, made.fetch)
        assert root.first_timestamp == live[0].min_timestamp
        named = {
            each.uid for each in nodes(root.entries, made.fetch, first_offset=root.first_offset)
        }
        alive = {uid for uid, node in made.nodes.items() if set(made.below(node.entry())) & {*live}}
        assert named == alive
        assert head_of(Entries(), BASE, made.fetch) is None


def test_a_head_is_looked_for_where_a_group_is_and_an_offset_outside_is_damage() -> None:
    for made in every_tree(3):
        if made.root.head is None:
            assert head_of(made.root.entries, made.root.next_offset, made.fetch) is None
            continue
        for outside in (BASE - 1, made.root.next_offset):
            with pytest.raises(CorruptDataError):
                head_of(made.root.entries, outside, made.fetch)


def test_the_youngest_fragments_that_come_to_some_bytes_begin_where_the_flat_list_says() -> None:
    for made in every_tree(4):
        live = made.live
        for size in range(1, made.root.total_size + 2):
            begin = None
            for number in range(len(live)):
                if sum(each.size for each in live[number:]) >= size:
                    begin = live[number].first_offset
            assert last_bytes(made.root, size, made.fetch) == begin


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_look_up_by_time_gives_each_live_fragment_that_reaches_it_however_clocks_jump(
    number: int,
) -> None:
    for times, holes in product(product((1, 2, 3), repeat=number), masks(number)):
        if sum(holes) > 1:
            continue
        flat = [leaf(BASE + n, hole=holes[n], at=10 * times[n], size=n + 1) for n in range(number)]
        for made in trees(flat):
            for time in (9, 10, 11, 20, 21, 30, 31):
                right = [
                    each
                    for each in made.live
                    if each.kind is EntryKind.FRAGMENT and each.max_timestamp >= time
                ]
                assert list(fragments_reaching(made.root, time, made.fetch)) == right


def test_the_remainder_of_every_tree_at_every_offset_is_what_the_flat_list_keeps() -> None:
    for made in every_tree(3):
        root = made.root
        for offset in range(root.first_offset + 1, root.next_offset + 1):
            made.fetched.clear()
            rest = remainder(root, offset, made.fetch)
            assert all(each.first_offset < offset < each.next_offset for each in made.fetched), (
                "only groups that reach over the cut are asked for"
            )
            kept = Tree(replace(root, entries=Entries.of(rest.kept)), made.flat, made.nodes)
            below = [each for each in made.live if each.next_offset <= offset]
            over = [each for each in made.live if each.first_offset < offset < each.next_offset]
            found = (
                list(leaves(replace(kept.root, next_offset=offset), made.fetch)) if below else []
            )
            assert found == below
            assert rest.across == (over[0] if over else None)
            beginning = replace(over[0], next_offset=offset, uid=7) if over else None
            cut = Cut(offset, LastChunk(offset - 1, 1), LocalChunk(offset, offset + 1, 2))
            after = truncated(root, cut, rest, beginning, made.fetch)
            ends = [*below, *([beginning] if beginning else [])]
            assert list(leaves(after, made.fetch)) == ends
            assert (after.total_size, after.fragments) == (sum(e.size for e in ends), len(ends))
            assert after.last_chunk == cut.last_chunk
            if over:
                with pytest.raises(InternalError):
                    truncated(root, cut, rest, None, made.fetch)


def test_what_a_cut_takes_is_counted_as_in_the_flat_list() -> None:
    for made in every_tree(4):
        for floor in range(BASE - 1, made.root.next_offset + 1):
            cut = [each for each in made.live if each.next_offset > floor]
            sums = (len(cut), sum(each.size for each in cut))
            made.fetched.clear()
            assert cut_sums(made.root, floor, made.fetch) == sums
            assert all(e.first_offset < floor < e.next_offset for e in made.fetched)


def test_a_manifest_that_begins_anew_is_empty_and_its_loss_begins_at_the_lower_of_both() -> None:
    for made in every_tree(2):
        for offset in range(made.root.next_offset + 3):
            cut = Cut(offset, None, LocalChunk(offset, offset + 1, 2), anew=True)
            after = truncated(made.root, cut, None, None, made.fetch)
            assert (after.first_offset, after.next_offset) == (offset, offset)
            assert (after.fragments, after.total_size, after.last_chunk) == (0, 0, None)
            assert cut.floor(made.root) == sorted([offset, made.root.first_offset])[0]
            assert replace(cut, anew=False).floor(made.root) == offset


# --- rebalancing and growth ------------------------------------------------------------------


def grouped(nested: list[Any], branching: int) -> list[Any]:
    """By the words: a root with 2M entries of a level gives the oldest M of them to a group."""

    def height(each: Any) -> int:
        return 1 + height(each[0]) if isinstance(each, list) else 0

    done = list(nested)
    for level in (0, 1, 2):
        while len(same := [each for each in done if height(each) == level]) >= 2 * branching:
            at = done.index(same[0])
            done[at : at + branching] = [done[at : at + branching]]
    return done


def listed(nested: Any) -> Any:
    return [listed(each) for each in nested] if isinstance(nested, tuple) else nested


@pytest.mark.parametrize("branching", [1, 2, 3])
def test_a_root_with_twice_as_many_entries_as_a_group_gives_the_oldest_to_one(
    branching: int,
) -> None:
    for number in range(6 if branching < 3 else 7):
        flat = [leaf(BASE + n, uid=n, size=2**n, at=20 + n) for n in range(number)]
        for shape in shapes(number):
            made = tree(shape, flat)
            expected = grouped(listed(shape), branching)
            crowded = crowd(made.root, branching)
            assert (crowded is None) == (expected == listed(shape))
            change = rebalance(made.root, branching, count(5000))
            after = made.after(change.root, change.nodes)
            assert nested_of(change.root, after.nodes) == expected
            assert list(leaves(change.root, after.fetch)) == flat
            assert parse_root(change.root.encode()) == change.root
            assert change.root.head == (
                head_of(change.root.entries, BASE, after.fetch) if number else None
            )
            assert crowd(change.root, branching) is None
            assert len({node.uid for node in change.nodes}) == len(change.nodes)
            if crowded is None:
                assert change.root is made.root
                assert not change.nodes
            else:
                heights = sorted({each.kind.level for each in made.root.entries})
                first = next(
                    entry
                    for level in heights
                    if len(same := [e for e in made.root.entries if e.kind.level == level])
                    >= 2 * branching
                    for entry in same[:1]
                )
                assert crowded == first


def test_a_rebalance_leaves_what_retention_has_taken_dead() -> None:
    for number, branching in product(range(2, 6), (1, 2)):
        for made in trees(row([1] * number)):
            change = rebalance(made.root, branching, count(5000))
            after = made.after(change.root, change.nodes)
            assert list(leaves(change.root, after.fetch)) == made.live
            assert change.root.total_size == made.root.total_size
            assert parse_root(change.root.encode()) == change.root


@pytest.mark.parametrize("branching", [1, 2, 3])
def test_a_tree_grows_to_the_same_from_whatever_batches_it_gets(branching: int) -> None:
    for number in range(1, 8):
        flat = [leaf(BASE + n, uid=n) for n in range(number)]
        expected: list[Any] = []
        for each in range(number):
            expected = grouped([*expected, each], branching)
        for cuts in masks(number - 1):
            growth = Growth(branching, count(5000))
            made: dict[int, Node] = {}
            batch = b""
            for entry, ends in zip(flat, [*cuts, True], strict=True):
                batch += entry.encode()
                if not ends:
                    continue
                for node in growth.append(batch):
                    assert all(child.uid in made for child in node.entries if child.kind.level), (
                        "children come first"
                    )
                    made[node.uid] = node
                batch = b""
            root = Root(BASE, BASE + number, entries=growth.entries())
            assert nested_of(root, made) == expected


BYTES = (1, 2**55, MAX_SIZE - 1, MAX_SIZE)
COUNTS = (1, 2**31, MAX_RECORDS - 1, MAX_RECORDS)


def fits(entries: Sequence[Entry]) -> bool:
    return sum(e.size for e in entries) < 2**56 and sum(e.fragments for e in entries) < 2**32


def test_a_group_takes_only_as_many_entries_as_its_own_entry_can_say_and_at_least_one() -> None:
    for number in range(1, 4):
        for sizes, counts in product(product(BYTES, repeat=number), product(COUNTS, repeat=number)):
            entries = [
                Entry(n, n + 1, 0, 0, EntryKind.GROUP, sizes[n], counts[n], 1, n)
                for n in range(number)
            ]
            most = 1
            for length in range(1, number + 1):
                if fits(entries[:length]):
                    most = length
            assert fitting(entries) == most


def test_no_group_of_a_growing_or_rebalanced_tree_says_more_than_an_entry_can() -> None:
    for sizes in product(BYTES, repeat=4):
        flat = [
            Entry(n, n + 1, 0, 0, EntryKind.FRAGMENT, size, 1, 1, n) for n, size in enumerate(sizes)
        ]
        growth = Growth(2, count(5000))
        made = {node.uid: node for node in growth.append(b"".join(e.encode() for e in flat))}
        root = Root(0, 4, epoch=1, ledger=Ledger.of([(1, 0)]), entries=Entries.of(flat))
        change = rebalance(root, 2, count(5000))
        assert list(change.root.entries) == list(growth.entries())
        assert {node.uid: node for node in change.nodes} == made
        assert all(fits(list(node.entries)) or len(node.entries) == 1 for node in made.values())
        first = next(iter(made.values()))
        assert first.entries[0] == flat[0]
        assert len(first.entries) == (2 if fits(flat[:2]) else 1)


def test_no_group_of_groups_stands_for_more_fragments_than_an_entry_can_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for most, number in product((2, 3, 4), range(1, 13)):
        for part in (rebalance_module, grow_module):
            monkeypatch.setattr(part, "MAX_RECORDS", most)
        flat = [leaf(BASE + n, uid=n) for n in range(number)]
        growth = Growth(2, count(5000))
        made = {node.uid: node for node in growth.append(b"".join(e.encode() for e in flat))}
        for node in made.values():
            assert len(node.entries) == 1 or sum(e.fragments for e in node.entries) <= most
        grown = Root(BASE, BASE + number, epoch=1, entries=growth.entries())
        assert list(leaves(grown, lambda entry: made[entry.uid])) == flat  # noqa: B023
        change = rebalance(tree(tuple(range(number)), flat).root, 2, count(5000))
        for node in change.nodes:
            assert len(node.entries) == 1 or sum(e.fragments for e in node.entries) <= most


def test_look_ups_hold_where_the_first_offset_lies_inside_a_fragment() -> None:
    for number in (1, 2, 3):
        for shape in shapes(number):
            whole = tree(shape, row([2] * number))
            for dead in range(size_of(shape[0])):
                made = with_first(whole, whole.flat[dead].first_offset + 1)
                assert list(leaves(made.root, made.fetch)) == made.live
                assert list(leaves_backwards(made.root, made.fetch)) == made.live[::-1]
                assert leaf_at(made.root, made.root.first_offset, made.fetch) == made.live[0]
                assert leaf_at(made.root, made.root.first_offset - 1, made.fetch) is None
                assert head_of(made.root.entries, made.root.first_offset, made.fetch) == (
                    made.root.head
                )
