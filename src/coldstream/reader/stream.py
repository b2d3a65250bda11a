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
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import NamedTuple

from coldstream.columns.damage import CorruptRange
from coldstream.errors import CorruptDataError, NotFoundError, UnavailableError
from coldstream.fragment import Buffer
from coldstream.osiris.bloom import FilterMatcher
from coldstream.osiris.chunk import Chunk
from coldstream.osiris.entry import iter_records
from coldstream.ports import Catalog, ObjectStore
from coldstream.reader.budget import PROCESS_BUDGET, MemoryBudget
from coldstream.reader.follow import Followed, RangeRead
from coldstream.reader.gap import Gap, refuse_gap
from coldstream.reader.locate import offset_within
from coldstream.reader.objects import StreamObjects
from coldstream.reader.open_fragments import OpenFragments
from coldstream.reader.settings import ReaderSettings
from coldstream.reader.spec import Bound, Next, Offset, OffsetSpec
from coldstream.remote.nodes import PROCESS_NODES, NodeCache
from coldstream.remote.roots import Glance, RootCache, Snapshot, Snapshots
from coldstream.soundness.chunks import USER


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
        opened: fragments that are kept open; its own by default.
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
        opened: OpenFragments | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stream = stream
        self._settings = settings or ReaderSettings()
        self._clock = clock
        # An older root than the last is asked for by nobody, but for a read that began before.
        self._snapshots = Snapshots(store, catalog, prefix, RootCache(2))
        self._objects = StreamObjects.of(
            store, prefix, stream, self._settings, budget=budget, nodes=nodes, opened=opened
        )

    @property
    def objects(self) -> StreamObjects:
        """How its objects are fetched."""
        return self._objects

    def snapshot(self) -> Snapshot:
        """The stream as it is now.

        Raises:
            NotFoundError: the catalog has no such stream.
            CorruptDataError: its root is damaged.
        """
        return self._snapshots.load(self.stream)

    def glance(self) -> Snapshot | Glance:
        """The stream as it is now, whose root is fetched only when it is needed.

        Raises:
            As `snapshot`.
        """
        return self._snapshots.glance(self.stream)

    def locate(self, spec: OffsetSpec) -> int:
        """The offset at which a read from `spec` begins now; the next offset if it would wait.

        For times and `last` this is the id of a chunk; an offset stays as it is, and the chunk
        that contains it is the first to be read.
        """
        return self.begin(spec, None).position

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
            on_gap: told of offsets that exist nowhere, in their turn, also of those between an
                offset where it is to begin and the stream's first, and of those that were cut off
                after they had been read; raises LostRangeError unless given. Behind the latter the
                chunk that contains the next offset comes first; it may begin below it.

        Raises:
            NotFoundError: no such stream, or an object that the current manifest refers to is gone.
            CorruptDataError: damaged bytes; all good chunks before them have been yielded.
            LostRangeError: a gap, unless `on_gap` is given.
            UnavailableError, PermissionDeniedError: from the adapters.
        """
        return self.chunks_of(self.begin(spec, to), on_gap)

    def chunks_of(
        self, read: RangeRead, on_gap: Callable[[Gap], None] = refuse_gap
    ) -> Generator[Chunk, None, None]:
        """The chunks of a read of `begin`; `on_gap` and errors as of `chunks`."""
        return _chunks(read, on_gap)

    def messages(
        self,
        spec: OffsetSpec,
        to: Bound | None = None,
        *,
        on_gap: Callable[[Gap], None] = refuse_gap,
        matcher: FilterMatcher | None = None,
    ) -> Generator[Message, None, None]:
        """Every message at or after `spec` and below `to`; arguments and errors as `chunks`.

        From an offset the messages before it in its chunk are left out, from anything else a read
        begins with the whole chunk.

        Args:
            spec: as of `chunks`.
            to: as of `chunks`.
            on_gap: as of `chunks`.
            matcher: chunks whose filter says that they hold none of its values are passed over; as
                with every RabbitMQ client, the others may hold other messages, too.
        """
        return self._messages(self.begin(spec, to), on_gap, matcher)

    def follow(
        self,
        spec: OffsetSpec,
        wait: Callable[[], bool],
        *,
        on_gap: Callable[[Gap], None] = refuse_gap,
        matcher: FilterMatcher | None = None,
        again: Callable[[UnavailableError], bool] = lambda _: False,
    ) -> Generator[Message, None, None]:
        """As `messages`, and then those that come: every offset once, in order.

        Where a claim has cut off what was read already, `on_gap` is told, and the read goes on at
        its own offset once the new history has come that far.

        Args:
            spec: where to begin.
            wait: called at the end of what is there; says whether to look again.
            on_gap: as of `chunks`.
            matcher: as of `messages`.
            again: called where the table or the bucket gives no answer; says whether to try again,
                which goes on where the read is. Not for its first look.

        Raises:
            As `chunks`.
        """
        return self._follow(self.begin(spec, None), wait, on_gap, matcher, again)

    def _follow(
        self,
        read: RangeRead,
        wait: Callable[[], bool],
        on_gap: Callable[[Gap], None],
        matcher: FilterMatcher | None,
        again: Callable[[UnavailableError], bool],
    ) -> Generator[Message, None, None]:
        while True:
            try:
                yield from self._messages(read, on_gap, matcher)
            except UnavailableError as error:
                if not (error.may_retry and again(error)):
                    raise
                continue
            if not wait():
                return
            for gap in _gone_on(read, again):
                on_gap(gap)

    def _messages(
        self, read: RangeRead, on_gap: Callable[[Gap], None], matcher: FilterMatcher | None
    ) -> Generator[Message, None, None]:
        with closing(_chunks(read, on_gap)) as chunks:
            for chunk in chunks:
                if _is_wanted(chunk, matcher):
                    # Behind a gap, as at the beginning, a chunk may hold some from before it.
                    yield from self._of_chunk(chunk, read.lowest, read.end)

    def events(
        self, read: RangeRead, matcher: FilterMatcher | None = None
    ) -> Generator[Message | Gap, None, None]:
        """What a read finds up to its end: messages, and gaps in their turn.

        Args:
            read: of `begin`; may go on afterwards (`RangeRead.go_on`).
            matcher: as of `messages`.

        Raises:
            As `chunks`, but for gaps.
        """
        with closing(_chunks_and_gaps(read)) as found:
            for each in found:
                if isinstance(each, Gap):
                    yield each
                elif _is_wanted(each, matcher):
                    yield from self._of_chunk(each, read.lowest, read.end)

    def _of_chunk(self, chunk: Chunk, start: int, end: int) -> Iterator[Message]:
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

    def begin(self, spec: OffsetSpec, to: Bound | None = None) -> RangeRead:
        """A read in the manifest as it is now, piece by piece; arguments and errors as `chunks`."""
        manifest = Followed(self.glance, self._clock, self._settings.refresh_seconds)
        while True:
            seen = manifest.seen
            try:
                start = offset_within(seen, spec, self._objects)
                end = offset_within(seen, Next() if to is None else to, self._objects)
            except NotFoundError as error:
                manifest.after_missing(error)
                continue
            if isinstance(to, Offset):
                end = min(end, to.value)  # where retention has passed it, nothing is left
            if not isinstance(spec, Offset):
                return RangeRead(self._objects, manifest, start, end)
            # The lowest offset that this read may be about, whatever history the stream has.
            asked = spec.value
            return RangeRead(
                self._objects, manifest, start, end, asked=asked, start=min(asked, start)
            )


def _is_wanted(chunk: Chunk, matcher: FilterMatcher | None) -> bool:
    return chunk.header.chunk_type == USER and (matcher is None or matcher.matches(chunk.bloom))


def _gone_on(read: RangeRead, again: Callable[[UnavailableError], bool]) -> Iterator[Gap]:
    """What the manifest as it is now no longer has; nothing has changed where it is unavailable."""
    while True:
        try:
            # One by one: that the stream was deleted is told behind what it had lost before.
            yield from read.go_on()
            return
        except UnavailableError as error:
            if not (error.may_retry and again(error)):
                raise


def _chunks(read: RangeRead, on_gap: Callable[[Gap], None]) -> Generator[Chunk, None, None]:
    with closing(_chunks_and_gaps(read)) as found:
        for each in found:
            if isinstance(each, Gap):
                on_gap(each)
            else:
                yield each


def _chunks_and_gaps(read: RangeRead) -> Generator[Chunk | Gap, None, None]:
    with closing(read.found()) as found:
        for each in found:
            if isinstance(each, Gap):
                yield each
            elif isinstance(each, CorruptRange):
                raise each.error
            else:
                yield from each.checked
                if each.checked.error is not None:
                    raise each.checked.error
