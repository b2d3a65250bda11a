"""What many histories must have met; a run that has not proves less than it seems to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

#: A run of fewer histories need not meet everything.
ENOUGH_SEEDS = 4000

#: What to print, and the events that count as it; a run without any of them fails.
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "commits that lost a conflict": ("conflict of commit", "conflict of agent"),
    "claims that lost a conflict": ("conflict of claim",),
    "retentions that lost a conflict": ("conflict of retain",),
    "rebalances that lost a conflict": ("conflict of rebalance",),
    "consolidations that lost a conflict": ("conflict of consolidate",),
    "repairs that lost a conflict": ("conflict of repair",),
    "rivals before a change or a delete": ("rivals",),
    "files rewritten before an upload": ("files rewritten before an upload",),
    "files rewritten after an answer": ("files rewritten after an answer",),
    "holes": ("hole",),
    "truncations": ("truncated",),
    "streams begun anew": ("begun anew",),
    "quarantined timelines given up": ("dropped",),
    "repairs": ("repaired",),
    "fragments erased": ("fragments erased",),
    "versions purged": ("versions purged",),
    "erasures that nothing was left of": ("erased for good",),
    "rotten chunks": ("rotten",),
    "damaged trailers": ("rotten trailer",),
    "cut objects": ("cut object",),
    "vanished objects": ("vanished object",),
    "lost groups": ("lost group",),
    "lost roots": ("lost root",),
    "lost metadata": ("lost metadata",),
    "lost items": ("lost item",),
    "rebuilds after a loss": ("rebuilt after loss",),
    "tables restored": ("table restored",),
    "outages of S3": ("outage of S3",),
    "outages of DynamoDB": ("outage of DynamoDB",),
    "outages of Lambda": ("outage of Lambda",),
    "requests to claim that were lost": ("claim lost",),
    "requests to claim that were done without an answer": ("claim without an answer",),
    "requests to claim that were done late": ("claim invoked late",),
    "requests to claim that were done twice": ("claim invoked twice",),
    "requests to claim that met each other": ("claims at the same time",),
    "slow calls": ("slow call",),
    "steps out of time": ("out of time",),
    "Lambdas and steps timed out": ("timed out",),
    "batches that failed in part": ("batch failed in part",),
    "dead letters": ("dead letter",),
    "clock jumps": ("clock jumps",),
    "failing disks": ("disk fails",),
    "members made anew": ("member replaced",),
    "tails that all members lost": ("lost tail",),
    "agents that live through trouble": ("agents live on",),
    "agents run once": ("agent run once",),
    "second streams": ("second stream",),
    "rotten local files": ("local file rots",),
    "odd keys": ("odd key",),
    "stray uploads": ("stray upload",),
    "uploads that hang": ("upload hangs",),
    "uploads of earlier lives": ("earlier life done",),
    "late copies": ("late copy done",),
    "deletions": ("state deleting",),
    "deletions called off": ("undelete done",),
    "sweeps": ("state deleted",),
    "holds": ("hold done",),
    "objects deleted": ("deleted",),
    "scans": ("scan done",),
    "streams reconciled because a scan named them": ("reconciled by scan",),
    "small limits": ("small limits",),
    "collections in several steps": ("collect in steps",),
    "agents that linger before a change": ("change hangs",),
    "false claims that were undone": ("undone",),
    "undoings that died": ("undo dies",),
    "thieves who came back meanwhile": ("undo meets the thief",),
    "gaps told to readers": ("gap by hole", "gap by retention", "gap by truncation"),
}


def covered(events: Counter[str]) -> dict[str, int]:
    """How often each of what must be met was met."""
    return {name: sum(events[each] for each in some) for name, some in REQUIRED.items()}


def missed(events: Counter[str], seeds: int) -> list[str]:
    """What a run of so many histories should have met, and has not."""
    if seeds < ENOUGH_SEEDS:
        return []
    return [name for name, count in covered(events).items() if not count]
