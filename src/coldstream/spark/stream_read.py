"""One stream as a worker reads it: parts of splits in, checked pieces, damage and gaps out."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from coldstream.columns.damage import CorruptRange
from coldstream.errors import CorruptDataError, NotFoundError
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.root import Root
from coldstream.manifest.tree import leaf_at
from coldstream.reader.budget import PROCESS_BUDGET
from coldstream.reader.fragments import Fragments, Piece
from coldstream.reader.gap import Gap, GapReason
from coldstream.reader.pieces import pieces
from coldstream.reader.prefetch import Fetch, in_order, workers
from coldstream.reader.settings import ReaderSettings
from coldstream.remote.nodes import PROCESS_NODES, fetcher
from coldstream.remote.roots import Snapshots
from coldstream.soundness.chunks import Checked
from coldstream.spark.by_index import chunks_by_index
from coldstream.spark.connect import Remote
from coldstream.spark.newer import Newer
from coldstream.spark.plan import Part, leaves
from coldstream.spark.spans import Span, spans
from coldstream.spark.task import PlannedStream

#: As all readers fetch; a task is one of several on its machine.
SETTINGS = ReaderSettings(in_flight=4)


@dataclass(frozen=True, slots=True)
class Sound:
    """Chunks that hold, which of their offsets are asked for, and where they are from.

    The latter is None where only their headers are there.
    """

    checked: Checked
    piece: Piece | None
    first: int
    following: int


@dataclass(frozen=True, slots=True)
class Damaged:
    """Offsets [first, following) that are there and damaged."""

    damage: CorruptRange
    first: int
    following: int


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
        settings: sizes and numbers of requests.
    """

    def __init__(
        self, planned: PlannedStream, remote: Remote, settings: ReaderSettings = SETTINGS
    ) -> None:
        self.planned = planned
        self.groups = fetcher(remote.store, PROCESS_NODES, remote.prefix, planned.stream)
        self.fragments = Fragments(remote.store, remote.prefix, planned.stream, settings)
        self._store = remote.store
        self._settings = settings
        self._newer = Newer(
            planned,
            Snapshots(remote.store, remote.catalog, remote.prefix),
            self.fragments,
            self.groups,
        )

    def leaves(self, parts: Sequence[Part]) -> Iterator[Part]:
        """The fragments and holes of parts of this stream that may hold what is asked for."""
        alive = self.planned.alive
        for part in parts:
            yield from leaves(part, alive, self.groups)

    def found(self, parts: Sequence[Part], *, by_index: bool = False) -> Iterator[Found]:
        """All that parts of this stream hold of what is asked for, in offset order.

        Args:
            parts: of splits.
            by_index: whether headers of chunks will do, where the index tells them (`by_index`).

        Raises:
            NotFoundError: an object is gone, and no newer manifest explains it.
            CorruptDataError: a group of the manifest is damaged.
            UnavailableError, PermissionDeniedError: from the adapters.
        """
        for span in spans(self.leaves(parts), self.planned.alive, self._newer):
            if span.unreadable is not None:
                yield self._damaged(span, span.first, span.following, span.unreadable)
            elif span.lost:
                yield self._lost(span, span.first, span.following, GapReason.RETENTION)
            elif by_index:
                by_index = yield from self._headers(span)
            else:
                yield from self._read(span)

    def _headers(self, span: Span) -> Generator[Found, None, bool]:
        """A span by the indexes of its fragments; whether that is worth trying again."""
        offsets = span.first, span.following
        fetches = (
            Fetch(0, partial(chunks_by_index, entry, *offsets, self.fragments, self._store))
            for entry in span.entries
        )
        in_flight = self._settings.in_flight
        position = span.first
        with workers(in_flight) as pool:
            results = in_order(fetches, pool, budget=PROCESS_BUDGET, in_flight=in_flight)
            with closing(results):
                for number, checked in enumerate(results):
                    if checked is None:
                        break
                    following = min(span.entries[number].next_offset, span.following)
                    yield Sound(checked, None, position, following)
                    position = following
                else:
                    return True
        yield from self._read(Span(span.entries[number:], position, span.following))
        return span.entries[number].kind is EntryKind.HOLE

    def _read(self, span: Span) -> Iterator[Found]:
        position, following = span.first, span.following
        missed: set[str | None] = set()
        # The span's own fragments are all the manifest that reading them takes.
        root = Root(
            span.entries[0].first_offset,
            span.entries[-1].next_offset,
            entries=Entries.of(span.entries),
        )
        while position < following:
            try:
                with closing(self._pieces(root, position, following)) as got:
                    for piece in got:
                        if isinstance(piece, Gap):
                            yield self._lost(
                                span, piece.first_offset, piece.next_offset, piece.reason
                            )
                        else:
                            yield from self._sound_and_damaged(piece, position, following)
                        position = piece.next_offset
                        missed.clear()
                return
            except CorruptDataError as error:
                entry = self._entry_of(root, error)
                end = min(entry.next_offset, following)
                yield self._damaged(span, max(position, entry.first_offset), end, error)
                position = entry.next_offset
                continue
            except NotFoundError as error:
                root = self._newer.after_missing(error, missed)
            if position < root.first_offset:
                end = min(root.first_offset, following)
                yield self._lost(span, position, end, GapReason.RETENTION)
                position = end
            end = max(position, self._newer.replaced_from(root, position, following))
            if end < following:
                yield self._lost(span, end, following, GapReason.TRUNCATION)
                following = end

    def _sound_and_damaged(self, piece: Piece, first: int, following: int) -> Iterator[Found]:
        for part in piece.sound_and_damaged(first):
            if isinstance(part, Checked):
                yield Sound(part, piece, first, following)
            elif part.first_offset < following:
                yield Damaged(part, first, following)

    def _pieces(self, root: Root, first: int, following: int) -> Generator[Piece | Gap, None, None]:
        return pieces(
            root,
            first,
            following,
            groups=self.groups,
            fragments=self.fragments,
            settings=self._settings,
            budget=PROCESS_BUDGET,
        )

    def _entry_of(self, root: Root, error: CorruptDataError) -> Entry:
        """The fragment whose trailer or index is damaged; anything else is raised.

        Raises:
            CorruptDataError: `error`, if it is not about a fragment of this manifest.
        """
        entry = None if error.offset is None else leaf_at(root, error.offset, self.groups)
        if entry is None or self.fragments.path(entry) != error.key:
            raise error
        return entry

    def _damaged(self, span: Span, first: int, following: int, error: CorruptDataError) -> Damaged:
        damage = CorruptRange(first, following, self._time_of(span, first), error)
        return Damaged(damage, first, following)

    def _lost(self, span: Span, first: int, following: int, reason: GapReason) -> Lost:
        gap = Gap(first, following, reason)
        whole = gap
        if reason is GapReason.HOLE and self.planned.bounds is not None:
            whole = self._whole_hole(span, gap, self.planned.bounds)
        # What retention or a cut takes has no place of its own: it is found where it is looked for.
        row = whole if whole.first_offset == first else None
        return Lost(gap, self._time_of(span, first), row)

    def _whole_hole(self, span: Span, gap: Gap, bounds: tuple[int, int]) -> Gap:
        """A hole as the query would find it without its filters."""
        for entry in span.entries:
            if entry.first_offset <= gap.first_offset < entry.next_offset:
                first = max(entry.first_offset, self.planned.first_offset, bounds[0])
                return Gap(first, min(entry.next_offset, bounds[1]), gap.reason)
        return gap

    def _time_of(self, span: Span, offset: int) -> int:
        """A time for what cannot be read: the lowest of its fragment that is asked for.

        So that a filter on time neither hides damage, nor gets rows that it does not match.
        """
        near = [each for each in span.entries if each.first_offset <= offset] or span.entries
        low, high = near[-1].min_timestamp, near[-1].max_timestamp
        inside = self.planned.window.times.within(low, high + 1)
        return next(inside, (low, high))[0]
