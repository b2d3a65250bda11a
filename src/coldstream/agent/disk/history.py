"""The committed part of a stream's directory, as a claim compares it with the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coldstream.agent.disk.log import StreamLog
from coldstream.errors import UnavailableError
from coldstream.names import MAX_OFFSET
from coldstream.plans.claim import LocalChunk


@dataclass(frozen=True, slots=True)
class CommittedHistory:
    """The protocol `plans.claim.LocalHistory` on a directory that changes while it is looked at.

    A broker that crashes comes back with a shorter log, in the middle of a claim too. What is
    merely shorter differs from nothing, so a claim by it would set its floor above what its epoch
    has written. And one that has lost its end and followed another writer since is another log.
    Hence every look must find that the log ends in the very epoch that claims: then all of them
    have seen one history.

    Args:
        log: the directory.
        committed: everything below this offset is committed, nothing else counts.
        epoch: that claims, because a committed chunk of it was there.
    """

    log: StreamLog
    committed: int
    epoch: int

    def chunks_near(self, offset: int) -> Sequence[LocalChunk]:
        """As the protocol says.

        Raises:
            UnavailableError: the log does not end in the epoch any more.
        """
        return self._proved(self.log.chunks_near(offset, committed=self.committed))

    def chunks_between(self, first: int, next_offset: int) -> Sequence[LocalChunk]:
        """As the protocol says; raises as `chunks_near`."""
        found = self.log.chunks_between(first, next_offset, committed=self.committed)
        self.chunks_near(MAX_OFFSET)
        return found

    def first_offset(self) -> int | None:
        """As the protocol says; raises as `chunks_near`."""
        first = self._first_offset()
        self.chunks_near(MAX_OFFSET)
        return first

    def _first_offset(self) -> int | None:
        for segment in self.log.segments():
            if self.log.chunks_between(segment, segment + 1, committed=self.committed):
                return segment
            if segment >= self.committed:
                return None
        return None

    def _proved(self, near: Sequence[LocalChunk]) -> Sequence[LocalChunk]:
        if not near or near[-1].epoch != self.epoch:
            raise UnavailableError(
                f"the local log does not end in a chunk of epoch {self.epoch} any more, for which"
                " it claims; nothing was changed, and it is tried again",
                stream=self.log.stream,
            )
        return near
