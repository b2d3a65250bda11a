"""Every small retention, against the naive one on the flat list of leaves.

Scope: every tree of up to two levels over 1 to 3 leaves, each a hole or a fragment, small or large,
old or young, in every order, with each number of dead leaves, by every limit of bytes and of age
that makes a difference (with the next, 51,624 cases); the same over 4 leaves in trees of one level.

Why it is enough: retention walks down the tree by one entry at a time and ends at the first that
stays. What it decides by are a group's sums, what of it is dead already, and the last fragment;
with three leaves each of these can lie in the same group, in the next, or in the root.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.root import parse_root
from coldstream.manifest.tree import leaves
from coldstream.plans.retention import Reason, RetentionLimits, Retired, may_be_due, plan_retention
from tests.exhaustive.small_trees import BASE, Tree, leaf, trees

NOW = 100
#: (hole, bytes, greatest timestamp); one ms older than the young ones is old.
LEAVES = ((True, 0, 50), (False, 1, 50), (False, 1, 60), (False, 2, 60))
AGES = (None, NOW - 60, NOW - 61)


def leaf_rows(number: int, alphabet: Sequence[tuple[bool, int, int]]) -> Iterator[list[Entry]]:
    for chosen in product(alphabet, repeat=number):
        yield [
            leaf(BASE + n, hole=hole, size=size, at=at) for n, (hole, size, at) in enumerate(chosen)
        ]


def limits(flat: Sequence[Entry], ages: Sequence[int | None] = AGES) -> Iterator[RetentionLimits]:
    """Each age with no limit of bytes, with what some youngest leaves come to, and one less."""
    sums = {sum(each.size for each in flat[n:]) for n in range(len(flat) + 1)}
    bounds = {*sums, *(each - 1 for each in sums if each)}
    for most, age in product((None, *sorted(bounds)), ages):
        yield RetentionLimits(age, most)


def is_old(each: Entry, rule: RetentionLimits) -> bool:
    return rule.max_age_ms is not None and NOW - each.max_timestamp > rule.max_age_ms


def kept(made: Tree, rule: RetentionLimits) -> list[Entry]:
    """The oldest goes while it is too old, or all that is left is too many bytes.

    The last fragment stays, and so do holes behind it; of holes alone, what the last entry of the
    root stands for stays.
    """
    flat = made.live
    alone = all(each.kind is EntryKind.HOLE for each in flat)
    last = made.root.entries[-1].first_offset
    while any(
        each.first_offset >= last if alone else each.kind is EntryKind.FRAGMENT for each in flat[1:]
    ) and not (alone and flat[0].first_offset >= last):
        too_many = rule.max_bytes is not None and sum(each.size for each in flat) > rule.max_bytes
        if not (too_many or is_old(flat[0], rule)):
            break
        del flat[0]
    return flat


def check_range(made: Tree, gone: Retired, rule: RetentionLimits) -> None:
    """A range says what the leaves in it are, and breaks the rule that it names."""
    inside = [
        each for each in made.live if gone.first_offset <= each.first_offset < gone.next_offset
    ]
    assert (inside[0].first_offset, inside[-1].next_offset) == (
        gone.first_offset,
        gone.next_offset,
    )
    assert gone.size == sum(each.size for each in inside)
    assert gone.fragments == len(inside)
    if len(made.live) == len(made.flat):
        assert gone.min_timestamp == min(each.min_timestamp for each in inside)
        assert gone.max_timestamp == max(each.max_timestamp for each in inside)
    for each in inside:
        behind = [one for one in made.live if one.first_offset >= each.first_offset]
        if gone.reason is Reason.MAX_AGE:
            assert is_old(each, rule)
        else:
            assert rule.max_bytes is not None
            assert sum(one.size for one in behind) > rule.max_bytes


def whole_groups(made: Tree, gone: set[Entry]) -> int:
    """The highest groups all of whose leaves go."""

    def below(entries: Sequence[Entry]) -> int:
        found = 0
        for entry in entries:
            if not entry.kind.level:
                continue
            inside = made.below(entry)
            found += 1 if set(inside) <= gone else below(list(made.nodes[entry.uid].entries))
        return found

    return below(list(made.root.entries))


def check_retention(made: Tree, rule: RetentionLimits) -> None:
    root = made.root
    made.fetched.clear()
    plan = plan_retention(root, rule, now_ms=NOW, fetch=made.fetch)
    stays = kept(made, rule)
    gone = {*made.live} - {*stays}
    assert not gone or parse_root(plan.root.encode()) == plan.root
    assert plan.root.first_offset == stays[0].first_offset
    after = Tree(plan.root, made.flat, made.nodes)
    assert list(leaves(plan.root, after.fetch)) == stays
    assert plan.root.total_size == sum(each.size for each in stays)
    assert plan.root.fragments == len(stays)
    assert (plan.size, plan.fragments) == (sum(each.size for each in gone), len(gone))
    if not gone:
        assert plan.root is root
        assert not plan.ranges
    ends = [root.first_offset, *(each.next_offset for each in plan.ranges)]
    assert ends[:-1] == [each.first_offset for each in plan.ranges]
    assert not plan.ranges or ends[-1] == plan.root.first_offset
    for one, other in zip(plan.ranges, plan.ranges[1:], strict=False):
        assert one.reason is not other.reason
    for each in plan.ranges:
        check_range(made, each, rule)
    if rule.max_bytes is None and len(made.live) == len(made.flat):
        assert sum(each.groups for each in plan.ranges) == whole_groups(made, gone)
    # Who asks the item first loses nothing by it.
    if gone and len(made.live) > 1:
        first = made.live[0].min_timestamp
        size, fragments = root.total_size, root.fragments
        assert may_be_due(
            rule, first_timestamp=first, total_size=size, fragments=fragments, now_ms=NOW
        )


@pytest.mark.parametrize("number", [1, 2, 3])
def test_retention_of_every_tree_takes_what_the_rule_takes_of_the_flat_list(number: int) -> None:
    for flat in leaf_rows(number, LEAVES):
        rules = list(limits(flat, AGES if number < 3 else AGES[:2]))
        for made in trees(flat):
            for rule in rules:
                check_retention(made, rule)


def test_retention_of_four_leaves_in_groups_takes_what_the_rule_takes_of_the_flat_list() -> None:
    for flat in leaf_rows(4, LEAVES[:3]):
        rules = list(limits(flat, AGES[:2]))
        for made in trees(flat, levels=1):
            for rule in rules:
                check_retention(made, rule)


def test_a_group_that_goes_as_a_whole_by_age_is_not_fetched() -> None:
    for number in (2, 3, 4):
        flat = [leaf(BASE + n, at=50 if n < number - 1 else 60) for n in range(number)]
        for made in trees(flat):
            plan = plan_retention(
                made.root, RetentionLimits(NOW - 60), now_ms=NOW, fetch=made.fetch
            )
            assert plan.root.first_offset == flat[-1].first_offset
            last = flat[-1].first_offset
            assert all(e.first_offset <= last < e.next_offset for e in made.fetched)


def test_a_look_at_the_item_says_whether_a_root_can_be_due_to_the_byte_and_to_the_ms() -> None:
    for first, size, fragments, most, age in product(
        range(3), range(3), range(4), (None, 0, 1, 2), (None, 0, 1, 2)
    ):
        due = may_be_due(
            RetentionLimits(age, most),
            first_timestamp=first,
            total_size=size,
            fragments=fragments,
            now_ms=2,
        )
        too_many, too_old = most is not None and size > most, age is not None and 2 - first > age
        assert due == (fragments >= 2 and (too_many or too_old))
