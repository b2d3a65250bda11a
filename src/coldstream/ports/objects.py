"""Objects in a bucket: made once, read in ranges, listed; and who may make them go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from coldstream.errors import UnavailableError
from coldstream.fragment import Buffer

#: S3's rules for a multipart upload: every part but the last has at least this many bytes, ...
MIN_PART_BYTES = 5 * 2**20
#: ... none has more than this, ...
MAX_PART_BYTES = 5 * 2**30
#: ... and how many there are at most.
MAX_PARTS = 10_000
#: Most keys that one call of `Deleter.delete` takes.
MAX_DELETES = 1000
#: No `Deleter.delete` goes on for longer, ms: S3 may carry it out until then, and not afterwards.
#: The longest: four attempts of the adapter, each of them six of the SDK with 25 s and pauses of
#: 20 s between; a Lambda ends after 900 s anyway. Adapters and functions are tested against it.
MAX_DELETE_MS = 1_020_000


class CutShortError(UnavailableError):
    """The link broke, or stood still, while an object was under way; nothing landed.

    Args:
        message: what happened.
        sent: bytes of it that went.
        place: as of every error.
    """

    def __init__(self, message: str, *, sent: int = 0, **place: Any) -> None:
        super().__init__(message, **place)
        self.sent = sent


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One row of a LIST.

    Attributes:
        key: full key.
        size: bytes.
        modified_ms: when the store took it, by the store's clock, in ms since the Unix epoch.
    """

    key: str
    size: int
    modified_ms: int


class ObjectStore(Protocol):
    """Immutable objects under keys; strongly consistent.

    It can neither delete nor compose: `Deleter` and `Composer` are ports of their own, so that a
    signature says who can make objects go (collect and delete stream, nobody else), and because the
    reader's and agent's S3 library copies no parts of objects.

    Every method may raise UnavailableError (try again) and PermissionDeniedError.
    """

    def put(self, key: str, body: Buffer, *, write_id: str, crc: int | None = None) -> None:
        """Create an object; never overwrite one. The store checks the body's checksum.

        `write_id` is stored with the object. When the store says that the key exists, the adapter
        reads it back: if it carries this `write_id`, an earlier attempt of this very write had
        landed and its answer was lost, so the PUT counts as landed, once.

        `crc` is the CRC32 of what the caller has checked, if it has: other bytes are not stored.

        Raises:
            UnavailableError: nothing was stored.
            AlreadyExistsError: another write holds the key.
            UnknownOutcomeError: no answer, and reading back gave none either.
        """
        ...

    def get(self, key: str, start: int, end: int) -> Buffer:
        """Bytes [start, end) of an object, exactly `end - start` of them; start < end.

        Raises:
            NotFoundError: no such object.
            CorruptDataError: the object ends before `end`, wherever the range begins.
        """
        ...

    def get_all(self, key: str, *, limit: int) -> bytes:
        """A whole small object of at most `limit` bytes.

        Raises:
            NotFoundError: no such object.
            CorruptDataError: it is larger than `limit`; nothing larger is ever held in memory.
        """
        ...

    def get_suffix(self, key: str, length: int) -> bytes:
        """The last `length` bytes of an object, or all of a shorter one.

        Raises:
            NotFoundError: no such object.
        """
        ...

    def level(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[str]:
        """What lies directly below `prefix`, of the objects whose key is > `start_after`, sorted.

        A key without another "/" is itself; of all others what they have in common up to and with
        the next "/" is one entry, however many they are. So a folder with a million objects costs
        what an object costs. Up to `limit` (at most 1000) entries, full keys; fewer mean that there
        are no more. To go on behind a folder, give it with "0", the character behind "/", for its
        last character: behind the folder itself S3 would tell it once more.
        """
        ...

    def list(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        """Up to `limit` (at most 1000) objects below `prefix` whose key is > `start_after`, sorted.

        Keys are compared as UTF-8, byte by byte. Every object is a row under exactly its key, also
        one that is no key of ours: a bucket may hold keys with empty, `.` and `..` parts, control
        characters, slashes at the end, and up to 1,024 bytes. Whoever reads the rows parses their
        keys, and passes over those that are not ours.

        One request. Fewer than `limit` rows mean that the listing ends here; so whoever goes on
        behind the last row, odd or not, sees every object and comes to an end.
        """
        ...


@runtime_checkable
class Doubted(Protocol):
    """An object store that may answer with what it has kept, and can be told not to."""

    def doubt(self, key: str) -> None:
        """What it gave of this object does not hold: ask the bucket next time."""
        ...


@runtime_checkable
class KeepingStore(Doubted, Protocol):
    """An object store that keeps what it gave, before another one."""

    @property
    def bucket(self) -> ObjectStore:
        """The other one."""
        ...

    def over(self, bucket: ObjectStore) -> ObjectStore:
        """What is kept here, before yet another store."""
        ...

    def close(self) -> None:
        """Leave the place where it is kept to another one."""
        ...


class Deleter(Protocol):
    """Makes objects go."""

    def delete(self, keys: Sequence[str]) -> list[str]:
        """Delete up to `MAX_DELETES` objects; return the keys that are certainly gone, in order.

        A key that had no object is gone too. What the store refuses or does not speak of is asked
        again a bounded number of times; what is still there then, or may be, is not returned.

        Raises:
            UnavailableError, PermissionDeniedError: no key is certainly gone, for this reason.
            InternalError: too many keys; nothing was sent.
        """
        ...


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """One version of an object, current or not; or a mark that it was deleted.

    Attributes:
        key: full key.
        version: the store's id of it.
        size: bytes; 0 of a mark.
        modified_ms: when the store took it, by the store's clock, in ms since the Unix epoch.
    """

    key: str
    version: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class VersionPage:
    """Some versions, and what the next page is asked for with; None if there is none."""

    rows: tuple[ObjectVersion, ...]
    following: tuple[str, str] | None


class VersionDeleter(Protocol):
    """Makes versions go, so that nobody can have them back: for an erasure, and nothing else.

    Every method may raise UnavailableError (try again) and PermissionDeniedError.
    """

    def versions(
        self, prefix: str, *, after: tuple[str, str] = ("", ""), limit: int = 1000
    ) -> VersionPage:
        """About `limit` (at most 1000) versions and marks below `prefix`, in the order of keys.

        Args:
            prefix: what the keys begin with.
            after: `following` of the page before; or a key alone, with "", and the page begins
                behind that key.
            limit: the most rows.
        """
        ...

    def delete_versions(self, rows: Sequence[ObjectVersion]) -> list[ObjectVersion]:
        """Delete up to `MAX_DELETES` versions for good; those that are certainly gone, in order.

        As `Deleter.delete`, with the same limit of time.

        Raises:
            UnavailableError, PermissionDeniedError: none is certainly gone, for this reason.
            InternalError: too many; nothing was sent.
        """
        ...


@dataclass(frozen=True, slots=True)
class CopyPart:
    """Bytes [start, end) of the object under `key`; start < end."""

    key: str
    start: int
    end: int

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class BytesPart:
    """Bytes that the caller has."""

    data: Buffer

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.data)


Part = CopyPart | BytesPart


class Composer(Protocol):
    """Makes new objects out of pieces of others, without moving the bytes through the caller."""

    def compose(self, key: str, parts: Sequence[Part], *, write_id: str) -> None:
        """Create an object out of `parts`, which obey `check_parts`; never overwrite one.

        `write_id` works as in `ObjectStore.put`. Nothing is left behind after a failure that is
        known not to have landed; after an unknown outcome the bucket's lifecycle rule clears up.

        Raises:
            NotFoundError: a source does not exist; `key` names it.
            CorruptDataError: a source ends before its range does; `key` names it.
            AlreadyExistsError: another write holds the key.
            UnknownOutcomeError: no answer, and reading back gave none either.
            UnavailableError: no answer to an earlier step; nothing landed.
            InternalError: the parts break a rule; nothing was sent.
        """
        ...
