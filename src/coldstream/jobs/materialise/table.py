"""A table that takes files, and the one change that makes them part of it: the port.

The promise: the files of an `Append` and the offsets that they cover become visible in one step, or
not at all, and only if nobody has changed the table since it was read. The conformance
suite is `coldstream_devkit.suites.table`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Protocol

import pyarrow as pa

from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.state import ByEpoch, TableState, Ticket
from coldstream.names import MAX_OFFSET

_NONE: Mapping[str, Ranges] = MappingProxyType({})
_NO_EPOCHS: Mapping[str, int] = MappingProxyType({})
_NO_TICKETS: Mapping[str, Ticket] = MappingProxyType({})
_NO_STANDS: Mapping[str, ByEpoch] = MappingProxyType({})


class AppendOutcome(StrEnum):
    """How an append ended, where that is known."""

    LANDED = "landed"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file that a worker wrote; nobody sees it before a commit names it.

    Attributes:
        path: URL, below the table's location.
        size: bytes.
        rows: how many.
        stream: of all its rows; None where the table's streams share files.
        time_unit: hours or days since the Unix epoch of all its rows, as the table is partitioned,
            or their bucket; None where it is not.
        first_offset: lowest offset in it.
        last_offset: highest offset in it.
        footer: the file's own metadata, as a Parquet file without rows; nothing where the file
            never becomes part of a table.
        in_order: whether its rows are in the order of stream and offset.
    """

    path: str
    size: int
    rows: int
    stream: str | None
    time_unit: int | None
    first_offset: int
    last_offset: int
    footer: bytes
    in_order: bool = False


@dataclass(frozen=True, slots=True)
class Append:
    """One change of a table.

    Attributes:
        id: of this change, unique.
        files: new ones.
        covered: offsets by stream that the table has after it and had not before.
        lost: those of them that existed nowhere any more.
        replaces: offsets by stream whose rows go away in the same step.
        removes: files of the table, by path, that go away in the same step.
        epochs: of the manifests that `covered` was read from, by stream, where known.
        forgets: offsets by stream that the table has to read again, and whose rows stay until then;
            what is in `covered`, it has again.
        begins: by stream of which the table has nothing: the offset where it begins from now on.
        in_order: whether `covered` must go on where that ends which the table has of a stream.
        tickets: that the table has after it, by stream: see `window_commit`.
        owes: offsets by stream that the table has and that the next run has to make anew.
        pays: offsets by stream among `replaces` that the table must owe still.
        stands: by stream and epoch, what it has and no claim up to `epochs` has cut off.
    """

    id: str
    files: Sequence[WrittenFile] = ()
    covered: Mapping[str, Ranges] = field(default_factory=lambda: _NONE)
    lost: Mapping[str, Ranges] = field(default_factory=lambda: _NONE)
    replaces: Mapping[str, Ranges] = field(default_factory=lambda: _NONE)
    removes: Sequence[str] = ()
    epochs: Mapping[str, int] = field(default_factory=lambda: _NO_EPOCHS)
    forgets: Mapping[str, Ranges] = field(default_factory=lambda: _NONE)
    in_order: bool = False
    begins: Mapping[str, int] = field(default_factory=lambda: _NO_EPOCHS)
    tickets: Mapping[str, Ticket] = field(default_factory=lambda: _NO_TICKETS)
    owes: Mapping[str, Ranges] = field(default_factory=lambda: _NONE)
    pays: Mapping[str, Ranges] = field(default_factory=lambda: _NONE)
    stands: Mapping[str, ByEpoch] = field(default_factory=lambda: _NO_STANDS)

    def on(self, state: TableState) -> TableState:
        """What a table knows after this change, if it knew `state` before."""
        if self.forgets:
            state = state.without(self.forgets, self.replaces)
        return state.with_more(
            self.covered, self.lost, self.epochs, self.begins, self.tickets, self.owes, self.stands
        )


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a table.

    Attributes:
        path: URL.
        size: bytes.
        rows: how many.
        stream: of all its rows; None where streams may share it.
        time_unit: as in `WrittenFile`.
        first_offset: lowest offset in it.
        last_ms: latest time in it, ms since the Unix epoch; None if it has no rows with a time.
        partly: others have deleted rows of it, which it still has.
        last_offset: highest offset in it, where that is known.
        low_stream: it has no row of a stream before this one.
    """

    path: str
    size: int
    rows: int
    stream: str | None
    time_unit: int | None
    first_offset: int
    last_ms: int | None
    partly: bool = False
    last_offset: int = MAX_OFFSET - 1
    low_stream: str = ""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A table at one moment.

    Attributes:
        schema: its columns; Iceberg's have their ids in the fields' metadata.
        state: what it has of which stream.
        location: URL below which its files lie, without a "/" at the end.
        appended: ids of appends that are known to have landed, at least the last one.
        handle: what the implementation needs to know.
    """

    schema: pa.Schema
    state: TableState
    location: str
    appended: frozenset[str]
    handle: Any


@dataclass(frozen=True, slots=True)
class Versions:
    """What is left when versions of a table are forgotten.

    Attributes:
        forgotten: how many were.
        needed: URLs of the files that the others refer to, and maybe of more.
    """

    forgotten: int
    needed: Collection[str]


class Table(Protocol):
    """One table. Every method may raise UnavailableError and PermissionDeniedError."""

    name: str

    def load(self, first_schema: pa.Schema) -> Loaded:
        """The table now; created with these columns if it does not exist.

        Raises:
            CorruptDataError: its state is damaged, or nobody knows any more which one counts.
            ConflictError: a person set it back to an earlier moment since it was loaded last.
            InvalidInputError: a table of this name exists and is not one of ours.
        """
        ...

    def peek(self) -> Loaded | None:
        """The table now; None if it does not exist. Changes nothing, so nothing may be appended.

        Raises:
            CorruptDataError, InvalidInputError: as `load`.
        """
        ...

    def grow(self, loaded: Loaded, schema: pa.Schema) -> Loaded:
        """Add the columns of `schema` that the table lacks, and make wider those that it has wider.

        As `schema.grown` says: also inside of objects, and also if the table has changed since
        `loaded`. A column that has another type than `schema` says and cannot become that one,
        because another writer was quicker, keeps its type.

        Raises:
            UnavailableError: other changes were quicker, again and again.
        """
        ...

    def append(self, loaded: Loaded, append: Append) -> AppendOutcome:
        """Make files part of the table if it is as it was when `loaded` was read.

        Also where only files go away. A file in `removes` that is no longer there is a conflict.

        Raises:
            UnknownOutcomeError: it may have landed: the network or a service gave no answer.
        """
        ...

    def forget(self, loaded: Loaded, before_ms: int, *, dry_run: bool = False) -> Versions | None:
        """Forget the versions that were replaced before a time; what the others need.

        Nothing is deleted here. What is needed is known of the table as it is after the call, not
        as it was loaded.

        Args:
            loaded: the table.
            before_ms: ms since the Unix epoch.
            dry_run: change nothing, and say what would be.

        Returns:
            None if another writer has changed the table.

        Raises:
            CorruptDataError: what the others need cannot be read.
            InvalidInputError: the table's own settings forbid it.
        """
        ...

    def files(self, loaded: Loaded) -> list[StoredFile]:
        """The files of the table as it was loaded."""
        ...

    def count(self, loaded: Loaded, stream: str, ranges: Ranges) -> int:
        """How many rows of a stream have an offset in `ranges`, which are some hundreds at most."""
        ...

    def rows(self, loaded: Loaded, path: str) -> Iterator[pa.RecordBatch]:
        """The rows of one of its files that are in the table, with its present columns."""
        ...
