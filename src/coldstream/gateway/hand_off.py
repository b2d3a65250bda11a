"""What is done about a chunk of the local tier, where the read of the remote one has ended; pure.

Between the offset that is due and the chunk that came there may be offsets. Tracking data takes
some and is never delivered, and a filter leaves chunks out: nothing is missing then. Or local
retention was quicker than this read: then the remote tier has them, or will have them, or an agent
will declare them lost. A read never goes over them before one of these is certain.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from coldstream.gateway.parcel import Parcel
from coldstream.manifest.entries import EntryKind
from coldstream.manifest.root import Root


class Verdict(Enum):
    """What is done."""

    DELIVER = "deliver"
    #: It was delivered before.
    SKIP = "skip"
    #: The manifest has what is due.
    REMOTE = "remote"
    #: Nobody has it just now.
    WAIT = "wait"


def verdict(due: int, chunk_id: int, next_offset: int) -> Verdict | None:
    """What is done about a chunk [chunk_id, next_offset) when `due` is the next offset.

    None if offsets lie between, and it has to be found out what they are (`across`).
    """
    if next_offset <= due:
        return Verdict.SKIP
    return Verdict.DELIVER if chunk_id <= due else None


class Mark(NamedTuple):
    """What tells a chunk from that of another log at the same place.

    A queue that is declared anew begins at offset 0 and epoch 1 again, and where each chunk has one
    message, every id is there again, too. But it was written later.

    Attributes:
        chunk_id: offset of its first message.
        epoch: of its writer.
        timestamp: ms; of the manifest's last chunk the greatest that it may have. None if nobody
            can say.
        end: offset after its last message; 0 if nobody can say.
    """

    chunk_id: int
    epoch: int
    timestamp: int | None
    end: int = 0


def mark_of(parcel: Parcel) -> Mark:
    """What tells this chunk from others."""
    return Mark(parcel.chunk_id, parcel.epoch, parcel.timestamp, parcel.next_offset)


def end_of(root: Root) -> Mark | None:
    """The last chunk of a manifest; None if it has none."""
    last = root.last_chunk
    if last is None:
        return None
    newest = root.entries[-1].kind if len(root.entries) else EntryKind.HOLE
    timestamp = root.last_timestamp if newest is not EntryKind.HOLE else None
    # A group may end with a hole.
    end = root.next_offset if newest is EntryKind.FRAGMENT else 0
    return Mark(last.chunk_id, last.epoch, timestamp, end)


def same_log(last: Mark | None, found: Mark | None) -> bool:
    """Whether a log can be the one whose beginning the manifest has.

    The same id and epoch of a chunk mean the same history below it (Raft's log matching), as long
    as it is one log. A queue that was deleted and declared anew has the name of the old one, and
    another log; so has a broker that has lost what was committed.

    Args:
        last: the last chunk of the manifest; None if it has none.
        found: the chunk of messages that the log gives for that id; None if none.
    """
    if last is None or found is None:
        return True  # nothing says otherwise
    if found.chunk_id > last.chunk_id:
        # Retention has taken that one, or it holds tracking data; half a chunk nobody takes.
        return found.chunk_id >= last.end
    return has(found, last)


def has(found: Mark, last: Mark) -> bool:
    """Whether a log that gives `found` for an id has the chunk `last` of that id."""
    if found[:2] != last[:2]:
        return False
    if found.timestamp is None or last.timestamp is None:
        return True
    return found.timestamp <= last.timestamp


def may_come_again(found: Mark, given: Mark) -> bool:
    """Whether a chunk that was read before may be of the log that gave `given`, the last one.

    A member that is behind gives again what another one has given. In its log stands that very
    chunk, and below it nothing that is newer. Where it is another log after all, another chunk
    stands in the place of `given`, and comes before anything that is due.

    Args:
        found: the chunk.
        given: the last chunk that was read.
    """
    if found.chunk_id == given.chunk_id:
        return has(found, given)
    newer = found.epoch > given.epoch or (found.timestamp or 0) > (given.timestamp or 0)
    return found.end <= given.chunk_id and not newer


def across(due: int, local_first: int | None, remote_next: int) -> Verdict:
    """What is done about a chunk above `due`.

    Args:
        due: the next offset.
        local_first: where the log that gave the chunk begins; None if nobody can say.
        remote_next: next offset of the manifest; 0 if there is none.
    """
    if local_first is not None and local_first <= due:
        return Verdict.DELIVER  # all between is there, and is nothing that is delivered
    return Verdict.REMOTE if due < remote_next else Verdict.WAIT
