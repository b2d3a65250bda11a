"""Put other fragments in the place of some: the one edit of the tree below the root.

Groups are immutable, so every group above a replaced fragment is made anew; all others are taken
over as they are. Where a replacement reaches over the border of two groups, the two become one list
and are divided anew; where it reaches from a group into the root's own fragments, the group is
dissolved into them, and `rebalance` sees to it that the root does not grow too long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coldstream.errors import InternalError
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch
from coldstream.plans.rebalance import Rebalance
from coldstream.plans.regroup import Regrouping


def splice(
    root: Root,
    replacements: Sequence[Entry],
    *,
    branching: int,
    fetch: Fetch,
    uids: Iterator[int],
) -> Rebalance:
    """`root` with each replacement in the place of the live fragments over the same offsets.

    Args:
        root: current one.
        replacements: fragments or holes in offset order, disjoint; each begins and ends where live
            fragments or holes of the tree do.
        branching: entries of a full group.
        fetch: gives the groups of the tree.
        uids: gives an id for each new group.

    Raises:
        InternalError: a replacement does not fit the borders of what it replaces.
    """
    if not replacements:
        return Rebalance(root, ())
    if replacements[0].first_offset < root.first_offset:
        raise InternalError("a replacement of dead data", offset=replacements[0].first_offset)
    edit = _Splice(root, branching, fetch, uids)
    return edit.done(edit.rewritten(list(root.entries), list(replacements)))


class _Splice(Regrouping):
    def rewritten(self, entries: list[Entry], replacements: list[Entry]) -> list[Entry]:
        """`entries` of one node after the replacements that lie in them."""
        done: list[Entry] = []
        waiting = list(replacements)
        number = 0
        while number < len(entries):
            entry = entries[number]
            if not waiting or entry.next_offset <= waiting[0].first_offset:
                done.append(entry)
                number += 1
                continue
            # The block of neighbours that replacements tie together, and those replacements.
            end, inside = number + 1, []
            while waiting and waiting[0].first_offset < entries[end - 1].next_offset:
                inside.append(waiting.pop(0))
                while entries[end - 1].next_offset < inside[-1].next_offset:
                    end += 1
                    if end > len(entries):
                        raise InternalError(
                            "a replacement ends outside", offset=inside[-1].first_offset
                        )
            done += self._block(entries[number:end], inside)
            number = end
        return done

    def _block(self, block: list[Entry], replacements: list[Entry]) -> list[Entry]:
        high = block[0].kind.level
        low = block[-1].kind.level
        if high == 0:
            return _replaced(block, replacements)
        if high > low:  # only the root mixes levels: lower the higher ones until they are equal
            lowered: list[Entry] = []
            for entry in block:
                lowered += self._children(entry) if entry.kind.level == high else [entry]
            return self.rewritten(lowered, replacements)
        children = [child for entry in block for child in self._children(entry)]
        return self.groups_over(self.rewritten(children, replacements), EntryKind(high))

    def _children(self, entry: Entry) -> list[Entry]:
        return self.alive(self._fetch(entry).entries)


def _replaced(block: list[Entry], replacements: list[Entry]) -> list[Entry]:
    done: list[Entry] = []
    waiting = list(replacements)
    number = 0
    while number < len(block):
        if not waiting or block[number].first_offset < waiting[0].first_offset:
            done.append(block[number])
            number += 1
            continue
        new = waiting.pop(0)
        if block[number].first_offset != new.first_offset:
            raise InternalError("a replacement begins inside a fragment", offset=new.first_offset)
        while number < len(block) and block[number].next_offset <= new.next_offset:
            number += 1
        if block[number - 1].next_offset != new.next_offset:
            raise InternalError("a replacement ends inside a fragment", offset=new.first_offset)
        done.append(new)
    if waiting:
        raise InternalError("a replacement of nothing", offset=waiting[0].first_offset)
    return done
