"""Swap fragments for others that stand for the same offsets, by one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from coldstream.manifest.entries import Entry
from coldstream.manifest.tree import leaf_at
from coldstream.plans.rebalance import Rebalance
from coldstream.plans.substitute import substitute
from coldstream.remote.context import Context
from coldstream.remote.roots import Snapshot
from coldstream.usecases.amend import Terms, amend

#: By live fragment or hole, what tiles its offsets instead.
Swaps: TypeAlias = Mapping[Entry, Sequence[Entry]]


@dataclass(frozen=True, slots=True)
class Swapped:
    """What became of a swap.

    Attributes:
        landed: whether a commit has changed the manifest.
        overtaken: fragments that another writer has replaced, or retention has taken, meanwhile.
        version: of the manifest at the end.
    """

    landed: bool
    overtaken: int
    version: int


def swap(
    context: Context,
    stream: str,
    swaps: Swaps,
    *,
    branching: int,
    pause: Callable[[int], None],
    first_written: str,
    also: Callable[[Rebalance, Swaps], Rebalance] = lambda done, _: done,
) -> Swapped:
    """Put new objects, which are written, in the place of those that are still in the manifest.

    Args:
        context: where.
        stream: directory name.
        swaps: what comes for what; what is not in the manifest any more stays out.
        branching: entries of a full group.
        pause: as in `amend`.
        first_written: key of the first object that was written for it, "" if none was.
        also: changes the plan further; given what is really swapped.

    Raises:
        As `amend`.
    """
    valid: dict[Entry, Sequence[Entry]] = {}

    def change(loaded: Snapshot) -> Rebalance:
        nonlocal valid
        root, fetch = loaded.root, context.fetch(stream)
        valid = {
            old: new
            for old, new in swaps.items()
            if leaf_at(root, max(old.first_offset, root.first_offset), fetch) == old
        }
        done = substitute(
            root, valid, branching=branching, fetch=fetch, uids=iter(context.new_uid, None)
        )
        return also(done, valid)

    terms = Terms(first_written=first_written)
    amended = amend(context, stream, change, pause=pause, terms=lambda _: terms)
    return Swapped(amended.landed, len(swaps) - len(valid), amended.item.version)
