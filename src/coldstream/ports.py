"""What the core needs from the world, and how the world may fail.

Every adapter passes the conformance suite of its port in `coldstream.testing`; the in-memory one is
no exception. SDK errors are translated inside the adapter; only errors of `coldstream.errors` come
out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from coldstream.errors import CorruptDataError
from coldstream.fragment import Buffer
from coldstream.manifest.catalog import CatalogItem, Commit, QueueName, StateChange
from coldstream.plans.policy import PolicySet

#: S3's rules for a multipart upload: every part but the last has at least this many bytes, ...
MIN_PART_BYTES = 5 * 2**20
#: ... none has more than this, ...
MAX_PART_BYTES = 5 * 2**30
#: ... and there are at most so many.
MAX_PARTS = 10_000
#: Most keys that one call of `Deleter.delete` takes.
MAX_DELETES = 1000


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


def outcome_of_failed_change(item: CatalogItem | None, change: StateChange) -> CommitOutcome:
    """The same for a change of state: our own uid, the revision that we read, anything else."""
    if item is not None and item.state_token == change.uid:
        return Landed(item)
    if item is None or item.revision == change.read_revision:
        return NotLanded(item)
    return Unknown(item)


def outcome_of_failed_adoption(found: CatalogItem | None, item: CatalogItem) -> CommitOutcome:
    """What a failed condition of an adoption means: ours landed earlier, or it never will.

    An adoption that landed may have been built upon since, so an item of this table whose version
    is ours or higher leaves it unknown.
    """
    if found is not None and found.table_id == item.table_id:
        same = (found.uid, found.state_token) == (item.uid, item.state_token)
        return Landed(found) if same else Unknown(found)
    return NotLanded(found)


@dataclass(frozen=True, slots=True)
class CatalogPage:
    """Some of the catalog's items.

    Attributes:
        items: in no order; may be empty although more follow.
        cursor: where to go on, opaque; None at the end.
        damaged: one error for each item that cannot be read.
    """

    items: tuple[CatalogItem, ...]
    cursor: str | None
    damaged: tuple[CorruptDataError, ...] = ()


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

    def page(self, cursor: str | None, limit: int) -> CatalogPage:
        """At most `limit` (at least 1) of `streams()`, from `cursor` on; one request.

        An item that is there all the while is on exactly one page.

        Raises:
            InvalidInputError: `cursor` is none that this catalog gave.
        """
        ...

    def anchor(self, item: CatalogItem) -> CatalogItem:
        """Create the stream's first item unless there is one; return the one that is there."""
        ...

    def adopt(self, item: CatalogItem, *, replacing: CatalogItem | None) -> CommitOutcome:
        """Put `item` in the place of one that was written to another table, or of none.

        Holds only if there is no item (`replacing` is None), or the one that is there still has the
        table id, version, uid and revision of `replacing`. Landed is told by `item.state_token` and
        `item.uid`. Never raises for an unknown outcome, as `commit`.

        Raises:
            InternalError: the table refuses the request as such; nothing was written.
        """
        ...

    def commit(self, commit: Commit) -> CommitOutcome:
        """Perform a conditional write; see `Commit` for its condition.

        Never raises for an unknown outcome: that is one of the three answers.

        Raises:
            InternalError: the table refuses the request as such; nothing was written.
        """
        ...

    def change_state(self, change: StateChange) -> CommitOutcome:
        """Perform a conditional change of state; see `StateChange` for its condition.

        Never raises for an unknown outcome, as `commit`.

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


class Policies(Protocol):
    """The operator's rules, one document for a cluster.

    Every method may raise UnavailableError (try again) and PermissionDeniedError.
    """

    def load(self) -> tuple[PolicySet, int]:
        """The rules and their revision; no rules and revision 0 where nobody has written any.

        Raises:
            CorruptDataError: there are rules that this release cannot read.
        """
        ...

    def save(self, policies: PolicySet, read_revision: int) -> bool:
        """Put `policies` in the place of revision `read_revision`, as the next revision.

        True if they are in force now. False if another document is: somebody else was first, read
        again and decide again.

        Raises:
            UnknownOutcomeError: no answer; they may still come into force.
        """
        ...


class ExecutionStatus(StrEnum):
    """How far an execution of a workflow is."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a workflow.

    Attributes:
        status: how far it is.
        output: what it gave, a JSON value; None unless it succeeded.
        error: name of the error that ended it, "" if none has.
        cause: the error in words, "" if none was given.
    """

    status: ExecutionStatus
    output: Any = None
    error: str = ""
    cause: str = ""


class Workflows(Protocol):
    """State machines that can be started by name.

    Every method may raise UnavailableError (try again), PermissionDeniedError, and NotFoundError
    where there is no such workflow.
    """

    def start(self, workflow: str, name: str, document: Mapping[str, Any]) -> bool:
        """Start an execution with an input; False if one of that name exists, running or ended.

        The machine may find fields in its input beside those of `document`.

        Raises:
            InvalidInputError: the name or the input is none that a workflow takes.
            UnknownOutcomeError: no answer; it may have been started.
        """
        ...

    def describe(self, workflow: str, name: str) -> Execution:
        """How far an execution is.

        Raises:
            NotFoundError: there is no execution of that name.
        """
        ...


class MetricUnit(StrEnum):
    """What a metric counts, in CloudWatch's words."""

    COUNT = "Count"
    BYTES = "Bytes"
    SECONDS = "Seconds"
    NONE = "None"


@dataclass(frozen=True, slots=True)
class Metric:
    """One value of a metric, now.

    Attributes:
        name: one of names.METRIC_*.
        value: finite.
        unit: of the value.
        dimensions: (name, value) pairs; each combination is a metric of its own.
    """

    name: str
    value: float
    unit: MetricUnit = MetricUnit.COUNT
    dimensions: tuple[tuple[str, str], ...] = ()


class MetricSink(Protocol):
    """Where a job's metrics go; alarms look at them."""

    def put(self, metrics: Sequence[Metric]) -> None:
        """Record values. When this returns, all of them are; a metric sent twice counts twice.

        Raises:
            InvalidInputError: one is none that a sink takes; nothing was recorded.
            UnavailableError, PermissionDeniedError: some may be recorded, and some not.
        """
        ...
