"""Whether what a tier gives continues what was given: one log, and no other of its name."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from coldstream.errors import DivergedError, UnavailableError
from coldstream.gateway.broker_tier import BrokerTier
from coldstream.gateway.hand_off import Mark, end_of, mark_of, may_come_again, same_log
from coldstream.gateway.parcel import Parcel
from coldstream.gateway.remote import Batch, RemoteStream

_ANOTHER_LOG = (
    "the broker's log is not the one that was read so far: the queue was made anew, or has lost"
    " messages that were committed"
)


@dataclass(slots=True)
class Continuity:
    """What one read was given last, and the checks of all that comes after it.

    Args:
        vhost: virtual host.
        name: of the queue.
        last: the last chunk that was given; None before the first.
    """

    vhost: str
    name: str
    last: Mark | None = field(default=None, init=False)
    _doubted: Mark | None = field(default=None, init=False)  # what a log seemed not to have

    async def check_log(self, broker: BrokerTier, remote: RemoteStream | None) -> bool:
        """See that the broker's log is the one that was read, and whose begin the manifest has.

        False if it does not come so far, so that nobody can say.

        Raises:
            DivergedError: it is another one.
            UnavailableError: it may be, and is to be looked at again.
        """
        given, last, sure = self.last, None, True
        if remote is not None:
            root = (await remote.snapshot()).root
            last = end_of(root)
            if given is not None and last is not None and given.chunk_id <= last.chunk_id:
                # The read of an older manifest knew nothing of a claim that has cut it off since.
                await remote.check(given, root.ledger)
                given = None
        if last is not None:
            found = await broker.at(self.vhost, self.name, last.chunk_id)
            self._check_same(last, found)
            sure = found is not None
        if given is not None:
            sure = await self.check_given(broker) and sure
        return sure

    async def check_given(self, broker: BrokerTier) -> bool:
        """See that the broker's log has the last chunk that was given, or has it no more.

        False if it does not come so far; raises as `check_log`.
        """
        given = self.last
        if given is None:
            return True
        found = await broker.at(self.vhost, self.name, given.chunk_id)
        if found is not None and found.chunk_id > given.chunk_id:
            extent = await broker.extent(self.vhost, self.name)
            if extent is not None and extent[0] <= given.chunk_id:  # no retention took it
                if self._doubted != given:  # or it does so just now: a broker says it later
                    self._doubted = given
                    raise UnavailableError("the broker passes over what it gave")
                raise DivergedError(_ANOTHER_LOG, stream=self.name, offset=given.chunk_id)
        self._check_same(given, found)
        return found is not None

    def _check_same(self, known: Mark, found: Parcel | None) -> None:
        if not same_log(known, None if found is None else mark_of(found)):
            raise DivergedError(_ANOTHER_LOG, stream=self.name, offset=known.chunk_id)

    def check_joined(self, batch: Batch, position: int) -> None:
        """See that no chunk begins among what was given: in one log, one begins where one ends.

        Raises:
            DivergedError: one does, so its first messages are others at the same offsets.
        """
        first = next((each for each in batch.parcels if each.next_offset > position), None)
        # Whoever goes back on purpose begins where he likes.
        given_end = self.last.end if self.last is not None else 0
        if first is not None and first.chunk_id < given_end <= position:
            raise DivergedError(_ANOTHER_LOG, stream=self.name, offset=first.chunk_id)

    async def check_skipped(self, parcel: Parcel, due: int, remote: RemoteStream | None) -> None:
        """See that what comes again is what was there: a member that is behind, and no other log.

        Raises:
            DivergedError: it is another one, or nobody can say.
        """
        given = self.last
        if given is not None and given.end <= due and may_come_again(mark_of(parcel), given):
            return
        published = await self._published(parcel.chunk_id, remote)
        if published is None and given is None:
            return  # nothing was given, and nobody has uploaded what could differ
        if any(each.header == parcel.header for each in published or ()):
            return
        raise DivergedError(_ANOTHER_LOG, stream=self.name, offset=parcel.chunk_id)

    async def _published(self, chunk_id: int, remote: RemoteStream | None) -> list[Parcel] | None:
        """What the manifest has where a chunk begins; None if it does not come so far."""
        if remote is not None:
            async with contextlib.aclosing(remote.read(chunk_id, None, self.last)) as batches:
                async for batch in batches:
                    if batch.next_offset > chunk_id:
                        return batch.parcels
        return None
