"""A manifest made anew from the bucket: one pass over LIST, in memory that does not grow with it.

Keys carry all that a chain needs, so no object has to be opened. Which fragment stands for a range
is what the ledger and `resolve_run` say: the newest epoch with a right to it, then the fewest
fragments. A ledger gives every offset to one epoch only, so nothing is left to choose between two.

Without trailers the entries are *unverified*: their records are 0 and their times reach from the
smallest to the greatest that there are. So a look-up by time opens such a fragment instead of
passing it over, which is right but slow, and retention by age never takes it, because nothing says
that it is old. With trailers each fragment is checked as a commit checks it.

Holes are applied by the rule of `resolve`: where they lead from the end of the fragments exactly to
the next acceptable one. So the tree comes out as commits have made it. Only an upload that came
*after* a hole was committed over its range can keep that hole out now and end the chain early; then
`over_holes` gives the run that reaches the known end and gives up the fewest offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import numpy as np

from coldstream.fragment import Trailer
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.node import Node
from coldstream.manifest.root import Head, LastChunk, Root
from coldstream.plans.chain import MAX_WINDOW, Chain
from coldstream.plans.grow import Growth
from coldstream.plans.key_columns import UNKNOWN_MAX_TIMESTAMP, KeyReader, acceptable
from coldstream.plans.resolve import Listed, Verified, check_fragment, last_chunk_of


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


#: Gives the parsed trailers of neighbouring fragments, in their order; raises as a GET does.
Trailers = Callable[[Sequence[Listed]], Sequence[Trailer]]


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
    """

    root: Root
    unverified: int
    beyond: int | None
    listed: int
    fragments: int
    window: int
    holes: tuple[tuple[int, int], ...] = ()


class Rebuild:
    """One rebuild of one stream: `groups`, to its end, and then `rebuilt`.

    Args:
        prefix: of all keys, ends in "/".
        stream: directory name.
        ledger: of the newest root, or else `ledger_of_keys`.
        branching: entries of a full group.
        uids: gives an id for each group.
        first_offset: of the newest root; None for that of the first acceptable fragment.
        trailers: gives trailers; None leaves every entry unverified.
        refused: keys that were refused before.
        window: undecided candidates that may be held.
        until: next offset of the newest root, None if it is not known. A hole may end there
            although nothing follows it.
        over_holes: whether a hole counts as a fragment does, up to `until`; see above.

    Raises:
        InvalidInputError: no such prefix or stream can be.
    """

    def __init__(
        self,
        prefix: str,
        stream: str,
        ledger: Ledger,
        *,
        branching: int,
        uids: Iterator[int],
        first_offset: int | None = None,
        trailers: Trailers | None = None,
        refused: Collection[str] = (),
        window: int = MAX_WINDOW,
        until: int | None = None,
        over_holes: bool = False,
    ) -> None:
        self._until = until
        self._over_holes = over_holes
        self._holes: list[tuple[int, int]] = []
        self._highest = 0
        self._reader = KeyReader(prefix, stream)
        self._ledger = ledger
        self._growth = Growth(branching, uids)
        self._first = first_offset
        self._trailers = trailers
        self._refused = frozenset(refused)
        self._window = window
        self._chain = None if first_offset is None else self._begun(first_offset)
        self._oldest: Entry | None = None
        self._last_chunk: LastChunk | None = None
        self._unverified = 0
        self._nothing_yet = True  # no fragment has said a time
        self._listed = 0
        self._fragments = 0

    def groups(self, pages: Iterable[Sequence[Row]]) -> Iterator[Node]:
        """Read pages of LIST in their order; give each group as soon as it is full.

        Stops at a gap: what lies behind it cannot belong to this manifest.

        Raises:
            RefusedFragmentError: a trailer does not hold; begin anew with its key in `refused`.
            ConflictError: too many fragments overlap (see `Chain`).
            InternalError: the keys are not sorted.
        """
        for page in pages:
            for entries in self._decided(page):
                yield from self._growth.append(self._checked(entries))
            if self._chain is not None and self._chain.beyond is not None:
                break
        if self._chain is not None:
            for entries in self._chain.end():
                yield from self._growth.append(self._checked(entries))

    def rebuilt(self, *, version: int) -> Rebuilt:
        """The result, once `groups` has ended.

        Args:
            version: of the catalog item when it names the root; above that of every root there is.
        """
        entries = self._growth.entries()
        first = self._first or 0
        root = Root(
            first_offset=first,
            next_offset=self.next_offset,
            epoch=self._ledger.epoch,
            version=version,
            ledger=self._ledger,
            entries=entries,
            head=self._head(entries),
            last_chunk=self._last_chunk,
        )
        return Rebuilt(
            root=root,
            unverified=self._unverified,
            beyond=self._chain.beyond if self._chain else None,
            listed=self._listed,
            fragments=self._fragments,
            window=self._chain.widest if self._chain else 0,
            holes=tuple(self._holes),
        )

    @property
    def next_offset(self) -> int:
        """How far the chain reaches."""
        return self._chain.next_offset if self._chain else self._first or 0

    def _begun(self, first_offset: int) -> Chain:
        return Chain(first_offset, window=self._window, until=self._until)

    def _decided(self, page: Sequence[Row]) -> list[bytes]:
        self._listed += len(page)
        if self._refused:
            page = [row for row in page if row.key not in self._refused]
        keys, sizes = [row.key for row in page], [row.size for row in page]
        found = acceptable(self._reader.entries(keys, sizes), self._ledger)
        holes = acceptable(self._reader.holes(keys, sizes), self._ledger)
        self._fragments += len(found)
        if self._over_holes and self._until is not None:
            found = np.frombuffer(found.tobytes() + holes.tobytes(), found.dtype)
            found = found[np.lexsort((found["next_offset"], found["first_offset"]))]
            found = found[found["next_offset"] <= np.uint64(self._until)]
        if self._chain is None:
            if not len(found):
                return []
            self._first = int(found["first_offset"][0])
            self._chain = self._begun(self._first)
        if not self._over_holes:
            self._chain.declare(holes)
        return self._chain.take(found)

    def _checked(self, entries: bytes) -> bytes:
        """Decided entries, with what their trailers say where there are trailers."""
        parts = [part for part in _by_kind(entries) if len(part)]
        checked = b"".join(
            self._holes_of(part) if part[0].kind is EntryKind.HOLE else self._fragments_of(part)
            for part in parts
        )
        if self._oldest is None and checked:
            self._oldest = Entries(checked)[0]
        return checked

    def _fragments_of(self, decided: Entries) -> bytes:
        if self._trailers is None:
            self._unverified += len(decided)
            self._highest = UNKNOWN_MAX_TIMESTAMP
        else:
            decided = Entries.of(each.entry() for each in self._verified(decided, self._trailers))
            self._seen(decided)
        return bytes(decided)

    def _holes_of(self, decided: Entries) -> bytes:
        """Holes at the greatest time before them."""
        at = self._highest
        self._holes += [(each.first_offset, each.next_offset) for each in decided]
        return b"".join(
            replace(each, min_timestamp=at, max_timestamp=at).encode() for each in decided
        )

    def _seen(self, decided: Entries) -> None:
        highest = decided.summary().max_timestamp
        self._highest = highest if self._nothing_yet else max(self._highest, highest)
        self._nothing_yet = False

    def _verified(self, decided: Entries, trailers: Trailers) -> Iterator[Verified]:
        keys = [(entry.data_key(self._reader.stream), entry.size) for entry in decided]
        listed = [Listed(key, key.path(self._reader.prefix), size) for key, size in keys]
        for each, trailer in zip(listed, trailers(listed), strict=True):
            verified = check_fragment(
                each, trailer, ledger=self._ledger, last_chunk=self._last_chunk
            )
            self._last_chunk = last_chunk_of([verified], self._last_chunk)
            yield verified

    def _head(self, entries: Entries) -> Head | None:
        if self._oldest is None or not entries[0].kind.level:
            return None
        return Head(self._oldest.min_timestamp, self._oldest.max_timestamp)


def _by_kind(entries: bytes) -> list[Entries]:
    """Entries in pieces of fragments only and of holes only, in their order."""
    decided = Entries(entries)
    if len(decided) == 1:
        return [decided]
    kinds = decided.array()["kind_size"] >> np.uint64(56)
    borders = [0, *(np.flatnonzero(kinds[1:] != kinds[:-1]) + 1).tolist(), len(decided)]
    if len(borders) == 2:
        return [decided]
    return [decided.part(begin, end) for begin, end in pairwise(borders)]


def ledger_of_keys(pages: Iterable[Sequence[Row]], prefix: str, stream: str) -> Ledger:
    """The best guess at a ledger that is lost: each epoch claimed where its first fragment begins.

    So the newest epoch that has data for a range has the right to it. It takes a pass of its own,
    because a higher epoch may begin below the end of a fragment that was listed before. Trailers
    say the floor itself; a root says all.
    """
    reader = KeyReader(prefix, stream)
    floors: dict[int, int] = {}
    for page in pages:
        found = reader.entries([row.key for row in page], [row.size for row in page])
        epochs, numbers = np.unique(found["epoch"], return_index=True)
        for epoch, number in zip(epochs.tolist(), numbers.tolist(), strict=True):
            first = int(found["first_offset"][number])
            floors[epoch] = min(first, floors.get(epoch, first))
    return Ledger.of(sorted((epoch, floor) for epoch, floor in floors.items() if epoch))
