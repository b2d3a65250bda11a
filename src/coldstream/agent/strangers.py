"""Fragments of the manifest that this agent has not uploaded, compared with the log byte by byte.

Whoever has stolen an agent's credentials can upload made-up fragments under the claim of the true
writer. Where their chunks have the true ids, ends and epochs, no claim can tell them from the true
ones, and a commit takes one of the two. The writer can tell: it knows what it has uploaded, and has
the bytes of the rest. Another agent of the same epoch, a part that was taken over and a
consolidation are strangers, too, and have the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from coldstream.agent.log import StreamLog
from coldstream.errors import CorruptDataError, DivergedError, NotFoundError, UnavailableError
from coldstream.fragment import HEADER
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.tree import leaves
from coldstream.names import DataKey
from coldstream.osiris.segment import segment_name
from coldstream.plans.overlap import blocks
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.remote.trailers import read_index, trailer_of

_BLOCK = 4 * 2**20
#: Uploads that are remembered at the most; then it is time to look.
_MANY = 1000


class ForgedError(DivergedError):
    """A fragment under the claim of this writer has other bytes than its log."""

    remedy = (
        "somebody else uploads with an agent's rights: take these away, then"
        " `coldstream undo STREAM --from OFFSET`; docs/security.md"
    )


@dataclass(slots=True)
class Strangers:
    """Looks, now and then, at what has entered the manifest since the last look.

    Args:
        context: where.
        log: of the writer.
        every_seconds: from one look to the next.
    """

    context: Context
    log: StreamLog
    every_seconds: float
    _own: dict[int, int] = field(default_factory=dict)  # uid of an upload: where it ends
    _begin: int | None = None  # all below was looked at
    _looked_at: float = float("-inf")

    def uploaded(self, key: DataKey) -> None:
        """This agent has uploaded a fragment."""
        self._own[key.uid] = key.next_offset

    def opened(self, next_offset: int, now: float) -> None:
        """The stream was claimed; what is below `next_offset` is not looked at, if it is new."""
        if self._begin is None:
            self._begin, self._looked_at = next_offset, now
        self._begin = min(self._begin, next_offset)

    def look(self, epoch: int, next_offset: int, committed: int, now: float) -> None:
        """Compare what is new in the manifest, if it is time to.

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
        stream = self.log.stream
        root = load(self.context, stream).root
        if root.epoch != epoch:
            return
        for leaf in leaves(root, self.context.fetch(stream), start=begin):
            if leaf.next_offset > committed:
                break  # what the log does not have yet cannot be compared
            if leaf.kind is EntryKind.FRAGMENT and leaf.uid not in self._own:
                self._compare(leaf)
            begin = leaf.next_offset
        self._begin, self._looked_at = begin, now
        self._own = {uid: end for uid, end in self._own.items() if end > begin}

    def _compare(self, leaf: Entry) -> None:
        path = leaf.data_key(self.log.stream).path(self.context.prefix)
        try:
            same = self._is_same(leaf, path) or not self._holds(leaf, path)
        except (CorruptDataError, NotFoundError):
            return  # damage is for scrub to find, and for repair to mend
        except OSError as exc:
            raise UnavailableError(
                f"the log cannot be compared: {exc}",
                stream=self.log.stream,
                offset=leaf.first_offset,
            ) from exc
        if not same:
            raise ForgedError(
                f"the fragment of {leaf.first_offset}..{leaf.next_offset} has other bytes than the"
                " local log, and this agent has not uploaded it",
                stream=self.log.stream,
                offset=leaf.first_offset,
                key=path,
            )

    def _is_same(self, leaf: Entry, path: str) -> bool:
        segments = self.log.segments()
        if not segments or segments[0] > leaf.first_offset:
            return True  # local retention has taken it: nobody can tell any more
        trailer = trailer_of(self.context.store, self.context.prefix, self.log.stream, leaf)
        at = len(HEADER)
        for data in self._local(leaf.first_offset, leaf.next_offset):
            if at + len(data) > trailer.index_position:
                return False
            if self.context.store.get(path, at, at + len(data)) != data:
                return False
            at += len(data)
        return at == trailer.index_position

    def _holds(self, leaf: Entry, path: str) -> bool:
        """Whether every chunk of a fragment is as somebody has made it."""
        store, stream = self.context.store, self.log.stream
        trailer = trailer_of(store, self.context.prefix, stream, leaf)
        lowest, highest = trailer.first_chunk_epoch, trailer.last_chunk_epoch
        for block in blocks(read_index(store, path, trailer), 0, _BLOCK):
            begin = len(HEADER) + block.start
            data = memoryview(store.get(path, begin, begin + block.size))
            if None in block.chunks(data, lowest=lowest, highest=highest):
                return False
        return True

    def _local(self, first: int, next_offset: int) -> Iterator[bytes]:
        """The bytes of the chunks that begin in [first, next_offset), in blocks."""
        segments = [each for each in self.log.segments() if each < next_offset]
        for number, segment in enumerate(segments):
            if number + 1 < len(segments) and segments[number + 1] <= first:
                continue
            view = self.log.view(segment, since=segment, closed=False)
            if view is None:
                continue
            records = view.records
            spans = [
                (int(record["position"]), end)
                for record, end in zip(
                    records, [*map(int, records["position"][1:]), view.end_position], strict=True
                )
                if first <= int(record["offset"]) < next_offset
            ]
            if not spans:
                continue
            with self.log.files.open(self.log.directory, segment_name(segment)) as file:
                for start in range(spans[0][0], spans[-1][1], _BLOCK):
                    end = min(start + _BLOCK, spans[-1][1])
                    yield bytes(file.read(start, end - start))
