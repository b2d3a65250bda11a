"""What the core needs from the world, and how the world may fail.

Every adapter passes the conformance suite of its port in `coldstream.testing`; the in-memory one is
no exception. SDK errors are translated inside the adapter; only errors of `coldstream.errors` come
out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from coldstream.fragment import Buffer
from coldstream.manifest.catalog import CatalogItem, Commit, QueueName


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

    Every method may raise UnavailableError (try again) and PermissionDeniedError.
    """

    def put(self, key: str, body: Buffer, *, write_id: str) -> None:
        """Create an object; never overwrite one. The store checks the body's checksum.

        `write_id` is stored with the object. When the store says that the key exists, the adapter
        reads it back: if it carries this `write_id`, an earlier attempt of this very write had
        landed and its answer was lost, so the PUT counts as landed, once.

        Raises:
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

    def list(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        """Up to `limit` (at most 1000) objects below `prefix` whose key is > `start_after`, sorted.

        One request. Fewer than `limit` rows mean that the listing ends here.
        """
        ...


@dataclass(frozen=True, slots=True)
class Landed:
    """The commit holds; `item` is what the catalog says now (or said right after it)."""

    item: CatalogItem


@dataclass(frozen=True, slots=True)
class NotLanded:
    """The commit is known not to have happened, and never will."""

    item: CatalogItem | None


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can say: the answer was lost, or the item has moved on since."""

    item: CatalogItem | None


CommitOutcome = Landed | NotLanded | Unknown


def outcome_of_failed_condition(item: CatalogItem | None, commit: Commit) -> CommitOutcome:
    """What a failed condition means, from the item that the table gave back.

    An SDK may repeat a write that had landed and whose answer was lost; the repetition then fails.
    So: our own uid in the item, it landed. The version that we read, it did not land and never
    will. Anything else: ours may have landed and been built upon, nobody can know.
    """
    if item is not None and item.uid == commit.uid:
        return Landed(item)
    if item is None or item.version == commit.read_version:
        return NotLanded(item)
    return Unknown(item)


class Catalog(Protocol):
    """One item a stream, changed only by conditional writes; reads are strongly consistent.

    Every method may raise UnavailableError (try again) and PermissionDeniedError.
    """

    def table_id(self) -> str:
        """Id of the actual table; new after a restore."""
        ...

    def get(self, stream: str) -> CatalogItem | None:
        """The stream's item, or None."""
        ...

    def streams(self) -> Iterator[CatalogItem]:
        """Every stream's item below this catalog's prefix, in no order.

        Raises:
            CorruptDataError: an item cannot be read; raised after all others were given.
        """
        ...

    def anchor(self, item: CatalogItem) -> CatalogItem:
        """Create the stream's first item unless there is one; return the one that is there."""
        ...

    def commit(self, commit: Commit) -> CommitOutcome:
        """Perform a conditional write; see `Commit` for its condition.

        Never raises for an unknown outcome: that is one of the three answers.

        Raises:
            InternalError: the table refuses the request as such; nothing was written.
        """
        ...

    def set_name(self, stream: str, name: QueueName) -> None:
        """Record which queue a directory belongs to; touches nothing that a commit looks at.

        Raises:
            NotFoundError: the stream has no item.
        """
        ...


class CommitRequests(Protocol):
    """A way to ask for a look at a stream when its events seem to be lost."""

    def ask(self, stream: str) -> None:
        """Ask once; the answer is the manifest that moves.

        Raises:
            UnavailableError, PermissionDeniedError: the request did not go out.
        """
        ...
