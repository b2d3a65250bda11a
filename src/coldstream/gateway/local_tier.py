"""The local tier from the broker's own files, on a node that has a member of the stream.

A file proves nothing (docs/architecture.md, rules R1 and R2). So the node's own broker is asked
for its last committed chunk, and everything up to the end of the very same chunk in the files
counts. That proof is made anew whenever the index has grown, or the connection to the broker is
another one.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from coldstream.agent.broker.proof import proved
from coldstream.agent.disk.log import StreamLog
from coldstream.errors import CorruptDataError
from coldstream.gateway.broker_tier import BrokerTier
from coldstream.gateway.parcel import parcels
from coldstream.gateway.remote import Batch, Tier
from coldstream.osiris.bloom import FilterMatcher
from coldstream.osiris.segment import segment_name
from coldstream.plans.cut import SegmentView
from coldstream.soundness.chunks import Checked, Records, check_chunks

T = TypeVar("T")
#: Looks in a row at files that the broker does not vouch for; then its port is asked instead.
_UNPROVED = 20
_BATCH_BYTES = 4 * 2**20


class Cursor(NamedTuple):
    """Where a read of the files has come to, so that an index is not read from its begin each time.

    Attributes:
        segment: first offset of the segment; -1 before the first look.
        skip: records of its index before the one that is due.
    """

    segment: int = -1
    skip: int = 0


@dataclass(slots=True)
class LocalStream:
    """The files of one stream, shared by all who read it here.

    Args:
        log: its directory.
        broker: that writes them, at the node of its URI.
        vhost: virtual host.
        queue: name.
        pool: threads for what blocks.
        poll_seconds: between two looks at an index that has not grown.
    """

    log: StreamLog
    broker: BrokerTier
    vhost: str
    queue: str
    pool: Executor
    poll_seconds: float = 0.05
    _limit: int = 0
    _proof: tuple[object, ...] = ()
    _looked_at: float = float("-inf")
    _proving: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def has(self, position: int) -> bool:
        """Whether the files have `position`, or end there."""
        try:
            segments = await self._run(self.log.segments)
            if not segments or position < segments[0]:
                return False
            return await self._run(self.log.end) >= position
        except (OSError, CorruptDataError):
            return False  # rewritten just now; the broker's port gives it

    async def committed(self) -> int:
        """Everything below is committed; 0 if that cannot be proved just now.

        Raises:
            UnavailableError, NotFoundError, PermissionDeniedError: the broker does not say.
        """
        async with self._proving:
            now = asyncio.get_running_loop().time()
            if now - self._looked_at < self.poll_seconds:
                return self._limit
            self._looked_at = now
            seen = await self._seen()
            if seen == self._proof:
                return self._limit
            last = await self.broker.own_last(self.vhost, self.queue)
            limit = await self._run(partial(_proved, self.log, last.header if last else None))
            # What was seen before the question: what has come since is asked about again.
            self._limit, self._proof = limit or 0, seen if limit else ()
            return self._limit

    async def read(
        self, position: int, wanted: FilterMatcher | None
    ) -> AsyncGenerator[Batch, None]:
        """Committed chunks from the one that contains `position` on.

        It ends when the files have not what is due: they were removed or rewritten meanwhile, or
        the broker does not vouch for them. So it does where they may be those of another history:
        where what was given is no longer there, and where another writer has gone on behind it.

        Raises:
            As `committed`.
        """
        cursor = Cursor()
        unproved = 0
        epoch: int | None = None  # of the last chunk that was given
        while unproved < _UNPROVED:
            limit = await self.committed()
            if epoch is not None and 0 < limit < position:
                return
            if limit <= position:
                unproved = 0 if limit else unproved + 1
                await asyncio.sleep(self.poll_seconds)
                continue
            try:
                found, cursor = await self._run(
                    partial(committed_chunks, self.log, position, limit, cursor)
                )
            except (OSError, CorruptDataError):
                return
            if found is None or found.error is not None or not len(found):
                return
            if epoch is not None and int(found.headers["epoch"][0]) > epoch:
                return
            epoch = int(found.headers["epoch"][-1])
            position = int(found.headers["chunk_id"][-1]) + int(found.headers["records"][-1])
            ready = await self._run(partial(parcels, iter(found), wanted))
            yield Batch(ready, position, committed=limit - 1, tier=Tier.FILES)

    async def _seen(self) -> tuple[object, ...]:
        def look() -> tuple[object, ...]:
            segments = self.log.segments()
            newest = segments[-1] if segments else -1
            return newest, self.log.index_size(newest) if segments else 0

        try:
            return *await self._run(look), self.broker.generation(self.vhost)
        except OSError:
            return (object(),)  # removed just now: equal to nothing

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.pool, call)


def _proved(log: StreamLog, header: bytes | None) -> int | None:
    try:
        return proved(log, header)
    except (OSError, CorruptDataError):
        return None  # a torn tail, or a file that is rewritten just now


def committed_chunks(
    log: StreamLog, position: int, limit: int, cursor: Cursor
) -> tuple[Checked | None, Cursor]:
    """Some chunks of the files from the one that contains `position` on, all below `limit`.

    None if no chunk contains it. Read by path, as every look at these files.

    Raises:
        CorruptDataError: index and segment contradict each other.
        OSError: a file vanished meanwhile.
    """
    segments = log.segments()
    at = bisect_right(segments, position) - 1
    if at < 0:
        return None, cursor
    first = segments[at]
    skip = cursor.skip if cursor.segment == first else 0
    view = log.view(first, since=position if skip else first, closed=False, skip=skip)
    if view is None:
        return None, Cursor()
    offsets = view.records["offset"]
    begin = int(np.searchsorted(offsets, np.uint64(position), side="right")) - 1
    end = view.committed(limit)
    if begin < 0 or begin >= end or view.chunk(begin).next_offset <= position:
        return None, Cursor()
    begins = view.records["position"].astype(np.int64)
    last = int(np.searchsorted(begins, begins[begin] + _BATCH_BYTES))
    last = max(begin, min(last, end) - 1)
    found = _checked(log, view, begin, last)
    return found, Cursor(first, view.skipped + last + 1)


def _checked(log: StreamLog, view: SegmentView, begin: int, last: int) -> Checked:
    """The chunks `begin` to `last` (included) of a view, against their index records."""
    rows = view.records[begin : last + 1]
    start = int(rows["position"][0])
    at_end = last + 1 == len(view.records)
    end = view.end_position if at_end else int(view.records["position"][last + 1])
    next_offset = view.next_offset if at_end else int(view.records["offset"][last + 1])
    data = bytearray(end - start)
    with log.files.open(log.directory, segment_name(view.first_offset)) as file:
        count = file.read_into(start, memoryview(data))
    if count != len(data):
        raise CorruptDataError("the segment is shorter than its index says", offset=next_offset)
    records = Records.of_segment(rows, start=start, end=end, next_offset=next_offset)
    return check_chunks(memoryview(data), records, 0, len(rows) - 1)
