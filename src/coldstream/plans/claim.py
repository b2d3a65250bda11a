"""What a claim compares: the writer's own log against the tail of the manifest.

Same chunk id, same next offset and same chunk epoch in both logs mean the same history below
(Raft's log matching). A *differing* chunk is evidence of divergence; a local log that is merely
shorter never is. What differs is found by `usecases.divergence`, what follows from it is planned by
`plans.truncate`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from coldstream.errors import FencedError
from coldstream.manifest.root import Root


@dataclass(frozen=True, slots=True)
class LocalChunk:
    """A chunk of a log: half-open offsets and the epoch that wrote it."""

    chunk_id: int
    next_offset: int
    epoch: int


class LocalHistory(Protocol):
    """The committed part of a writer's own log. Chunks join, and their epochs never fall."""

    def chunks_near(self, offset: int) -> Sequence[LocalChunk]:
        """The last chunk that begins below `offset`, and the last one of the log."""
        ...

    def chunks_between(self, first: int, next_offset: int) -> Sequence[LocalChunk]:
        """Chunks that overlap [first, next_offset), in offset order."""
        ...

    def first_offset(self) -> int | None:
        """Where the log begins; None if it has no chunk."""
        ...


@dataclass(frozen=True, slots=True)
class KnownHistory:
    """A log whose chunks are all known.

    Args:
        chunks: in offset order.
    """

    chunks: tuple[LocalChunk, ...] = ()

    def chunks_near(self, offset: int) -> list[LocalChunk]:
        """As the protocol says."""
        below = [each for each in self.chunks if each.chunk_id < offset][-1:]
        return list(dict.fromkeys((*below, *self.chunks[-1:])))

    def chunks_between(self, first: int, next_offset: int) -> list[LocalChunk]:
        """As the protocol says."""
        return [
            each for each in self.chunks if each.chunk_id < next_offset and first < each.next_offset
        ]

    def first_offset(self) -> int | None:
        """As the protocol says."""
        return self.chunks[0].chunk_id if self.chunks else None


#: Of a writer that has nothing yet: nothing can differ from it.
NO_HISTORY = KnownHistory()


def claim(root: Root, epoch: int, *, recorded: Collection[int] | None = None) -> Root:
    """`root` after `epoch` has claimed everything from its next offset on.

    Args:
        root: current one.
        epoch: of the writer.
        recorded: epochs of the claims that its quarantine record names, where the ledger is to be
            compacted.

    Raises:
        InvalidInputError: the ledger is full.
        FencedError: this or a higher epoch has claimed already, or the manifest holds a chunk of a
            higher one.
    """
    if root.last_chunk is not None and root.last_chunk.epoch > epoch:
        raise FencedError(
            f"epoch {epoch} is older than the chunk epoch {root.last_chunk.epoch} in the manifest",
            offset=root.next_offset,
        )
    ledger = root.ledger if recorded is None else root.ledger.compacted(recorded)
    return replace(root, epoch=epoch, ledger=ledger.claimed(epoch, root.next_offset))
