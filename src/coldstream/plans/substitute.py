"""Put several fragments and holes in the place of one, wherever in the tree it is.

As `splice`, but one entry may become many, and what is replaced is named by its whole entry: an
entry that lies about its size can be told from one that does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from coldstream.errors import InternalError
from coldstream.manifest.entries import Entries, Entry
from coldstream.manifest.node import Node
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch, head_of
from coldstream.plans.rebalance import Rebalance, rebalance


def substitute(
    root: Root,
    changes: Mapping[Entry, Sequence[Entry]],
    *,
    branching: int,
    fetch: Fetch,
    uids: Iterator[int],
) -> Rebalance:
    """`root` with other fragments and holes in the place of some.

    Args:
        root: current one.
        changes: by live fragment or hole, what tiles its offsets instead.
        branching: entries of a full group.
        fetch: gives the groups of the tree.
        uids: gives an id for each new group.

    Raises:
        InternalError: what should be replaced is not in the tree, or its replacement does not tile
            its offsets.
    """
    if not changes:
        return Rebalance(root, ())
    for old, new in changes.items():
        ends = [old.first_offset, *(each.next_offset for each in new)]
        starts = [*(each.first_offset for each in new), old.next_offset]
        if ends != starts:
            raise InternalError("a replacement does not fit", offset=old.first_offset)
    edit = _Substitution(changes, branching, fetch, uids, root.first_offset)
    entries = edit.rewritten(root.entries)
    if edit.left:
        first = min(each.first_offset for each in edit.left)
        raise InternalError("what should be replaced is not in the manifest", offset=first)
    balanced = rebalance(replace(root, entries=Entries.of(entries), head=None), branching, uids)
    made = {node.uid: node for node in (*edit.nodes, *balanced.nodes)}
    top = balanced.root.entries
    head = head_of(top, root.first_offset, lambda e: made[e.uid] if e.uid in made else fetch(e))
    # What was grouped and then grouped again on the way is not in the tree: never PUT it.
    parents = (top, *(node.entries for node in made.values()))
    named = {each.uid for parent in parents for each in parent if each.kind.level}
    nodes = tuple(node for uid, node in made.items() if uid in named)
    return Rebalance(replace(balanced.root, head=head), nodes)


class _Substitution:
    def __init__(
        self,
        changes: Mapping[Entry, Sequence[Entry]],
        branching: int,
        fetch: Fetch,
        uids: Iterator[int],
        first_offset: int,
    ) -> None:
        self._changes = changes
        self._branching = branching
        self._fetch = fetch
        self._uids = uids
        self._first = first_offset
        self.left = set(changes)
        self.nodes: list[Node] = []

    def rewritten(self, entries: Entries) -> list[Entry]:
        """The entries of one node after the changes below them."""
        done: list[Entry] = []
        for entry in entries:
            if entry in self._changes:
                self.left.discard(entry)
                done += self._changes[entry]
            elif entry.kind.level and self._concerned(entry):
                done += self._group(entry)
            else:
                done.append(entry)
        return done

    def _concerned(self, entry: Entry) -> bool:
        return any(
            entry.first_offset <= each.first_offset < entry.next_offset for each in self._changes
        )

    def _group(self, entry: Entry) -> list[Entry]:
        """A group made anew, as several of about equal length where it has grown too long."""
        # What retention has taken as a whole is not taken over.
        children = [
            each
            for each in self.rewritten(self._fetch(entry).entries)
            if each.next_offset > self._first
        ]
        count = -(-len(children) // self._branching)
        groups: list[Entry] = []
        for number in range(count):
            begin, end = len(children) * number // count, len(children) * (number + 1) // count
            node = Node(entry.kind, next(self._uids), Entries.of(children[begin:end]))
            self.nodes.append(node)
            groups.append(node.entry())
        return groups
