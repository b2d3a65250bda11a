"""A stream's way out of the catalog: live -> deleting -> deleted, and back from deleting to live.

    live ──delete──> deleting ──undelete time over, no hold──> deleted (a tombstone for ever)
      ^                  │
      └────undelete──────┘

Objects go only once the state is `deleted`, which nothing leaves; so who reads it may delete.
"""

from __future__ import annotations

from coldstream.errors import ConflictError
from coldstream.manifest.catalog import CatalogItem, StateChange, StreamState


def tombstone(item: CatalogItem, *, until_ms: int, uid: int) -> StateChange:
    """Begin the deletion of a stream.

    Args:
        item: as read.
        until_ms: until when it can be called off, ms since the Unix epoch.
        uid: of this change.

    Raises:
        ConflictError: the stream is not live.
    """
    if item.state is not StreamState.LIVE:
        raise ConflictError(f"the stream is {item.state}, not live", stream=item.stream)
    return StateChange.of(item, StreamState.DELETING, uid, until_ms)


def undeletion(item: CatalogItem, *, uid: int) -> StateChange:
    """Call the deletion off: possible until the state is `deleted`, even after the promised time.

    Raises:
        ConflictError: the stream is not being deleted, or its objects are already going.
    """
    if item.state is StreamState.DELETED:
        raise ConflictError(
            "the undelete time is over and the stream's objects are gone or going",
            stream=item.stream,
        )
    if item.state is not StreamState.DELETING:
        raise ConflictError(f"the stream is {item.state}, not being deleted", stream=item.stream)
    return StateChange.of(item, StreamState.LIVE, uid)


def expiry(item: CatalogItem, *, uid: int) -> StateChange:
    """Make a tombstone final.

    Raises:
        ConflictError: the stream is not being deleted.
    """
    if item.state is not StreamState.DELETING:
        raise ConflictError(f"the stream is {item.state}, not being deleted", stream=item.stream)
    return StateChange.of(item, StreamState.DELETED, uid, item.undelete_until)


def reason(item: CatalogItem) -> str:
    """What tells a tombstone from all others of its stream, for the name of its execution.

    Also once its undelete time is over. The revision alone would not do: a table that is restored
    counts revisions a second time, and no two executions of one name run within 90 days.
    """
    revision = item.revision - 1 if item.state is StreamState.DELETED else item.revision
    return f"r{revision}-{item.undelete_until}"


#: The machine changes the state right after the undelete time, in one short step. An hour later it
#: is not there any more, or it has never been started.
OVERDUE_MS = 3_600_000


def is_overdue(item: CatalogItem, *, now_ms: int, grace_ms: int) -> bool:
    """Whether a tombstone's machine must have failed: long past its undelete time, still there.

    Args:
        item: as read.
        now_ms: ms since the Unix epoch.
        grace_ms: no machine waits longer than this behind the undelete time: where that was
            shorter, it waits by its own clock.
    """
    latest = item.undelete_until + grace_ms + OVERDUE_MS
    return item.state is StreamState.DELETING and now_ms > latest


def reason_again(item: CatalogItem, *, now_ms: int) -> str:
    """As `reason`, for a machine that takes an overdue tombstone up again: one an hour."""
    return f"{reason(item)}-{now_ms // OVERDUE_MS}"
