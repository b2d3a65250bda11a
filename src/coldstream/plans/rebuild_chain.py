"""The manifest that a rebuild has decided so far: entries with times, and holes over nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.node import Node
from coldstream.manifest.root import Head, LastChunk, Root
from coldstream.plans.grow import Growth
from coldstream.plans.key_columns import UNKNOWN_MAX_TIMESTAMP, UNKNOWN_MIN_TIMESTAMP
from coldstream.plans.rebuild_rows import Name, name_of
from coldstream.plans.rebuild_told import KnownManifest, Named, Shortfall, Told
from coldstream.plans.resolve import Verified
from coldstream.plans.weigh import Candidate, Nothing, Step

#: Why offsets are missing that a repair will find: an entry stands for a whole object only.
_ONLY_IN_PART = "only an object that is damaged, or overlaps others, has them"


class Chain:
    """Entries from the first offset on, each where the one before it ends.

    Args:
        known: of the manifest that there was.
        told: gets the offsets that nothing stands for.
        branching: entries of a full group.
        uids: gives an id for each group, and for each hole that is made up.
        by_trailers: whether trailers are read; else every fragment is unverified.

    Attributes:
        at: where the next entry begins; None before the first one of a stream without a tree.
        last_chunk: of the last fragment, as far as its trailer is read.
        unverified: fragments whose trailer nobody has read.
        holes: ranges [first, next) that are lost.
        made_up: holes that no object declares.
        named: entries of trees in the region that is being weighed.
        undeclared: holes of trees without an object.
        over_bounds: ranges of objects that reach over the ends of the manifest.
    """

    def __init__(
        self,
        known: KnownManifest,
        told: Told,
        *,
        branching: int,
        uids: Iterator[int],
        by_trailers: bool,
    ) -> None:
        self._ledger = known.ledger
        self._told = told
        self._growth = Growth(branching, uids)
        self._uids = uids
        self._by_trailers = by_trailers
        self._first = known.first_offset
        self.at = known.first_offset if known.sections is None else None
        self.last_chunk: LastChunk | None = None
        self.unverified = 0
        self.holes: list[tuple[int, int]] = []
        self.made_up: list[Entry] = []
        self.named: dict[Name, Entry] = {}
        self.undeclared: set[Name] = set()
        self.over_bounds: list[tuple[int, int]] = []
        self._highest = 0
        self._nothing_yet = True  # no fragment has said a time
        self._oldest: Entry | None = None

    @property
    def first_offset(self) -> int:
        """Where the chain begins; 0 if nobody knows it yet."""
        return self._first or 0

    @property
    def next_offset(self) -> int:
        """How far the chain reaches."""
        return self.at or 0

    def root(self, version: int) -> Root:
        """The root over all entries, of this version."""
        entries = self._growth.entries()
        return Root(
            first_offset=self.first_offset,
            next_offset=self.next_offset,
            epoch=self._ledger.epoch,
            version=version,
            ledger=self._ledger,
            entries=entries,
            head=self._head(entries),
            last_chunk=self.last_chunk,
        )

    def take(self, section: Named, verified: Sequence[Verified] | None) -> Iterator[Node]:
        """A run of entries of which nothing is wrong, as their trailers say."""
        if not self._by_trailers:
            self.unverified += section.fragments
        chunks = iter(verified or ())
        entries = [
            next(chunks).entry() if self._by_trailers and each.kind is EntryKind.FRAGMENT else each
            for each in section.entries
        ]
        if verified:
            trailer = verified[-1].trailer
            self.last_chunk = LastChunk(trailer.last_chunk_id, trailer.last_chunk_epoch)
        yield from self._append(entries)

    def steps(self, steps: Sequence[Step], among: Sequence[Candidate] = ()) -> Iterator[Node]:
        """Append what was chosen `among` candidates."""
        entries: list[Entry] = []
        for step in steps:
            if isinstance(step, Nothing):
                entries += self._fill(step, among)
                continue
            entries.append(step.entry)
            if step.hole and name_of(step.entry) in self.undeclared:
                self.made_up.append(step.entry)
            if step.verified is not None:
                trailer = step.verified.trailer
                self.last_chunk = LastChunk(trailer.last_chunk_id, trailer.last_chunk_epoch)
            elif not step.hole:
                # Its trailer does not say it. An older one would look like another history.
                self.last_chunk = None
                self.unverified += not self._by_trailers
        yield from self._append(entries)

    def _fill(self, gap: Nothing, among: Sequence[Candidate]) -> list[Entry]:
        """Holes over offsets that nothing stands for, each of an epoch that has the right to it."""
        spans = [*self.over_bounds, *((e.first, e.next_offset) for e in among if not e.hole)]
        over = any(first < gap.next_offset and gap.first < end for first, end in spans)
        why = _ONLY_IN_PART if over else "no object has them"
        self._told.lack(Shortfall(gap.first, gap.next_offset, why))
        made: list[Entry] = []
        at = gap.first
        while at < gap.next_offset:
            epoch, end = self._right_at(at, gap.next_offset)
            low, high = UNKNOWN_MIN_TIMESTAMP, UNKNOWN_MAX_TIMESTAMP
            uid = next(self._uids)
            made.append(Entry(at, end, low, high, EntryKind.HOLE, 0, 0, epoch, uid))
            at = end
        self.made_up += made
        return made

    def _right_at(self, offset: int, limit: int) -> tuple[int, int]:
        """The newest epoch that may write at an offset, and how far, up to `limit`."""
        right = self._ledger.right_at(offset)
        if right is not None:
            return right.epoch, min(limit, right.until)
        floors = [each.floor for each in self._ledger.claims if each.floor > offset]
        return self._ledger.epoch, min([limit, *floors])

    def _append(self, entries: Sequence[Entry]) -> Iterator[Node]:
        if not entries:
            return
        timed = [self._timed(each) for each in entries]
        yield from self.append_rows(b"".join(each.encode() for each in timed), None, timed[0])

    def _timed(self, entry: Entry) -> Entry:
        """An entry with its times; a hole of which no tree speaks has the greatest before it."""
        if entry.kind is EntryKind.HOLE:
            self.holes.append((entry.first_offset, entry.next_offset))
            known = self.named.get(name_of(entry))
            if known is not None:
                entry = known
            elif entry.max_timestamp == UNKNOWN_MAX_TIMESTAMP:
                at = self._highest
                entry = replace(entry, min_timestamp=at, max_timestamp=at)
        highest = entry.max_timestamp
        if entry.kind is EntryKind.FRAGMENT or not self._nothing_yet:
            self._highest = highest if self._nothing_yet else max(self._highest, highest)
            self._nothing_yet = False
        return entry

    def append_rows(
        self, rows: bytes, highest: int | None, first: Entry | None = None
    ) -> Iterator[Node]:
        """Append encoded entries, which join; give each group that is full.

        Args:
            rows: entries as in a node, at least one.
            highest: the greatest timestamp among them; None if `first` was timed already.
            first: the first of them, where it is decoded already.
        """
        if highest is not None:
            self._highest, self._nothing_yet = highest, False
        first = first or Entries(rows[:56])[0]
        if self._oldest is None:
            self._oldest = first
            if self._first is None:
                self._first = first.first_offset
        self.at = int.from_bytes(rows[-48:-40], "big")
        yield from self._growth.append(rows)

    def _head(self, entries: Entries) -> Head | None:
        if self._oldest is None or not entries[0].kind.level:
            return None
        return Head(self._oldest.min_timestamp, self._oldest.max_timestamp)
