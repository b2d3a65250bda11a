"""Every small tree cut at every offset, and every small log asked at every offset.

Scope of trees: chains of up to 4 entries (fragments and holes of 2 offsets), of which any
number from the first on are in a group, or in two, or in two under a kilo-group, after any number
were retired; each cut at every offset: 1,372 trees, 6,528 cuts. A cut runs into one entry on each
level at the most, and what lies before and behind it is kept or goes as a whole.

Scope of logs: chains of up to 3 chunks of 1..2 records, asked for every range of their offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, product

import pytest

from coldstream.errors import InternalError
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.node import Node
from coldstream.manifest.root import LastChunk, Root
from coldstream.manifest.tree import head_of
from coldstream.plans.claim import NO_HISTORY, KnownHistory, LocalChunk
from coldstream.plans.truncate import Cut, Remainder, cut_sums, remainder, truncated
from tests.exhaustive.small_claims import chain

BEGIN = 1


class Tree:
    """A root, its leaves that are alive, and its groups."""

    def __init__(self, leaves: Sequence[Entry], retired: int, groups: Sequence[int], *, kilo: bool):
        self.live = list(leaves[retired:])
        self.nodes: dict[int, Node] = {}
        entries: list[Entry] = []
        at = 0
        for number, size in enumerate(groups, 1):
            entries.append(self._node(EntryKind.GROUP, number, leaves[at : at + size]))
            at += size
        if kilo:
            entries = [self._node(EntryKind.KILO_GROUP, 9, entries)]
        entries += leaves[at:]
        first = self.live[0].first_offset
        while entries[0].next_offset <= first:
            del entries[0]
        self.entries = Entries.of(entries)
        self.root = Root(
            first_offset=first,
            next_offset=leaves[-1].next_offset,
            epoch=1,
            ledger=Ledger.of([(1, 0)]),
            entries=self.entries,
            head=head_of(self.entries, first, self.fetch),
        )

    def _node(self, kind: EntryKind, uid: int, below: Sequence[Entry]) -> Entry:
        self.nodes[uid] = Node(kind, uid, Entries.of(below))
        return self.nodes[uid].entry()

    def fetch(self, entry: Entry) -> Node:
        return self.nodes[entry.uid]

    def below(self, entry: Entry) -> list[Entry]:
        """The leaves of an entry, dead ones too."""
        if not entry.kind.level:
            return [entry]
        return [leaf for each in self.fetch(entry).entries for leaf in self.below(each)]


def trees() -> Iterator[Tree]:
    for count in range(1, 5):
        for holes in product((False, True), repeat=count):
            ends = list(accumulate([2] * count, initial=BEGIN))
            leaves = [
                Entry(
                    ends[n],
                    ends[n + 1],
                    n,
                    n + 1,
                    EntryKind.HOLE if hole else EntryKind.FRAGMENT,
                    0 if hole else 100 + 10**n,
                    0 if hole else 2,
                    1,
                    50 + n,
                )
                for n, hole in enumerate(holes)
            ]
            for retired in range(count):
                yield Tree(leaves, retired, (), kilo=False)
                for grouped in range(1, count + 1):
                    yield Tree(leaves, retired, (grouped,), kilo=False)
                    for first in range(1, grouped):
                        yield Tree(leaves, retired, (first, grouped - first), kilo=False)
                        yield Tree(leaves, retired, (first, grouped - first), kilo=True)


def test_what_stays_is_all_that_ends_at_or_below_the_cut_and_what_reaches_over_it() -> None:
    for tree in trees():
        root = tree.root
        for offset in range(root.first_offset + 1, root.next_offset + 1):
            rest = remainder(root, offset, tree.fetch)
            kept = [
                leaf
                for each in rest.kept
                for leaf in tree.below(each)
                if leaf.next_offset > root.first_offset
            ]
            assert kept == [leaf for leaf in tree.live if leaf.next_offset <= offset]
            over = [leaf for leaf in tree.live if leaf.first_offset < offset < leaf.next_offset]
            assert ([rest.across] if rest.across else []) == over
            # A group that stays as a whole is not taken to pieces.
            whole = [each for each in tree.entries if each.next_offset <= offset]
            assert list(rest.kept[: len(whole)]) == whole


def test_what_reaches_above_an_offset_is_counted() -> None:
    for tree in trees():
        for floor in range(BEGIN - 1, tree.root.next_offset + 2):
            gone = [leaf for leaf in tree.live if leaf.next_offset > floor]
            sums = cut_sums(tree.root, floor, tree.fetch)
            assert sums == (len(gone), sum(leaf.size for leaf in gone)), (tree.entries, floor)


def test_a_truncated_root_ends_at_the_cut_with_all_that_was_below() -> None:
    for tree in trees():
        root = tree.root
        evidence = LocalChunk(0, 1, 2)
        for offset in range(root.first_offset + 1, root.next_offset + 1):
            cut = Cut(offset, LastChunk(offset - 1, 1), evidence)
            rest = remainder(root, offset, tree.fetch)
            beginning = None
            if rest.across:
                old = rest.across
                beginning = Entry(
                    old.first_offset, offset, old.min_timestamp, old.max_timestamp, old.kind,
                    old.size // 2, 1, 1, 99,
                )  # fmt: skip
            after = truncated(root, cut, rest, beginning, tree.fetch)
            assert (after.first_offset, after.next_offset) == (root.first_offset, offset)
            assert (after.last_chunk, after.ledger) == (cut.last_chunk, root.ledger)
            kept = [leaf for leaf in tree.live if leaf.next_offset <= offset]
            kept += [beginning] if beginning else []
            assert (after.fragments, after.total_size) == (len(kept), sum(e.size for e in kept))
            assert after.first_timestamp == kept[0].min_timestamp
            if beginning:
                with pytest.raises(InternalError):
                    truncated(root, cut, rest, None, tree.fetch)
        for offset in (0, root.first_offset, root.next_offset - 1, root.next_offset + 3):
            cut = Cut(offset, None, evidence, anew=True)
            after = truncated(root, cut, None, None, tree.fetch)
            assert (after.first_offset, after.next_offset, len(after.entries)) == (
                offset,
                offset,
                0,
            )
            assert (after.last_chunk, after.head, after.ledger) == (None, None, root.ledger)
            assert cut.floor(root) == min(offset, root.first_offset)
            assert Cut(offset, None, evidence).floor(root) == offset


def test_nothing_but_its_own_parts_makes_a_remainder() -> None:
    tree = Tree([Entry(1, 3, 0, 0, EntryKind.FRAGMENT, 9, 2, 1, 5)], 0, (), kilo=False)
    assert remainder(tree.root, 3, tree.fetch) == Remainder(tuple(tree.entries), None)
    assert remainder(tree.root, 2, tree.fetch) == Remainder((), tree.entries[0])


def test_a_known_log_shows_what_is_near_and_what_overlaps() -> None:
    assert NO_HISTORY.first_offset() is None
    for count in range(4):
        for sizes in product((1, 2), repeat=count):
            chunks = chain(sizes, [1] * count, BEGIN)
            log = KnownHistory(chunks)
            assert log.first_offset() == (BEGIN if count else None)
            for first in range(9):
                below = [chunk for chunk in chunks if chunk.chunk_id < first]
                near = {*below[-1:], *chunks[-1:]}
                assert sorted(near, key=repr) == sorted(log.chunks_near(first), key=repr)
                for next_offset in range(first + 1, 10):
                    offsets = set(range(first, next_offset))
                    assert log.chunks_between(first, next_offset) == [
                        c for c in chunks if offsets & set(range(c.chunk_id, c.next_offset))
                    ]
