"""Fragments of the manifest that this agent has not uploaded, compared with the log byte by byte.

Whoever has stolen an agent's credentials can upload made-up fragments under the claim of the true
writer. Where their chunks have the true ids, ends and epochs, no claim can tell them from the true
ones, and a commit takes one of the two. The writer can tell: it knows what it has uploaded, and has
the bytes of the rest. Another agent of the same epoch, a part that was taken over and a
consolidation are strangers, too, and have the same bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import Enum

from coldstream.agent.disk.log import StreamLog
from coldstream.agent.telling.progress import Notices
from coldstream.errors import (
    CorruptDataError,
    DivergedError,
    NotFoundError,
    UnavailableError,
    UnknownVersionError,
)
from coldstream.fragment import HEADER
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.tree import leaves
from coldstream.names import DataKey
from coldstream.osiris.blank import differs_by_erasure_alone
from coldstream.osiris.chunk import Chunk, chunk_at
from coldstream.osiris.segment import segment_name
from coldstream.plans.overlap import blocks
from coldstream.remote.context import Context
from coldstream.remote.erasures import erased_of
from coldstream.remote.roots import load
from coldstream.remote.trailers import read_index, trailer_of
from coldstream.soundness.chunk import holds_by_itself

_BLOCK = 4 * 2**20
#: Uploads that are remembered at the most; then it is time to look.
_MANY = 1000
#: Bytes of strangers that are compared in one look, about: uploads wait meanwhile.
_AT_ONCE = 64 * 2**20


class ForgedError(DivergedError):
    """A fragment under the claim of this writer has other bytes than its log."""

    remedy = (
        "somebody else uploads with an agent's credentials: revoke them, then `coldstream undo"
        " STREAM --from FIRST --until NEXT`, with the offsets of the fragment; docs/security.md"
    )


@dataclass(slots=True)
class Strangers:
    """Looks, now and then, at what has entered the manifest since the last look.

    Args:
        context: where.
        log: of the writer.
        every_seconds: from one look to the next.
        notices: takes what a person should know of damage in S3.
    """

    context: Context
    log: StreamLog
    every_seconds: float
    notices: Notices
    _own: set[DataKey] = field(default_factory=set)
    _begin: int | None = None  # all below was looked at
    _looked_at: float = float("-inf")

    def uploaded(self, key: DataKey) -> None:
        """This agent has uploaded a fragment."""
        self._own.add(key)

    def opened(self, next_offset: int, now: float) -> None:
        """The stream was claimed; what is below `next_offset` is not looked at, if it is new."""
        if self._begin is None:
            self._begin, self._looked_at = next_offset, now
        self._begin = min(self._begin, next_offset)

    def due_at(self, next_offset: int) -> float:
        """When the next look is due, monotonic seconds.

        Args:
            next_offset: of the manifest, as last seen.
        """
        if self._begin is None or next_offset <= self._begin:
            return float("inf")
        return self._looked_at + self.every_seconds

    def look(self, epoch: int, next_offset: int, committed: int, now: float) -> None:
        """Compare what is new in the manifest, if it is time to; some of it, if it is much.

        Args:
            epoch: of the claim; the manifest of another one is left alone.
            next_offset: of the manifest.
            committed: all local offsets below this are committed.
            now: monotonic seconds.

        Raises:
            ForgedError: something of it is not what the log has; it is found again at every look.
            ColdstreamError: of the store.
        """
        begin = next_offset if self._begin is None else self._begin
        due = now - self._looked_at >= self.every_seconds or len(self._own) >= _MANY
        if not due or next_offset <= begin:
            return
        stream, left = self.log.stream, _AT_ONCE
        root = load(self.context, stream).root
        if root.epoch != epoch:
            return
        for leaf in leaves(root, self.context.fetch(stream), start=begin):
            if leaf.next_offset > committed or left <= 0:
                break  # what the log does not have yet cannot be compared
            if leaf.kind is EntryKind.FRAGMENT and leaf.data_key(stream) not in self._own:
                self._compare(leaf)
                left -= leaf.size
            begin = leaf.next_offset
        self._begin = begin
        if left > 0:
            self._looked_at = now
        self._own = {key for key in self._own if key.next_offset > begin}

    def _compare(self, leaf: Entry) -> None:
        path = leaf.data_key(self.log.stream).path(self.context.prefix)
        try:
            found = _Comparison(self.context, self.log, leaf, path).result()
        except UnknownVersionError:
            return  # for agents of that release to compare
        except (CorruptDataError, NotFoundError) as exc:
            self._tell_damage(leaf, path, exc.reason)
            return
        except OSError as exc:
            raise UnavailableError(
                f"the log cannot be compared: {exc}",
                stream=self.log.stream,
                offset=leaf.first_offset,
            ) from exc
        if found is _Found.FORGED:
            raise ForgedError(
                f"the fragment of {leaf.first_offset}..{leaf.next_offset} has other messages than"
                " the local log, and this agent has not uploaded it",
                stream=self.log.stream,
                offset=leaf.first_offset,
                key=path,
            )
        if found is _Found.DAMAGED:
            self._tell_damage(leaf, path, "a chunk of it does not hold")

    def _tell_damage(self, leaf: Entry, path: str, why: str) -> None:
        self.notices.append(
            f"the fragment of {leaf.first_offset}..{leaf.next_offset} is damaged in S3: {why};"
            " while this node has its bytes, `coldstream repair` takes them from its data directory"
            f" (stream {self.log.stream}, offset {leaf.first_offset}, key {path})"
        )


class _Found(Enum):
    """What a comparison came to."""

    SAME = 0  # or nobody can tell any more
    DAMAGED = 1  # nothing of it is another one, but some of it does not hold
    FORGED = 2


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One fragment, compared with the log chunk by chunk."""

    context: Context
    log: StreamLog
    leaf: Entry
    path: str

    def result(self) -> _Found:
        """What it comes to.

        Raises:
            CorruptDataError, NotFoundError: trailer or index of the fragment, or an erasure record.
            OSError: a local file vanished.
        """
        first, end = self.leaf.first_offset, self.leaf.next_offset
        local = self._local(first, end)
        if local is None:
            return _Found.SAME
        store = self.context.store
        trailer = trailer_of(store, self.context.prefix, self.log.stream, self.leaf)
        index = read_index(store, self.path, trailer)
        lowest, found = trailer.first_chunk_epoch, _Found.SAME
        for block in blocks(index, 0, _BLOCK):
            begin = len(HEADER) + block.start
            data = memoryview(store.get(self.path, begin, begin + block.size))
            for chunk in block.chunks(data, lowest=lowest, highest=trailer.last_chunk_epoch):
                if chunk is None:
                    found = _Found.DAMAGED
                    continue
                span = local.pop(chunk.header.chunk_id, None)
                own = None if span is None else self._read(span)
                if own is None or not (own == bytes(chunk.buffer) or self._erased(own, chunk)):
                    return _Found.FORGED
        return found

    def _erased(self, own: bytes, chunk: Chunk) -> bool:
        """Whether a chunk may differ from the log's: messages were erased, or the log is damaged.

        Records are read only here, so that a stream without erasures costs no request.
        """
        local = _whole(own)
        if local is None:
            return True
        erased = erased_of(self.context, self.log.stream)
        return differs_by_erasure_alone(local, chunk, erased)

    def _local(self, first: int, end: int) -> dict[int, tuple[int, int, int]] | None:
        """Segment, begin and end of the local chunks from `first` to `end`, by chunk id; None if
        local retention has taken some of them.
        """
        segments = self.log.segments()
        if not segments or segments[0] > first:
            return None
        spans: dict[int, tuple[int, int, int]] = {}
        at = max(0, bisect_right(segments, first) - 1)
        for segment in segments[at:]:
            if segment >= end:
                break
            view = self.log.view(segment, since=segment, closed=False)
            if view is None:
                return None
            positions = [*map(int, view.records["position"]), view.end_position]
            for number, offset in enumerate(map(int, view.records["offset"])):
                if first <= offset < end:
                    spans[offset] = segment, positions[number], positions[number + 1]
        again = self.log.segments()
        return spans if again and again[0] <= first else None

    def _read(self, span: tuple[int, int, int]) -> bytes:
        segment, begin, end = span
        with self.log.files.open(self.log.directory, segment_name(segment)) as file:
            return bytes(file.read(begin, end - begin))


def _whole(data: bytes) -> Chunk | None:
    """The one whole chunk that the bytes are; None if they are none, or its CRC does not hold."""
    try:
        chunk = chunk_at(memoryview(data), 0, len(data))
    except CorruptDataError:
        return None
    holds = len(chunk.buffer) == len(data) and holds_by_itself(chunk, inflate=False)
    return chunk if holds else None
