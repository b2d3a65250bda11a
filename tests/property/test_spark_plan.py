"""Splits against the flat list of fragments that a tree stands for: nothing lost, nothing twice."""

from __future__ import annotations

import random as random_module
from collections import defaultdict
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import InvalidInputError
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.spark.plan import EntryPart, Sizes, Split, chunks_of, cut, leaves, plan, select
from coldstream.spark.window import Intervals, Window, union
from tests.property.test_tree import M, Tree, _retain, entries_after, pieces
from tests.support.examples import examples

spans = st.lists(st.tuples(st.integers(-5, 250), st.integers(-5, 250)), max_size=3)


def grown(batches: list[Any], random: Any) -> Tree:
    """A tree of several levels, with holes, jumping clocks, and retention inside its groups."""
    tree = Tree()
    for drawn in batches:
        tree.append(entries_after(tree, drawn))
        if random.randrange(4) == 0:
            _retain(tree, random)
    return tree


def read(splits: list[Split], tree: Tree, window: Window) -> list[list[EntryPart]]:
    """What each worker makes of its split."""
    alive = window.between(tree.root.first_offset, tree.root.next_offset)
    fetch = cache(tree.fetch)
    return [
        [leaf for part in split.parts for leaf in leaves(part, alive, fetch)] for split in splits
    ]


def check_tiling(found: list[list[EntryPart]], expected: list[Entry]) -> None:
    """Every byte of the expected fragments exactly once, every hole exactly once, in order."""
    ends: dict[int, int] = defaultdict(int)
    seen: list[Entry] = []
    for part in (part for parts in found for part in parts):
        assert part.start == ends[part.entry.uid]
        ends[part.entry.uid] = part.end
        if not seen or seen[-1] != part.entry:
            seen.append(part.entry)
    assert seen == expected
    assert [ends[each.uid] for each in expected] == [each.size for each in expected]


@examples(0.8)
@given(
    st.lists(st.lists(pieces, min_size=1, max_size=12), min_size=1, max_size=14),
    st.integers(1, 400),
    st.integers(1, 40),
    st.randoms(use_true_random=False),
)
def test_splits_of_a_whole_stream_tile_its_bytes_and_cost_no_group(
    batches: list[Any], partition_bytes: int, most: int, random: Any
) -> None:
    tree = grown(batches, random)
    tree.fetched.clear()

    splits = plan([tree.root], [Window()], [tree.fetch], Sizes(partition_bytes, most))

    assert not tree.fetched
    check_tiling(read(splits, tree, Window()), tree.flat)
    assert sum(split.size for split in splits) == tree.root.total_size
    check_evenness(splits, partition_bytes, most)


@examples(1)
@given(
    st.lists(st.lists(pieces, min_size=1, max_size=12), min_size=1, max_size=14),
    spans,
    spans,
    st.integers(0, 12),
    st.randoms(use_true_random=False),
)
def test_splits_of_a_window_hold_all_that_may_be_in_it_and_nothing_else(
    batches: list[Any],
    offsets: list[tuple[int, int]],
    times: list[tuple[int, int]],
    reads: int,
    random: Any,
) -> None:
    tree = grown(batches, random)
    window = Window()
    if offsets:
        window &= Window(offsets=Intervals.of(*offsets))
    if times:
        window &= Window(times=Intervals.of(*times))
    tree.fetched.clear()

    splits = plan([tree.root], [window], [tree.fetch], Sizes(50, 30), reads=reads)

    assert len(tree.fetched) <= reads
    alive = window.between(tree.root.first_offset, tree.root.next_offset)
    expected = [each for each in tree.flat if alive.overlaps(each)]
    check_tiling(read(splits, tree, window), expected)
    check_evenness(splits, 50, 30)
    if reads == 12 and len(tree.flat) < 3 * M:
        size = sum(each.size for each in expected)
        assert sum(split.size for split in splits) == size  # every group was looked into


def check_evenness(splits: list[Split], partition_bytes: int, most: int) -> None:
    total = sum(split.size for split in splits)
    assert len(splits) <= most
    wanted = min(max(1, -(-total // partition_bytes)), most)
    for split in splits if total else ():
        assert 0.75 * total / wanted - 2 <= split.size <= 1.25 * total / wanted + 2


def test_three_levels_of_groups_are_cut_without_looking_into_any() -> None:
    tree = Tree()
    tree.append(entries_after(tree, [(2, 3, 5, False)] * (2 * M**4)))
    tree.fetched.clear()

    parts, used = select(tree.root, Window(), tree.fetch)
    splits = cut(parts, Sizes(33, 1000))

    assert used == len(tree.fetched) == 0
    assert {part.entry.kind.level for part in parts} == {0, 1, 2, 3}
    check_tiling(read(splits, tree, Window()), tree.flat)
    check_evenness(splits, 33, 1000)


def test_a_range_of_offsets_costs_one_path_at_each_of_its_ends() -> None:
    tree = Tree()
    tree.append(entries_after(tree, [(2, 3, 5, False)] * (2 * M**4)))
    tree.fetched.clear()

    window = Window(offsets=Intervals.of((17, 801)))
    parts, used = select(tree.root, window, tree.fetch)

    assert used == len(tree.fetched) <= 6
    inside = [each for each in tree.flat if window.overlaps(each)]
    assert sum(part.size for part in parts) == sum(each.size for each in inside)


def test_groups_that_planning_does_not_look_into_are_pruned_by_the_worker() -> None:
    tree = Tree()
    tree.append(entries_after(tree, [(2, 3, 5, False)] * (2 * M**4)))
    window = Window(times=Intervals.of(*((at, at + 2) for at in range(0, 1500, 150))))

    splits = plan([tree.root], [window], [tree.fetch], Sizes(100, 50), reads=2)

    expected = [each for each in tree.flat if window.overlaps(each)]
    assert 0 < len(expected) < len(tree.flat) / 4
    check_tiling(read(splits, tree, window), expected)


def test_what_retention_has_taken_from_the_first_group_weighs_nothing() -> None:
    tree = Tree()
    tree.append(entries_after(tree, [(2, 3, 5, False)] * 100))
    random = random_module.Random(3)
    while tree.root.head is None or not tree.root.head.dead_size:
        _retain(tree, random)

    parts, _ = select(tree.root, Window(), tree.fetch)

    assert sum(part.size for part in parts) == sum(each.size for each in tree.flat)
    assert parts[0].start == tree.root.head.dead_size


def test_many_small_streams_share_a_split() -> None:
    trees = [Tree() for _ in range(5)]
    for tree in trees:
        tree.append(entries_after(tree, [(1, 1, 1, False)] * 3))

    splits = plan(
        [tree.root for tree in trees],
        [Window()] * 5,
        [tree.fetch for tree in trees],
        Sizes(10_000, 10),
    )

    assert len(splits) == 1
    assert [part.stream for part in splits[0].parts] == [n for n in range(5) for _ in range(3)]


def test_a_large_fragment_is_cut_and_its_tiny_neighbours_are_packed() -> None:
    big, tiny = 1000, 3
    sizes = [tiny] * 40 + [big] + [tiny] * 40
    entries = [
        Entry(n, n + 1, 0, 0, EntryKind.FRAGMENT, size, 1, 1, n) for n, size in enumerate(sizes)
    ]

    splits = cut([EntryPart(each, 0, each.size) for each in entries], Sizes(200, 100))

    assert len(splits) == 7
    holding = [s for s in splits if any(part.entry.size == big for part in s.parts)]
    assert len(holding) == 7
    assert len(splits[0].parts) == len(splits[-1].parts) == 41


def test_a_cut_near_the_border_of_a_fragment_is_moved_there() -> None:
    entries = [Entry(n, n + 1, 0, 0, EntryKind.FRAGMENT, 97 + n % 7, 1, 1, n) for n in range(64)]

    splits = cut([EntryPart(each, 0, each.size) for each in entries], Sizes(1600, 100))

    assert len(splits) == 4
    assert all(part.size == part.entry.size for split in splits for part in split.parts)


def test_a_stream_without_bytes_still_has_its_holes_read() -> None:
    holes = [Entry(n, n + 1, 0, 0, EntryKind.HOLE, 0, 0, 1, n) for n in range(3)]

    assert cut([], Sizes()) == []
    (split,) = cut([EntryPart(each, 0, 0) for each in holes], Sizes())
    assert [part.entry for part in split.parts] == holes


@examples(0.6)
@given(
    st.integers(0, 2**64 - 1_000_000),
    st.lists(st.integers(1, 5000), min_size=1, max_size=12),
    st.integers(1, 100_000),
    st.lists(st.integers(0, 100_000), max_size=6),
)
def test_every_chunk_of_a_fragment_belongs_to_exactly_one_part(
    first: int, records: list[int], size: int, cuts: list[int]
) -> None:
    *ids, end = accumulate(records, initial=first)
    entry = Entry(first, end, 0, 0, EntryKind.FRAGMENT, size, end - first, 1, 1)
    borders = sorted({0, size, *(each for each in cuts if each < size)})
    parts = [EntryPart(entry, *each) for each in pairwise(borders)]

    ranges = [chunks_of(ids, part) for part in parts]

    numbers = [number for low, high in ranges for number in range(low, high)]
    assert numbers == list(range(len(ids)))
    assert 0 in range(*ranges[0]), "who has the first byte has the first chunk"
    for part, (low, high) in zip(parts, ranges, strict=True):
        for chunk_id in ids[low:high]:
            # As far on among the offsets as the part is among the bytes.
            assert (
                part.start * (end - first) <= (chunk_id - first) * size < part.end * (end - first)
            )


@examples(2)
@given(spans, spans, st.integers(-6, 251), st.integers(1, 30))
def test_intervals_are_sets_of_numbers(
    one: list[tuple[int, int]], two: list[tuple[int, int]], low: int, length: int
) -> None:
    def numbers(found: Intervals) -> set[int]:
        return {number for first, next_offset in found for number in range(first, next_offset)}

    a, b = Intervals.of(*one), Intervals.of(*two)
    plain_a = {number for first, next_offset in one for number in range(first, next_offset)}
    plain_b = {number for first, next_offset in two for number in range(first, next_offset)}
    asked = set(range(low, low + length))

    assert numbers(a) == plain_a
    assert numbers(a & b) == plain_a & plain_b
    assert numbers(union([a, b])) == plain_a | plain_b
    assert numbers(Intervals.of(*a.within(low, low + length))) == plain_a & asked
    assert a.overlaps(low, low + length) == bool(plain_a & asked)
    assert a.contains(low, low + length) == (asked <= plain_a)
    assert all(high < low for (_, high), (low, _) in pairwise(a.spans))


@pytest.mark.parametrize(("partition_bytes", "most"), [(0, 1), (1, 0), (-1, 5)])
def test_partitions_of_no_size_are_refused(partition_bytes: int, most: int) -> None:
    with pytest.raises(InvalidInputError):
        Sizes(partition_bytes, most)
