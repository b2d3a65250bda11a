"""The tree of groups against a flat list of fragments: same look-ups, same sums, few fetches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.node import Node, parse_node
from coldstream.manifest.root import LastChunk, Root, parse_root
from coldstream.manifest.tree import (
    fragments_reaching,
    head_of,
    leaf_at,
    leaves,
    leaves_backwards,
    path_to,
)
from coldstream.plans.rebalance import Rebalance, crowd, rebalance
from coldstream.plans.retention import RetentionLimits, plan_retention
from coldstream.plans.splice import splice
from tests.support.examples import examples

M = 4


class Tree:
    """A root with its groups as bytes, beside the flat list that it must stand for."""

    def __init__(self) -> None:
        self.uids: Iterator[int] = count(1_000_000)
        self.objects: dict[int, bytes] = {}
        self.fetched: list[Entry] = []
        self.flat: list[Entry] = []
        self.root = Root(10, 10, epoch=1, ledger=Ledger.of([(1, 10)]))

    def fetch(self, entry: Entry) -> Node:
        self.fetched.append(entry)
        return parse_node(self.objects[entry.uid], entry)

    def take(self, change: Rebalance) -> None:
        for node in change.nodes:
            assert node.uid not in self.objects
            self.objects[node.uid] = node.encode()
        self.root = parse_root(change.root.encode())

    def append(self, entries: list[Entry]) -> None:
        self.root = self.root.appended(entries, LastChunk(entries[-1].next_offset - 1, 1))
        self.flat += entries
        self.take(rebalance(self.root, M, self.uids))

    def check(self) -> None:
        root, flat = self.root, self.flat
        assert list(leaves(root, self.fetch)) == flat
        assert list(leaves_backwards(root, self.fetch)) == flat[::-1]
        assert root.total_size == sum(each.size for each in flat)
        assert root.fragments == len(flat)
        assert root.first_offset == flat[0].first_offset
        assert root.first_timestamp == flat[0].min_timestamp
        assert root.oldest_timestamp == flat[0].max_timestamp
        assert root.head == head_of(root.entries, root.first_offset, self.fetch)
        assert crowd(root, M) is None
        for each in flat:
            for offset in (each.first_offset, each.next_offset - 1):
                self.fetched.clear()
                assert leaf_at(root, offset, self.fetch) == each
                assert len(self.fetched) <= 3
        assert leaf_at(root, flat[0].first_offset - 1, self.fetch) is None
        assert leaf_at(root, flat[-1].next_offset, self.fetch) is None
        for timestamp in {each.max_timestamp + d for each in flat for d in (0, 1)}:
            right = [
                each
                for each in flat
                if each.max_timestamp >= timestamp and each.kind is EntryKind.FRAGMENT
            ]
            assert list(fragments_reaching(root, timestamp, self.fetch)) == right
            self.fetched.clear()
            first = next(fragments_reaching(root, timestamp, self.fetch), None)
            assert first == (right[0] if right else None)
            # Only dead fragments in the first group, or holes, cost more than one path.
            if not any(each.kind is EntryKind.HOLE for each in flat) and root.head is None:
                assert len(self.fetched) <= 3


lengths = st.integers(1, 5)
pieces = st.tuples(lengths, st.integers(-30, 60), st.integers(0, 9), st.booleans())


def entries_after(tree: Tree, drawn: list[tuple[int, int, int, bool]]) -> list[Entry]:
    made: list[Entry] = []
    offset = tree.root.next_offset
    clock = tree.root.last_timestamp
    running = max((each.max_timestamp for each in tree.flat), default=0)
    for length, step, size, hole in drawn:
        clock += step
        hole = hole and size == 0
        low, high = (running, running) if hole else (clock, clock + 7)
        running = max(running, high)
        kind = EntryKind.HOLE if hole else EntryKind.FRAGMENT
        made.append(
            Entry(offset, offset + length, low, high, kind, size * 10, length, 1, next(tree.uids))
        )
        offset += length
    return made


@examples(0.6)
@given(
    st.lists(st.lists(pieces, min_size=1, max_size=12), min_size=1, max_size=14),
    st.randoms(use_true_random=False),
)
def test_a_tree_answers_like_the_flat_list_that_it_stands_for(batches, random) -> None:  # type: ignore[no-untyped-def]
    tree = Tree()
    for drawn in batches:
        tree.append(entries_after(tree, drawn))
        action = random.randrange(4)
        if action == 0:
            _merge(tree, random)
        elif action == 1:
            _retain(tree, random)
    tree.check()


def test_all_four_levels_occur_and_a_look_up_takes_three_fetches() -> None:
    tree = Tree()
    tree.append(entries_after(tree, [(2, 3, 5, False)] * (2 * M**4)))

    assert {entry.kind.level for entry in tree.root.entries} == {0, 1, 2, 3}
    tree.check()


def _merge(tree: Tree, random) -> None:  # type: ignore[no-untyped-def]
    """Replace some runs of neighbours by one fragment each."""
    new: list[Entry] = []
    flat: list[Entry] = []
    number = 0
    while number < len(tree.flat):
        length = random.choice([1, 1, 1, 2, 3, 9, 40])
        run = tree.flat[number : number + length]
        number += length
        if length == 1 or len(run) < 2:
            flat += run
            continue
        merged = replace(
            run[0],
            next_offset=run[-1].next_offset,
            min_timestamp=min(each.min_timestamp for each in run),
            max_timestamp=max(each.max_timestamp for each in run),
            kind=EntryKind.FRAGMENT,
            size=sum(each.size for each in run),
            uid=next(tree.uids),
        )
        new.append(merged)
        flat.append(merged)
    before = dict(tree.objects)
    change = splice(tree.root, new, branching=M, fetch=tree.fetch, uids=tree.uids)
    referred = {each.uid for each in change.root.entries} | {
        each.uid for node in change.nodes for each in node.entries
    }
    assert {node.uid for node in change.nodes} <= referred  # nothing is PUT in vain
    tree.take(change)
    tree.flat = flat
    assert before.items() <= tree.objects.items()


def _retain(tree: Tree, random) -> None:  # type: ignore[no-untyped-def]
    size = sum(each.size for each in tree.flat)
    rule = RetentionLimits(max_bytes=random.randrange(size + 1))
    if random.random() < 0.5:
        rule = replace(rule, max_age_ms=random.randrange(1, 400))
    now = max(each.max_timestamp for each in tree.flat)
    plan = plan_retention(tree.root, rule, now_ms=now, fetch=tree.fetch)
    flat = _retained(tree.flat, rule, now)
    assert [each.first_offset for each in flat][:1] == [plan.root.first_offset]
    assert sum(each.size for each in plan.ranges) == size - sum(each.size for each in flat)
    assert sum(each.fragments for each in plan.ranges) == len(tree.flat) - len(flat)
    tree.root = parse_root(plan.root.encode())
    tree.flat = flat


def _retained(flat: list[Entry], rule: RetentionLimits, now: int) -> list[Entry]:
    """The rule on a flat list: drop from the front while the oldest must go, keep one fragment."""
    last = max((n for n, each in enumerate(flat) if each.kind is EntryKind.FRAGMENT), default=0)
    flat = list(flat)
    for _ in range(last):
        total = sum(each.size for each in flat)
        big = rule.max_bytes is not None and total > rule.max_bytes
        old = rule.max_age_ms is not None and flat[0].max_timestamp < now - rule.max_age_ms
        if not (big or old):
            break
        flat.pop(0)
    return flat


def test_a_path_leads_from_the_root_to_the_fragment() -> None:
    tree = Tree()
    tree.append(entries_after(tree, [(1, 1, 1, False)] * 40))

    path = path_to(tree.root.entries, 10, tree.fetch)

    assert [each.kind.level for each in path] == list(range(path[0].kind.level, -1, -1))
    assert isinstance(tree.root.entries, Entries)
