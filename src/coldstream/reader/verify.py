"""Verify a stream of the remote tier: every invariant that its objects can show, by name.

Without `deep` it costs one LIST per thousand objects and one small GET a fragment; with it, every
byte is read. Findings are values; only a missing answer (network, permission) is an error, because
an unknown answer is no finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial

from coldstream.errors import CorruptDataError, NotFoundError
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.root import Root, parse_root
from coldstream.names import check_stream, data_prefix, list_start
from coldstream.ports import Catalog, ObjectStore
from coldstream.reader.budget import PROCESS_BUDGET, MemoryBudget
from coldstream.reader.fragments import Fragments
from coldstream.reader.inspection import Inspected, inspect_data, inspect_trailer
from coldstream.reader.prefetch import Fetch, in_order, workers
from coldstream.reader.report import CheckedRange, RangeStatus, Report, joined
from coldstream.reader.settings import ReaderSettings
from coldstream.reader.snapshot import MAX_ROOT_SIZE
from coldstream.testing.invariants import (
    Invariant,
    Violation,
    agreement,
    coverage,
    epoch_order,
    fencing,
)

Progress = Callable[[int, int], None]
_PAGE = 1000
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
) -> Report:
    """Check a stream's catalog item, its root, and every object the root refers to.

    If objects are missing and the manifest has moved meanwhile, it was retention: the newer
    manifest is verified instead.

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
    item = _item(catalog, stream)
    while True:
        report = verifier.verify(item)
        if not any(each.status is RangeStatus.MISSING for each in report.ranges):
            return report
        fresh = _item(catalog, stream)
        if fresh.root_key == item.root_key:
            return report
        item = fresh


def _item(catalog: Catalog, stream: str) -> CatalogItem:
    item = catalog.get(check_stream(stream))
    if item is None:
        raise NotFoundError("the catalog does not know this stream", stream=stream)
    return item


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

    def verify(self, item: CatalogItem) -> Report:
        """Check what one state of the item refers to."""
        if not item.root_key:
            return self._report(item, (), ())
        try:
            root = parse_root(self._store.get_all(item.root_key, limit=MAX_ROOT_SIZE))
        except NotFoundError:
            return self._rootless(item, RangeStatus.MISSING, "the manifest root is gone")
        except CorruptDataError as error:
            return self._rootless(item, RangeStatus.CORRUPT, error.reason)
        violations = agreement(item, root) + coverage(root) + fencing(root)
        ranges: list[CheckedRange] = []
        trailers = []
        chunks = messages = done = 0
        for entry, found in self._inspected(root):
            if found is None:
                ranges.append(_hole(entry))
                continue
            ranges += found.ranges()
            violations += found.violations
            chunks += found.chunks
            messages += found.messages
            if found.trailer is not None:
                trailers.append((found.trailer, found.path))
            done += entry.size
            self._progress(done, root.total_size)
        violations += epoch_order(trailers)
        return self._report(item, ranges, violations, chunks=chunks, messages=messages)

    def _inspected(self, root: Root) -> Iterator[tuple[Entry, Inspected | None]]:
        """Every entry in order, with what was found; nothing for a hole."""
        listed = self._listed(root)
        in_flight = _FRAGMENTS_IN_FLIGHT if self._deep else _TRAILERS_IN_FLIGHT
        held = self._settings.range_size if self._deep else 0
        fetches = (
            Fetch(held, partial(self._inspect, entry, listed))
            for entry in root.entries
            if entry.kind is EntryKind.FRAGMENT
        )
        with workers(in_flight) as pool:
            results = in_order(fetches, pool, budget=self._budget, in_flight=in_flight)
            with closing(results):
                for entry in root.entries:
                    yield entry, next(results) if entry.kind is EntryKind.FRAGMENT else None

    def _inspect(self, entry: Entry, listed: dict[str, int]) -> Inspected:
        path = self._fragments.path(entry)
        found = inspect_trailer(
            entry, stream=self._stream, path=path, listed_size=listed.get(path), store=self._store
        )
        if self._deep:
            inspect_data(found, self._fragments, range_size=self._settings.range_size)
        return found

    def _listed(self, root: Root) -> dict[str, int]:
        """Sizes of the stream's data objects by key, from the first entry of the root on."""
        if not len(root.entries):
            return {}
        under = data_prefix(self._prefix, self._stream)
        after = list_start(self._prefix, self._stream, root.entries[0].first_offset)
        end = list_start(self._prefix, self._stream, root.next_offset)
        sizes: dict[str, int] = {}
        while True:
            page = self._store.list(under, start_after=after, limit=_PAGE)
            sizes.update((row.key, row.size) for row in page)
            if len(page) < _PAGE or page[-1].key >= end:
                return sizes
            after = page[-1].key

    def _rootless(self, item: CatalogItem, status: RangeStatus, problem: str) -> Report:
        """The report when there is no root to go by: everything below it is in doubt."""
        violation = Violation(
            Invariant.AGREEMENT, problem, item.first_offset, item.next_offset, item.root_key
        )
        whole = CheckedRange(
            item.first_offset,
            item.next_offset,
            status,
            item.fragments,
            item.total_size,
            item.root_key,
            problem,
        )
        return replace(self._report(item, (whole,), (violation,)), rooted=False)

    def _report(
        self,
        item: CatalogItem,
        ranges: list[CheckedRange] | tuple[CheckedRange, ...],
        violations: list[Violation] | tuple[Violation, ...],
        *,
        chunks: int = 0,
        messages: int = 0,
    ) -> Report:
        return Report(
            stream=self._stream,
            deep=self._deep,
            version=item.version,
            first_offset=item.first_offset,
            next_offset=item.next_offset,
            ranges=joined(ranges),
            violations=tuple(violations),
            chunks=chunks,
            messages=messages,
        )


def _hole(entry: Entry) -> CheckedRange:
    return CheckedRange(entry.first_offset, entry.next_offset, RangeStatus.LOST, 0)
