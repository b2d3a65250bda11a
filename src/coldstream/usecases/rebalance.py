"""Keep the root short: group its oldest entries (plans/rebalance.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coldstream.manifest.entries import Entry, EntryKind
from coldstream.plans.rebalance import Rebalance
from coldstream.plans.rebalance import rebalance as plan_rebalance
from coldstream.remote.context import Context
from coldstream.remote.roots import Snapshot
from coldstream.usecases.amend import amend


@dataclass(frozen=True, slots=True)
class RebalanceReport:
    """What a rebalance did, or would do.

    Attributes:
        stream: directory name.
        landed: whether anything was committed.
        groups: new groups by kind, those without any left out.
        entries_before: of the root.
        entries_after: of the root.
        version: of the catalog item at the end.
        conflicts: attempts that did not land.
        made: entries of the new groups, children before parents.
    """

    stream: str
    landed: bool
    groups: dict[EntryKind, int]
    entries_before: int
    entries_after: int
    version: int
    conflicts: int
    made: tuple[Entry, ...] = ()


def rebalance(
    context: Context,
    stream: str,
    *,
    branching: int,
    pause: Callable[[int], None],
    dry_run: bool = False,
) -> RebalanceReport:
    """Group the oldest entries of every level of the root that is twice as long as it should be.

    Args:
        context: where.
        stream: directory name.
        branching: entries of a full group.
        pause: as in `amend`.
        dry_run: plan only.

    Raises:
        As `amend`.
    """

    def plan(loaded: Snapshot) -> Rebalance:
        return plan_rebalance(loaded.root, branching, iter(context.new_uid, None))

    amended = amend(context, stream, plan, pause=pause, dry_run=dry_run)
    groups: dict[EntryKind, int] = {}
    for node in amended.change.nodes:
        groups[node.kind] = groups.get(node.kind, 0) + 1
    return RebalanceReport(
        stream=stream,
        landed=amended.landed,
        groups=groups,
        entries_before=len(amended.before.entries),
        entries_after=len(amended.change.root.entries),
        version=amended.item.version,
        conflicts=amended.conflicts,
        made=tuple(node.entry() for node in amended.change.nodes),
    )
