"""The library: open a remote tier, open a stream by its name, read.

    from coldstream.reader import open_tier

    orders = open_tier().stream("//orders")
    for message in orders.messages("first"):
        print(message.offset, message.body)

`aio` has the same for asyncio. docs/how-to/read-from-python.md is the manual of both.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from coldstream.deployment import ENV_BUCKET, ENV_PREFIX, ENV_TABLE
from coldstream.errors import CorruptDataError, InvalidInputError, NotFoundError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.names import DEFAULT_PREFIX, check_prefix
from coldstream.osiris.chunk import Chunk
from coldstream.osiris.entry import iter_entries
from coldstream.ports import Catalog, KeepingStore, ObjectStore
from coldstream.read_policy import ReadPolicy
from coldstream.reader.asked import Asked, Begin, End, Filter
from coldstream.reader.budget import PROCESS_BUDGET, MemoryBudget
from coldstream.reader.gap import Gap, refuse_gap
from coldstream.reader.settings import ReaderSettings
from coldstream.reader.spec import as_spec
from coldstream.reader.stream import Message, StreamReader
from coldstream.remote.resolve import Forms, item_of, resolve
from coldstream.soundness.chunks import USER

POLL_SECONDS = 1.0
CACHE_BYTES = 10 * 2**30


class StreamEntry(NamedTuple):
    """One entry of a chunk: a message, or a sub-batch of them as its publisher compressed it.

    Attributes:
        offset: of its first message.
        records: messages in it.
        timestamp: of its chunk, ms since the Unix epoch.
        data: its wire bytes with their head (`osiris.entry`), a view into the chunk.
    """

    offset: int
    records: int
    timestamp: int
    data: memoryview


class Stream:
    """One stream of a remote tier; safe between threads, each iteration by one.

    Where nothing else is said, methods raise what `StreamReader.chunks` does: `NotFoundError`,
    `CorruptDataError`, `LostRangeError`, `UnavailableError`, `PermissionDeniedError`; all are
    `ColdstreamError`, and `may_retry` of each says whether to try again.

    Args:
        reader: of the stream.
        vhost: virtual host of its queue; "" where nobody has said it.
        queue: name of its queue; the same.
    """

    def __init__(self, reader: StreamReader, vhost: str = "", queue: str = "") -> None:
        self.reader = reader
        self.vhost = vhost
        self.queue = queue

    @property
    def directory(self) -> str:
        """The broker's name of its directory, by which all objects are called."""
        return self.reader.stream

    def offsets(self) -> tuple[int, int]:
        """The first offset that the remote tier has, and the one after the last, as it is now."""
        root = self.reader.snapshot().root
        return root.first_offset, root.next_offset

    def locate(self, begin: Begin) -> int:
        """The offset at which a read would begin now; see `StreamReader.locate`."""
        return self.reader.locate(as_spec(begin))

    def chunks(
        self,
        begin: Begin = "first",
        end: End | None = None,
        *,
        on_gap: Callable[[Gap], None] = refuse_gap,
    ) -> Generator[Chunk, None, None]:
        """Every chunk, also of tracking data, from the one that `begin` means.

        Args:
            begin: where to begin.
            end: where to end; the end of what there is now if None.
            on_gap: told of offsets that exist nowhere, in their turn; unless given, a gap raises
                `LostRangeError`.
        """
        asked = Asked.of(begin, end)
        return self.reader.chunks(asked.spec, asked.bound, on_gap=on_gap)

    def entries(
        self,
        begin: Begin = "first",
        end: End | None = None,
        *,
        on_gap: Callable[[Gap], None] = refuse_gap,
    ) -> Generator[StreamEntry, None, None]:
        """Every entry of messages, once, in order; sub-batches stay compressed.

        From an offset the first is the one that has it; all else as `chunks`.
        """
        asked = Asked.of(begin, end)
        read = self.reader.begin(asked.spec, asked.bound)
        with closing(self.reader.chunks_of(read, on_gap)) as chunks:
            for chunk in chunks:
                if chunk.header.chunk_type == USER:
                    for offset, records, data in iter_entries(chunk):
                        if offset + records > read.lowest and offset < read.end:
                            yield StreamEntry(offset, records, chunk.header.timestamp, data)

    def messages(
        self,
        begin: Begin = "first",
        end: End | None = None,
        *,
        follow: bool = False,
        only: Filter | None = None,
        on_gap: Callable[[Gap], None] = refuse_gap,
        poll_seconds: float = POLL_SECONDS,
    ) -> Generator[Message, None, None]:
        """Every message at or after `begin`, once, in order.

        Args:
            begin: where to begin; from an offset exactly there, otherwise with a whole chunk.
            end: where to end; the end of what there is now if None.
            follow: go on for ever with what comes; there is no `end` then.
            only: chunks that are wanted.
            on_gap: as of `chunks`.
            poll_seconds: between two looks, with `follow`.

        Raises:
            InvalidInputError: `follow` and an `end`.
        """
        found = self.events(begin, end, follow=follow, only=only, poll_seconds=poll_seconds)
        return _without_gaps(found, on_gap)

    def events(
        self,
        begin: Begin = "first",
        end: End | None = None,
        *,
        follow: bool = False,
        only: Filter | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> Generator[Message | Gap, None, None]:
        """As `messages`, and every gap in its turn: the read is at its next offset then.

        Raises:
            InvalidInputError: `follow` and an `end`.
        """
        asked = Asked.of(begin, end, follow=follow, only=only)
        return self._events(asked, poll_seconds)

    def _events(self, asked: Asked, poll_seconds: float) -> Generator[Message | Gap, None, None]:
        read = self.reader.begin(asked.spec, asked.bound)
        while True:
            yield from self.reader.events(read, asked.matcher)
            if not asked.follow:
                return
            time.sleep(poll_seconds)
            yield from read.go_on()

    def arrow_batches(
        self,
        begin: Begin = "first",
        end: End | None = None,
        *,
        columns: Sequence[str] | None = None,
        body_format: str = "auto",
        on_gap: Callable[[Gap], None] = refuse_gap,
    ) -> Any:
        """A `pyarrow.RecordBatchReader` with the columns of the Spark source.

        Args:
            begin: where to begin.
            end: where to end; the end of what there is now if None.
            columns: names of columns (docs/how-to/spark.md); the usual ones if None.
            body_format: `auto`, `amqp` or `bytes`: how messages are read.
            on_gap: as of `chunks`.

        Raises:
            InvalidInputError: no such column or format, or pyarrow is not installed.
        """
        try:
            from coldstream.reader.arrow import batches
        except ImportError as exc:
            raise InvalidInputError(
                "Arrow needs pyarrow: pip install 'coldstream[cli,spark]'"
            ) from exc
        asked = Asked.of(begin, end)
        read = self.reader.begin(asked.spec, asked.bound)
        origin = (self.directory, self.vhost, self.queue)
        return batches(read, origin, columns, body_format, on_gap)

    def to_arrow(
        self,
        begin: Begin = "first",
        end: End | None = None,
        *,
        columns: Sequence[str] | None = None,
        body_format: str = "auto",
        on_gap: Callable[[Gap], None] = refuse_gap,
    ) -> Any:
        """All of it as one `pyarrow.Table` in memory; arguments and errors as `arrow_batches`."""
        return self.arrow_batches(
            begin, end, columns=columns, body_format=body_format, on_gap=on_gap
        ).read_all()


class RemoteTier:
    """The streams of one cluster in a bucket. Safe between threads.

    All that read a stream through one of these, or through several of the same place, share what
    is fetched.

    Args:
        store: the bucket.
        catalog: the table.
        prefix: of all keys, ends in "/".
        settings: of reads.
        budget: bytes that all reads may hold; one for the process by default.
    """

    def __init__(
        self,
        store: ObjectStore,
        catalog: Catalog,
        prefix: str = DEFAULT_PREFIX,
        *,
        settings: ReaderSettings | None = None,
        budget: MemoryBudget = PROCESS_BUDGET,
    ) -> None:
        self._store, self._catalog, self._prefix = store, catalog, prefix
        self._settings, self._budget = settings, budget

    def close(self) -> None:
        """Leave the cache on disk, if there is one, to another tier; for when all is read."""
        if isinstance(self._store, KeepingStore):
            self._store.close()

    def names(self) -> Iterator[str]:
        """Of each stream that is not deleted, a name by which `stream` finds it.

        VHOST/QUEUE; its directory where that is unknown, or means several streams.

        Raises:
            CorruptDataError: an item of the catalog cannot be read; after all others were given.
            UnavailableError, PermissionDeniedError: from the adapters.
        """
        items: list[CatalogItem] = []
        damaged = None
        try:
            items.extend(self._catalog.streams())
        except CorruptDataError as exc:
            damaged = exc
        forms = Forms(items)
        for item in items:
            if not item.state.is_tombstone:
                yield forms.of(item)[0]
        if damaged is not None:
            raise damaged

    def stream(self, name: str, *, policy: ReadPolicy | None = None) -> Stream:
        """A stream by VHOST/QUEUE (`//orders` in vhost `/`), by the queue alone, or its directory.

        Args:
            name: of the stream.
            policy: of its reads; that of the tier's settings if None.

        Raises:
            NotFoundError: there is none, or it was deleted.
            InvalidInputError: several streams have this name.
            UnavailableError, PermissionDeniedError: from the adapters.
        """
        item = item_of(self._catalog, resolve(self._catalog, name))
        if item.state is StreamState.DELETED:
            raise NotFoundError("the stream was deleted", stream=item.stream)
        settings = self._settings or ReaderSettings()
        reader = StreamReader(
            self._store,
            self._catalog,
            self._prefix,
            item.stream,
            settings=settings if policy is None else replace(settings, policy=policy),
            budget=self._budget,
        )
        return Stream(reader, item.name.vhost, item.name.queue)


def open_tier(
    *,
    bucket: str = "",
    table: str = "",
    prefix: str = "",
    region: str = "",
    endpoint: str = "",
    settings: ReaderSettings | None = None,
    budget: MemoryBudget = PROCESS_BUDGET,
    cache_dir: str | Path = "",
    cache_bytes: int = CACHE_BYTES,
) -> RemoteTier:
    """Open the remote tier of a cluster. Nothing is sent yet; credentials are those of AWS's SDKs.

    Args:
        bucket: name; $COLDSTREAM_BUCKET by default.
        table: name or ARN; $COLDSTREAM_TABLE by default.
        prefix: of all keys; $COLDSTREAM_PREFIX, or `rabbitmq/`, by default.
        region: of both; what the environment says by default.
        endpoint: URL of both; what the environment says by default.
        settings: of reads.
        budget: bytes that all reads may hold; one for the process by default.
        cache_dir: a directory of its own, in which what was read is kept for the next time; none by
            default. One process at a time may use it.
        cache_bytes: how much of that.

    Raises:
        InvalidInputError: no bucket or no table is named, a name is malformed, or the cache cannot
            be used.
        MisconfiguredError: a name that no bucket or table can have, or no credentials.
    """
    from coldstream.adapters.place import Place, connect

    bucket = bucket or os.environ.get(ENV_BUCKET, "")
    table = table or os.environ.get(ENV_TABLE, "")
    prefix = prefix or os.environ.get(ENV_PREFIX, DEFAULT_PREFIX)
    missing = [name for name, value in ((ENV_BUCKET, bucket), (ENV_TABLE, table)) if not value]
    if missing and not endpoint.startswith("file://"):
        raise InvalidInputError(f"no {' and no '.join(missing)} is set, nor given")
    check_prefix(prefix)
    remote = connect(Place(bucket, table, prefix, region, endpoint))
    store = remote.store
    if cache_dir:
        from coldstream.adapters.disk_cache import on_disk

        store = on_disk(remote, cache_dir, cache_bytes)
    return RemoteTier(store, remote.catalog, remote.prefix, settings=settings, budget=budget)


def _without_gaps(
    found: Generator[Message | Gap, None, None], on_gap: Callable[[Gap], None]
) -> Generator[Message, None, None]:
    with closing(found):
        for each in found:
            if isinstance(each, Gap):
                on_gap(each)
            else:
                yield each
