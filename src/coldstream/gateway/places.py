"""Where a stream across both tiers begins, and where a spec lies in it.

Below the manifest's end a log is only read if it has the manifest's last chunk, which every sound
one has: it may be made anew, or have lost what the manifest has, and have other messages there.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from coldstream.errors import NotFoundError, UnavailableError
from coldstream.gateway.broker_tier import BrokerTier
from coldstream.gateway.hand_off import Mark, end_of, has, mark_of
from coldstream.gateway.remote import RemoteStream
from coldstream.manifest.root import Root
from coldstream.reader.spec import First, Last, Next, Offset, OffsetSpec, Timestamp


@dataclass(frozen=True, slots=True)
class Places:
    """Of one stream.

    Attributes:
        vhost: virtual host.
        name: of the queue.
        remote: its remote tier; None if it has none yet.
        broker: the local tier; None without one.
        local_first: whether the local tier is read wherever it has what is due.
    """

    vhost: str
    name: str
    remote: RemoteStream | None
    broker: BrokerTier | None
    local_first: bool

    async def locate(self, spec: OffsetSpec) -> int:
        """As `TieredStream.locate`."""
        root = Root(0, 0) if self.remote is None else (await self.remote.snapshot()).root
        first, end = root.first_offset, root.next_offset
        has_history = first < end
        match spec:
            case First() if has_history:
                begin = await self.local_begin(first)
                return first if begin is None else min(begin, first)
            case Offset(value) if value < end:
                return value if value >= first else max(value, await self._lowest(first))
            case Timestamp() if self.remote is not None and has_history:
                found = await self.remote.locate(spec)
                if self.broker is not None:
                    found = await self._or_in_gap(self.broker, self.remote, spec, root, found)
                if found < end:
                    return found
            case _:
                pass
        if self.broker is not None:
            return await self._locate_locally(self.broker, spec, end)
        if isinstance(spec, Last) and self.remote is not None:
            return await self.remote.locate(spec)
        return end

    async def chunk_of(self, position: int) -> int:
        """As `TieredStream.chunk_of`."""
        if self.remote is not None:
            async with contextlib.aclosing(self.remote.read(position, None)) as batches:
                async for batch in batches:
                    if batch.parcels:
                        return min(position, batch.parcels[0].chunk_id)
                    if batch.gap is not None:
                        break  # the broker may have it
        if self.broker is not None:
            with contextlib.suppress(NotFoundError):
                found = await self.broker.at(self.vhost, self.name, position)
                return position if found is None else min(position, found.chunk_id)
        return position

    async def log_begin(self, position: int) -> int | None:
        """Where the broker's log begins; None if it is not the manifest's, or ends at `position`.

        Raises:
            UnavailableError, PermissionDeniedError: nobody can say.
            As `RemoteStream.snapshot`.
        """
        if self.broker is None or self.remote is None:
            return None
        last = end_of((await self.remote.snapshot()).root)
        if last is None:
            return None
        try:
            extent = await self.broker.extent(self.vhost, self.name)
            if extent is None or extent[1] <= position:
                return None
            proved = await self._proved(self.broker, self.remote, last)
        except NotFoundError as exc:
            if exc.key is not None:
                raise
            return None
        return extent[0] if proved else None

    async def local_begin(self, position: int) -> int | None:
        """The offset from which on the local tier is read; None for the manifest's end."""
        if not self.local_first:
            return None
        try:
            return await self.log_begin(position)
        except UnavailableError:
            return None  # history can be read without it

    async def _proved(self, broker: BrokerTier, remote: RemoteStream, last: Mark) -> bool:
        found = await broker.at(self.vhost, self.name, last.chunk_id)
        if found is not None and found.chunk_id <= last.chunk_id:
            return has(mark_of(found), last)
        # It may hold tracking data, which no broker delivers.
        given = await remote.last_of_messages()
        if given is None or given.chunk_id == last.chunk_id:
            return False
        found = await broker.at(self.vhost, self.name, given.chunk_id)
        return found is not None and has(mark_of(found), mark_of(given))

    async def _lowest(self, first: int) -> int:
        """The first offset of both tiers, where the manifest's is `first`; raises as `locate`."""
        begin = await self.log_begin(first) if first else None
        return first if begin is None else min(begin, first)

    async def _or_in_gap(
        self, broker: BrokerTier, remote: RemoteStream, spec: Timestamp, root: Root, found: int
    ) -> int:
        """Where a time begins that the manifest has at `found`; raises as `locate`.

        What the manifest has not, right before it, may be of that time, too: holes, or all below
        its first offset.
        """
        low = await remote.holes_before(root, found)
        if low <= root.first_offset:
            low = 0
        if low == found:
            return found
        try:
            begin = await self.log_begin(low)
            if begin is None or begin >= found:
                return found
            # Below `low` only if a clock fell and the time lies in another hole: not to be missed.
            return min(found, await broker.locate(self.vhost, self.name, spec))
        except UnavailableError:
            if low >= root.first_offset and found < root.next_offset:
                return low  # the read waits there, and history is not refused because of a hole
            raise

    async def _locate_locally(self, broker: BrokerTier, spec: OffsetSpec, end: int) -> int:
        try:
            found = await broker.locate(self.vhost, self.name, spec)
        except NotFoundError:
            if self.remote is None:
                raise
            # The queue was deleted, or was never this broker's: there is history only.
            return await self.remote.locate(spec)
        if isinstance(spec, Timestamp) and 0 < end < found:
            extent = await broker.extent(self.vhost, self.name)
            if extent is not None and end < found <= extent[0]:
                return end  # what lies between may be of that time, and will be published
        if isinstance(spec, Next | Offset | Timestamp):
            return max(found, end)
        if isinstance(spec, Last) and self.remote is not None and found < end:
            return max(found, await self.remote.locate(spec))  # its log is empty, or is behind
        return found
