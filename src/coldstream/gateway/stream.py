"""One stream across both tiers: where a spec begins, and everything from there on, in order.

    remote tier up to the manifest's end → local tier → remote tier, if that lacks what is due

Every offset is given once, in order. What no tier has any more is told, and so is what the read
waits for. A read that fails for want of an answer tries again; damage ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from coldstream.broker.answers import NoMemberError
from coldstream.errors import (
    ColdstreamError,
    ConflictError,
    DivergedError,
    NotFoundError,
    UnavailableError,
)
from coldstream.gateway.broker_tier import BrokerTier, SubscriptionEndedError
from coldstream.gateway.continuity import Continuity
from coldstream.gateway.feed import Fed
from coldstream.gateway.hand_off import Verdict, across, mark_of, verdict
from coldstream.gateway.local_tier import LocalStream
from coldstream.gateway.parcel import Parcel
from coldstream.gateway.places import Places
from coldstream.gateway.remote import Batch, RemoteStream, Tier
from coldstream.osiris.bloom import FilterMatcher
from coldstream.reader.gap import Gap, GapReason
from coldstream.reader.spec import OffsetSpec

_AGAIN_SECONDS, _AGAIN_MOST = 0.5, 30.0
#: A subscription that the broker took, and that breaks after so long, is no failed attempt.
_WELL_SECONDS = 2.0
#: A broker that has no such queue is asked as often whether it has one by now.
_ASK_AGAIN_SECONDS = 10.0
#: Whoever waits for more of a log that may be another one looks as often whether his was deleted.
_LOOK_SECONDS = 60.0
#: So long a broker may not answer before a hole that it may have is passed over: longer than a node
#: takes to start anew and its streams to elect a leader, and no longer than a person who reads
#: history of a broker that is gone for good will bear. What lies there was declared lost; a gap of
#: retention was not, so that one is waited for without an end.
_HOLE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which chunks a subscription wants.

    Attributes:
        matcher: of filters; None for all chunks.
        properties: the same, as the broker is told.
    """

    matcher: FilterMatcher | None
    properties: Mapping[str, str]


@dataclass(slots=True)
class TieredStream:
    """A stream as clients of the gateway see it.

    Args:
        vhost: virtual host.
        name: of the queue, or of the directory if it has none.
        remote: its remote tier; None if it has none yet.
        broker: the local tier; None without one.
        local: files of the local tier on this machine; None without them.
        tell: told of what a person should know: the stream's name and a sentence.
        poll_seconds: between two looks at a manifest that has nothing new.
        find_remote: looks for a remote tier that was not there at first.
        is_replaced: whether the name means a newer stream by now.
        local_first: whether the local tier is read wherever it has what is due.
        clock: monotonic seconds.
        sleep: waits so many seconds for the next attempt.
    """

    vhost: str
    name: str
    remote: RemoteStream | None
    broker: BrokerTier | None
    local: LocalStream | None
    tell: Callable[[str, str], None]
    poll_seconds: float = 1.0
    find_remote: Callable[[], Awaitable[RemoteStream | None]] | None = None
    is_replaced: Callable[[], Awaitable[bool]] | None = None
    local_first: bool = False
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _given: Continuity = field(init=False)
    _missed: int = field(default=-1, init=False)  # what a member that was read has no more
    _silent_since: float | None = field(default=None, init=False)  # the broker, at this hole

    def __post_init__(self) -> None:
        self._given = Continuity(self.vhost, self.name)

    @property
    def _places(self) -> Places:
        return Places(self.vhost, self.name, self.remote, self.broker, self.local_first)

    async def locate(self, spec: OffsetSpec) -> int:
        """The offset at which a subscription begins; the chunk that contains it comes first.

        Raises:
            NotFoundError: the stream is gone.
            UnavailableError, PermissionDeniedError, CorruptDataError: nobody can say.
        """
        return await self._places.locate(spec)

    async def chunk_of(self, position: int) -> int:
        """Id of the chunk that contains an offset of `locate`; the offset itself where none does.

        Raises:
            As `locate`.
        """
        return await self._places.chunk_of(position)

    async def follow(self, position: int, wanted: Wanted) -> AsyncGenerator[Batch, None]:
        """Everything from the chunk that contains `position` on, for ever.

        Raises:
            NotFoundError: the stream is gone or was deleted, or an object of it is gone.
            DivergedError: the broker has another log by now.
            CorruptDataError: damaged bytes; all good chunks before them have been given.
            PermissionDeniedError: the gateway may not read it.
        """
        failures = 0
        while True:
            before, began = position, self.clock()
            try:
                async with contextlib.aclosing(self._once(position, wanted)) as batches:
                    async for batch in batches:
                        self._given.check_joined(batch, position)
                        if batch.gap is None:
                            self._silent_since = None
                        yield batch
                        position = max(position, batch.next_offset)
                        if batch.parcels:
                            self.gave(batch.parcels[-1])
            except (UnavailableError, ConflictError) as exc:
                well = position > before or _was_well(exc, self.clock() - began)
                failures = 0 if well else failures + 1
                wait = min(_AGAIN_SECONDS * 2 ** min(failures, 10), _AGAIN_MOST)
                again = f"the read at offset {position} tries again in {wait:g} s: {exc}"
                self.tell(self.name, again)
                await self.sleep(wait)
            else:
                failures = 0

    def gave(self, parcel: Parcel) -> None:
        """This is the last chunk that was given: where not all of a batch was, its reader says."""
        self._given.last = mark_of(parcel)

    async def _once(self, position: int, wanted: Wanted) -> AsyncGenerator[Batch, None]:
        """What the manifest has, then what the local tier has, as long as that goes well."""
        # The member that says where its log begins may be another one than that which is read.
        begin = None if self._missed == position else await self._places.local_begin(position)
        if self.remote is not None and (begin is None or position < begin):
            due, gap, log_begin = position, None, None
            chunks = self.remote.read(position, wanted.matcher, self._given.last)
            async with contextlib.aclosing(chunks) as batches:
                async for batch in batches:
                    gap = batch.gap
                    if gap is not None:
                        log_begin = await self._begin_in(gap, batch.next_offset)
                        if log_begin is not None:
                            break
                    yield batch
                    due = max(due, batch.next_offset)
                    if begin is not None and due >= begin:
                        break
            if gap is not None and log_begin is not None:
                rest = replace(gap, first_offset=max(due, gap.first_offset))
                filled = self._filled(rest, log_begin, wanted)
                async with contextlib.aclosing(filled) as batches:
                    async for batch in batches:
                        yield batch
                return  # and look at both anew
            position = due
        if self.broker is None:
            await asyncio.sleep(self.poll_seconds)
            await self._grown(position)
            return
        try:
            sure = await self._given.check_log(self.broker, self.remote)
            async with contextlib.aclosing(self._locally(self.broker, position, wanted)) as batches:
                if not sure:
                    first = await self._first_of(batches, position)
                    if first is None:
                        return
                    # By now the log may have what it had not, and another one than given.
                    await self._given.check_log(self.broker, self.remote)
                    yield first
                    position = first.next_offset
                async for batch in batches:
                    yield batch
                    position = batch.next_offset
        except NotFoundError as exc:
            if self.remote is None or exc.key is not None:
                raise
            # The queue was deleted, or was never this broker's: what history there is, stays.
            await asyncio.sleep(self.poll_seconds)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ASK_AGAIN_SECONDS):
                    await self._grown(position)

    async def _first_of(self, batches: AsyncGenerator[Batch, None], position: int) -> Batch | None:
        """What comes first of a log that does not come as far as what was read; None if nothing.

        It may be that of a queue that was declared anew, and never come there.

        Raises:
            NotFoundError: the stream that was read was deleted.
            DivergedError: its queue was declared anew.
            As `follow`.
        """
        coming = asyncio.ensure_future(anext(batches, None))
        try:
            while not coming.done():
                await asyncio.wait({coming}, timeout=_LOOK_SECONDS)
                with contextlib.suppress(UnavailableError):  # the log may go on all the same
                    if not coming.done() and await self._has_grown(position, _LOOK_SECONDS):
                        return None
            return coming.result()
        finally:
            coming.cancel()
            await asyncio.wait({coming})  # or the generator could not be closed

    async def _filled(self, gap: Gap, begin: int, wanted: Wanted) -> AsyncGenerator[Batch, None]:
        """What the broker's log, which begins at `begin`, has of a gap of the manifest."""
        if self.broker is None:
            return
        await self._given.check_given(self.broker)
        due = max(gap.first_offset, begin)
        if gap.first_offset < due:
            yield self._passed_over(gap, due)
        async with contextlib.aclosing(self._locally(self.broker, due, wanted, gap)) as batches:
            async for batch in batches:
                yield batch
                if batch.next_offset >= gap.next_offset:
                    return  # S3 has the rest

    async def _begin_in(self, gap: Gap, upto: int) -> int | None:
        """Where the broker's log begins, if it has something of a gap of the manifest.

        Otherwise the gap is passed over up to an offset, and a person is told.

        Raises:
            UnavailableError: nobody can say.
        """
        begin = None
        if gap.reason is not GapReason.TRUNCATION:
            try:
                begin = await self._places.log_begin(gap.first_offset)
            except UnavailableError:
                # Who declares a hole need not have asked: `repair --lost` does not.
                if gap.reason is not GapReason.HOLE or not await self._is_given_up():
                    raise
                silent = (
                    f"offsets {gap.first_offset} to {gap.next_offset - 1} are a hole, and the"
                    " broker does not answer, and may have them (asked again and again for"
                    f" {_HOLE_SECONDS:.0f} s); the read goes on at {upto}"
                )
                self.tell(self.name, silent)
                return None
        if begin is not None and begin < gap.next_offset:
            return begin
        self._tell_gap(gap, upto)
        return None

    async def _is_given_up(self) -> bool:
        """Whether the broker has not answered at a hole for so long that the read goes on.

        Raises:
            UnavailableError: S3 or the catalog does not answer; the broker may be well.
        """
        if self.remote is not None:
            await self.remote.snapshot()
        if self._silent_since is None:
            self._silent_since = self.clock()
        return self.clock() - self._silent_since >= _HOLE_SECONDS

    def _passed_over(self, gap: Gap, upto: int) -> Batch:
        """What nobody has of a gap, up to an offset; a person is told."""
        passed = replace(gap, next_offset=upto)
        self._tell_gap(passed, upto)
        return Batch([], upto, passed)

    def _tell_gap(self, gap: Gap, next_offset: int) -> None:
        self.tell(self.name, f"{gap}; the read goes on at {next_offset}")

    async def _locally(
        self, broker: BrokerTier, position: int, wanted: Wanted, gap: Gap | None = None
    ) -> AsyncGenerator[Batch, None]:
        """What the files have, or else the broker's port; `gap` is what the manifest has not."""
        if self.local is not None and await self.local.has(position):
            before = position
            async with contextlib.aclosing(self.local.read(position, wanted.matcher)) as batches:
                with contextlib.suppress(NoMemberError):  # another node's port has it then
                    async for batch in batches:
                        yield batch
                        position = batch.next_offset
            if position > before:
                return
        async with contextlib.aclosing(self._of_broker(broker, position, wanted, gap)) as batches:
            async for batch in batches:
                yield batch

    async def _of_broker(
        self, broker: BrokerTier, due: int, wanted: Wanted, gap: Gap | None
    ) -> AsyncGenerator[Batch, None]:
        feed = broker.follow(self.vhost, self.name, due, wanted.properties)
        async with contextlib.aclosing(feed):
            async for fed in feed:
                parcel = fed.parcel
                found = verdict(due, parcel.chunk_id, parcel.next_offset)
                if found is None:
                    found = await self._across(fed, due)
                    if found is Verdict.REMOTE and gap is not None and due < gap.next_offset:
                        # This member has less than the one that was asked, and nobody else has it.
                        due = min(parcel.chunk_id, gap.next_offset)
                        yield self._passed_over(gap, due)
                        found = verdict(due, parcel.chunk_id, parcel.next_offset) or Verdict.REMOTE
                if found is Verdict.REMOTE:
                    self._missed = due
                    return
                if found is Verdict.WAIT:
                    await self._wait(due, parcel.chunk_id)
                    return
                if found is Verdict.SKIP:
                    await self._given.check_skipped(parcel, due, self.remote)
                if found is Verdict.DELIVER:
                    due = parcel.next_offset
                    committed = fed.committed or due - 1
                    yield Batch([parcel], due, committed=committed, tier=Tier.BROKER)

    async def _across(self, fed: Fed, due: int) -> Verdict:
        first = await fed.first_offset()
        missing = first is None or first > due
        if missing and self.remote is None and self.find_remote is not None:
            # Whoever has subscribed before there was any history must not miss it later.
            self.remote = await self.find_remote()
        if missing and self.remote is None:
            # What local retention takes of a stream without a remote tier is gone, as ever.
            self.tell(self.name, f"local retention has taken offset {due} before it was read")
            return Verdict.DELIVER
        remote_next = 0
        if self.remote is not None:
            remote_next = (await self.remote.snapshot()).root.next_offset
        return across(due, first, remote_next)

    async def _wait(self, due: int, chunk_id: int) -> None:
        self.tell(
            self.name,
            f"offsets {due} to {chunk_id - 1} are in neither tier: local retention was quicker than"
            " their upload, or they are not published yet; the read waits for the manifest",
        )
        await self._grown(due)

    async def _grown(self, position: int) -> None:
        """Wait until the manifest has more than `position`.

        Raises:
            NotFoundError: the stream was deleted.
            DivergedError: its queue was declared anew.
        """
        while self.remote is not None and not await self._has_grown(position, self.poll_seconds):
            await asyncio.sleep(self.poll_seconds)

    async def _has_grown(self, position: int, seconds: float) -> bool:
        """Whether the manifest had more than `position` so long ago; raises as `_grown`."""
        if self.remote is None:
            return False
        seen = await self.remote.snapshot(seconds=seconds)
        if seen.root.next_offset > position:
            return True
        if seen.item.state.is_tombstone:
            raise NotFoundError("the stream was deleted", stream=self.name)
        if self.is_replaced is not None and await self.is_replaced():
            raise DivergedError(
                "the queue was deleted and declared anew: nothing more comes", stream=self.name
            )
        return False


def _was_well(error: ColdstreamError, lasted: float) -> bool:
    """Whether an attempt was none of those that fail one after the other, though it gave nothing.

    Who waits at the end of a quiet stream is given nothing, however well that goes.

    Args:
        error: that ended it.
        lasted: seconds.
    """
    return lasted > (_WELL_SECONDS if isinstance(error, SubscriptionEndedError) else _AGAIN_MOST)
