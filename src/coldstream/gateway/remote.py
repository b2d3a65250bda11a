"""The remote tier of a stream, for the event loop: its manifest, and chunks ready to be sent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Executor
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TypeVar

from coldstream.columns.damage import CorruptRange
from coldstream.errors import DivergedError
from coldstream.gateway.hand_off import Mark, same_log
from coldstream.gateway.look import SharedLook
from coldstream.gateway.parcel import Parcel, parcels
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import Root
from coldstream.manifest.tree import holes_before
from coldstream.osiris.bloom import FilterMatcher
from coldstream.reader.follow import RangeRead
from coldstream.reader.gap import Gap, GapReason
from coldstream.reader.pump import Pump
from coldstream.reader.spec import Last, Offset, OffsetSpec
from coldstream.reader.stream import StreamReader
from coldstream.remote.roots import Snapshot

T = TypeVar("T")

#: Longer than there is between two looks at a manifest that has nothing new.
_STAYS_SECONDS = 5.0


class Tier(StrEnum):
    """Where chunks are read."""

    REMOTE = "remote"
    FILES = "files"
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Batch:
    """Chunks that were fetched together, or offsets that exist nowhere.

    Attributes:
        parcels: those that are wanted, in order.
        next_offset: everything below was looked at.
        gap: offsets that are passed over, and why; None for none.
        committed: offset up to which all is known to be committed.
        tier: where it was read.
    """

    parcels: list[Parcel]
    next_offset: int
    gap: Gap | None = None
    committed: int = 0
    tier: Tier = Tier.REMOTE


@dataclass(slots=True)
class RemoteStream:
    """One stream of the remote tier, shared by all who read it here.

    Args:
        reader: of the stream.
        pool: threads for what blocks.
        clock: monotonic seconds.
    """

    reader: StreamReader
    pool: Executor
    clock: Callable[[], float] = time.monotonic
    _look: SharedLook[Snapshot] = field(init=False)

    def __post_init__(self) -> None:
        self._look = SharedLook(self.reader.snapshot, self.pool, self.clock)

    async def snapshot(self, *, seconds: float = 0.0) -> Snapshot:
        """The stream, not older than so many seconds; many who ask at once cost one look.

        Raises:
            NotFoundError, CorruptDataError, UnavailableError, PermissionDeniedError: as
                `StreamReader.snapshot`.
        """
        return await self._look.since(self.clock() - seconds)

    async def locate(self, spec: OffsetSpec) -> int:
        """As `StreamReader.locate`."""
        return await self._run(partial(self.reader.locate, spec))

    async def holes_before(self, root: Root, offset: int) -> int:
        """As `manifest.tree.holes_before`.

        Raises:
            NotFoundError, CorruptDataError, UnavailableError, PermissionDeniedError: from a group.
        """
        groups = self.reader.objects.groups
        return await self._run(partial(holes_before, root, offset, groups))

    async def last_of_messages(self) -> Parcel | None:
        """The last chunk of messages; None if there is none. Raises as `read`."""
        async with aclosing(self.read(await self.locate(Last()), None)) as batches:
            async for batch in batches:
                if batch.parcels:
                    return batch.parcels[0]
        return None

    async def check(self, given: Mark, ledger: Ledger) -> None:
        """See that the manifest still has a chunk that was given; as `_check_given`."""
        await self._run(partial(_check_given, self.reader, given, ledger))

    async def read(
        self, position: int, wanted: FilterMatcher | None, given: Mark | None = None
    ) -> AsyncGenerator[Batch, None]:
        """What the manifest has from the chunk that contains `position` on, as it is now.

        Args:
            position: where to begin.
            wanted: which chunks; None for all.
            given: the last chunk that was given before; None for none.

        Raises:
            DivergedError: a claim has cut off what was given, before or now.
            NotFoundError: an object is gone, and no newer manifest explains it.
            CorruptDataError: damaged bytes; all good chunks before them have been given.
            UnavailableError, PermissionDeniedError: from the adapters.
        """
        ended: list[RangeRead] = []
        pump = Pump(_batches(self.reader, position, wanted, ended, given), self.pool)
        try:
            while (batch := await pump.next()) is not None:
                yield batch
        finally:
            pump.close()
            # Who has come to the end soon looks again. Until then his place stays, so that what
            # another one fetches there meanwhile is kept for him.
            asyncio.get_running_loop().call_later(_STAYS_SECONDS, ended.clear)

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.pool, call)


def _batches(
    reader: StreamReader,
    position: int,
    wanted: FilterMatcher | None,
    ended: list[RangeRead],
    given: Mark | None,
) -> Generator[Batch, None, None]:
    read = reader.begin(Offset(position))
    if given is not None:
        _check_given(reader, given, read.ledger)
    committed = max(read.end - 1, 0)
    with closing(read.found()) as found:
        for each in found:
            if isinstance(each, Gap) and each.reason is GapReason.TRUNCATION:
                if each.first_offset < read.position:
                    raise _diverged(reader, each.first_offset)
                # Nothing of it was given: what comes in its place is read in its turn.
                yield Batch([], read.position, each)
            elif isinstance(each, Gap):
                yield Batch([], each.next_offset, each)
            elif isinstance(each, CorruptRange):
                raise each.error
            else:
                ready = parcels(iter(each.checked), wanted)
                error = each.checked.error
                ends = each.next_offset
                if error is not None:
                    ends = ready[-1].next_offset if ready else position
                yield Batch(ready, ends, committed=committed)
                if error is not None:
                    raise error
    ended.append(read)


def _check_given(reader: StreamReader, given: Mark, ledger: Ledger) -> None:
    """See that a chunk is still the stream's, where a claim of a higher epoch began below it.

    It mostly is: it came from the broker, and was uploaded under the new epoch.

    Raises:
        DivergedError: another one stands there.
        As `StreamReader.chunks`.
    """
    if ledger.ceiling(given.epoch) > given.chunk_id:
        return
    with closing(reader.chunks(Offset(given.chunk_id), on_gap=lambda _: None)) as chunks:
        header = next((each.header for each in chunks), None)
    found = None if header is None else Mark(header.chunk_id, header.epoch, header.timestamp)
    if not same_log(given, found):
        raise _diverged(reader, given.chunk_id)


def _diverged(reader: StreamReader, offset: int) -> DivergedError:
    words = "what was read so far was cut off under a higher epoch, and other messages stand there"
    return DivergedError(words, stream=reader.stream, offset=offset)
