"""The committed part of a stream's directory, as a claim compares it with the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coldstream.agent.log import StreamLog
from coldstream.plans.claim import LocalChunk


@dataclass(frozen=True, slots=True)
class CommittedHistory:
    """The protocol `plans.claim.LocalHistory` on a directory.

    Args:
        log: the directory.
        committed: everything below this offset is committed, nothing else counts.
    """

    log: StreamLog
    committed: int

    def chunks_near(self, offset: int) -> Sequence[LocalChunk]:
        """As the protocol says."""
        return self.log.chunks_near(offset, committed=self.committed)

    def chunks_between(self, first: int, following: int) -> Sequence[LocalChunk]:
        """As the protocol says."""
        return self.log.chunks_between(first, following, committed=self.committed)

    def first_offset(self) -> int | None:
        """As the protocol says."""
        for segment in self.log.segments():
            if self.chunks_between(segment, segment + 1):
                return segment
            if segment >= self.committed:
                return None
        return None
