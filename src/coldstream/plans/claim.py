"""Whether a writer may claim a stream for its epoch: the remote tail against its own log.

Same chunk id and same chunk epoch in both logs mean the same history below (Raft's log matching).
A *differing* chunk is evidence of divergence; a local log that is merely shorter never is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coldstream.errors import DivergedError, FencedError
from coldstream.manifest.root import LastChunk, Root


@dataclass(frozen=True, slots=True)
class LocalChunk:
    """A committed chunk of the local log: half-open offsets and the epoch that wrote it."""

    chunk_id: int
    next_offset: int
    epoch: int


def check_common_history(
    remote: LastChunk | None, next_offset: int, local: Sequence[LocalChunk], *, stream: str
) -> None:
    """Raise if the local log proves that the remote tail is another history.

    Args:
        remote: identity of the last chunk below `next_offset` in the remote tier, None if unknown.
        next_offset: where the remote tier ends.
        local: committed chunks of the local log around `next_offset`, in offset order: at least
            the last one that begins below it, and the last one of the log.
        stream: for the message.

    Raises:
        DivergedError: a local chunk overlaps the remote tail's last chunk without being it, is of a
            higher epoch than that chunk and lies below it, or of a lower one and lies above it.
    """
    if remote is None:
        return
    for chunk in local:
        overlaps = chunk.chunk_id < next_offset and chunk.next_offset > remote.chunk_id
        same = chunk == LocalChunk(remote.chunk_id, next_offset, remote.epoch)
        newer_below = chunk.chunk_id < next_offset and chunk.epoch > remote.epoch
        older_above = chunk.chunk_id >= next_offset and chunk.epoch < remote.epoch
        if (overlaps and not same) or newer_below or older_above:
            raise DivergedError(
                f"the local chunk {chunk.chunk_id}..{chunk.next_offset} of epoch {chunk.epoch} is"
                f" not in the remote tier, which ends in chunk {remote.chunk_id}..{next_offset} of"
                f" epoch {remote.epoch}; nothing was changed",
                stream=stream,
                offset=chunk.chunk_id,
            )


def claim(root: Root, epoch: int) -> Root:
    """`root` after `epoch` has claimed everything from its next offset on.

    Raises:
        FencedError: this or a higher epoch has claimed already.
    """
    if root.last_chunk is not None and root.last_chunk.epoch > epoch:
        raise FencedError(
            f"epoch {epoch} is older than the chunk epoch {root.last_chunk.epoch} in the manifest",
            offset=root.next_offset,
        )
    return replace(root, epoch=epoch, ledger=root.ledger.claimed(epoch, root.next_offset))
