"""The driver of scrub: which offsets, by which tasks, and what of their findings still holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from coldstream.errors import ColdstreamError, CorruptDataError, NotFoundError, UnknownVersionError
from coldstream.jobs.cut_off import CutOff
from coldstream.jobs.scrub.objects import Ages, still_true
from coldstream.jobs.scrub.reading import Effort
from coldstream.jobs.scrub.schedule import ScrubUnit, chosen, fragments_of, packed, units_of
from coldstream.jobs.scrub.state import ScrubState
from coldstream.jobs.scrub.tree import TreeTop, read_group, read_tree
from coldstream.jobs.scrub.work import Scrubbed, ScrubTask, join
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.manifest.entries import Entry
from coldstream.manifest.walk import refers
from coldstream.ports import Catalog, ObjectStore
from coldstream.remote.nodes import NodeCache, fetcher
from coldstream.soundness.findings import Finding, FindingKind, Severity

_ROOTS_AT_ONCE = 16
#: Streams whose objects outside of the manifest's data are looked at by one task.
_METADATA_A_TASK = 16


@dataclass(frozen=True, slots=True)
class ScrubSettings:
    """What a run of scrub is told.

    Attributes:
        now_ms: when it began, ms since the Unix epoch.
        max_bytes: what it may read of fragments.
        every_ms: a range is not checked again before this has passed.
        grace_ms: how long `collect` must wait.
        task_bytes: what one task reads.
        effort: of each worker.
    """

    now_ms: int
    max_bytes: int = 2**40
    every_ms: int = 0
    grace_ms: int = 86_400_000
    task_bytes: int = 2**30
    effort: Effort = field(default_factory=Effort)

    @property
    def ages(self) -> Ages:
        """How old garbage may be."""
        return Ages(self.now_ms, self.grace_ms)


@dataclass(slots=True)
class ScrubOutcome:
    """What a run came to.

    Attributes:
        findings: by stream and offset.
        untold: findings beyond those that are more than notes; some may not hold any more.
        untold_notes: notes beyond those.
        state: what is known now of what was scrubbed when.
        streams: that were looked at.
        fragments: that were checked.
        bytes: of fragments that were read.
        chunks: in these.
        groups: of manifests that were read.
        tasks: that did it.
        oldest_ms: when the longest unchecked range was checked, 0 if it never was; None if there is
            nothing to check.
        failed: streams whose item could not be read, whose state forbids it, or whose root a later
            release wrote, with the reason.
    """

    findings: list[Finding] = field(default_factory=list)
    untold: int = 0
    untold_notes: int = 0
    state: ScrubState = field(default_factory=ScrubState)
    streams: int = 0
    fragments: int = 0
    bytes: int = 0
    chunks: int = 0
    groups: int = 0
    tasks: int = 0
    oldest_ms: int | None = None
    failed: dict[str, str] = field(default_factory=dict)

    def count(self, severity: Severity) -> int:
        """Findings of one severity, as far as they are told."""
        return sum(each.severity is severity for each in self.findings)

    @property
    def bad(self) -> list[Finding]:
        """Findings that are more than notes, the worst first."""
        worse = [each for each in self.findings if each.severity is not Severity.NOTE]
        return sorted(worse, key=lambda each: each.severity is not Severity.DAMAGED)


#: Does tasks, in any order and place, and gives their results in the tasks' order.
Perform = Callable[[Sequence[ScrubTask]], Iterable[Scrubbed]]


def run(
    store: ObjectStore,
    catalog: Catalog,
    prefix: str,
    items: Sequence[CatalogItem],
    state: ScrubState,
    settings: ScrubSettings,
    perform: Perform,
) -> ScrubOutcome:
    """Scrub streams, the longest unchecked ranges first, and say what is wrong.

    Args:
        store: the bucket.
        catalog: the table, to see what has changed meanwhile.
        prefix: of all keys.
        items: of the streams.
        state: what was scrubbed when.
        settings: of the run.
        perform: does the tasks.

    Raises:
        UnavailableError, PermissionDeniedError: the store or the table; no answer is no finding.
        UnknownVersionError: a group or a fragment is of a later release.
    """
    outcome = ScrubOutcome(state=state)
    trees, findings = _trees(store, items, outcome)
    children = _Children(store, prefix)
    units = [unit for tree in trees.values() for unit in units_of(tree, state, children)]
    if units:
        outcome.oldest_ms = min(unit.scrubbed_ms for unit in units)

    def parts(unit: ScrubUnit) -> Sequence[ScrubUnit]:
        tree = trees[unit.stream]
        return fragments_of(unit, children(tree, unit.entry), tree.first_offset)

    taken = chosen(
        units,
        max_bytes=settings.max_bytes,
        before_ms=settings.now_ms - settings.every_ms,
        parts=parts,
    )
    tasks = _tasks(taken, trees, settings.task_bytes)
    together = Scrubbed()
    for finding in (*findings, *children.findings):
        together.add(finding)
    for done in perform(tasks):
        _merge(together, done)
    outcome.tasks = len(tasks)
    outcome.streams = len(trees)
    for name in ("untold", "untold_notes", "fragments", "bytes", "chunks", "groups"):
        setattr(outcome, name, getattr(together, name))
    present = {
        stream: catalog.get(stream) for stream in {each.stream for each in together.findings}
    }
    # The objects of a stream that was deleted meanwhile go, as they should. That may be called off,
    # so what is not told of it does not count as scrubbed.
    leaving = {name for name, item in present.items() if item and item.state.is_tombstone}
    findings = [each for each in together.findings if each.stream not in leaving]
    outcome.findings = _confirmed(store, present, prefix, trees, findings)
    for stream, tree in trees.items():
        ranges = [(low, high) for name, low, high in together.ranges if name == stream]
        if ranges and stream not in leaving:
            outcome.state = outcome.state.scrubbed(
                stream, ranges, settings.now_ms, first=tree.first_offset
            )
    return outcome


class _Children:
    """Reads groups for the driver, and collects what is wrong with them."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self.findings: list[Finding] = []

    def __call__(self, tree: TreeTop, entry: Entry) -> Sequence[Entry]:
        found, findings = read_group(self._store, self._prefix, tree, entry)
        self.findings += findings
        return found


def _trees(
    store: ObjectStore, items: Sequence[CatalogItem], outcome: ScrubOutcome
) -> tuple[dict[str, TreeTop], list[Finding]]:
    """The tops of all manifests that can be looked at."""
    live: list[CatalogItem] = []
    for item in items:
        if item.state in (StreamState.LIVE, StreamState.REBUILDING):
            live.append(item)
        else:
            outcome.failed[item.stream] = f"the stream is {item.state}"
    trees: dict[str, TreeTop] = {}
    findings: list[Finding] = []

    def look(item: CatalogItem) -> tuple[TreeTop, list[Finding]] | None:
        try:
            return read_tree(store, item)
        except UnknownVersionError as error:
            outcome.failed[item.stream] = str(error)
            return None

    with ThreadPoolExecutor(_ROOTS_AT_ONCE) as pool:
        for tree, found in filter(None, pool.map(look, live)):
            trees[tree.stream] = tree
            findings += found
    return trees, findings


def _tasks(
    taken: Sequence[ScrubUnit], trees: dict[str, TreeTop], task_bytes: int
) -> list[ScrubTask]:
    # A worker needs of a tree what is the same for all its fragments, not the root's entries.
    light = {name: replace(tree, entries=(), root=None) for name, tree in trees.items()}
    tasks = [
        ScrubTask(tuple(units), {unit.stream: light[unit.stream] for unit in units})
        for units in packed(taken, task_bytes=task_bytes)
    ]
    everything = [tree for tree in trees.values() if tree.item.root_key]
    return tasks + [
        ScrubTask((), {}, tuple(everything[at : at + _METADATA_A_TASK]))
        for at in range(0, len(everything), _METADATA_A_TASK)
    ]


def _merge(together: Scrubbed, done: Scrubbed) -> None:
    for finding in done.findings:
        together.add(finding)
    together.untold += done.untold
    together.untold_notes += done.untold_notes
    together.ranges += done.ranges
    for edge in done.edges:
        join(together, edge)
    together.fragments += done.fragments
    together.bytes += done.bytes
    together.chunks += done.chunks
    together.groups += done.groups


def _confirmed(
    store: ObjectStore,
    present: Mapping[str, CatalogItem | None],
    prefix: str,
    trees: dict[str, TreeTop],
    findings: Sequence[Finding],
) -> list[Finding]:
    """The findings that still hold for the manifests as they are at present, in order."""
    kept: list[Finding] = []
    fresh: dict[str, Callable[[Finding], bool] | None] = {}
    for finding in findings:
        tree = trees[finding.stream]
        if finding.stream not in fresh:
            fresh[finding.stream] = _refers_now(store, present[finding.stream], prefix, tree)
        now = fresh[finding.stream]
        if now is None or finding.key in ("", tree.item.root_key) or still_true(finding, now):
            kept.append(finding)
    # Driver and workers may both have read a group, and each has told what is wrong with it.
    return sorted(
        dict.fromkeys(kept), key=lambda each: (each.stream, each.first_offset, each.position or 0)
    )


def _refers_now(
    store: ObjectStore, item: CatalogItem | None, prefix: str, tree: TreeTop
) -> Callable[[Finding], bool] | None:
    """Tells whether the stream's present manifest refers to a finding's object.

    None if the manifest is the one that was scrubbed, or cannot be read: then everything stands.
    """
    if item is None or item.root_key == tree.item.root_key:
        return None
    try:
        now, found = read_tree(store, item)
    except UnknownVersionError:
        return None
    if now.root is None or found:
        return None
    root, fetch = now.root, fetcher(store, NodeCache(), prefix, tree.stream)
    cut_off = CutOff(store, prefix, now.quarantine_key, fetch)

    def tell(finding: Finding) -> bool:
        if finding.kind is FindingKind.UNREFERENCED and cut_off.keeps(finding.key):
            return True
        offset = max(finding.first_offset, root.first_offset)
        try:
            return refers(root, offset, finding.key, prefix, tree.stream, fetch)
        except (CorruptDataError, NotFoundError):
            return finding.kind is not FindingKind.UNREFERENCED

    return tell


def first_error(outcome: ScrubOutcome) -> ColdstreamError | None:
    """The worst finding as an error, None if there are only notes."""
    count = len(outcome.bad) + outcome.untold
    if not outcome.bad:
        words = f"{count} findings, and none of those that could be told holds any more: run again"
        return CorruptDataError(words) if count else None
    worst = outcome.bad[0]
    return CorruptDataError(
        f"{count} findings; the worst is {worst.kind}: {worst.words}",
        stream=worst.stream,
        offset=worst.first_offset,
        key=worst.key or None,
    )
