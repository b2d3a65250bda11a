"""What the roots of a bucket still say: for each range the newest node that can be read counts.

A node that is gone or damaged takes only its own range away. Earlier trees are asked for it, as far
as they have whole objects there; what none of them names is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from coldstream.errors import CorruptDataError, NotFoundError
from coldstream.manifest.entries import Entries, Entry
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch
from coldstream.plans.rebuild_told import Named, Open, Section

#: Trees that are asked, one after the other; each may cost a GET and is held.
MAX_TREES = 48


@dataclass(slots=True)
class Tree:
    """A root that can be read, and its groups.

    Attributes:
        root: as parsed.
        fetch: reads groups.
        ledger: of the new manifest; what it refuses is not named.
        certain: whether the catalog names this root.
    """

    root: Root
    fetch: Fetch
    ledger: Ledger
    certain: bool
    _unreadable: set[Entry] = field(default_factory=set)
    _rights: dict[int, tuple[int, int] | None] = field(default_factory=dict)

    def runs(self, first: int, next_offset: int, *, begin: int) -> Iterator[Entries]:
        """Neighbouring fragments and holes that lie within [first, next_offset), node by node.

        Args:
            first: where the range begins.
            next_offset: where it ends.
            begin: first offset of the manifest; the object that holds it may reach below it.
        """
        return self._runs(self.root.entries, first, next_offset, begin)

    def _runs(
        self, entries: Entries, first: int, next_offset: int, begin: int
    ) -> Iterator[Entries]:
        if not len(entries) or entries[-1].next_offset <= first:
            return
        run: list[Entry] = []
        for number in range(entries.number_of_offset(first) or 0, len(entries)):
            entry = entries[number]
            if entry.first_offset >= next_offset:
                break
            if entry.next_offset <= first:
                continue
            if entry.kind.level:
                if run:
                    yield Entries.of(run)
                    run = []
                node = self._node(entry)
                if node is not None:
                    yield from self._runs(node, first, next_offset, begin)
                continue
            starts = entry.first_offset >= first or (first == begin and entry.first_offset < begin)
            if starts and entry.next_offset <= next_offset and self._accepts(entry):
                run.append(entry)
            elif run:
                yield Entries.of(run)
                run = []
        if run:
            yield Entries.of(run)

    def _node(self, entry: Entry) -> Entries | None:
        if entry in self._unreadable:
            return None
        try:
            return self.fetch(entry).entries
        except (CorruptDataError, NotFoundError):
            self._unreadable.add(entry)
            return None

    def _accepts(self, entry: Entry) -> bool:
        if entry.epoch not in self._rights:
            floor = self.ledger.floor(entry.epoch)
            right = None if floor is None else (floor, self.ledger.ceiling(entry.epoch))
            self._rights[entry.epoch] = right
        right = self._rights[entry.epoch]
        return right is not None and (
            right[0] <= entry.first_offset and entry.next_offset <= right[1]
        )


#: Gives the tree of a number, the newest first; None if there are no more.
Trees: TypeAlias = Callable[[int], Tree | None]


def sections(trees: Trees, first: int, next_offset: int) -> Iterator[Section]:
    """What trees name of [first, next_offset), in offset order; then what lies behind is open."""
    if first < next_offset:
        yield from _within(trees, 0, first, next_offset, first)
    yield Open(next_offset, None)


def _within(
    trees: Trees, number: int, first: int, next_offset: int, begin: int
) -> Iterator[Section]:
    tree = trees(number)
    if tree is None:
        yield Open(first, next_offset)
        return
    at = first
    for run in tree.runs(first, next_offset, begin=begin):
        if at < run[0].first_offset:
            yield from _within(trees, number + 1, at, run[0].first_offset, begin)
        yield Named(run, tree.certain)
        at = run[-1].next_offset
    if at < next_offset:
        yield from _within(trees, number + 1, at, next_offset, begin)


def asked(count: int, most: int = MAX_TREES) -> list[int]:
    """Which of `count` roots are asked, the newest of which is number 0: half of them the newest.

    The others are spread over all: a range was in the root itself before it came into a group.
    """
    if count <= most:
        return list(range(count))
    newest = most // 2
    spread = most - newest
    step = (count - newest) / spread
    return [*range(newest), *(newest + int(number * step) for number in range(spread))]
