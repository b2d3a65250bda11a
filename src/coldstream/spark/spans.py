"""From the byte ranges of a split to ranges of offsets that the reader can read. In the worker.

A byte range that begins or ends inside a fragment needs the fragment's index. If the object is gone
because a newer manifest has its chunks in another one (consolidation), that one's index tells the
same: chunks keep their bytes and their order, so they lie as far apart as before. All workers that
share a fragment come to the same borders, whichever of the two they look at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coldstream.errors import CorruptDataError
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.spark.newer import Newer
from coldstream.spark.plan import Part, chunks_of, whole
from coldstream.spark.window import Window

#: So many fragments are read in one go; more only cost memory.
_MAX_ENTRIES = 1024


@dataclass(slots=True)
class Span:
    """Offsets [first, following) that lie in these fragments and holes, which join.

    Attributes:
        entries: one or more.
        first: offset.
        following: offset.
        unreadable: why nothing can be read there; then there is one entry.
        lost: part of a fragment that is nowhere any more; which offsets were meant, nobody can say.
    """

    entries: list[Entry]
    first: int
    following: int
    unreadable: CorruptDataError | None = None
    lost: bool = False

    def joins(self, other: Span) -> bool:
        """Whether `other` can be read in one go with it."""
        plain = self.unreadable is None is other.unreadable and not (self.lost or other.lost)
        return plain and self.following == other.first and len(self.entries) < _MAX_ENTRIES


def spans(parts: Iterable[Part], window: Window, newer: Newer) -> Iterator[Span]:
    """What the leaves of a split hold of what is asked for, joined where it joins.

    Args:
        parts: fragments and holes in offset order, as `plan.leaves` gives them.
        window: what is asked for, cut to the offsets that are alive.
        newer: gives layouts of fragments.

    Raises:
        NotFoundError: a fragment is gone, and no newer manifest explains it.
        UnavailableError, PermissionDeniedError: from the adapters.
    """
    open_span: Span | None = None
    for part in parts:
        for span in _of(part, window, newer):
            if open_span is not None and open_span.joins(span):
                open_span.following = span.following
                if open_span.entries[-1] != part.entry:
                    open_span.entries.append(part.entry)
                continue
            if open_span is not None:
                yield open_span
            open_span = span
    if open_span is not None:
        yield open_span


def _of(part: Part, window: Window, newer: Newer) -> Iterator[Span]:
    entry = part.entry
    if entry.kind is EntryKind.HOLE or (whole(part) and window.all_times_of(entry)):
        for first, following in window.offsets.within(entry.first_offset, entry.next_offset):
            yield Span([entry], first, following)
        return
    try:
        layout = newer.layout(entry)
    except CorruptDataError as error:
        # Nobody can say which offsets lie in which bytes: whoever has the first byte tells of all.
        if part.start <= 0:
            for first, following in window.offsets.within(entry.first_offset, entry.next_offset):
                yield Span([entry], first, following, error)
        return
    if layout is None:
        # Gone for good. Whoever has the first byte reads on and will be told; all others tell, too,
        # because some may have read their part in time.
        for first, following in window.offsets.within(entry.first_offset, entry.next_offset):
            yield Span([entry], first, following, lost=part.start > 0)
        return
    begin, end = chunks_of(layout.positions, part)
    ids = layout.chunk_ids
    for low, high in _runs(layout.timestamps, begin, end, window):
        for first, following in window.offsets.within(ids[low], ids[high]):
            yield Span([entry], first, following)


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
