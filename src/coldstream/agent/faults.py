"""The agent's own errors: each kind of `coldstream.errors`, with what to do about it here.

    CorruptDataError
    └── DamagedFileError    a file of the local log is damaged, not the remote tier
    LostRangeError
    └── LostLocallyError    the local log lacks what was never uploaded
    UnavailableError
    └── StuckManifestError  the uploads are there, and no commit takes them
    ConflictError
    └── DeletedStreamError  the stream has a tombstone
    InvalidInputError
    └── NoDirectoryError    the data directory is not there, or is none
    PermissionDeniedError
    └── ClosedDirectoryError  nor may it be read

`remedy` is what the command line says after "try:".
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from coldstream.agent.disk.log import LoneSegmentError, StreamLog
from coldstream.errors import (
    ColdstreamError,
    ConflictError,
    CorruptDataError,
    ForeignBucketError,
    InvalidInputError,
    LostRangeError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.osiris.segment import parse_segment_name


class DamagedFileError(CorruptDataError):
    """A segment or index file of the local log is damaged."""

    remedy = (
        "the file is this node's own: run the agent of another member, which uploads the range from"
        " its replica, or delete this replica and let the broker copy it anew; then run this agent"
        " again"
    )


class NoDirectoryError(InvalidInputError):
    """The data directory cannot be read."""

    remedy = (
        "give the directory that holds one directory a stream, such as"
        " /var/lib/rabbitmq/mnesia/NODE/stream"
    )


class ClosedDirectoryError(PermissionDeniedError):
    """The data directory may not be read by whoever runs the agent."""

    remedy = (
        "run it as a user of the group that the broker's files have, which is rabbitmq in the"
        " packages; `coldstream doctor` says what denies"
    )


_THERE = (
    "what is before it is uploaded: let another member's agent upload the rest, or restore this"
    " replica"
)
_HELD = (
    "the broker has removed the file since: this agent holds it open, and may be all that has it"
)
_LET_GO = (
    "run the agent of another member that has the range; if none has it, restart this agent: it"
    " lets go of what the broker has removed, what nobody has becomes a hole, and the stream goes"
    " on"
)

#: A deletion goes on for seconds, and takes files in any order; what is left behind is damage.
_REMOVAL_SECONDS = 10.0


@dataclass(slots=True)
class LoneSegments:
    """Says of one stream whether a segment without its index is damage yet."""

    _key: str | None = None  # of the segment that was seen last
    _since: float = 0.0

    def judged(self, error: ColdstreamError, now: float, *, anew: bool) -> ColdstreamError:
        """The error, or one that may pass by itself.

        Args:
            error: of a look.
            now: monotonic seconds.
            anew: whether the stream went on at the look before.
        """
        if not isinstance(error, LoneSegmentError):
            return error
        if anew or error.key != self._key:
            self._key, self._since = error.key, now
        if now - self._since >= _REMOVAL_SECONDS:
            return error
        return UnavailableError(
            "a segment without its index, as while a directory is removed; it is looked at again",
            stream=error.stream,
            offset=error.offset,
            key=error.key,
        )


def unreadable(data_dir: Path, exc: OSError) -> ColdstreamError:
    """What to say of a data directory that cannot be read."""
    kind = ClosedDirectoryError if isinstance(exc, PermissionError) else NoDirectoryError
    words = f"the data directory cannot be read: {exc.strerror or exc}"
    return kind(words, key=str(data_dir))


class LostLocallyError(LostRangeError):
    """The local log begins above what was uploaded.

    Args:
        message: what is missing.
        remedy: who may have it, and what to do if nobody has.
        stream: directory name.
        offset: the first that is missing.
        key: path of a file concerned.
        until: when to look again, monotonic seconds; None for the usual time.
    """

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "look for the range on the stream's other nodes",
        stream: str | None = None,
        offset: int | None = None,
        key: str | None = None,
        until: float | None = None,
    ) -> None:
        super().__init__(message, stream=stream, offset=offset, key=key, remedy=remedy)
        self.until = until


class StuckManifestError(UnavailableError):
    """What was uploaded does not enter the manifest."""

    remedy = (
        "look at the commit function's log, its queue and its dead-letter queue, and compare its"
        " bucket and prefix with the agent's; `coldstream reconcile STREAM` commits by hand"
    )


class DeletedStreamError(ConflictError):
    """The stream was deleted from the remote tier."""

    remedy = (
        "`coldstream undelete STREAM` calls a deletion off while its undelete time runs; else stop"
        " the queue on the broker, or leave its directory out of what the agent follows"
    )


def explained(error: ColdstreamError, log: StreamLog, where: str) -> ColdstreamError:
    """`error`, or one that says more: of a file of this log, or of a bucket that is not the right.

    Args:
        error: to be told.
        log: the directory.
        where: what to call the bucket.
    """
    if isinstance(error, ForeignBucketError):
        return ForeignBucketError(
            f"{error.reason} (this agent has {where})",
            stream=error.stream,
            offset=error.offset,
            key=error.key,
        )
    if isinstance(error, CorruptDataError) and error.key:
        if Path(error.key).parent != log.directory:
            return error
        held = _is_removed(log, error.key)
        return DamagedFileError(
            f"{error.reason}; the local log is damaged there, and {_HELD if held else _THERE}",
            stream=error.stream,
            offset=error.offset,
            key=error.key,
            remedy=_LET_GO if held else DamagedFileError.remedy,
        )
    return error


def _is_removed(log: StreamLog, key: str) -> bool:
    """Whether a segment's file is only held any more."""
    try:
        return not log.is_there(parse_segment_name(Path(key).name))
    except (InvalidInputError, OSError):
        return False


def check_not_deleted(item: CatalogItem) -> None:
    """Return unless the stream has a tombstone.

    Raises:
        DeletedStreamError: it has.
    """
    if not item.state.is_tombstone:
        return
    if item.state is StreamState.DELETING:
        words = (
            "the stream is being deleted from the remote tier, and takes no uploads; `coldstream"
            f" undelete {item.stream}` calls that off while its undelete time runs"
        )
    else:
        words = (
            "the stream was deleted from the remote tier, and its undelete time is over: it takes"
            f" no uploads, and `coldstream undelete {item.stream}` would not bring it back"
        )
    raise DeletedStreamError(words, stream=item.stream)
