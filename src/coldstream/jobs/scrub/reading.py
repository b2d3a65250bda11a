"""Read fragments with several GETs in flight, and check every byte of them in one thread.

The threads of the pool only wait for the network. Checking in them, too, would make them fight for
the interpreter at every chunk; and a Spark task has one core. A fragment that is larger than a
range is fetched in ranges of whole chunks, for which its index is needed first: indexes are asked
for some fragments ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from functools import partial

from coldstream.crc import combine
from coldstream.errors import CorruptDataError, NotFoundError
from coldstream.fragment import HEADER, TRAILER_SIZE, Buffer, Trailer
from coldstream.jobs.scrub.tree import TreeTop
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.ports import ObjectStore
from coldstream.reader.cuts import ranges
from coldstream.reader.fetch import Fetch
from coldstream.reader.fragments import Fragments
from coldstream.reader.open_fragments import OpenFragment
from coldstream.reader.settings import ReaderSettings
from coldstream.soundness.chunks import check_chunks, contents_hold
from coldstream.soundness.diagnosis import diagnose
from coldstream.soundness.findings import Finding, FindingKind, Severity
from coldstream.soundness.fragment import holds, trailer_holds
from coldstream.soundness.notes import Edges, Subject

_INDEXES_AHEAD = 4


@dataclass(frozen=True, slots=True)
class Effort:
    """How a worker goes about it.

    Attributes:
        quick: metadata, trailers and indexes only, no data.
        in_flight: fragments that are read at once.
        range_size: bytes that one GET asks for; a smaller fragment is fetched whole.
        memory: bytes that read-ahead may hold.
    """

    quick: bool = False
    in_flight: int = 8
    range_size: int = 8 * 2**20
    memory: int = 192 * 2**20


@dataclass(slots=True)
class Looked:
    """What became of one fragment or hole.

    Attributes:
        findings: what is wrong with it.
        edges: chunk epochs at its ends.
        bytes: of its object that were read.
        chunks: in these.
    """

    findings: list[Finding] = field(default_factory=list)
    edges: Edges = field(default_factory=lambda: Edges(None, None))
    bytes: int = 0
    chunks: int = 0


@dataclass(frozen=True, slots=True)
class Got:
    """An answer of the store about a fragment.

    Attributes:
        leaf: of which fragment or hole.
        size: of its object by LIST, None if it was not listed.
        data: bytes; None if there was nothing to be fetched, or it could not be.
        opened: the fragment's index, if `data` is a range of its chunks.
        first: number of the first chunk in `data`.
        last: number of the last chunk in `data`.
        gone: whether the object has vanished.
        bad: whether something has shown already that the fragment does not hold.
    """

    leaf: Entry
    size: int | None
    data: Buffer | None = None
    opened: OpenFragment | None = None
    first: int = 0
    last: int = -1
    gone: bool = False
    bad: bool = False


def ahead(fetches: Iterator[Fetch[Got]], pool: Executor, effort: Effort) -> Iterator[Got]:
    """The result of every fetch, in order, with as many ahead as there is room for.

    Unlike a reader, scrub knows that it will want everything, so it begins with everything in
    flight. As many results as there are GETs under way may wait to be checked.
    """
    window: deque[tuple[int, Future[Got]]] = deque()
    held = 0
    waiting = next(fetches, None)
    try:
        while window or waiting is not None:
            while (
                waiting is not None
                and len(window) < 2 * effort.in_flight
                and (not window or held + waiting.size <= effort.memory)
            ):
                window.append((waiting.size, pool.submit(waiting.run)))
                held += waiting.size
                waiting = next(fetches, None)
            size, future = window.popleft()
            yield future.result()
            held -= size
    finally:
        for _, future in window:
            future.cancel()


class Reading:
    """The fragments of one stream, one after the other.

    Args:
        store: the bucket.
        prefix: of all keys.
        tree: of the stream.
        effort: how to go about it.
        pool: for GETs.
    """

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        tree: TreeTop,
        effort: Effort,
        pool: Executor,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._tree = tree
        self._effort = effort
        self._pool = pool
        settings = ReaderSettings(range_size=effort.range_size)
        self._fragments = Fragments(store, prefix, tree.stream, settings)
        self._crc: int | None = 0  # over the ranges of a fragment so far; None once one is bad

    def fetches(self, leaves: Iterable[tuple[Entry, int | None]]) -> Iterator[Fetch[Got]]:
        """What is to be fetched, in order; its results go to `check`.

        Args:
            leaves: fragments and holes, each with the size of its object by LIST.
        """
        waiting: deque[tuple[Entry, int | None, Future[OpenFragment] | None]] = deque()
        for leaf, size in leaves:
            opening = None
            if leaf.kind is EntryKind.FRAGMENT and size == leaf.size and not self._at_once(leaf):
                opening = self._pool.submit(self._fragments.open, leaf)
            waiting.append((leaf, size, opening))
            if len(waiting) > _INDEXES_AHEAD:
                yield from self._fetch(*waiting.popleft())
        while waiting:
            yield from self._fetch(*waiting.popleft())

    def check(self, got: Got) -> Looked | None:
        """What became of a fragment; None while more ranges of it are to come.

        Raises:
            UnavailableError, PermissionDeniedError: the store; no answer is no finding.
        """
        leaf, opened = got.leaf, got.opened
        if got.size is None or got.gone:
            return Looked([self._missing(leaf)])
        if leaf.kind is EntryKind.HOLE:
            return Looked()
        subject = self._subject(leaf)
        if got.bad or got.size != leaf.size:
            return self._closely(subject, got.size)
        if opened is None:
            if got.data is None:
                return self._closely(subject, got.size)
            trailer = holds(memoryview(got.data), subject)
            if trailer is None:
                return self._closely(subject, got.size)
            return _sound(trailer, got.size)
        trailer = opened.trailer
        if self._effort.quick:
            return _sound(trailer, trailer.index_size + TRAILER_SIZE)
        if got.first == 0:
            self._crc = 0
        if self._crc is not None:
            self._crc = self._crc_after(got, opened, self._crc)
        if got.last + 1 < trailer.chunks:
            return None
        if self._crc != trailer.data_crc:
            return self._closely(subject, got.size)
        return _sound(trailer, got.size)

    def _at_once(self, leaf: Entry) -> bool:
        """Whether the whole object is fetched by one GET."""
        return not self._effort.quick and leaf.size <= self._effort.range_size

    def _fetch(
        self, leaf: Entry, size: int | None, opening: Future[OpenFragment] | None
    ) -> Iterator[Fetch[Got]]:
        if opening is None:
            if leaf.kind is EntryKind.HOLE or size is None or size != leaf.size:
                yield Fetch(0, partial(Got, leaf, size))
            else:
                yield Fetch(size, partial(self._get, leaf, size))
            return
        try:
            opened = opening.result()
        except NotFoundError:
            yield Fetch(0, partial(Got, leaf, size, gone=True))
            return
        except CorruptDataError:
            yield Fetch(0, partial(Got, leaf, size, bad=True))
            return
        if not trailer_holds(opened.trailer, self._subject(leaf)):
            yield Fetch(0, partial(Got, leaf, size, bad=True))
            return
        if self._effort.quick:
            yield Fetch(0, partial(Got, leaf, size, opened=opened))
            return
        index, last_chunk = opened.index, opened.trailer.chunks - 1
        for first, last in ranges(index, 0, last_chunk, iter(lambda: self._effort.range_size, -1)):
            start, end = index.data_range(first, last)
            run = partial(self._get_range, leaf, size, opened, first, last)
            yield Fetch(end - start, run)

    def _get(self, leaf: Entry, size: int) -> Got:
        try:
            return Got(leaf, size, self._store.get(self._path(leaf), 0, size))
        except NotFoundError:
            return Got(leaf, size, gone=True)
        except CorruptDataError:
            return Got(leaf, size, bad=True)

    def _get_range(
        self, leaf: Entry, size: int | None, opened: OpenFragment, first: int, last: int
    ) -> Got:
        start, end = opened.index.data_range(first, last)
        start = 0 if first == 0 else start  # the object's header comes along
        try:
            data = self._store.get(opened.path, start, end)
        except NotFoundError:
            return Got(leaf, size, None, opened, first, last, gone=last + 1 == len(opened.index))
        except CorruptDataError:
            data = None
        return Got(leaf, size, data, opened, first, last)

    def _crc_after(self, got: Got, opened: OpenFragment, before: int) -> int | None:
        """The CRC up to the end of a range, None if something in it does not hold."""
        if got.data is None:
            return None
        data = memoryview(got.data)
        if got.first == 0:
            if bytes(data[: len(HEADER)]) != HEADER:
                return None
            data = data[len(HEADER) :]
        checked = check_chunks(data, opened.records, got.first, got.last, entries=True)
        if checked.crc is None or not contents_hold(checked):
            return None
        return combine(before, checked.crc, len(data))

    def _closely(self, subject: Subject, size: int) -> Looked:
        """Everything about a fragment that does not hold."""
        try:
            data = memoryview(self._store.get(subject.path, 0, size)) if size else memoryview(b"")
        except NotFoundError:
            return Looked([self._missing(subject.entry)])
        findings, edges = diagnose(data, subject)
        return Looked(findings or [_inexplicable(subject)], edges, size)

    def _subject(self, leaf: Entry) -> Subject:
        key = leaf.data_key(self._tree.stream)
        return Subject(key, key.path(self._prefix), leaf, self._tree.ledger.floor(leaf.epoch))

    def _path(self, leaf: Entry) -> str:
        return leaf.data_key(self._tree.stream).path(self._prefix)

    def _missing(self, leaf: Entry) -> Finding:
        hole = leaf.kind is EntryKind.HOLE
        return Finding(
            stream=self._tree.stream,
            kind=FindingKind.OBJECT_MISSING,
            severity=Severity.WRONG if hole else Severity.DAMAGED,
            key=self._path(leaf),
            first_offset=leaf.first_offset,
            next_offset=leaf.next_offset,
            position=None,
            expected=f"{leaf.size} bytes",
            found="",
            words="the object that declares a range lost is gone" if hole else "the object is gone",
        )


def _sound(trailer: Trailer, size: int) -> Looked:
    edges = Edges(trailer.first_chunk_epoch, trailer.last_chunk_epoch)
    return Looked([], edges, size, trailer.chunks)


def _inexplicable(subject: Subject) -> Finding:
    """The quick look refuses what the exact one finds nothing wrong with: a bug, not silence."""
    return Finding(
        stream=subject.key.stream,
        kind=FindingKind.DATA_CRC,
        severity=Severity.WRONG,
        key=subject.path,
        first_offset=subject.entry.first_offset,
        next_offset=subject.entry.next_offset,
        position=None,
        expected="",
        found="",
        words="the fragment does not hold, and nobody can say why: report this as a bug",
    )
