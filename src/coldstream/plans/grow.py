"""A tree built from its first fragment on, with each group given away as soon as it is full.

It ends as the tree that appends with a rebalance after each would have made, but only the entries
of the root to be are held: fewer than 2M of each level.
"""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.manifest.entries import ENTRY_SIZE, MAX_RECORDS, MAX_SIZE, Entries, EntryKind
from coldstream.manifest.node import Node
from coldstream.plans.rebalance import fitting

_ABOVE = (EntryKind.GROUP, EntryKind.KILO_GROUP, EntryKind.MEGA_GROUP)


class Growth:
    """The root's entries so far.

    Args:
        branching: entries of a full group.
        uids: gives an id for each group.
    """

    def __init__(self, branching: int, uids: Iterator[int]) -> None:
        self._branching = branching
        self._uids = uids
        self._levels = [bytearray() for _ in range(len(_ABOVE) + 1)]

    def append(self, entries: bytes) -> Iterator[Node]:
        """Add encoded fragments and holes; gives the groups that are full now, children first.

        Args:
            entries: a whole number of them, in offset order, that join what was added before.

        Raises:
            CorruptDataError: they do not join (seen when their group is full).
        """
        self._levels[0] += entries
        yield from self._grouped(0)

    def entries(self) -> Entries:
        """Of the root, if nothing more comes."""
        return Entries(b"".join(reversed(self._levels)))

    def _grouped(self, level: int) -> Iterator[Node]:
        if level == len(_ABOVE):
            return
        waiting = self._levels[level]
        while len(waiting) >= 2 * self._branching * ENTRY_SIZE:
            taken = Entries(bytes(waiting[: self._branching * ENTRY_SIZE]))
            summary = taken.summary()
            if summary.size > MAX_SIZE or summary.fragments > MAX_RECORDS:
                taken = taken.part(0, fitting(list(taken)))
            node = Node(_ABOVE[level], next(self._uids), taken)
            del waiting[: len(taken) * ENTRY_SIZE]
            self._levels[level + 1] += node.entry().encode()
            yield node
            yield from self._grouped(level + 1)
