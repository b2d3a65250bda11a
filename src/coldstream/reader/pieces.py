"""Plan the GETs that cover a range of offsets, run them ahead, and hand on what they bring.

A small fragment is one GET. Of a larger one the index comes first (asked for while the fragments
before it are read), then ranges of whole chunks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat

from coldstream.crc import combine
from coldstream.errors import ColdstreamError, CorruptDataError
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.root import Root
from coldstream.reader.cuts import shared_ranges
from coldstream.reader.fetch import Fetch, Span
from coldstream.reader.fragments import FetchedChunks
from coldstream.reader.gap import Gap
from coldstream.reader.locate import leaves_between
from coldstream.reader.objects import StreamObjects
from coldstream.reader.open_fragments import OpenFragment
from coldstream.reader.prefetch import Later, Ticket, in_order, started, workers
from coldstream.reader.shared import Place

_OPEN_AHEAD = 2
#: Ranges that are asked for before anything that only later ones need.
_RANGES_FIRST = 3


def pieces(
    root: Root,
    start: int,
    end: int,
    objects: StreamObjects,
    place: Place,
) -> Generator[FetchedChunks | Gap, None, None]:
    """What covers [start, end), in order, fetched ahead and checked.

    The tree is walked as the read goes on: groups are fetched when the plan comes to them. The CRC
    over the data of a fragment is checked wherever all of it is read. Closing the generator ends
    the threads. What other readers of the stream have fetched and this one wants is not fetched
    again; `place` has joined, and is moved as the pieces are taken.

    Raises:
        NotFoundError: an object is gone.
        CorruptDataError: a trailer, index or range is damaged; damage within a piece is told in it.
    """
    settings = objects.settings
    with workers(settings.in_flight, settings.pool) as pool:
        plan = _Fetches(start, end, objects, pool, place)
        fetches = plan.fetches(root)
        results = in_order(
            fetches,
            pool,
            budget=objects.budget,
            in_flight=settings.in_flight,
            place=place,
        )
        crc: int | None = None
        with closing(fetches), closing(results):
            for piece in results:
                if isinstance(piece, Gap):
                    yield piece
                    continue
                crc = _crc_so_far(crc, piece)
                done = _completed(piece, crc)
                if done.whole_refused:
                    objects.fragments.doubt(piece.fragment.path)
                yield done
                place.move(piece.next_offset)


def _crc_so_far(crc: int | None, piece: FetchedChunks) -> int | None:
    """CRC over the fragment's data up to the end of `piece`; None if not all of it was read."""
    if piece.crc is None or piece.first == 0:
        return piece.crc
    return None if crc is None else combine(crc, piece.crc, piece.size)


def _completed(piece: FetchedChunks, crc: int | None) -> FetchedChunks:
    """The piece; if it ends its fragment and the CRC of all that is wrong, an error instead."""
    trailer = piece.fragment.trailer
    if crc is None or piece.last + 1 < trailer.chunks or crc == trailer.data_crc:
        return piece
    error = CorruptDataError(
        "the CRC of the fragment's data does not match, though that of every chunk does: the type, "
        "number of entries, bloom filter or trailer of a chunk is damaged",
        stream=piece.fragment.key.stream,
        offset=trailer.first_offset,
        key=piece.fragment.path,
    )
    return replace(piece, checked=piece.checked.refused(error), whole_refused=True)


@dataclass(frozen=True, slots=True)
class _Fetches:
    """The fetches for [start, end)."""

    start: int
    end: int
    objects: StreamObjects
    pool: Executor
    place: Place

    def fetches(self, root: Root) -> Generator[Fetch[FetchedChunks | Gap] | Later, None, None]:
        """In order; waits for the index of a large fragment when its turn has come."""
        ahead: deque[tuple[Entry, Ticket[OpenFragment] | None]] = deque()
        try:
            yield from self._fetches(root, ahead)
        finally:
            for _, opened in ahead:
                if opened is not None:
                    opened.release()

    def _fetches(
        self, root: Root, ahead: deque[tuple[Entry, Ticket[OpenFragment] | None]]
    ) -> Iterator[Fetch[FetchedChunks | Gap] | Later]:
        settings = self.objects.settings
        sizes = _doubling(settings.first_range_size, settings.range_size)
        entries = leaves_between(root, self.start, self.end, self.objects.groups)
        failed: ColdstreamError | None = None

        def look_ahead(many: int) -> None:
            nonlocal failed
            while len(ahead) < many:
                try:
                    entry = next(entries, None)
                except ColdstreamError as error:
                    # A group that cannot be read; the generator has ended, so this comes once.
                    failed, entry = error, None
                if entry is None:
                    return
                opening = self._opening(entry, needed=False) if self._by_ranges(entry) else None
                ahead.append((entry, opening))

        look_ahead(1)  # nothing is asked for before what the first chunk needs
        planned = 0
        while ahead:
            entry, opened = ahead.popleft()
            for fetch in self._of_entry(entry, opened, sizes):
                yield fetch
                planned += not isinstance(fetch, Later)
                if planned >= _RANGES_FIRST:
                    look_ahead(_OPEN_AHEAD)
            look_ahead(_OPEN_AHEAD)  # or each index would be waited for in its turn
        if failed is not None:
            yield Fetch(0, partial(_failed, failed))

    def _of_entry(
        self, entry: Entry, opened: Ticket[OpenFragment] | None, sizes: Iterator[int]
    ) -> Iterator[Fetch[FetchedChunks | Gap] | Later]:
        """The fetches of a fragment or hole, at least one."""
        if entry.kind is EntryKind.HOLE:
            first, next_offset = entry.first_offset, entry.next_offset
            gap = Gap(max(first, self.start), min(next_offset, self.end))
            yield Fetch(0, partial(_told, gap))
        elif not self._by_ranges(entry):
            yield self._whole(entry)
        else:
            opened = opened or self._opening(entry, needed=True)
            assert opened is not None
            yield from self._ranges(opened, sizes)

    def _by_ranges(self, entry: Entry) -> bool:
        """Whether a fragment is fetched by ranges of its index, or whole by one GET."""
        settings = self.objects.settings
        if entry.kind is EntryKind.HOLE or entry.size <= settings.first_range_size:
            return False
        inside = entry.first_offset < self.start or entry.next_offset > self.end
        return inside or entry.size > settings.range_size

    def _opening(self, entry: Entry, *, needed: bool) -> Ticket[OpenFragment] | None:
        path = self.objects.fragments.path(entry)
        fetch = Fetch(
            min(self.objects.settings.index_guess, entry.size),
            partial(self.objects.fragments.open, entry),
            Span((path, "index"), entry.first_offset, entry.next_offset),
        )
        budget = self.objects.budget
        return started(fetch, self.pool, budget=budget, place=self.place, needed=needed)

    def _whole(self, entry: Entry) -> Fetch[FetchedChunks | Gap]:
        fragments = self.objects.fragments
        first, end = max(self.start, entry.first_offset), min(self.end, entry.next_offset)
        key = fragments.path(entry), "whole", first, end
        return Fetch(
            entry.size,
            partial(fragments.whole, entry, first, end),
            Span(key, entry.first_offset, entry.next_offset),
            _sound,
        )

    def _ranges(
        self, opened: Ticket[OpenFragment], sizes: Iterator[int]
    ) -> Iterator[Fetch[FetchedChunks | Gap] | Later]:
        settings, fragments = self.objects.settings, self.objects.fragments
        try:
            if not opened.done():
                yield Later(opened)
            fragment = opened.result()
        except ColdstreamError as error:
            # What comes before it is still on its way; the error is told in its turn.
            yield Fetch(0, partial(_failed, error))
            return
        finally:
            opened.release()
        index = fragment.index
        first, last = index.chunk_of_offset(self.start), index.chunk_of_offset(self.end - 1)
        unit = min(settings.first_range_size, settings.range_size)
        ids = fragment.records.chunk_ids
        for begin, until in shared_ranges(index, first, last, sizes, unit):
            low, high = index.data_range(begin, until)
            yield Fetch(
                high - low,
                partial(fragments.chunks, fragment, begin, until),
                Span((fragment.path, begin, until), int(ids[begin]), int(ids[until + 1])),
                _sound,
            )


def _doubling(first: int, last: int) -> Iterator[int]:
    while first < last:
        yield first
        first *= 2
    yield from repeat(last)


def _sound(piece: FetchedChunks | Gap) -> bool:
    return isinstance(piece, Gap) or piece.checked.error is None


def _told(gap: Gap) -> FetchedChunks | Gap:
    return gap


def _failed(error: ColdstreamError) -> FetchedChunks | Gap:
    raise error
