"""What proves which part of one directory is committed: a value, and when it holds.

This is rule R2 of docs/architecture.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from coldstream.agent.disk.log import StreamLog
from coldstream.broker.management import StreamQueue
from coldstream.errors import CorruptDataError
from coldstream.names import MAX_OFFSET
from coldstream.osiris.chunk import parse_chunk_header
from coldstream.osiris.segment import index_name

#: A stream whose proof failed is asked about again after this long, twice as long each time.
AGAIN_SECONDS, AGAIN_MOST = 0.5, 30.0


@dataclass(frozen=True, slots=True)
class Proof:
    """What is known of one directory.

    Attributes:
        limit: everything below is committed; 0 before the first proof.
        queue: that the directory belongs to; None before it is settled.
        seen: newest segment, and what changes with its index, at the last look that proved
            something.
        whole: whether all that was there then is proved.
        header: of the chunk that proved it.
        generation: of the broker's connections then.
        failures: in a row.
        again_at: monotonic seconds of the next try.
        trouble: why the last try proved nothing; "" if it did.
        writer: whether the writer is on this node, as of `role_at`; also if nobody can say.
        role_at: when that was asked, monotonic seconds.
        doubt: why the queue is not settled though something is proved; "" if it is.
    """

    limit: int = 0
    queue: StreamQueue | None = None
    seen: tuple[int, object] | None = None
    whole: bool = False
    header: bytes = b""
    generation: int = -1
    failures: int = 0
    again_at: float = 0.0
    trouble: str = ""
    writer: bool = True
    role_at: float = float("-inf")
    doubt: str = ""


def proved(log: StreamLog, header: bytes | None) -> int | None:
    """Where the chunk of a header ends, if the local log has the very same one; else None.

    Raises:
        CorruptDataError: it is no header, or the local files are damaged.
        OSError: a file vanished meanwhile.
    """
    if header is None:
        return None
    chunk = parse_chunk_header(header)
    return chunk.next_offset if log.header_at(chunk.chunk_id) == header else None


def unproved(proof: Proof, now: float) -> Proof:
    """What is left of a proof that holds no more: which queue it is, and nothing of the data."""
    return replace(proof, limit=0, seen=None, again_at=now, role_at=float("-inf"))


def holds(log: StreamLog, proof: Proof) -> bool:
    """Whether the chunk that proved it is still there; without its file nobody can say otherwise.

    The log was cut back below it where it is not: after a loss of power committed chunks may be
    gone from the cluster, and others are written in their place, while this node's broker lives.
    """
    try:
        chunk_id = parse_chunk_header(proof.header).chunk_id
        last = newest(log)
        if last is None or last == proof.seen:
            return True
        if log.header_at(chunk_id) == proof.header:
            return True
        segments = log.segments()
        return not segments or chunk_id < segments[0]
    except CorruptDataError:
        return False  # it is rewritten just now, and looked at again
    except OSError:
        return True  # it is removed just now: nothing else can be read in its place


def concluded(log: StreamLog, proof: Proof, sure: int) -> Proof:
    """What the last proof says of a directory that is gone.

    A deletion removes files in any order, and without the newest ones the proof did not hold. The
    chunk that the broker had delivered proves the same of what is held.

    Args:
        log: what is held of it.
        proof: of the directory.
        sure: all that is held below this was committed when its file was last there.
    """
    try:
        limit = proved(log, proof.header or None)
    except (CorruptDataError, OSError):
        limit = None
    if limit is None:
        limit = max(min(proof.limit, sure), _end_below(log, proof))
    return replace(proof, limit=limit)


def _end_below(log: StreamLog, proof: Proof) -> int:
    """Where a log ends, if below the chunk of a proof and in its epoch; else 0.

    An epoch has one writer, whose log only grows.
    """
    try:
        chunk = parse_chunk_header(proof.header)
        near = log.chunks_near(MAX_OFFSET, committed=MAX_OFFSET)
    except (CorruptDataError, OSError):
        return 0
    last = near[-1] if near else None
    if last is None or last.epoch != chunk.epoch or last.chunk_id >= chunk.chunk_id:
        return 0
    return min(proof.limit, last.next_offset)


def failed(proof: Proof, trouble: str, now: float) -> Proof:
    """A proof after a try that proved nothing: it is tried again, each time later."""
    wait = min(AGAIN_MOST, AGAIN_SECONDS * 2 ** min(proof.failures, 10))
    return replace(proof, failures=proof.failures + 1, again_at=now + wait, trouble=trouble)


def bare(proof: Proof, seen: tuple[int, object], now: float, *, empty: bool) -> Proof:
    """A proof for a log without any message, of which a broker can deliver nothing.

    It is not asked: it would say so by its silence only, a second for each such stream, while all
    others wait.

    Args:
        proof: of the directory, of which nothing is proved.
        seen: as in `Proof`.
        now: monotonic seconds.
        empty: whether it has no tracking chunk either.
    """
    wait = now + AGAIN_MOST
    return replace(proof, seen=seen, whole=empty, failures=0, again_at=wait, trouble="")


def newest(log: StreamLog) -> tuple[int, object] | None:
    """The newest segment and what changes whenever its index does; None if there is none.

    Its size alone does not tell: what a new epoch writes in the place of what was lost may have
    just as many chunks.
    """
    segments = log.segments()
    if not segments:
        return None
    try:
        stamp = log.files.stamp(log.directory, index_name(segments[-1])).file
    except FileNotFoundError:
        stamp = log.index_size(segments[-1])  # it was removed, and is held
    return segments[-1], stamp


def is_whole(log: StreamLog, proof: Proof) -> bool:
    """Whether a log ends with the very chunk that proved it, so that there is nothing to prove.

    Raises:
        OSError: a file vanished meanwhile.
    """
    try:
        return log.end() == proof.limit and proved(log, proof.header) == proof.limit
    except CorruptDataError:
        return False  # it is rewritten just now, and looked at again
