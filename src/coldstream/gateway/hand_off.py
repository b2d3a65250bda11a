"""What is done about a chunk of the local tier, where the read of the remote one has ended; pure.

Between the offset that is due and the chunk that came there may be offsets. Tracking data takes
some and is never delivered, and a filter leaves chunks out: nothing is missing then. Or local
retention was quicker than this read: then the remote tier has them, or will have them, or an agent
will declare them lost. A read never goes over them before one of these is certain.
"""

from __future__ import annotations

from enum import Enum


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
