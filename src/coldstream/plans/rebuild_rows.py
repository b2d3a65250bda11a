"""What LIST shows of a stream's data, read once and in order, for a rebuild that asks by offset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coldstream.errors import InternalError
from coldstream.manifest.entries import Entries, Entry, EntryKind, entry_dtype
from coldstream.manifest.ledger import Ledger
from coldstream.names import MAX_OFFSET
from coldstream.plans.key_columns import KeyReader, acceptable
from coldstream.plans.rebuild_told import Named

#: Ranges of what a guessed ledger refuses that are told apart; with more they count as one.
_RANGES = 10_000


class Row(Protocol):
    """One row of a LIST, as `ports.ObjectInfo` is."""

    @property
    def key(self) -> str:
        """Full key."""
        ...

    @property
    def size(self) -> int:
        """Bytes of the object."""
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """Acceptable fragments and holes of some keys, sorted as their keys are."""

    fragments: NDArray[np.void]
    holes: NDArray[np.void]

    def split(self, offset: int) -> tuple[Found, Found]:
        """What begins below an offset, and the rest."""
        parts = [
            int(np.searchsorted(each["first_offset"].astype(np.uint64), np.uint64(offset)))
            for each in (self.fragments, self.holes)
        ]
        return (
            Found(self.fragments[: parts[0]], self.holes[: parts[1]]),
            Found(self.fragments[parts[0] :], self.holes[parts[1] :]),
        )


class ListedRows:
    """Pages of LIST as they are asked for.

    Args:
        reader: of the stream's keys.
        ledger: says what is acceptable.
        pages: in the order of the keys.
    """

    def __init__(self, reader: KeyReader, ledger: Ledger, pages: Iterable[Sequence[Row]]) -> None:
        self._reader = reader
        self._ledger = ledger
        self._pages = iter(pages)
        self._rest: Found | None = None
        self._last = 0
        #: Keys that were read.
        self.listed = 0
        #: Those of acceptable fragments.
        self.fragments = 0
        #: Ranges [first, next) of fragments that the ledger refuses, as LIST gives them; joined.
        self.refused: list[tuple[int, int]] = []

    def below(self, offset: int | None) -> Iterator[Found]:
        """What begins below an offset and was not given before, a page at a time; None for all.

        Raises:
            InternalError: the keys are not sorted.
        """
        limit = MAX_OFFSET if offset is None else offset
        while True:
            if self._rest is None:
                page = next(self._pages, None)
                if page is None:
                    return
                self._rest = self._read(page)
            given, rest = self._rest.split(limit)
            more = len(rest.fragments) or len(rest.holes)
            self._rest = rest if more else None
            yield given
            if more:
                return

    def _read(self, page: Sequence[Row]) -> Found:
        self.listed += len(page)
        keys, sizes = [row.key for row in page], [row.size for row in page]
        every = self._reader.entries(keys, sizes)
        if len(every):
            firsts = every["first_offset"].astype(np.uint64)
            if int(firsts[0]) < self._last or (firsts[1:] < firsts[:-1]).any():
                raise InternalError("keys that are not sorted", offset=int(firsts[0]))
            self._last = int(firsts[-1])
        found = acceptable(every, self._ledger)
        self.fragments += len(found)
        if len(found) < len(every):
            self._note_refused(every)
        return Found(found, acceptable(self._reader.holes(keys, sizes), self._ledger))

    def _note_refused(self, every: NDArray[np.void]) -> None:
        accepts = self._ledger.accepts
        for each in every[["epoch", "first_offset", "next_offset"]].tolist():
            epoch, first, next_offset = each
            if accepts(epoch, first, next_offset):
                continue
            last = self.refused[-1] if self.refused else None
            if last is not None and (first <= last[1] or len(self.refused) >= _RANGES):
                self.refused[-1] = (last[0], max(last[1], next_offset))
            else:
                self.refused.append((first, next_offset))


def sorted_rows(*parts: NDArray[np.void]) -> NDArray[np.void]:
    """Entries of several sequences in one, sorted by first offset, next offset and uid."""
    rows = np.frombuffer(b"".join(each.tobytes() for each in parts), entry_dtype())
    order = np.lexsort((rows["uid"], rows["next_offset"], rows["first_offset"]))
    return rows[order]


def entry_of(row: np.void) -> Entry:
    """One row as a value."""
    return Entries(row.tobytes())[0]


#: First and next offset, epoch, uid, and whether it is a hole.
Name: TypeAlias = tuple[int, int, int, int, bool]


def name_of(entry: Entry) -> Name:
    """What an entry's key says: two objects of one name are the same."""
    hole = entry.kind is EntryKind.HOLE
    return entry.first_offset, entry.next_offset, entry.epoch, entry.uid, hole


def within(found: Found, first: int, next_offset: int) -> Found:
    """What begins at or above `first` and ends at or below `next_offset`."""

    def inside(rows: NDArray[np.void]) -> NDArray[np.void]:
        taken = rows["first_offset"].astype(np.uint64) >= np.uint64(first)
        taken &= rows["next_offset"].astype(np.uint64) <= np.uint64(next_offset)
        return rows if taken.all() else rows[taken]

    return Found(inside(found.fragments), inside(found.holes))


def across(section: Named, rows: NDArray[np.void]) -> bool:
    """Whether something is listed over a hole that a tree has, or over the end of a section."""
    firsts = rows["first_offset"].astype(np.uint64)
    nexts = rows["next_offset"].astype(np.uint64)
    if (nexts > np.uint64(section.next_offset)).any():
        return True
    return any(
        bool(((firsts < each.next_offset) & (nexts > each.first_offset)).any())
        for each in section.entries
        if each.kind is EntryKind.HOLE
    )


def not_listed(section: Named, rows: NDArray[np.void]) -> list[Entry]:
    """Entries of which LIST does not show the object, with its size."""
    fields = ["first_offset", "next_offset", "kind_size", "epoch", "uid"]
    named = section.entries.array()[fields]
    if len(named) == len(rows) and (named == rows[fields]).all():
        return []
    there = set(rows[fields].tolist())
    return [
        each
        for each, row in zip(section.entries, named.tolist(), strict=True)
        if each.kind is EntryKind.FRAGMENT and row not in there
    ]
