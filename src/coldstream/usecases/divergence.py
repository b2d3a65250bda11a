"""Where a writer's own log and the manifest part, if they do.

One local chunk says whether they do: the last that begins below the manifest's end. If it is in the
manifest too, so is everything below it; if it differs, the last common chunk is looked for. It is
true of the oldest chunks and false of the youngest that both logs have them, so it is searched in
steps that double, from the end backwards: on each level of the tree by the last chunk of an entry,
which a fragment's trailer names, and then within one fragment. A divergence at the tail costs a
few small GETs, one anywhere in a petabyte about a hundred.

A hole has no chunk, so nothing differs from it. A local chunk inside one shows that the hole is no
loss, though; one at the manifest's end is cut back then, or the claim's floor would lie above data
that nobody could upload any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldstream.errors import (
    CorruptDataError,
    DivergedError,
    NotFoundError,
    UnavailableError,
)
from coldstream.fragment import (
    FragmentIndex,
    Trailer,
)
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.root import LastChunk, Root
from coldstream.manifest.tree import leaf_at, leaves, leaves_backwards, path_to
from coldstream.plans.claim import LocalChunk, LocalHistory
from coldstream.plans.truncate import Cut
from coldstream.remote.trailers import epoch_at, read_index, trailer_of

if TYPE_CHECKING:
    from coldstream.remote.context import Context


#: Called with where the local log begins and where the manifest ends, when the log does not reach
#: far enough down to show what they share; raises LostRangeError if another one might.
Alone = Callable[[int, int], object]


def nobody_else(begin: int, end: int) -> None:
    """An `Alone` for whom no other log counts."""


def divergence(
    context: Context,
    stream: str,
    root: Root,
    log: LocalHistory,
    *,
    alone: Alone,
) -> Cut | None:
    """Where `root` has to be cut because the local log proves another history; None if nowhere.

    Args:
        context: where.
        stream: directory name.
        root: with everything that could be appended to it.
        log: the committed part of the writer's own log.
        alone: see `Alone`.

    Raises:
        LostRangeError: from `alone`.
        DivergedError: the log is another history, but does not reach to where that could be seen.
        NotFoundError: an object that the manifest refers to is gone.
        CorruptDataError: one that had to be read is damaged: repair it, then claim again.
        UnavailableError: the store did not answer, or the log has changed meanwhile.
    """
    first = log.first_offset()
    if first is None:
        return None
    cut = _Comparison(context, stream, root, log, first, alone).result()
    if cut is not None and log.first_offset() != first:
        # What was looked for where the log had begun was not found because it was retired.
        raise UnavailableError(
            f"local retention has moved on from {first} while the log was compared; nothing was"
            " changed, and it is tried again",
            stream=stream,
            offset=first,
        )
    return cut


@dataclass(frozen=True, slots=True)
class _Tail:
    """The end of the manifest's data: its last chunk, and where a hole, if any, begins."""

    chunk: LocalChunk | None
    end: int


class _Comparison:
    def __init__(
        self,
        context: Context,
        stream: str,
        root: Root,
        log: LocalHistory,
        first: int,
        alone: Alone,
    ) -> None:
        self._alone = alone
        self._context = context
        self._stream = stream
        self._root = root
        self._log = log
        self._first = first
        self._fetch = context.fetch(stream)

    def result(self) -> Cut | None:
        root = self._root
        tail = self._tail()
        near = self._log.chunks_near(root.next_offset)
        below = [each for each in near if each.chunk_id < root.next_offset]
        if not below:
            self._check_above(tail)
            if tail.chunk is not None or self._first > root.next_offset:
                self._alone(self._first, root.next_offset)
            return None
        last = max(below, key=lambda each: each.chunk_id)
        if tail.chunk is None:
            if self._remembers():
                # The hole goes back to where the log has data that can take its place.
                return Cut(max(self._first, tail.end), None, last)
            return self._against_nothing(tail, last)
        if last == tail.chunk and tail.end == root.next_offset:
            return None
        if tail.end < last.next_offset and tail.end < root.next_offset:
            return self._in_hole(tail, tail.chunk, last)
        if not self._differs(tail.chunk, last):
            return None
        return self._cut(last)

    def _tail(self) -> _Tail:
        root = self._root
        for leaf in leaves_backwards(root, self._fetch):
            if leaf.kind is EntryKind.HOLE:
                continue
            known = root.last_chunk
            if known is None or not leaf.first_offset <= known.chunk_id < leaf.next_offset:
                # Nobody remembers it, or what is remembered was lost since and is a hole now.
                return _Tail(self._last_chunk_of(leaf), leaf.next_offset)
            return _Tail(
                LocalChunk(known.chunk_id, leaf.next_offset, known.epoch), leaf.next_offset
            )
        end = root.first_offset  # nothing but holes, or nothing at all
        if root.last_chunk is None or root.last_chunk.chunk_id >= end:
            return _Tail(None, end)
        return _Tail(LocalChunk(root.last_chunk.chunk_id, end, root.last_chunk.epoch), end)

    def _remembers(self) -> bool:
        """Whether the log has the last chunk that the manifest had before all of it was lost."""
        known = self._root.last_chunk
        if known is None:
            return False
        there = self._log.chunks_between(known.chunk_id, known.chunk_id + 1)
        return any((c.chunk_id, c.epoch) == (known.chunk_id, known.epoch) for c in there)

    def _check_above(self, tail: _Tail) -> None:
        """The log begins at or above the manifest's end: its oldest chunk must not be older.

        Raises:
            DivergedError: it is of a lower epoch than the manifest's last chunk.
        """
        oldest = self._log.chunks_between(self._first, self._first + 1)
        newest = self._root.last_chunk or tail.chunk  # also where the manifest has lost it since
        if newest is None or not oldest or oldest[0].epoch >= newest.epoch:
            return
        chunk = oldest[0]
        raise DivergedError(
            f"the local log begins with chunk {chunk.chunk_id}..{chunk.next_offset} of epoch"
            f" {chunk.epoch}, the remote tier ends in a chunk of epoch {newest.epoch} at"
            f" {tail.end}: they are two histories, and nothing shows where they part; nothing was"
            " changed",
            stream=self._stream,
            offset=chunk.chunk_id,
        )

    def _against_nothing(self, tail: _Tail, last: LocalChunk) -> Cut | None:
        """The manifest has no data: only a chunk boundary can be at its end, or nothing fits."""
        end = self._root.next_offset
        if self._root.first_offset == end:
            if last.next_offset == end:
                return None
            return Cut(self._first, None, last, anew=True)
        if self._first <= tail.end:
            return Cut(self._first, None, last, anew=True)
        return Cut(self._first, None, last)  # the hole is cut where the log begins

    def _in_hole(self, tail: _Tail, chunk: LocalChunk, last: LocalChunk) -> Cut | None:
        """The log has data where the manifest ends in a hole: the hole is cut back."""
        if chunk in self._log.chunks_between(chunk.chunk_id, chunk.next_offset):
            return Cut(tail.end, LastChunk(chunk.chunk_id, chunk.epoch), last)
        if self._first < tail.end:
            return self._cut(last)
        self._check_above(tail)
        self._alone(self._first, tail.end)  # nothing of it shows that the last chunk is common
        return Cut(self._first, LastChunk(chunk.chunk_id, chunk.epoch), last)

    def _differs(self, tail: LocalChunk, last: LocalChunk) -> bool:
        """Whether the manifest, which has data there, lacks `last`, which begins below its end."""
        root = self._root
        if last.epoch > tail.epoch:
            return True
        if last.next_offset > tail.chunk_id:
            return last != tail
        if last.next_offset <= root.first_offset:
            return False
        leaf = leaf_at(root, max(last.chunk_id, root.first_offset), self._fetch)
        if leaf is None or leaf.kind is EntryKind.HOLE:
            return leaf is not None and last.next_offset > leaf.next_offset
        index = self._open(leaf)
        number = index.chunk_of_offset(max(last.chunk_id, leaf.first_offset))
        return self._chunk(leaf, index, number) != last

    def _cut(self, evidence: LocalChunk) -> Cut:
        root = self._root
        common = self._last_common()
        if common is None or common.next_offset <= root.first_offset:
            if self._first > root.first_offset:
                self._alone(self._first, root.next_offset)
            return Cut(self._first, None, evidence, anew=True)
        if common.next_offset >= root.next_offset or common.next_offset > evidence.chunk_id:
            raise DivergedError(
                f"the local chunk {evidence.chunk_id}..{evidence.next_offset} of epoch"
                f" {evidence.epoch} is not in the remote tier, but chunk {common.chunk_id}"
                f"..{common.next_offset} of epoch {common.epoch} above it is in both: the local log"
                " contradicts itself; nothing was changed",
                stream=self._stream,
                offset=evidence.chunk_id,
            )
        return Cut(common.next_offset, LastChunk(common.chunk_id, common.epoch), evidence)

    def _last_common(self) -> LocalChunk | None:
        """The last chunk that the log and the manifest both have."""
        entries, base = self._root.entries, None
        lowest = max(self._first, self._root.first_offset)
        while True:
            number, found = self._last_common_entry(entries, lowest)
            base = found or base
            following = self._alive(entries, lowest) if number is None else number + 1
            if following >= len(entries):
                return base
            parts_in = entries[following]
            if parts_in.kind is EntryKind.HOLE:
                return base
            if not parts_in.kind.level:
                return self._last_common_in(parts_in) or base
            entries = self._fetch(parts_in).entries

    def _alive(self, entries: Entries, lowest: int) -> int:
        """Number of the first entry that reaches above `lowest`."""
        low, high = 0, len(entries)
        while low < high:
            middle = (low + high) // 2
            if entries[middle].next_offset <= lowest:
                low = middle + 1
            else:
                high = middle
        return low

    def _last_common_entry(
        self, entries: Entries, lowest: int
    ) -> tuple[int | None, LocalChunk | None]:
        """Number of the last entry whose last chunk the log has too, and that chunk."""
        low = self._alive(entries, lowest)
        high, step = len(entries), 1  # every entry from `high` on is known to be different
        found: tuple[int | None, LocalChunk | None] = (None, None)
        while low < high:
            probe = max(low, high - step) if found[0] is None else (low + high) // 2
            chunk, common = self._common_at_end(entries[probe])
            if common:
                found, low = (probe, chunk), probe + 1
            else:
                high, step = probe, step * 2
        return found

    def _common_at_end(self, entry: Entry) -> tuple[LocalChunk | None, bool]:
        """The last chunk at or below the end of an entry, and whether the log has it too.

        Below where the log begins nothing can be compared, and nothing differs: (None, True).
        """
        root, at = self._root, entry.next_offset
        while at > max(self._first, root.first_offset):
            leaf = path_to(root.entries, at - 1, self._fetch)[-1]
            if leaf.kind is EntryKind.FRAGMENT:
                chunk = self._last_chunk_of(leaf)
                common = self._log.chunks_between(chunk.chunk_id, chunk.next_offset)
                return chunk, chunk in common
            at = leaf.first_offset
        return None, True

    def _last_common_in(self, leaf: Entry) -> LocalChunk | None:
        """The last common chunk of a fragment whose own last chunk differs; None if all do."""
        index = self._open(leaf)
        ours = {
            each.chunk_id: each
            for each in self._log.chunks_between(leaf.first_offset, leaf.next_offset)
        }
        begin = index.chunk_of_offset(self._first)
        if index[begin].chunk_id < self._first:
            begin += 1
        end = begin
        while end < len(index):
            own = ours.get(index[end].chunk_id)
            if own is None or own.next_offset != _next_offset(index, end):
                break
            end += 1
        low, high, common = begin, end, None
        while low < high:
            middle = (low + high) // 2
            chunk = self._chunk(leaf, index, middle)
            if chunk == ours[chunk.chunk_id]:
                common, low = chunk, middle + 1
            else:
                high = middle
        return common

    def _chunk(self, leaf: Entry, index: FragmentIndex, number: int) -> LocalChunk:
        """A chunk of a fragment; its epoch is in its header, if the trailer leaves it open."""
        try:
            epoch = epoch_at(self._context.store, self._path(leaf), index, number)
        except (CorruptDataError, NotFoundError) as exc:
            exc.located(stream=self._stream)
            raise
        return LocalChunk(index[number].chunk_id, _next_offset(index, number), epoch)

    def _last_chunk_of(self, leaf: Entry) -> LocalChunk:
        trailer = self._trailer(leaf)
        return LocalChunk(trailer.last_chunk_id, trailer.next_offset, trailer.last_chunk_epoch)

    def _trailer(self, leaf: Entry) -> Trailer:
        return trailer_of(self._context.store, self._context.prefix, self._stream, leaf)

    def _open(self, leaf: Entry) -> FragmentIndex:
        try:
            return read_index(self._context.store, self._path(leaf), self._trailer(leaf))
        except (CorruptDataError, NotFoundError) as exc:
            exc.located(stream=self._stream)
            raise

    def _path(self, leaf: Entry) -> str:
        return leaf.data_key(self._stream).path(self._context.prefix)


def _next_offset(index: FragmentIndex, number: int) -> int:
    """The offset after a chunk."""
    last = number + 1 == len(index)
    return index.trailer.next_offset if last else index[number + 1].chunk_id


def has_data(context: Context, stream: str, root: Root, start: int) -> bool:
    """Whether the tree has a fragment that reaches above `start`."""
    return any(
        leaf.kind is EntryKind.FRAGMENT for leaf in leaves(root, context.fetch(stream), start=start)
    )
