"""Every small replacement in every small tree: the same leaves but for those that were replaced.

Scope: every set of disjoint replacements of neighbouring leaves in every tree of up to two levels
over 1 to 4 leaves, with each number of dead ones, for groups of 1 to 3 entries (about 4,500 cases);
every division of leaves into several (3,300); and every single range that does not fit.

Why it is enough: an edit goes down into the entries that a replacement ties together. Two groups
under two kilo-groups beside a leaf of the root have every kind of border that it can reach over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, product

import pytest

from coldstream.errors import InternalError
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.root import parse_root
from coldstream.manifest.tree import leaves
from coldstream.plans.rebalance import Rebalance
from coldstream.plans.splice import splice
from coldstream.plans.substitute import substitute
from tests.exhaustive.small_trees import Tree, leaf, masks, row, trees


def runs(number: int, start: int = 0) -> Iterator[tuple[tuple[int, int], ...]]:
    """Every set of disjoint runs of neighbours among so many leaves."""
    if start >= number:
        yield ()
        return
    yield from runs(number, start + 1)
    for end in range(start + 1, number + 1):
        for rest in runs(number, end):
            yield ((start, end), *rest)


def merged(run: Sequence[Entry], uid: int) -> Entry:
    return replace(
        run[0],
        next_offset=run[-1].next_offset,
        kind=EntryKind.FRAGMENT,
        size=sum(each.size for each in run) + 1,
        records=len(run),
        uid=uid,
    )


def check_edit(made: Tree, change: Rebalance, expected: list[Entry], branching: int) -> None:
    root = change.root
    assert parse_root(root.encode()) == root
    after = Tree(root, expected, {**made.nodes, **{node.uid: node for node in change.nodes}})
    assert list(leaves(root, after.fetch)) == expected
    assert root.total_size == sum(each.size for each in expected)
    assert root.fragments == len(expected)
    named = {each.uid for each in root.entries} | {
        each.uid for node in change.nodes for each in node.entries
    }
    made_now = {node.uid for node in change.nodes}
    assert made_now <= named, "a group was made in vain"
    assert not made_now & set(made.nodes), "groups are immutable"
    assert all(len(node.entries) <= max(branching, 1) for node in change.nodes)
    # A group is named after its children are there, and one that nothing touches stays as it is.
    seen: set[int] = set(made.nodes)
    for node in change.nodes:
        assert all(each.uid in seen for each in node.entries if each.kind.level)
        seen.add(node.uid)
    reachable: set[int] = set()
    waiting = [each for each in root.entries if each.kind.level]
    while waiting:
        entry = waiting.pop()
        if entry.next_offset > root.first_offset:
            reachable.add(entry.uid)
            waiting += [each for each in after.nodes[entry.uid].entries if each.kind.level]
    for uid, node in made.nodes.items():
        inside = [each for each in made.below(node.entry()) if each in made.live]
        if node.kind is EntryKind.GROUP and inside:
            assert (uid in reachable) == (set(inside) <= set(expected))


@pytest.mark.parametrize(("number", "branching"), [(1, 2), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)])
def test_after_every_replacement_the_leaves_are_the_same_but_for_what_was_replaced(
    number: int, branching: int
) -> None:
    replaced(number, branching)


def test_after_every_replacement_of_four_leaves_they_are_the_same_but_for_what_was_replaced() -> (
    None
):
    replaced(4, 2)


def replaced(number: int, branching: int) -> None:
    holes = [n == 1 for n in range(number)]
    for made in trees(row([1 + n % 2 for n in range(number)], holes)):
        live = made.live
        for chosen in runs(len(live)):
            new = [merged(live[a:b], 7000 + a) for a, b in chosen]
            expected = list(live)
            for (a, b), entry in reversed([*zip(chosen, new, strict=True)]):
                expected[a:b] = [entry]
            change = splice(made.root, new, branching=branching, fetch=made.fetch, uids=count(5000))
            if not new:
                assert change.root is made.root
                assert not change.nodes
                continue
            check_edit(made, change, expected, branching)


def test_a_replacement_that_does_not_fit_the_borders_of_live_leaves_is_refused() -> None:
    for number in (1, 2, 3):
        for made in trees(row([2, 1, 2][:number])):
            starts = {each.first_offset for each in made.live}
            ends = {each.next_offset for each in made.live}
            for first, next_offset in product(range(1, made.root.next_offset + 3), repeat=2):
                if not first < next_offset or first >= made.root.next_offset:
                    continue
                new = [leaf(first, next_offset - first, uid=7)]
                if first in starts and next_offset in ends:
                    splice(made.root, new, branching=2, fetch=made.fetch, uids=count(5000))
                    continue
                with pytest.raises(InternalError):
                    splice(made.root, new, branching=2, fetch=made.fetch, uids=count(5000))


@pytest.mark.parametrize(("number", "branching"), [(1, 2), (2, 1), (2, 2), (3, 1), (3, 2), (4, 2)])
def test_after_every_division_the_leaves_are_the_same_but_for_what_was_divided(
    number: int, branching: int
) -> None:
    for made in trees(row([2] * number), levels=2 if number < 4 else 1):
        live = made.live
        for chosen in product((0, 1, 2), repeat=len(live)):
            changes: dict[Entry, list[Entry]] = {}
            for each, into in zip(live, chosen, strict=True):
                first = each.first_offset
                if into == 1:
                    changes[each] = [leaf(first, 2, hole=True, uid=7000 + first)]
                elif into == 2:
                    changes[each] = [
                        leaf(first, 1, size=9, uid=8000 + first),
                        leaf(first + 1, 1, hole=True, uid=9000 + first),
                    ]
            expected = [new for each in live for new in changes.get(each, [each])]
            change = substitute(
                made.root, changes, branching=branching, fetch=made.fetch, uids=count(5000)
            )
            if not changes:
                assert change.root is made.root
                continue
            check_edit(made, change, expected, branching)


def test_what_is_divided_must_be_in_the_tree_and_be_tiled() -> None:
    for made in trees(row([2, 2, 2])):
        for each, tiled in product(made.live, masks(2)):
            first = each.first_offset
            old = each if tiled[0] else replace(each, size=each.size + 1)
            new = [leaf(first, 1, uid=7), leaf(first + 1, 1 if tiled[1] else 2, uid=8)]
            if all(tiled):
                continue
            with pytest.raises(InternalError):
                substitute(made.root, {old: new}, branching=2, fetch=made.fetch, uids=count(5000))
