"""Put several fragments and holes in the place of one, wherever in the tree it is.

As `splice`, but one entry may become many, and what is replaced is named by its whole entry: an
entry that lies about its size can be told from one that does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from coldstream.errors import InternalError
from coldstream.manifest.entries import Entries, Entry
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch
from coldstream.plans.rebalance import Rebalance
from coldstream.plans.regroup import Regrouping


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
    edit = _Substitution(changes, root, branching, fetch, uids)
    entries = edit.rewritten(root.entries)
    if edit.left:
        first = min(each.first_offset for each in edit.left)
        raise InternalError("what should be replaced is not in the manifest", offset=first)
    return edit.done(entries)


class _Substitution(Regrouping):
    def __init__(
        self,
        changes: Mapping[Entry, Sequence[Entry]],
        root: Root,
        branching: int,
        fetch: Fetch,
        uids: Iterator[int],
    ) -> None:
        super().__init__(root, branching, fetch, uids)
        self._changes = changes
        self.left = set(changes)

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
        """A group made anew, as several where it has grown too long."""
        children = self.alive(self.rewritten(self._fetch(entry).entries))
        return self.groups_over(children, entry.kind)
