"""Move a stream's first offset forward as its rules ask (plans/retention.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coldstream.manifest.node import Node
from coldstream.manifest.root import Root
from coldstream.plans.policy import Effective, PolicySet, effective
from coldstream.plans.retention import Retention, RetentionLimits, Retired, plan_retention
from coldstream.remote.context import Context
from coldstream.remote.roots import Snapshot
from coldstream.usecases.amend import amend


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What retention took, or would take.

    Attributes:
        stream: directory name.
        landed: whether anything was committed.
        effective: rules that apply to the stream.
        ranges: what goes, each with its reason; nothing under a legal hold, and nothing where a
            rule may hold or keep the stream by a name that nobody has recorded.
        first_offset: of the manifest afterwards.
        next_offset: of the manifest.
        total_size: bytes that stay.
        fragments: fragments and holes that stay.
        version: of the catalog item at the end.
        conflicts: attempts that did not land.
    """

    stream: str
    landed: bool
    effective: Effective
    ranges: tuple[Retired, ...]
    first_offset: int
    next_offset: int
    total_size: int
    fragments: int
    version: int
    conflicts: int

    @property
    def size(self) -> int:
        """Bytes that go."""
        return sum(each.size for each in self.ranges)


@dataclass(frozen=True, slots=True)
class _Planned:
    """A plan with the rules it was made by; it makes no new groups."""

    retention: Retention
    effective: Effective
    nodes: tuple[Node, ...] = ()

    @property
    def root(self) -> Root:
        return self.retention.root


def retain(
    context: Context,
    stream: str,
    policies: PolicySet,
    *,
    now_ms: int,
    pause: Callable[[int], None],
    dry_run: bool = False,
) -> RetentionReport:
    """Take what the stream's rules ask for out of its manifest; its objects stay for `collect`.

    Args:
        context: where.
        stream: directory name.
        policies: all rules.
        now_ms: ms since the Unix epoch.
        pause: as in `amend`.
        dry_run: plan only.

    Raises:
        As `amend`.
    """

    def plan(loaded: Snapshot) -> _Planned:
        rules = effective(policies, stream, loaded.item.name)
        rule = (
            RetentionLimits()
            if rules.retains
            else RetentionLimits(rules.max_age_ms, rules.max_bytes)
        )
        fetch = context.fetch(stream)
        return _Planned(plan_retention(loaded.root, rule, now_ms=now_ms, fetch=fetch), rules)

    amended = amend(context, stream, plan, pause=pause, dry_run=dry_run)
    planned = amended.change
    return RetentionReport(
        stream=stream,
        landed=amended.landed,
        effective=planned.effective,
        ranges=planned.retention.ranges,
        first_offset=planned.root.first_offset,
        next_offset=planned.root.next_offset,
        total_size=planned.root.total_size,
        fragments=planned.root.fragments,
        version=amended.item.version,
        conflicts=amended.conflicts,
    )
