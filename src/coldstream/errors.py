"""The error tree, grouped by what the caller should do about an error.

    ColdstreamError
    ├── InvalidInputError      fix what you asked for           (usage; also a ValueError)
    ├── NotFoundError          the thing named does not exist   (also a LookupError)
    ├── CorruptDataError       bytes are damaged: repair or restore them, never guess
    │   └── RefusedFragmentError   a fragment that must not enter a manifest
    ├── UnknownVersionError    a later release wrote it: upgrade this program, nothing is damaged
    ├── ConflictError          another writer won: read again, decide again, try again
    │   ├── AlreadyExistsError     the key is taken by another write
    │   ├── FencedError            a higher epoch has claimed the stream: stop writing
    │   └── ForeignBucketError     the catalog knows a manifest, the bucket nothing of it
    ├── UnknownOutcomeError    it may have landed: read back, never clean up
    ├── UnavailableError       the network or the service: try again later
    │   └── NotKeptError           no cache has it, and nobody else may be asked
    ├── PermissionDeniedError  ask for the right
    ├── DivergedError          local and remote history differ; nothing was changed
    ├── LostRangeError         local retention took data before it was uploaded: raise retention
    │   └── CoversLessError        a new manifest would have less than there is: look, then say so
    └── InternalError          our bug

Messages name the stream, the offset and the key wherever those are known. `kind` is stable and
append-only; nothing ever decides on the text of a message.
"""

from __future__ import annotations

from enum import StrEnum


class ErrorKind(StrEnum):
    """Stable codes of errors, for logs, metrics and `--json` output."""

    INVALID_INPUT = "invalid_input"
    NOT_FOUND = "not_found"
    CORRUPT_DATA = "corrupt_data"
    REFUSED_FRAGMENT = "refused_fragment"
    CONFLICT = "conflict"
    ALREADY_EXISTS = "already_exists"
    FENCED = "fenced"
    UNKNOWN_OUTCOME = "unknown_outcome"
    UNAVAILABLE = "unavailable"
    PERMISSION_DENIED = "permission_denied"
    DIVERGED = "diverged"
    LOST_RANGE = "lost_range"
    INTERNAL = "internal"
    COVERS_LESS = "covers_less"
    UNKNOWN_VERSION = "unknown_version"


class ColdstreamError(Exception):
    """Base of every error that coldstream raises on purpose.

    Args:
        message: what failed and why, in one sentence.
        stream: directory name of the stream, if known.
        offset: offset in the stream, if known.
        key: object key or file path, if known.
        remedy: what to try, where more is known of it than `kind` says.

    Attributes:
        kind: stable code.
        may_retry: whether the same call may succeed later, with nothing changed.
    """

    kind: ErrorKind = ErrorKind.INTERNAL
    may_retry: bool = False
    remedy: str | None = None

    def __init__(
        self,
        message: str,
        *,
        stream: str | None = None,
        offset: int | None = None,
        key: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.reason = message
        self.stream = stream
        self.offset = offset
        self.key = key
        if remedy is not None:
            self.remedy = remedy
        super().__init__(message)

    def __str__(self) -> str:
        where = [
            f"{name} {value}"
            for name, value in (("stream", self.stream), ("offset", self.offset), ("key", self.key))
            if value is not None
        ]
        return f"{self.reason} ({', '.join(where)})" if where else self.reason

    def located(
        self, *, stream: str | None = None, offset: int | None = None, key: str | None = None
    ) -> ColdstreamError:
        """Fill in the places that are still unknown; returns self, to be raised again."""
        self.stream = self.stream if self.stream is not None else stream
        self.offset = self.offset if self.offset is not None else offset
        self.key = self.key if self.key is not None else key
        return self


class InvalidInputError(ColdstreamError, ValueError):
    """The request itself is wrong."""

    kind = ErrorKind.INVALID_INPUT


class NotFoundError(ColdstreamError, LookupError):
    """The stream, object or item named does not exist."""

    kind = ErrorKind.NOT_FOUND


class CorruptDataError(ColdstreamError):
    """Bytes that break their format: truncated, flipped, or lying about a length."""

    kind = ErrorKind.CORRUPT_DATA


class RefusedFragmentError(CorruptDataError):
    """A fragment that was left out of the manifest because its trailer does not hold."""

    kind = ErrorKind.REFUSED_FRAGMENT


class UnknownVersionError(ColdstreamError):
    """An object of a format that this release does not know yet.

    No CorruptDataError: whoever mends, passes over or gives up what is damaged must not do it here.
    """

    kind = ErrorKind.UNKNOWN_VERSION
    remedy = "it is not damaged: use the release that wrote it, or a later one"


class ConflictError(ColdstreamError):
    """Another writer was first."""

    kind = ErrorKind.CONFLICT
    may_retry = True


class AlreadyExistsError(ConflictError):
    """The key exists and was not written by this very write."""

    kind = ErrorKind.ALREADY_EXISTS
    may_retry = False


class FencedError(ConflictError):
    """A higher epoch owns the stream; this writer must stop."""

    kind = ErrorKind.FENCED
    may_retry = False


class ForeignBucketError(ConflictError):
    """The catalog knows a manifest of the stream, and the bucket has no object of it at all."""

    may_retry = False
    remedy = (
        "check the bucket, the table and the prefix. If they are right, an earlier run had another"
        " bucket: bring the stream's objects from there, as docs/how-to/run-the-agent.md says, and"
        " run this again. If this bucket was emptied, restore it: the manifest cannot be made from"
        " the catalog"
    )


class UnknownOutcomeError(ColdstreamError):
    """A write whose answer was lost: it may or may not have landed."""

    kind = ErrorKind.UNKNOWN_OUTCOME


class UnavailableError(ColdstreamError):
    """The service or the network did not answer properly; nothing is known to be wrong."""

    kind = ErrorKind.UNAVAILABLE
    may_retry = True


class NotKeptError(UnavailableError):
    """No cache has what was asked for, and the read policy allows nobody else."""

    may_retry = False
    remedy = "read it once under another read policy, with the same cache"


class PermissionDeniedError(ColdstreamError):
    """The credentials lack a right."""

    kind = ErrorKind.PERMISSION_DENIED


class DivergedError(ColdstreamError):
    """The remote tier and the local log hold different history at the same offsets."""

    kind = ErrorKind.DIVERGED


class LostRangeError(ColdstreamError):
    """The local log begins above the remote tier's end: the range between is in neither."""

    kind = ErrorKind.LOST_RANGE


class CoversLessError(LostRangeError):
    """A manifest made anew has less than the old one, or than the bucket shows."""

    kind = ErrorKind.COVERS_LESS


class InternalError(ColdstreamError):
    """A rule of our own was broken."""

    kind = ErrorKind.INTERNAL
