"""Plan the GETs that cover a range of offsets, run them ahead, and hand on what they bring.

A small fragment is one GET. Of a larger one the index comes first (asked for while the fragments
before it are read), then ranges of whole chunks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Executor, Future
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat

from coldstream.crc import combine
from coldstream.errors import ColdstreamError, CorruptDataError
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.root import Root
from coldstream.reader.fragments import FetchedChunks, OpenFragment, ranges
from coldstream.reader.gap import Gap
from coldstream.reader.locate import leaves_between
from coldstream.reader.objects import StreamObjects
from coldstream.reader.prefetch import Fetch, in_order, workers

_OPEN_AHEAD = 2


def pieces(
    root: Root,
    start: int,
    end: int,
    objects: StreamObjects,
) -> Generator[FetchedChunks | Gap, None, None]:
    """What covers [start, end), in order, fetched ahead and checked.

    The tree is walked as the read goes on: groups are fetched when the plan comes to them. The CRC
    over the data of a fragment is checked wherever all of it is read. Closing the generator ends
    the threads.

    Raises:
        NotFoundError: an object is gone.
        CorruptDataError: a trailer, index or range is damaged; damage within a piece is told in it.
    """
    settings = objects.settings
    with workers(settings.in_flight, settings.pool) as pool:
        plan = _Fetches(start, end, objects, pool)
        results = in_order(
            plan.fetches(root), pool, budget=objects.budget, in_flight=2 * settings.in_flight
        )
        crc: int | None = None
        with closing(results):
            for piece in results:
                if isinstance(piece, Gap):
                    yield piece
                    continue
                crc = _crc_so_far(crc, piece)
                yield _completed(piece, crc)


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

    def fetches(self, root: Root) -> Iterator[Fetch[FetchedChunks | Gap]]:
        """In order; waits for the index of a large fragment when its turn has come."""
        settings, fragments = self.objects.settings, self.objects.fragments
        sizes = _doubling(settings.first_range_size, settings.range_size)
        entries = leaves_between(root, self.start, self.end, self.objects.groups)
        ahead: deque[tuple[Entry, Future[OpenFragment] | None]] = deque()
        failed: ColdstreamError | None = None
        while True:
            while len(ahead) <= _OPEN_AHEAD:
                try:
                    entry = next(entries, None)
                except ColdstreamError as error:
                    # A group that cannot be read; the generator has ended, so this comes once.
                    failed, entry = error, None
                if entry is None:
                    break
                by_ranges = self._by_ranges(entry)
                opened = self.pool.submit(fragments.open, entry) if by_ranges else None
                ahead.append((entry, opened))
            if not ahead:
                if failed is not None:
                    yield Fetch(0, partial(_failed, failed))
                return
            entry, opened = ahead.popleft()
            if entry.kind is EntryKind.HOLE:
                first, next_offset = entry.first_offset, entry.next_offset
                yield Fetch(
                    0, partial(_told, Gap(max(first, self.start), min(next_offset, self.end)))
                )
            elif opened is None:
                fetch = partial(fragments.whole, entry, self.start, self.end)
                yield Fetch(entry.size, fetch)
            else:
                yield from self._ranges(opened, sizes)

    def _by_ranges(self, entry: Entry) -> bool:
        """Whether a fragment is fetched by ranges of its index, or whole by one GET."""
        settings = self.objects.settings
        if entry.kind is EntryKind.HOLE or entry.size <= settings.first_range_size:
            return False
        inside = entry.first_offset < self.start or entry.next_offset > self.end
        return inside or entry.size > settings.range_size

    def _ranges(
        self, opened: Future[OpenFragment], sizes: Iterator[int]
    ) -> Iterator[Fetch[FetchedChunks | Gap]]:
        try:
            fragment = opened.result()
        except ColdstreamError as error:
            # What comes before it is still on its way; the error is told in its turn.
            yield Fetch(0, partial(_failed, error))
            return
        index = fragment.index
        first, last = index.chunk_of_offset(self.start), index.chunk_of_offset(self.end - 1)
        for begin, until in ranges(index, first, last, sizes):
            low, high = index.data_range(begin, until)
            yield Fetch(high - low, partial(self.objects.fragments.chunks, fragment, begin, until))


def _doubling(first: int, last: int) -> Iterator[int]:
    while first < last:
        yield first
        first *= 2
    yield from repeat(last)


def _told(gap: Gap) -> FetchedChunks | Gap:
    return gap


def _failed(error: ColdstreamError) -> FetchedChunks | Gap:
    raise error
