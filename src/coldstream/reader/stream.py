"""Read one stream out of the remote tier, from a spec, in order, every byte checked.

    reader = StreamReader(store, catalog, "rabbitmq/", "__orders_1745252105682952932")
    for offset, timestamp, body in reader.messages(Offset(1000)):
        ...

A read ends at the next offset of the manifest as it was when the read began. It follows the
manifest while it reads (`reader.follow`): when a fragment or a group is gone because a newer
manifest no longer refers to it, or when its manifest has grown old, reading goes on in the newer
one, at the very chunk; offsets that exist nowhere any more are told to `on_gap`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from coldstream.columns.damage import CorruptRange
from coldstream.errors import CorruptDataError, NotFoundError
from coldstream.fragment import Buffer
from coldstream.manifest.root import Root
from coldstream.manifest.tree import fragments_reaching, leaf_at
from coldstream.osiris.chunk import Chunk
from coldstream.osiris.entry import iter_records
from coldstream.ports import Catalog, ObjectStore
from coldstream.reader.budget import PROCESS_BUDGET, MemoryBudget
from coldstream.reader.follow import Followed
from coldstream.reader.fragments import Fragments, Piece
from coldstream.reader.gap import Gap, GapReason, refuse_gap
from coldstream.reader.locate import chunk_reaching, fragments_backwards, locate
from coldstream.reader.pieces import pieces
from coldstream.reader.settings import ReaderSettings
from coldstream.reader.spec import Bound, Last, Offset, OffsetSpec, Timestamp
from coldstream.remote.nodes import PROCESS_NODES, NodeCache, fetcher
from coldstream.remote.roots import Snapshot, Snapshots
from coldstream.soundness.chunks import USER, Checked

if TYPE_CHECKING:
    # Arrow is asked for by who wants batches only: it takes a while to import.
    import pyarrow as pa

#: Of messages in one record batch: large enough that a batch costs little, small enough for caches.
DEFAULT_BATCH_BYTES = 4 * 2**20


class Message(NamedTuple):
    """One message.

    Attributes:
        offset: in the stream.
        timestamp: of its chunk, ms since the Unix epoch.
        body: its wire bytes; a view into the chunk where the entry is not compressed.
    """

    offset: int
    timestamp: int
    body: Buffer


class StreamReader:
    """Reads one stream; may be used by several threads, each iteration by one.

    Args:
        store: the bucket.
        catalog: the table.
        prefix: of all keys, ends in "/".
        stream: directory name.
        settings: sizes and numbers of requests.
        budget: bytes that fetched data may hold; one for the whole process by default.
        nodes: groups of manifests; one cache for the whole process by default.
        clock: seconds, from any start, never falling; tells the age of a manifest.
    """

    def __init__(
        self,
        store: ObjectStore,
        catalog: Catalog,
        prefix: str,
        stream: str,
        *,
        settings: ReaderSettings | None = None,
        budget: MemoryBudget = PROCESS_BUDGET,
        nodes: NodeCache = PROCESS_NODES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stream = stream
        self._settings = settings or ReaderSettings()
        self._budget = budget
        self._clock = clock
        self._snapshots = Snapshots(store, catalog, prefix)
        self._groups = fetcher(store, nodes, prefix, stream)
        self._fragments = Fragments(store, prefix, stream, self._settings)

    def snapshot(self) -> Snapshot:
        """The stream as it is now.

        Raises:
            NotFoundError: the catalog has no such stream.
            CorruptDataError: its root is damaged.
        """
        return self._snapshots.load(self.stream)

    def locate(self, spec: OffsetSpec) -> int:
        """The offset at which a read from `spec` begins now; the next offset if it would wait.

        For times and `last` this is the id of a chunk; an offset stays as it is, and the chunk
        that contains it is the first to be read.
        """
        return self._begin(spec, None)[1]

    def chunks(
        self,
        spec: OffsetSpec,
        to: Bound | None = None,
        *,
        on_gap: Callable[[Gap], None] = refuse_gap,
    ) -> Generator[Chunk, None, None]:
        """Every chunk (also of tracking data) from the one that `spec` means, in order.

        Closing the generator ends its threads and gives its memory back. A chunk is a view into
        fetched bytes; to keep a few for long, copy them.

        Args:
            spec: where to begin.
            to: where to end: chunks that begin at or after this offset, or at or after the first
                chunk of this time, are not read. The manifest's end if None.
            on_gap: told of offsets that exist nowhere, in their turn, and of those that were cut
                off after they had been read; raises LostRangeError unless given. Behind the latter
                the chunk that contains the next offset comes first; it may begin below it.

        Raises:
            NotFoundError: no such stream, or an object that the current manifest refers to is gone.
            CorruptDataError: damaged bytes; all good chunks before them have been yielded.
            LostRangeError: a gap, unless `on_gap` is given.
            UnavailableError, PermissionDeniedError: from the adapters.
        """
        return self._chunks(*self._begin(spec, to), _asked(spec), on_gap)

    def messages(
        self,
        spec: OffsetSpec,
        to: Bound | None = None,
        *,
        on_gap: Callable[[Gap], None] = refuse_gap,
    ) -> Generator[Message, None, None]:
        """Every message at or after `spec` and below `to`; arguments and errors as `chunks`.

        From an offset the messages before it in its chunk are left out, from anything else a read
        begins with the whole chunk.
        """
        return self._all_messages(*self._begin(spec, to), _asked(spec), on_gap)

    def _all_messages(
        self, manifest: Followed, start: int, end: int, asked: int, on_gap: Callable[[Gap], None]
    ) -> Generator[Message, None, None]:
        def told(gap: Gap) -> None:
            nonlocal start
            start = max(start, gap.next_offset)  # a chunk that comes then may hold some of it
            on_gap(gap)

        with closing(self._chunks(manifest, start, end, asked, told)) as chunks:
            for chunk in chunks:
                if chunk.header.chunk_type == USER:
                    yield from self._messages(chunk, start, end)
                start = max(start, chunk.header.next_offset)

    def _messages(self, chunk: Chunk, start: int, end: int) -> Iterator[Message]:
        header = chunk.header
        timestamp = header.timestamp
        whole = start <= header.chunk_id and header.next_offset <= end
        try:
            for offset, body in iter_records(chunk):
                if whole or start <= offset < end:
                    yield Message(offset, timestamp, body)
        except CorruptDataError as error:
            error.located(stream=self.stream, offset=header.chunk_id)
            raise

    def batches(
        self,
        spec: OffsetSpec,
        to: Bound | None = None,
        *,
        columns: Sequence[str] | None = None,
        on_gap: Callable[[Gap], None] = refuse_gap,
        on_corrupt: Callable[[CorruptRange], None] | None = None,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        reuse: bool = False,
    ) -> Generator[pa.RecordBatch, None, None]:
        """Every message at or after `spec` and below `to` as rows of Arrow record batches.

        Args:
            spec: where to begin, as in `messages`.
            to: where to end, as in `messages`.
            columns: their names, see `coldstream.columns.schema`; all but `stream` and `raw` by
                default. Columns that nobody asks for cost nothing.
            on_gap: as in `messages`.
            on_corrupt: told of offsets whose bytes are damaged; each becomes a row that has only an
                error, and reading goes on behind them. Without it the damage is raised.
            batch_bytes: a batch has about so many bytes of messages.
            reuse: a batch is overwritten when the next one is asked for, which saves much time.

        Raises:
            As `messages`; InvalidInputError for a column that does not exist.
        """
        from coldstream.columns.decode import Decoder
        from coldstream.columns.schema import select

        manifest, start, end = self._begin(spec, to)
        asked = _asked(spec)
        decoder = Decoder(select(columns), batch_bytes=batch_bytes, reuse=reuse, stream=self.stream)
        position = start

        def told(gap: Gap) -> None:
            nonlocal position
            position = max(position, gap.next_offset)  # as in `messages`
            on_gap(gap)

        while position < end:
            try:
                with closing(self._followed(manifest, position, end, asked, told)) as found:
                    for piece in found:
                        for part in piece.sound_and_damaged(position):
                            if isinstance(part, Checked):
                                yield from decoder.decode(
                                    part.data, part.headers, part.bounds, start=position, end=end
                                )
                                continue
                            if on_corrupt is None:
                                yield from decoder.flush()
                                raise part.error
                            on_corrupt(part)
                            yield from decoder.unreadable(part, position, end)
                        position = piece.next_offset
                break
            except CorruptDataError as error:
                if on_corrupt is None:
                    raise
                damage = self._damaged_fragment(manifest, error)
                on_corrupt(damage)
                yield from decoder.unreadable(damage, position, end)
                position = damage.next_offset
        yield from decoder.flush()

    def _damaged_fragment(self, manifest: Followed, error: CorruptDataError) -> CorruptRange:
        """The fragment whose trailer or index is damaged; anything else is raised.

        Raises:
            CorruptDataError: `error`, if it is not about a fragment of the manifest.
        """
        if error.offset is None or error.key is None:
            raise error
        entry = leaf_at(manifest.snapshot.root, error.offset, self._groups)
        if entry is None or self._fragments.path(entry) != error.key:
            raise error
        return CorruptRange(entry.first_offset, entry.next_offset, entry.min_timestamp, error)

    def _chunks(
        self, manifest: Followed, position: int, end: int, asked: int, on_gap: Callable[[Gap], None]
    ) -> Generator[Chunk, None, None]:
        with closing(self._followed(manifest, position, end, asked, on_gap)) as found:
            for piece in found:
                yield from piece.checked
                if piece.checked.error is not None:
                    raise piece.checked.error

    def _followed(
        self, manifest: Followed, position: int, end: int, asked: int, on_gap: Callable[[Gap], None]
    ) -> Generator[Piece, None, None]:
        """Pieces that cover [position, end), in whatever manifest has them by then.

        `asked` is the lowest offset that somebody may want to be told of.
        """
        lost_to = 0  # what lies between `end` and here was cut off, and is told in its turn
        while position < end:
            try:
                with closing(self._pieces(manifest.snapshot.root, position, end)) as found:
                    last: Piece | Gap | None = None
                    for piece in found:
                        # Never before the first piece: what is refreshed must come further, too.
                        if last and _begins(piece, last) and manifest.grown_old():
                            break
                        last = piece
                        if isinstance(piece, Gap):
                            on_gap(piece)
                            position = piece.next_offset
                            continue
                        yield piece
                        position = piece.next_offset
                    else:
                        break
            except NotFoundError as error:
                manifest.after_missing(error, position)
            root = manifest.snapshot.root
            cut = max(manifest.cut(), asked)
            if cut < position:
                # It was read, and it is not what stands there now. One gap with what is cut off
                # ahead, if the stream has not grown back to here.
                following = end if root.next_offset <= position else position
                on_gap(Gap(cut, following, GapReason.TRUNCATION))
                position = following
            if position < root.first_offset:
                on_gap(Gap(position, min(root.first_offset, end), GapReason.RETENTION))
                position = root.first_offset
            if root.next_offset < end:
                lost_to = max(lost_to, end)
                end = root.next_offset
        if lost_to > max(position, end):
            on_gap(Gap(max(position, end), lost_to, GapReason.TRUNCATION))

    def _begin(self, spec: OffsetSpec, to: Bound | None) -> tuple[Followed, int, int]:
        """The manifest, and in it the offsets at which the read begins and ends."""
        manifest = Followed(self.snapshot, self._clock, self._settings.refresh_seconds)
        while True:
            root = manifest.snapshot.root
            try:
                start = self._resolve(root, spec)
                end = root.next_offset if to is None else self._resolve(root, to)
                return manifest, start, end
            except NotFoundError as error:
                manifest.after_missing(error)

    def _resolve(self, root: Root, spec: OffsetSpec) -> int:
        match spec:
            case Timestamp(value):
                for entry in fragments_reaching(root, value, self._groups):
                    index = self._fragments.open(entry).index
                    number = chunk_reaching(index, value, root.first_offset)
                    if number is not None:
                        return max(index[number].chunk_id, root.first_offset)
                return root.next_offset
            case Last():
                for entry in fragments_backwards(root, self._groups):
                    opened = self._fragments.open(entry)
                    number = self._fragments.last_user_chunk(opened)
                    if number is not None:
                        return max(opened.index[number].chunk_id, root.first_offset)
                return root.next_offset
            case _:
                return locate(root, spec)

    def _pieces(self, root: Root, start: int, end: int) -> Generator[Piece | Gap, None, None]:
        return pieces(
            root,
            start,
            end,
            groups=self._groups,
            fragments=self._fragments,
            settings=self._settings,
            budget=self._budget,
        )


def _asked(spec: OffsetSpec) -> int:
    """The lowest offset that a read from `spec` may be about, whatever history the stream has."""
    return spec.value if isinstance(spec, Offset) else 0


def _begins(piece: Piece | Gap, last: Piece | Gap) -> bool:
    """Whether `piece` lies in another fragment or hole than the one before it."""
    return (
        isinstance(piece, Gap) or isinstance(last, Gap) or piece.fragment.path != last.fragment.path
    )
