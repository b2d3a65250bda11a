"""What every edit of the tree below the root shares: groups made anew, and the root over them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.node import Node
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch, head_of
from coldstream.plans.rebalance import Rebalance, rebalance


class Regrouping:
    """An edit and the groups that it makes.

    Args:
        root: that is edited.
        branching: entries of a full group.
        fetch: gives the groups of the tree.
        uids: gives an id for each new group.
    """

    def __init__(self, root: Root, branching: int, fetch: Fetch, uids: Iterator[int]) -> None:
        self._root = root
        self._branching = branching
        self._fetch = fetch
        self._uids = uids
        self._nodes: list[Node] = []

    def alive(self, entries: Iterable[Entry]) -> list[Entry]:
        """Those that retention has not taken as a whole."""
        return [each for each in entries if each.next_offset > self._root.first_offset]

    def groups_over(self, children: Sequence[Entry], kind: EntryKind) -> list[Entry]:
        """New groups of about equal length over `children`."""
        count = -(-len(children) // self._branching)
        groups: list[Entry] = []
        for number in range(count):
            begin, end = len(children) * number // count, len(children) * (number + 1) // count
            node = Node(kind, next(self._uids), Entries.of(children[begin:end]))
            self._nodes.append(node)
            groups.append(node.entry())
        return groups

    def done(self, entries: Iterable[Entry]) -> Rebalance:
        """The root over `entries`, rebalanced, and those of the new groups that are in its tree."""
        root = replace(self._root, entries=Entries.of(entries), head=None)
        balanced = rebalance(root, self._branching, self._uids)
        made = {node.uid: node for node in (*self._nodes, *balanced.nodes)}
        top = balanced.root.entries
        head = head_of(
            top,
            root.first_offset,
            lambda each: made[each.uid] if each.uid in made else self._fetch(each),
        )
        # What was grouped and then grouped again on the way is not in the tree: never PUT it.
        parents = (top, *(node.entries for node in made.values()))
        named = {each.uid for parent in parents for each in parent if each.kind.level}
        nodes = tuple(node for uid, node in made.items() if uid in named)
        return Rebalance(replace(balanced.root, head=head), nodes)
