"""Where the chunks of a damaged fragment are: in its own object, the bucket, brokers' copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from coldstream.errors import CorruptDataError, InvalidInputError, NotFoundError
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.root import LastChunk
from coldstream.manifest.tree import leaf_at, leaves
from coldstream.names import DataKey, data_prefix, list_start, parse_data_key
from coldstream.osiris.blank import blank_chunk
from coldstream.osiris.chunk import Chunk
from coldstream.plans.assemble import Sources
from coldstream.plans.repair import Known, chunks_in, known_of
from coldstream.ports import ObjectStore
from coldstream.remote.context import Context
from coldstream.remote.erasures import erased_of
from coldstream.remote.listing import pages
from coldstream.remote.roots import Snapshot
from coldstream.remote.trailers import read_trailer
from coldstream.soundness.chunk import holds_by_itself

_FEW = 10
#: How far below a damaged fragment others that reach into it are looked for, in its lengths.
_BELOW = 64
OWN, BUCKET, REPLICA = "own", "bucket", "replica"


class Replica(Protocol):
    """A broker's copy of the stream."""

    @property
    def name(self) -> str:
        """For messages."""
        ...

    def chunks(self, first: int, next_offset: int) -> Iterable[Chunk]:
        """Chunks that begin in offsets [first, next_offset), as they are in the files.

        Raises:
            CorruptDataError: files that contradict themselves.
        """
        ...

    def epoch_of(self, chunk_id: int) -> int | None:
        """Epoch of the chunk with this id; None if there is no such chunk."""
        ...


def listed_size(store: ObjectStore, prefix: str, key: DataKey) -> int | None:
    """Bytes of the object under a key, None if there is none.

    By a LIST of the stream's data from just before it: what a LIST below a whole key gives is not
    the same in all stores.

    Raises:
        UnavailableError, PermissionDeniedError: from the store.
    """
    path, under = key.path(prefix), data_prefix(prefix, key.stream)
    for page in pages(store, under, after=path[:-1], page_size=_FEW):
        for row in page:
            if row.key >= path:
                return row.size if row.key == path else None
    return None


class Finder:
    """Finds chunks for the damaged fragments of one stream.

    Args:
        context: where.
        loaded: the stream.
        replicas: brokers' copies.
        tell: told why a replica is not asked.

    Raises:
        CorruptDataError: an erasure record is damaged.
        UnavailableError: S3 did not answer.
    """

    def __init__(
        self,
        context: Context,
        loaded: Snapshot,
        replicas: Sequence[Replica],
        tell: Callable[[str], None],
    ) -> None:
        self._context = context
        self._loaded = loaded
        self._stream = loaded.item.stream
        self._replicas = replicas
        self._tell = tell
        self._fetch = context.fetch(self._stream)
        self._erased = erased_of(context, self._stream)

    def bounded(self, leaf: Entry, known: Known, epoch: int) -> Known:
        """`known` with the epochs of the neighbours, where the fragment's own trailer is gone."""
        if known.trailer is not None:
            return known
        root = self._loaded.root
        before = after = None
        if leaf.first_offset > root.first_offset:
            before = self._epochs(leaf_at(root, leaf.first_offset - 1, self._fetch))
        if leaf.next_offset < root.next_offset:
            after = self._epochs(leaf_at(root, leaf.next_offset, self._fetch))
        highest = epoch
        if after is not None:
            highest = min(highest, after[0])
        elif leaf.next_offset == root.next_offset and root.last_chunk is not None:
            highest = min(highest, root.last_chunk.epoch)
        lowest = before[1] if before is not None else 0
        return replace(known, lowest_epoch=lowest, highest_epoch=highest)

    def _epochs(self, leaf: Entry | None) -> tuple[int, int] | None:
        """First and last chunk epoch of a fragment; None if it is none or cannot be read."""
        if leaf is None or leaf.kind is not EntryKind.FRAGMENT:
            return None
        try:
            trailer = read_trailer(self._context.store, self._path(leaf))
        except (CorruptDataError, NotFoundError):
            return None
        return trailer.first_chunk_epoch, trailer.last_chunk_epoch

    def sources(self, leaf: Entry, known: Known, data: memoryview) -> list[Sources]:
        """What each source has, the nearest first.

        Args:
            leaf: the damaged fragment.
            known: of it.
            data: its own object, b"" if it is gone.
        """
        # What was erased is blank in every source, wherever its bytes still are.
        own, bucket, replica = Sources(), Sources(), Sources()
        own.add(OWN, self._blank(chunks_in(data, known)) if len(data) else ())
        for key, size in self._others(leaf):
            bucket.add(BUCKET, self._chunks_of_other(key, size, known))
        for each in self._replicas:
            if self._same_history(each, leaf):
                found = each.chunks(leaf.first_offset, leaf.next_offset)
                blank = self._blank(c for c in found if holds_by_itself(c))
                replica.add(f"{REPLICA} {each.name}", [c for c in blank if known.allows(c.header)])
        return [own, bucket, replica]

    def _blank(self, chunks: Iterable[Chunk]) -> list[Chunk]:
        return [blank_chunk(each, self._erased) for each in chunks]

    def _others(self, leaf: Entry) -> list[tuple[DataKey, int]]:
        """Other fragments in the bucket that the ledger accepts and that hold some of the range."""
        start = max(0, leaf.first_offset - _BELOW * (leaf.next_offset - leaf.first_offset))
        after = list_start(self._context.prefix, self._stream, start)
        end = list_start(self._context.prefix, self._stream, leaf.next_offset)
        accepts = self._loaded.root.ledger.accepts
        own = leaf.data_key(self._stream)
        found: list[tuple[DataKey, int]] = []
        for page in self._context.pages(
            data_prefix(self._context.prefix, self._stream), after=after
        ):
            for row in page:
                if row.key >= end:
                    return found
                try:
                    key = parse_data_key(row.key, self._context.prefix)
                except InvalidInputError:
                    continue
                if (
                    key.kind == "fragment"
                    and key != own
                    and key.next_offset > leaf.first_offset
                    and accepts(key.epoch, key.first_offset, key.next_offset)
                ):
                    found.append((key, row.size))
        return found

    def _chunks_of_other(self, key: DataKey, size: int, known: Known) -> list[Chunk]:
        """Chunks of another object that the damaged fragment can have had."""
        path = key.path(self._context.prefix)
        try:
            data = memoryview(self._context.store.get(path, 0, size)) if size else memoryview(b"")
        except (NotFoundError, CorruptDataError):
            return []
        its = Entry(
            key.first_offset, key.next_offset, 0, 0, EntryKind.FRAGMENT, size, 0, key.epoch, key.uid
        )
        found = self._blank(chunks_in(data, known_of(data, its, key)))
        return [chunk for chunk in found if known.allows(chunk.header)]

    def _same_history(self, replica: Replica, leaf: Entry) -> bool:
        """Whether a replica's log is the manifest's up to the range's end: the same chunk there.

        The same chunk id and the same chunk epoch in two logs mean the same history below.
        """
        witness = self._witness(leaf)
        if witness is None:
            self._tell(
                f"the manifest knows no chunk at or above offset {leaf.next_offset - 1}, so nothing"
                f" says that the history of {replica.name} is the stream's there: it is not asked"
            )
            return False
        if replica.epoch_of(witness.chunk_id) == witness.epoch:
            return True
        self._tell(
            f"{replica.name} does not have chunk {witness.chunk_id} of epoch {witness.epoch}, so"
            " nothing says that its history is the stream's: it is not asked"
        )
        return False

    def _witness(self, leaf: Entry) -> LastChunk | None:
        """A chunk at or above the end of a range that the manifest certainly has."""
        for after in leaves(self._loaded.root, self._fetch, start=leaf.next_offset):
            epochs = self._epochs(after) if after.first_offset >= leaf.next_offset else None
            if epochs is not None:
                return LastChunk(after.first_offset, epochs[0])
            if after.first_offset > leaf.next_offset:
                break
        last = self._loaded.root.last_chunk
        # Where holes end the manifest it may lie below them. What two logs share there says nothing
        # of what follows: a deposed leader has written what nobody has confirmed.
        return last if last is not None and last.chunk_id >= leaf.first_offset else None

    def _path(self, entry: Entry) -> str:
        return entry.data_key(self._stream).path(self._context.prefix)
