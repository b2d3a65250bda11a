"""One stream as a worker reads it: parts of splits in, checked chunks, damage and gaps out.

A byte range that begins or ends inside a fragment needs the fragment's index to become a range of
offsets, which the reader can read (`reader.follow`). All workers that share a fragment come to the
same borders, whether they look at it or at what has taken its place (`reader.by_index.layout`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from coldstream.adapters.place import Remote
from coldstream.columns.damage import CorruptRange
from coldstream.errors import CorruptDataError
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.root import Root
from coldstream.reader.by_index import ChunkLayout, chunks_by_index, layout
from coldstream.reader.fetch import Fetch
from coldstream.reader.follow import Followed, RangeRead
from coldstream.reader.fragments import FetchedChunks
from coldstream.reader.gap import Gap, GapReason
from coldstream.reader.objects import StreamObjects
from coldstream.reader.prefetch import in_order, workers
from coldstream.reader.settings import ReaderSettings
from coldstream.remote.roots import Snapshots
from coldstream.soundness.chunks import Checked
from coldstream.spark.plan import EntryPart, chunks_of, leaves, whole
from coldstream.spark.query import PlannedStream
from coldstream.spark.window import Window

#: As all readers fetch; a task is one of several on its machine.
SETTINGS = ReaderSettings(in_flight=4)
#: Of a directory two do: what is read ahead is to be in the processor's cache in its turn.
DIRECTORY_SETTINGS = ReaderSettings(in_flight=2)
#: Fragments that are read in one go; more only cost memory.
_MAX_ENTRIES = 1024


@dataclass(frozen=True, slots=True)
class Sound:
    """Chunks that hold, which of their offsets are asked for, and where they are from.

    The latter is None where only their headers are there.
    """

    checked: Checked
    piece: FetchedChunks | None
    first: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class Damaged:
    """Offsets [first, next_offset) that are there and damaged."""

    damage: CorruptRange
    first: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class Lost:
    """Offsets that are nowhere any more, and a time (ms) near which they were written.

    Attributes:
        gap: as far as they are asked for.
        timestamp: as above.
        row: what a row is to say; it is where it would be without filters on offsets. None if such
            a filter leaves it out.
    """

    gap: Gap
    timestamp: int
    row: Gap | None


Found = Sound | Damaged | Lost


class StreamRead:
    """Reads one stream of a query.

    Args:
        planned: the stream.
        remote: where it is.
    """

    def __init__(self, planned: PlannedStream, remote: Remote) -> None:
        self.planned = planned
        settings = DIRECTORY_SETTINGS if remote.place.directory else SETTINGS
        self.objects = StreamObjects.of(remote.store, remote.prefix, planned.stream, settings)
        self._snapshots = Snapshots(remote.store, remote.catalog, remote.prefix)

    def leaves(self, parts: Sequence[EntryPart]) -> Iterator[EntryPart]:
        """The fragments and holes of parts of this stream that may hold what is asked for."""
        alive = self.planned.alive
        for part in parts:
            yield from leaves(part, alive, self.objects.groups)

    def found(self, parts: Sequence[EntryPart], *, by_index: bool = False) -> Iterator[Found]:
        """All that parts of this stream hold of what is asked for, in offset order.

        Args:
            parts: of splits.
            by_index: whether headers of chunks will do, where the index tells them (`by_index`).

        Raises:
            NotFoundError: an object is gone, and no newer manifest explains it.
            CorruptDataError: a group of the manifest is damaged.
            UnavailableError, PermissionDeniedError: from the adapters.
        """
        for span in spans(self.leaves(parts), self.planned.alive, self.layout):
            if span.unreadable is not None:
                yield self._damaged(span, span.first, span.next_offset, span.unreadable)
            elif span.lost:
                yield self._lost(span, span.first, span.next_offset, GapReason.RETENTION)
            elif by_index:
                by_index = yield from self._headers(span)
            else:
                yield from self._read(span)

    def _headers(self, span: EntrySpan) -> Generator[Found, None, bool]:
        """A span by the indexes of its fragments; whether that is worth trying again."""
        offsets = span.first, span.next_offset
        fetches = (
            Fetch(0, partial(chunks_by_index, entry, *offsets, self.objects))
            for entry in span.entries
        )
        in_flight = self.objects.settings.in_flight
        position = span.first
        with workers(in_flight) as pool:
            results = in_order(fetches, pool, budget=self.objects.budget, in_flight=in_flight)
            with closing(results):
                for number, checked in enumerate(results):
                    if checked is None:
                        break
                    next_offset = min(span.entries[number].next_offset, span.next_offset)
                    yield Sound(checked, None, position, next_offset)
                    position = next_offset
                else:
                    return True
        yield from self._read(EntrySpan(span.entries[number:], position, span.next_offset))
        return span.entries[number].kind is EntryKind.HOLE

    def _read(self, span: EntrySpan) -> Iterator[Found]:
        read = RangeRead(self.objects, self._manifest(span.entries), span.first, span.next_offset)
        with closing(read.found()) as found:
            for each in found:
                if isinstance(each, Gap):
                    yield self._lost(span, each.first_offset, each.next_offset, each.reason)
                elif isinstance(each, CorruptRange):
                    first, end = max(read.position, each.first_offset), read.end
                    yield self._damaged(span, first, min(each.next_offset, end), each.error)
                else:
                    yield from self._sound_and_damaged(each, read.position, read.end)

    def _sound_and_damaged(
        self, piece: FetchedChunks, first: int, next_offset: int
    ) -> Iterator[Found]:
        for part in piece.sound_and_damaged(first):
            if isinstance(part, Checked):
                yield Sound(part, piece, first, next_offset)
            elif part.first_offset < next_offset:
                yield Damaged(part, first, next_offset)

    def _manifest(self, entries: Sequence[Entry]) -> Followed:
        """The part of the planned manifest that has these entries: all that reading them takes."""
        root = Root(
            entries[0].first_offset,
            entries[-1].next_offset,
            epoch=self.planned.epoch,
            entries=Entries.of(entries),
        )
        load = partial(self._snapshots.load, self.planned.stream)
        return Followed(load, plan=(root, self.planned.root_key))

    def layout(self, entry: Entry) -> ChunkLayout | None:
        """How the chunks of a planned fragment lie; as `reader.by_index.layout`."""
        return layout(entry, self._manifest([entry]), self.objects)

    def _damaged(
        self, span: EntrySpan, first: int, next_offset: int, error: CorruptDataError
    ) -> Damaged:
        damage = CorruptRange(first, next_offset, self._time_of(span, first), error)
        return Damaged(damage, first, next_offset)

    def _lost(self, span: EntrySpan, first: int, next_offset: int, reason: GapReason) -> Lost:
        gap = Gap(first, next_offset, reason)
        whole = gap
        if reason is GapReason.HOLE and self.planned.bounds is not None:
            whole = self._whole_hole(span, gap, self.planned.bounds)
        # What retention or a cut takes has no place of its own: it is found where it is looked for.
        row = whole if whole.first_offset == first else None
        return Lost(gap, self._time_of(span, first), row)

    def _whole_hole(self, span: EntrySpan, gap: Gap, bounds: tuple[int, int]) -> Gap:
        """A hole as the query would find it without its filters."""
        for entry in span.entries:
            if entry.first_offset <= gap.first_offset < entry.next_offset:
                first = max(entry.first_offset, self.planned.first_offset, bounds[0])
                return Gap(first, min(entry.next_offset, bounds[1]), gap.reason)
        return gap

    def _time_of(self, span: EntrySpan, offset: int) -> int:
        """A time for what cannot be read: the lowest of its fragment that is asked for.

        So that a filter on time neither hides damage, nor gets rows that it does not match.
        """
        near = [each for each in span.entries if each.first_offset <= offset] or span.entries
        low, high = near[-1].min_timestamp, near[-1].max_timestamp
        inside = self.planned.window.times.within(low, high + 1)
        return next(inside, (low, high))[0]


@dataclass(slots=True)
class EntrySpan:
    """Offsets [first, next_offset) that lie in these fragments and holes, which join.

    Attributes:
        entries: one or more.
        first: offset.
        next_offset: offset.
        unreadable: why nothing can be read there; then there is one entry.
        lost: part of a fragment that is nowhere any more; which offsets were meant, nobody can say.
    """

    entries: list[Entry]
    first: int
    next_offset: int
    unreadable: CorruptDataError | None = None
    lost: bool = False

    def joins(self, other: EntrySpan) -> bool:
        """Whether `other` can be read in one go with it."""
        plain = self.unreadable is None is other.unreadable and not (self.lost or other.lost)
        return plain and self.next_offset == other.first and len(self.entries) < _MAX_ENTRIES


def spans(
    parts: Iterable[EntryPart], window: Window, layout_of: Callable[[Entry], ChunkLayout | None]
) -> Iterator[EntrySpan]:
    """What the leaves of a split hold of what is asked for, joined where it joins.

    Args:
        parts: fragments and holes in offset order, as `plan.leaves` gives them.
        window: what is asked for, cut to the offsets that are alive.
        layout_of: gives the layout of a fragment; None if it is nowhere any more.

    Raises:
        NotFoundError: a fragment is gone, and no newer manifest explains it.
        UnavailableError, PermissionDeniedError: from the adapters.
    """
    open_span: EntrySpan | None = None
    for part in parts:
        for span in _of(part, window, layout_of):
            if open_span is not None and open_span.joins(span):
                open_span.next_offset = span.next_offset
                if open_span.entries[-1] != part.entry:
                    open_span.entries.append(part.entry)
                continue
            if open_span is not None:
                yield open_span
            open_span = span
    if open_span is not None:
        yield open_span


def _of(
    part: EntryPart, window: Window, layout_of: Callable[[Entry], ChunkLayout | None]
) -> Iterator[EntrySpan]:
    entry = part.entry
    if entry.kind is EntryKind.HOLE or (whole(part) and window.all_times_of(entry)):
        for first, next_offset in window.offsets.within(entry.first_offset, entry.next_offset):
            yield EntrySpan([entry], first, next_offset)
        return
    try:
        found = layout_of(entry)
    except CorruptDataError as error:
        # Nobody can say which offsets lie in which bytes: whoever has the first byte tells of all.
        if part.start <= 0:
            for first, next_offset in window.offsets.within(entry.first_offset, entry.next_offset):
                yield EntrySpan([entry], first, next_offset, error)
        return
    if found is None:
        # Gone for good. Whoever has the first byte reads on and will be told; all others tell, too,
        # because some may have read their part in time.
        for first, next_offset in window.offsets.within(entry.first_offset, entry.next_offset):
            yield EntrySpan([entry], first, next_offset, lost=part.start > 0)
        return
    ids = found.chunk_ids
    begin, end = chunks_of(ids[:-1], part)
    for low, high in _runs(found.timestamps, begin, end, window):
        for first, next_offset in window.offsets.within(ids[low], ids[high]):
            yield EntrySpan([entry], first, next_offset)


def _runs(timestamps: list[int], begin: int, end: int, window: Window) -> Iterator[tuple[int, int]]:
    """Runs of neighbouring chunks, among `begin` to `end`, whose times are asked for."""
    run: int | None = None
    for number in range(begin, end):
        wanted = window.times.overlaps(timestamps[number], timestamps[number] + 1)
        if wanted and run is None:
            run = number
        elif not wanted and run is not None:
            yield run, number
            run = None
    if run is not None:
        yield run, end
