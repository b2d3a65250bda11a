"""Verify a stream of the remote tier: every invariant that its objects can show, by name.

Without `deep` it costs one LIST per thousand objects, one GET a group of the manifest and one small
GET a fragment; with it, every byte is read. Tree and LIST are walked side by side, so the memory it
takes does not grow with the stream: three groups, a page, and what is in flight. Findings are
values; only a missing answer (network, permission) is an error, because
an unknown answer is no finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial

from coldstream.errors import CorruptDataError, NotFoundError
from coldstream.manifest import tree
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.invariants import (
    Invariant,
    Note,
    Violation,
    agreement,
    covered,
    epoch_order,
    fenced,
    summed,
)
from coldstream.manifest.node import Node
from coldstream.manifest.root import Root
from coldstream.manifest.walk import Visited, refers, walk
from coldstream.names import data_prefix
from coldstream.ports import Catalog, ObjectStore
from coldstream.reader.budget import PROCESS_BUDGET, MemoryBudget
from coldstream.reader.fetch import Fetch
from coldstream.reader.fragments import Fragments
from coldstream.reader.inspection import Inspected, inspect_data, inspect_trailer
from coldstream.reader.prefetch import in_order, workers
from coldstream.reader.report import CheckedRange, Findings, RangeStatus, VerifyReport
from coldstream.reader.settings import ReaderSettings
from coldstream.remote.listing import SizesInOrder
from coldstream.remote.nodes import NodeCache, fetcher
from coldstream.remote.roots import read_item, root_at

Progress = Callable[[int, int], None]
_MAX_REPEATS = 4
_TRAILERS_IN_FLIGHT = 16
_FRAGMENTS_IN_FLIGHT = 4


def verify_stream(
    store: ObjectStore,
    catalog: Catalog,
    prefix: str,
    stream: str,
    *,
    deep: bool = False,
    progress: Progress = lambda done, total: None,
    settings: ReaderSettings | None = None,
    budget: MemoryBudget = PROCESS_BUDGET,
) -> VerifyReport:
    """Check a stream's catalog item, its root, and every object the root refers to.

    If objects are missing and the manifest has moved on and refers to none of them any more, it was
    retention, consolidation or collection: the newer manifest is verified instead.

    Args:
        store: the bucket.
        catalog: the table.
        prefix: of all keys.
        stream: directory name.
        deep: read all data, too.
        progress: told (bytes done, bytes in all) after every fragment.
        settings: sizes of ranges.
        budget: for what is read.

    Raises:
        NotFoundError: the catalog does not know the stream.
        UnavailableError, PermissionDeniedError: from the adapters.
    """
    verifier = _Verifier(
        store, prefix, stream, deep, progress, settings or ReaderSettings(), budget
    )
    item = read_item(catalog, stream)
    report = verifier.verify(item)
    for _ in range(_MAX_REPEATS):
        if not any(each.status is RangeStatus.MISSING for each in report.ranges):
            break
        fresh = read_item(catalog, stream)
        if fresh.root_key == item.root_key or verifier.still_refers(fresh, report):
            break
        item, report = fresh, verifier.verify(fresh)
    return report


class _Verifier:
    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        stream: str,
        deep: bool,
        progress: Progress,
        settings: ReaderSettings,
        budget: MemoryBudget,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._stream = stream
        self._deep = deep
        self._progress = progress
        self._settings = settings
        self._budget = budget
        self._fragments = Fragments(store, prefix, stream, settings)

    def verify(self, item: CatalogItem) -> VerifyReport:
        """Check what one state of the item refers to."""
        if not item.root_key:
            return self._report(item, Findings())
        try:
            root = root_at(self._store, item.root_key, self._stream)
        except NotFoundError:
            return self._rootless(item, RangeStatus.MISSING, "the manifest root is gone")
        except CorruptDataError as error:
            return self._rootless(item, RangeStatus.CORRUPT, error.reason)
        findings = Findings()
        for violation in agreement(item, root):
            findings.note(violation)
        chunks = messages = groups = done = epoch = 0
        for result in self._results(root, findings.note):
            if isinstance(result, CheckedRange):
                findings.add(result)
                done += result.size_bytes
            elif isinstance(result, Node):
                groups += 1
                continue
            else:
                trailers = [(result.trailer, result.path)] if result.trailer else []
                for violation in (*result.violations, *epoch_order(trailers, after_epoch=epoch)):
                    findings.note(violation)
                for each in result.ranges():
                    findings.add(each)
                epoch = max([epoch, *(trailer.last_chunk_epoch for trailer, _ in trailers)])
                chunks += result.chunks
                messages += result.messages
                done += result.entry.size
            self._progress(min(done, root.total_size), root.total_size)
        return self._report(item, findings, chunks=chunks, messages=messages, groups=groups)

    def still_refers(self, item: CatalogItem, report: VerifyReport) -> bool:
        """Whether the root of `item` refers to an object that `report` misses."""
        where = (self._prefix, self._stream, self._fetch(NodeCache()))
        try:
            root = root_at(self._store, item.root_key, self._stream)
            return any(
                refers(root, each.next_offset - 1, each.key, *where)
                for each in report.ranges
                if each.status is RangeStatus.MISSING and each.key
            )
        except (NotFoundError, CorruptDataError):
            return False  # the next look will find that

    def _fetch(self, nodes: NodeCache) -> tree.Fetch:
        """What reads groups; never with the process's cache, which would hide what is wrong."""
        return fetcher(self._store, nodes, self._prefix, self._stream)

    def _results(self, root: Root, note: Note) -> Iterator[Inspected | CheckedRange | Node]:
        """Everything alive in order, with what was found; groups before what lies below them."""
        visits: Iterator[Visited] = walk(root, self._fetch(NodeCache(0)))
        for check in (covered, fenced, summed):
            visits = check(root, visits, note)
        in_flight = _FRAGMENTS_IN_FLIGHT if self._deep else _TRAILERS_IN_FLIGHT
        listing = SizesInOrder(self._store, data_prefix(self._prefix, self._stream))
        with workers(in_flight) as pool:
            fetches = (
                self._planned(visit, root, listing, note) for visit in visits if not visit.dead
            )
            results = in_order(fetches, pool, budget=self._budget, in_flight=in_flight)
            with closing(results):
                yield from results

    def _planned(
        self, visit: Visited, root: Root, listing: SizesInOrder, note: Note
    ) -> Fetch[Inspected | CheckedRange | Node]:
        """What is to be done about one entry; the LIST is read here, in offset order."""
        entry = visit.entry
        if visit.node is not None:
            return Fetch(0, partial(_told, visit.node))
        if visit.error is not None:
            gone = _unreadable(entry, root.first_offset, visit.error)
            problem = f"{gone.problem}: nothing below it can be found"
            place = (gone.first_offset, gone.next_offset, gone.key)
            note(Violation(Invariant.DURABILITY, problem, *place))
            return Fetch(0, partial(_told, gone))
        if entry.kind is EntryKind.HOLE:
            return Fetch(0, partial(_told, self._hole(entry, listing, note)))
        held = self._settings.range_size if self._deep else 0
        path = self._fragments.path(entry)
        return Fetch(held, partial(self._inspect, entry, root, listing.size(path)))

    def _hole(self, entry: Entry, listing: SizesInOrder, note: Note) -> CheckedRange:
        """A range that was declared lost: no finding, as long as the object that says so is there.

        Nobody reads that object but a rebuild, which could not come any further without it.
        """
        place = (entry.first_offset, entry.next_offset)
        path = entry.data_key(self._stream).path(self._prefix)
        if listing.size(path) is not None:
            return CheckedRange(*place, RangeStatus.LOST, 0)
        problem = "the object that declares this range lost is gone: a rebuild would end before it"
        note(Violation(Invariant.COVERAGE, problem, *place, path))
        return CheckedRange(*place, RangeStatus.MISSING, 0, 0, path, problem)

    def _inspect(self, entry: Entry, root: Root, listed_size: int | None) -> Inspected:
        found = inspect_trailer(
            entry,
            floor=root.ledger.floor(entry.epoch),
            stream=self._stream,
            path=self._fragments.path(entry),
            listed_size=listed_size,
            store=self._store,
        )
        if self._deep:
            inspect_data(found, self._fragments, range_size=self._settings.range_size)
        return found

    def _rootless(self, item: CatalogItem, status: RangeStatus, problem: str) -> VerifyReport:
        """The report when there is no root to go by: everything below it is in doubt."""
        place = (item.first_offset, item.next_offset)
        findings = Findings()
        findings.note(Violation(Invariant.AGREEMENT, problem, *place, item.root_key))
        findings.add(
            CheckedRange(*place, status, item.fragments, item.total_size, item.root_key, problem)
        )
        return replace(self._report(item, findings), rooted=False)

    def _report(
        self,
        item: CatalogItem,
        findings: Findings,
        *,
        chunks: int = 0,
        messages: int = 0,
        groups: int = 0,
    ) -> VerifyReport:
        return VerifyReport(
            stream=self._stream,
            deep=self._deep,
            version=item.version,
            first_offset=item.first_offset,
            next_offset=item.next_offset,
            ranges=tuple(findings.ranges),
            violations=tuple(findings.violations),
            unlisted=findings.unlisted,
            chunks=chunks,
            messages=messages,
            groups=groups,
        )


def _unreadable(
    entry: Entry, first_offset: int, error: NotFoundError | CorruptDataError
) -> CheckedRange:
    """What a group that is gone or damaged leaves in the dark, from the first offset on."""
    gone = isinstance(error, NotFoundError)
    return CheckedRange(
        max(entry.first_offset, first_offset),
        entry.next_offset,
        RangeStatus.MISSING if gone else RangeStatus.CORRUPT,
        entry.fragments,
        entry.size,
        error.key or "",
        "the manifest group is gone" if gone else error.reason,
    )


def _told(
    value: Inspected | CheckedRange | Node,
) -> Inspected | CheckedRange | Node:
    return value
