"""When a root grows too long: move its oldest entries under a new group, level by level.

A root with 2M fragments (M is the branching factor) gives the oldest M to a group; one with 2M
groups gives the oldest M to a kilo-group; and so on. M to 2M stay, so the tail always lies in the
root itself and a commit never touches a group. Nothing is removed and no offset moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from coldstream.manifest.entries import MAX_RECORDS, MAX_SIZE, Entries, Entry, EntryKind
from coldstream.manifest.node import Node
from coldstream.manifest.root import Head, Root

_ABOVE = (EntryKind.GROUP, EntryKind.KILO_GROUP, EntryKind.MEGA_GROUP)


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A root with shorter levels, and the groups to PUT before it.

    Attributes:
        root: says the same as the one it was made from.
        nodes: new groups, children before parents.
    """

    root: Root
    nodes: tuple[Node, ...]


def crowd(root: Root, branching: int) -> Entry | None:
    """The oldest entry of the lowest level that `rebalance` would shorten; None if none is."""
    for level in range(len(_ABOVE)):
        entries = [entry for entry in root.entries if entry.kind.level == level]
        if len(entries) >= 2 * branching:
            return entries[0]
    return None


def rebalance(root: Root, branching: int, uids: Iterator[int]) -> Rebalance:
    """Group the oldest entries of every level that has at least twice `branching`.

    Args:
        root: current one.
        branching: entries of a full group, M.
        uids: gives an id for each new group.

    Returns:
        The very root and no nodes if there is nothing to do.
    """
    nodes: list[Node] = []
    entries, head = list(root.entries), root.head
    for level, kind in enumerate(_ABOVE):
        begin = next((n for n, e in enumerate(entries) if e.kind.level <= level), len(entries))
        end = next((n for n, e in enumerate(entries) if e.kind.level < level), len(entries))
        while end - begin >= 2 * branching:
            taken = entries[begin : begin + fitting(entries[begin : begin + branching])]
            node = Node(kind, next(uids), Entries.of(taken))
            if begin == 0 and head is None:
                head = Head(taken[0].min_timestamp, taken[0].max_timestamp)
            entries[begin : begin + len(taken)] = [node.entry()]
            nodes.append(node)
            begin += 1
            end -= len(taken) - 1
    if not nodes:
        return Rebalance(root, ())
    return Rebalance(replace(root, entries=Entries.of(entries), head=head), tuple(nodes))


def fitting(entries: Sequence[Entry]) -> int:
    """How many of them one entry can stand for: its size has 56 bits, its fragments have 32."""
    sums = accumulate(entries, _plus, initial=(0, 0))
    return max(1, sum(size <= MAX_SIZE and count <= MAX_RECORDS for size, count in sums) - 1)


def _plus(so_far: tuple[int, int], entry: Entry) -> tuple[int, int]:
    return so_far[0] + entry.size, so_far[1] + entry.fragments
