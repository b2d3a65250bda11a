"""A manifest made anew from trees and LIST, in memory that does not grow with the stream.

What a readable node names stays as it is: so a repair stays, and so do a consolidation, a hole and
what a claim has cut. LIST fills what no node names, and takes the place of what is gone or damaged.
Where several objects are left for a range and nothing certain names one of them, their data
decides: one whose checksums come out beats one that does not (`plans.weigh` has the whole order).

Behind the known end of the manifest the rule of `plans.resolve` goes on. Without a tree it is the
rule from the first fragment on.

Nothing is left out in silence: offsets that a tree or LIST shows and the new manifest does not have
are *shortfalls*, and who asked has to say that they may be given up.

Without trailers the entries are *unverified*: their records are 0 and their times reach from the
smallest to the greatest that there are. So a look-up by time opens such a fragment instead of
passing it over, which is right but slow, and retention by age never takes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.node import Node
from coldstream.manifest.root import Root
from coldstream.names import MAX_OFFSET
from coldstream.plans.clusters import MAX_WINDOW, Cluster, Clusters
from coldstream.plans.key_columns import (
    UNKNOWN_MAX_TIMESTAMP,
    KeyReader,
)
from coldstream.plans.rebuild_chain import Chain
from coldstream.plans.rebuild_choice import Choice, Sound, Trailers, merged
from coldstream.plans.rebuild_ledger import ledger_of_keys
from coldstream.plans.rebuild_rows import (
    Found,
    ListedRows,
    Name,
    Row,
    across,
    entry_of,
    name_of,
    not_listed,
    sorted_rows,
    within,
)
from coldstream.plans.rebuild_told import (
    KnownManifest,
    Named,
    Open,
    Replaced,
    Section,
    Shortfall,
    Told,
)
from coldstream.plans.weigh import Candidate, Nothing, Word

__all__ = [
    "KnownManifest",
    "Named",
    "Open",
    "Rebuild",
    "Rebuilt",
    "Row",
    "Shortfall",
    "ledger_of_keys",
]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild came to.

    Attributes:
        root: over all fragments of the chain; the groups below it were given before. Without
            trailers it does not know its last chunk.
        unverified: fragments whose trailer nobody has read.
        beyond: where the first acceptable fragment behind a gap begins, None if there is none.
        listed: keys that were read.
        fragments: those that are acceptable fragments of the stream.
        window: the most candidates that were held undecided at once.
        holes: ranges [first, next) that are lost.
        made_up: holes among them that no object declares; whoever installs writes them.
        told: what was refused, replaced and left out.
        any_data: whether LIST shows any fragment of the stream, acceptable or not.
    """

    root: Root
    unverified: int
    beyond: int | None
    listed: int
    fragments: int
    window: int
    holes: tuple[tuple[int, int], ...]
    made_up: tuple[Entry, ...]
    told: Told
    any_data: bool


class Rebuild:
    """One rebuild of one stream: `groups`, to its end, and then `rebuilt`.

    Args:
        prefix: of all keys, ends in "/".
        stream: directory name.
        known: of the manifest that there was.
        branching: entries of a full group.
        uids: gives an id for each group, and for each hole that is made up.
        trailers: gives trailers; None leaves every entry unverified.
        sound: says whether the data of objects is whole; None where nobody can read it.
        window: undecided candidates that may be held.
    """

    def __init__(
        self,
        prefix: str,
        stream: str,
        known: KnownManifest,
        *,
        branching: int,
        uids: Iterator[int],
        trailers: Trailers | None = None,
        sound: Sound | None = None,
        window: int = MAX_WINDOW,
    ) -> None:
        self._reader = KeyReader(prefix, stream)
        self._known = known
        self._window = window
        self.told = Told()
        self._choice = Choice(self._reader, known.ledger, trailers, sound, self.told)
        self._by_trailers = trailers is not None
        self._chain = Chain(
            known, self.told, branching=branching, uids=uids, by_trailers=self._by_trailers
        )
        self._rows = ListedRows(self._reader, known.ledger, ())
        self._region: Clusters | None = None
        self._words: dict[Name, tuple[Entry, Word]] = {}
        self._gone: list[tuple[int, int]] = []  # ranges of what is named, and not listed
        self._widest = 0
        self._beyond: int | None = None
        self._refused: list[tuple[int, int]] = []  # ranges whose objects' trailers do not hold

    def groups(self, pages: Iterable[Sequence[Row]]) -> Iterator[Node]:
        """Read pages of LIST in their order; give each group as soon as it is full.

        Stops at a gap behind what the trees say: what lies there cannot belong to this manifest.

        Raises:
            ConflictError: too many fragments overlap (see `Clusters`).
            InternalError: the keys are not sorted.
            As the trees, the trailers and the data are read.
        """
        self._rows = ListedRows(self._reader, self._known.ledger, pages)
        if self._known.sections is None:
            if self._known.first_offset is not None:
                deque(self._rows.below(self._known.first_offset), maxlen=0)
            yield from self._tail()
        else:
            for section in self._known.sections:
                if self._chain.at is None:
                    self._chain.at = section.first
                yield from self._section(section)
        self._conclude()

    def _section(self, section: Section) -> Iterator[Node]:
        if isinstance(section, Named):
            yield from self._of_tree(section)
        elif section.next_offset is None:
            yield from self._end_of_region(section.first)
            yield from self._tail()
        else:
            self._region = self._region or Clusters(window=self._window)
            for found in self._rows.below(section.next_offset):
                yield from self._weighed(self._inside(found, section.first))

    def rebuilt(self, *, version: int) -> Rebuilt:
        """The result, once `groups` has ended.

        Args:
            version: of the catalog item when it names the root; above that of every root there is.
        """
        chain = self._chain
        return Rebuilt(
            root=chain.root(version),
            unverified=chain.unverified,
            beyond=self._beyond,
            listed=self._rows.listed,
            fragments=self._rows.fragments,
            window=self._widest,
            holes=tuple(chain.holes),
            made_up=tuple(chain.made_up),
            told=self.told,
            any_data=bool(self._rows.fragments or self._rows.refused),
        )

    @property
    def next_offset(self) -> int:
        """How far the chain reaches."""
        return self._chain.next_offset

    # What a tree names.

    def _of_tree(self, section: Named) -> Iterator[Node]:
        """A run of entries of one node: as it is, or as a part of what has to be weighed."""
        parts = [
            self._inside(each, section.first) for each in self._rows.below(section.next_offset)
        ]
        rows = sorted_rows(*(each.fragments for each in parts))
        holes = sorted_rows(*(each.holes for each in parts))
        missing = not_listed(section, rows)
        listed = {name_of(entry_of(row)) for row in (*(rows if missing else ()), *holes)}
        named_holes = [each for each in section.entries if each.kind is EntryKind.HOLE]
        undeclared = [each for each in named_holes if name_of(each) not in listed]
        others = len(rows) - (len(section.entries) - len(named_holes) - len(missing))
        over = self._region is not None and self._region.reach > section.first
        contested = others and (not section.certain or across(section, rows))
        if not (missing or contested or over):
            verified = self._choice.all_hold(section.entries)
            if verified is not None:
                yield from self._end_of_region(section.first)
                self._chain.made_up += undeclared
                yield from self._chain.take(section, verified)
                return
        word = Word.CERTAIN if section.certain else Word.EARLIER
        for entry in section.entries:
            self._words[name_of(entry)] = entry, word
            self._chain.named[name_of(entry)] = entry
        for each in missing:
            if name_of(each) not in listed:  # else only its size is another one
                self._gone.append((each.first_offset, each.next_offset))
                why = "the object is gone"
                self.told.replace(Replaced(each.first_offset, each.next_offset, each.uid, why))
        self._gone = merged(self._gone)
        self._chain.undeclared |= {name_of(each) for each in undeclared}
        more = np.frombuffer(b"".join(each.encode() for each in undeclared), rows.dtype)
        self._region = self._region or Clusters(window=self._window)
        yield from self._weighed(Found(rows, sorted_rows(holes, more)))

    def _inside(self, found: Found, first: int) -> Found:
        """What may stand for offsets of a section; notes what has some of them, but others too."""
        inside = within(found, first, self._known.until)
        if len(inside.fragments) < len(found.fragments):
            begins = found.fragments["first_offset"].astype(np.uint64)
            ends = found.fragments["next_offset"].astype(np.uint64)
            out = (begins < np.uint64(first)) | (ends > np.uint64(self._known.until))
            out &= (ends > np.uint64(first)) & (begins < np.uint64(self._known.until))
            spans = zip(begins[out].tolist(), ends[out].tolist(), strict=True)
            self._chain.over_bounds = merged([*self._chain.over_bounds, *spans])
        return inside

    # What has to be weighed.

    def _weighed(self, found: Found) -> Iterator[Node]:
        """Candidates of a region; what is decided becomes a part of the manifest."""
        assert self._region is not None
        for piece in self._region.take(sorted_rows(found.fragments, found.holes)):
            yield from self._through(piece)

    def _end_of_region(self, next_offset: int) -> Iterator[Node]:
        """The region ends here: what is left of it."""
        if self._region is None:
            return
        for piece in self._region.end():
            yield from self._through(piece)
        self._widest = max(self._widest, self._region.widest)
        self._region = None
        if self.next_offset < next_offset:
            yield from self._chain.steps([Nothing(self.next_offset, next_offset)])
        self._words.clear()
        self._chain.named.clear()
        self._gone.clear()

    def _through(self, piece: Cluster) -> Iterator[Node]:
        """The cheapest way to the end of a piece."""
        candidates = [self._candidate(entry_of(row)) for row in piece.rows]
        steps = self._choice.through(
            self.next_offset, piece.next_offset, candidates, self._gone, self._chain.last_chunk
        )
        yield from self._chain.steps(steps, candidates)

    def _candidate(self, entry: Entry) -> Candidate:
        known = self._words.get(name_of(entry))
        if known is None:
            return Candidate(entry)
        named, word = known
        # The size is LIST's, the times are the tree's until the trailer says them.
        return Candidate(replace(named, size=entry.size), word)

    # What no tree speaks of.

    def _tail(self) -> Iterator[Node]:
        clusters = Clusters(window=self._window)
        holes: list[Candidate] = []
        for found in self._rows.below(None):
            here = found if self._chain.at is None else within(found, self._chain.at, MAX_OFFSET)
            holes = [each for each in holes if each.first >= self.next_offset]
            holes += [Candidate(entry_of(row)) for row in here.holes]
            for piece in clusters.take(here.fragments):
                yield from self._run(piece, holes)
            if self._beyond is not None:
                break
        for piece in clusters.end():
            yield from self._run(piece, holes)
        self._widest = max(self._widest, clusters.widest)

    def _run(self, piece: Cluster, holes: Sequence[Candidate]) -> Iterator[Node]:
        if self._beyond is not None:
            return
        if piece.plain and not self._by_trailers and self._chain.at in (None, piece.first):
            self._chain.unverified += len(piece.rows)
            yield from self._chain.append_rows(piece.rows.tobytes(), UNKNOWN_MAX_TIMESTAMP)
            return
        candidates = [Candidate(entry_of(row)) for row in piece.rows]
        self._choice.read(candidates)
        for batch in [[each] for each in candidates] if piece.plain else [candidates]:
            good = [each for each in batch if not each.refused]
            if not self._known.certain_end:
                self._refused += [(e.first, e.next_offset) for e in batch if e.refused]
                self._refused = merged(self._refused)
            if not good:
                continue
            start = good[0].first if self._chain.at is None else self._chain.at
            run, self._beyond = self._choice.furthest(start, batch, holes, self._chain.last_chunk)
            yield from self._chain.steps(run, batch)
            if self._beyond is not None:
                return

    def _conclude(self) -> None:
        """What only the end shows: whether LIST has more than the manifest."""
        lacking: list[tuple[tuple[int, int], str]] = []
        if not self._known.certain_end:
            if self._beyond is not None:
                lacking.append(
                    ((self.next_offset, self._beyond), "data follows, but a gap is here")
                )
            lacking += [(each, "no trailer holds") for each in self._refused]
        if self._known.guessed:
            lacking += [(each, "the guessed ledger refuses them") for each in self._rows.refused]
        for (first, next_offset), why in lacking:
            if first < self._chain.first_offset or next_offset > self.next_offset:
                self.told.lack(Shortfall(first, next_offset, why))
