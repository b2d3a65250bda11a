"""What a worker does: read the fragments of some units, check every byte, tell what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from coldstream.errors import CorruptDataError, NotFoundError
from coldstream.jobs.cut_off import CutOff
from coldstream.jobs.scrub.objects import (
    Ages,
    classify_listed,
    classify_metadata,
    classify_quarantine,
    listed,
)
from coldstream.jobs.scrub.reading import Effort, Looked, Reading, ahead
from coldstream.jobs.scrub.schedule import ScrubUnit, fragments_of
from coldstream.jobs.scrub.tree import TreeTop, fenced, read_group
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.tree import head_of
from coldstream.names import MAX_OFFSET
from coldstream.ports import ObjectInfo, ObjectStore
from coldstream.reader.prefetch import workers
from coldstream.remote.nodes import NodeCache, fetcher
from coldstream.soundness.findings import Finding, FindingKind, Severity

#: Findings of a task, and as many notes, that are told one by one; the rest is counted.
MAX_FINDINGS = 10_000


@dataclass(frozen=True, slots=True)
class ScrubTask:
    """Work for one worker; units in the order of streams and offsets.

    Attributes:
        units: parts of trees.
        trees: of the streams of all units, by directory name, without the entries of their roots.
        metadata: streams of which the objects outside of the manifest's data are looked at, too.
    """

    units: tuple[ScrubUnit, ...]
    trees: dict[str, TreeTop]
    metadata: tuple[TreeTop, ...] = ()


@dataclass(frozen=True, slots=True)
class Edge:
    """The chunk epochs at the ends of neighbouring fragments that were read together."""

    stream: str
    first_offset: int
    next_offset: int
    first_epoch: int | None
    last_epoch: int | None
    key: str


@dataclass(slots=True)
class Scrubbed:
    """What a task came to.

    Attributes:
        findings: in the order of offsets.
        notes: how many of these are notes.
        untold: how many more there were that are more than notes.
        untold_notes: how many more notes there were.
        ranges: offsets that were checked, by stream.
        edges: of neighbours that were read together, in order.
        fragments: that were checked.
        bytes: of these objects that were read.
        chunks: in these.
        groups: of manifests that were read.
    """

    findings: list[Finding] = field(default_factory=list)
    notes: int = 0
    untold: int = 0
    untold_notes: int = 0
    ranges: list[tuple[str, int, int]] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    fragments: int = 0
    bytes: int = 0
    chunks: int = 0
    groups: int = 0

    def add(self, finding: Finding) -> None:
        """Take in one finding; notes, of which there may be very many, take no other's place."""
        note = finding.severity is Severity.NOTE
        if (self.notes if note else len(self.findings) - self.notes) < MAX_FINDINGS:
            self.findings.append(finding)
            self.notes += note
        elif note:
            self.untold_notes += 1
        else:
            self.untold += 1


def scrub(store: ObjectStore, prefix: str, task: ScrubTask, effort: Effort, ages: Ages) -> Scrubbed:
    """Do a task.

    Args:
        store: the bucket.
        prefix: of all keys.
        task: what is to be looked at.
        effort: how.
        ages: how old garbage may be.

    Raises:
        UnavailableError, PermissionDeniedError: the store; no answer is no finding.
    """
    done = Scrubbed()
    for tree in task.metadata:
        for finding in _outside(store, prefix, tree, ages):
            done.add(finding)
    with workers(effort.in_flight) as pool:
        for stream, units in groupby(task.units, key=lambda unit: unit.stream):
            tree = task.trees[stream]
            part = _Stream(store, prefix, tree, done)
            reading = Reading(store, prefix, tree, effort, pool)
            plan = reading.fetches(part.blocks(list(units), ages))
            for got in ahead(plan, pool, effort):
                looked = reading.check(got)
                if looked is not None:
                    part.take(got.leaf, looked)
    return done


def _outside(store: ObjectStore, prefix: str, tree: TreeTop, ages: Ages) -> Iterator[Finding]:
    """Roots, groups, and data below and above the manifest."""
    fetch = fetcher(store, NodeCache(), prefix, tree.stream)
    cut_off = CutOff(store, prefix, tree.quarantine_key, fetch)
    yield from classify_quarantine(tree, cut_off)
    yield from classify_metadata(tree, prefix, store, fetch, cut_off, ages)
    if tree.root is not None:
        try:
            head = head_of(tree.root.entries, tree.first_offset, fetch) if tree.entries else None
        except (CorruptDataError, NotFoundError):
            head = tree.root.head  # a group is damaged, and that is a finding of its own
        if head != tree.root.head:
            yield Finding(
                stream=tree.stream,
                kind=FindingKind.ROOT,
                severity=Severity.WRONG,
                key=tree.item.root_key,
                first_offset=tree.first_offset,
                next_offset=tree.next_offset,
                position=None,
                expected=str(head),
                found=str(tree.root.head),
                words="the root says of its oldest fragment what is not so",
            )
    oldest = [each for each in tree.live()[:1] if not each.kind.level]
    for first, next_offset in ((0, tree.first_offset), (tree.next_offset, MAX_OFFSET)):
        rows: list[ObjectInfo] = []
        for row in listed(store, prefix, tree.stream, first, next_offset):
            rows.append(row)
            if len(rows) == 1000:
                yield from classify_listed(store, tree, prefix, rows, oldest, cut_off, ages)
                rows = []
        yield from classify_listed(store, tree, prefix, rows, oldest, cut_off, ages)


class _Stream:
    """The units of one stream in a task."""

    def __init__(self, store: ObjectStore, prefix: str, tree: TreeTop, done: Scrubbed) -> None:
        self._store = store
        self._prefix = prefix
        self._tree = tree
        self._done = done
        fetch = fetcher(store, NodeCache(), prefix, tree.stream)
        self._cut_off = CutOff(store, prefix, tree.quarantine_key, fetch)

    def blocks(self, units: Sequence[ScrubUnit], ages: Ages) -> Iterator[tuple[Entry, int | None]]:
        """Fragments and holes in order, each with its size by LIST; None for what is not listed.

        Groups and listings are read, and judged, on the way.
        """
        for _, same in groupby(units, key=lambda unit: unit.entry if unit.entry.kind.level else 0):
            for run in _runs(self._leaves(list(same))):
                sizes = self._listed(run, ages)
                for leaf in run:
                    yield leaf, sizes.get(self._path(leaf))

    def take(self, leaf: Entry, looked: Looked) -> None:
        """Put the result of one leaf, in its turn, to the others."""
        done, stream = self._done, self._tree.stream
        for finding in looked.findings:
            done.add(finding)
        done.bytes += looked.bytes
        done.chunks += looked.chunks
        done.fragments += leaf.kind is EntryKind.FRAGMENT
        low = max(leaf.first_offset, self._tree.first_offset)
        last = done.ranges[-1] if done.ranges else None
        if last is not None and last[0] == stream and last[2] == low:
            done.ranges[-1] = (stream, last[1], leaf.next_offset)
        else:
            done.ranges.append((stream, low, leaf.next_offset))
        edge = Edge(
            stream,
            leaf.first_offset,
            leaf.next_offset,
            looked.edges.first,
            looked.edges.last,
            self._path(leaf),
        )
        join(done, edge)

    def _leaves(self, block: Sequence[ScrubUnit]) -> list[Entry]:
        """Fragments and holes of units of one group, or of the root."""
        if not block or not block[0].entry.kind.level:
            return [unit.entry for unit in block]
        children, findings = read_group(self._store, self._prefix, self._tree, block[0].entry)
        self._done.groups += 1
        # The group may be cut in parts that lie in several tasks: one of them tells.
        if any(
            unit.first == max(unit.entry.first_offset, self._tree.first_offset) for unit in block
        ):
            for finding in findings:
                self._done.add(finding)
        found: list[Entry] = []
        for unit in block:
            parts = fragments_of(unit, children, self._tree.first_offset)
            found += [part.entry for part in parts]
        for finding in fenced(self._tree, found):
            self._done.add(finding)
        return found

    def _listed(self, run: Sequence[Entry], ages: Ages) -> dict[str, int]:
        """Sizes of the objects that begin within neighbouring leaves; tells of superfluous ones."""
        sizes: dict[str, int] = {}
        extra: list[ObjectInfo] = []
        known = {self._path(leaf) for leaf in run}
        first, next_offset = run[0].first_offset, run[-1].next_offset
        for row in listed(self._store, self._prefix, self._tree.stream, first, next_offset):
            if row.key in known:
                sizes[row.key] = row.size
            else:
                extra.append(row)
        for finding in classify_listed(
            self._store, self._tree, self._prefix, extra, run, self._cut_off, ages
        ):
            self._done.add(finding)
        return sizes

    def _path(self, leaf: Entry) -> str:
        return leaf.data_key(self._tree.stream).path(self._prefix)


def join(done: Scrubbed, edge: Edge) -> None:
    """Put a fragment behind those before it; chunk epochs must not fall from one to the next."""
    before = done.edges[-1] if done.edges else None
    if before is None or before.stream != edge.stream or before.next_offset != edge.first_offset:
        done.edges.append(edge)
        return
    if (
        before.last_epoch is not None
        and edge.first_epoch is not None
        and edge.first_epoch < before.last_epoch
    ):
        done.add(
            Finding(
                stream=edge.stream,
                kind=FindingKind.EPOCHS,
                severity=FindingKind.EPOCHS.severity,
                key=edge.key,
                first_offset=edge.first_offset,
                next_offset=edge.next_offset,
                position=None,
                expected=f"{before.last_epoch} or more",
                found=str(edge.first_epoch),
                words=f"chunk epoch {edge.first_epoch} follows epoch {before.last_epoch}",
            )
        )
    done.edges[-1] = Edge(
        edge.stream,
        before.first_offset,
        edge.next_offset,
        before.first_epoch,
        # A hole has no epochs: what lies before it counts.
        before.last_epoch if edge.last_epoch is None else edge.last_epoch,
        edge.key,
    )


def _runs(leaves: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Neighbours, a page of LIST at a time."""
    run: list[Entry] = []
    for leaf in leaves:
        if run and (run[-1].next_offset != leaf.first_offset or len(run) >= 1000):
            yield run
            run = []
        run.append(leaf)
    if run:
        yield run
