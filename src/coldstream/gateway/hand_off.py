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


def same_log(last: tuple[int, int] | None, found: tuple[int, int] | None) -> bool:
    """Whether a log can be the one whose beginning the manifest has.

    The same id and epoch of a chunk mean the same history below it (Raft's log matching). A queue
    that was deleted and declared anew has the name of the old one, and another log; so has a broker
    that has lost what was committed.

    Args:
        last: id and epoch of the last chunk of the manifest; None if it has none.
        found: id and epoch of the chunk of messages that the log gives for that id; None if none.
    """
    if last is None or found is None:
        return True  # nothing says otherwise
    # A chunk above it: retention has taken that one, or it holds tracking data.
    return found[0] > last[0] or found == last


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
