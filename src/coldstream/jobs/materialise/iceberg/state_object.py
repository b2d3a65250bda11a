"""Which state object says what an Iceberg table holds: that of its current snapshot.

Each snapshot of ours names its state object in its summary, so a table that is rolled back has the
state of the snapshot that it went back to. A snapshot that is not ours (compaction) has what its
parent had. Expiry may take our snapshots away and leave only such ones; then a property counts, but
only if it is about a snapshot of this very history:

    coldstream.snapshot = "<id of a snapshot> <URL of the state object that it has>"

Each append sets it, and each load that finds a snapshot of others on top. What cannot be known is
refused: a guess loses rows, or doubles them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.jobs.materialise.iceberg.catalog_answers import answers
from coldstream.jobs.materialise.state import MAX_STATE_BYTES, TableState, parse_state
from coldstream.jobs.materialise.table import Append

STATE_PROPERTY = "coldstream.state"
SNAPSHOT_PROPERTY = "coldstream.snapshot"
APPEND_PROPERTY = "coldstream.append-id"
#: The most streams whose next offset a summary names; beyond that the state object has to do.
_MAX_NAMED = 100
#: In the summary of a snapshot that repeats another one's change: Iceberg's cherry-picking.
_PICKED = "source-snapshot-id"


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where the state of a table is.

    Attributes:
        url: of the state object; None if the table never had a snapshot, or has none now.
        own: whether the current snapshot or the properties say so for it, not one of its ancestors.
    """

    url: str | None
    own: bool = True


@dataclass(frozen=True, slots=True)
class StatePlace:
    """Where state objects lie.

    Attributes:
        url: below which new ones go, for catalogs that have a table's own place swept by others; ""
            for the table's own place.
        io: that reads and writes them then.
    """

    url: str = ""
    io: FileIO | None = None

    def io_of(self, table: Table) -> FileIO:
        """What reads and writes those of a table."""
        return self.io or table.io

    def below(self, table: Table) -> str:
        """URL below which those of a table go, without "/" at the end; of no other table."""
        if self.url:
            return f"{self.url}/{table.metadata.table_uuid}"
        return f"{table.location().rstrip('/')}/coldstream"


#: Each table's own.
OWN_PLACE = StatePlace()


def history(metadata: TableMetadata) -> Iterator[Snapshot]:
    """The current snapshot, its parent, and so on, as far as they have not expired."""
    return ancestry(
        {each.snapshot_id: each for each in metadata.snapshots}, metadata.current_snapshot_id
    )


def standing(metadata: TableMetadata, name: str) -> frozenset[str]:
    """The values that a property has in the snapshots which the table stands on.

    The table's own property counts, too, as its snapshot may have expired; unless the snapshot is
    there and was undone.

    Args:
        metadata: of the table.
        name: of a property of its snapshots and, of the last one, of the table.
    """
    stand = {each.snapshot_id for each in history(metadata)}
    found, undone = set[str](), set[str]()
    for snapshot in metadata.snapshots:
        if snapshot.summary is not None:
            value = snapshot.summary.additional_properties.get(name, "")
            (found if snapshot.snapshot_id in stand else undone).add(value)
    last = metadata.properties.get(name, "")
    return frozenset((found | ({last} - undone)) - {""})


def ancestry(by_id: Mapping[int, Snapshot], head: int | None) -> Iterator[Snapshot]:
    """A snapshot, its parent, and so on, as far as they are there; each once, even in a circle."""
    seen: set[int] = set()
    while head is not None and head in by_id and head not in seen:
        seen.add(head)
        yield by_id[head]
        head = by_id[head].parent_snapshot_id


def state_of(snapshot: Snapshot) -> str:
    """URL of the state object that a snapshot itself names; "" if it names none."""
    return _said(snapshot, STATE_PROPERTY) or ""


def find_pointer(name: str, metadata: TableMetadata) -> Pointer:
    """Which state object counts for the current snapshot.

    Args:
        name: of the table, for errors.
        metadata: of the table.

    Raises:
        CorruptDataError: nobody can know; says what to do.
    """
    current = metadata.current_snapshot_id
    if current is None:
        return Pointer(None)
    properties = metadata.properties
    known = properties.get(STATE_PROPERTY)
    noted_id, _, noted = properties.get(SNAPSHOT_PROPERTY, "").partition(" ")
    if (
        known is None
        and not noted
        and not any(_said(each, STATE_PROPERTY) for each in history(metadata))
    ):
        raise CorruptDataError(
            f"the table {name} has rows, but its property {STATE_PROPERTY} is gone:"
            " nobody knows which offsets it holds"
        )
    parent: int | None = None
    for snapshot in history(metadata):
        own = snapshot.snapshot_id == current
        if noted and noted_id == str(snapshot.snapshot_id):
            return Pointer(noted, own)
        said = _said(snapshot, STATE_PROPERTY)
        if said is not None:
            return Pointer(said, own)
        append = _said(snapshot, APPEND_PROPERTY)
        if append is not None:
            # Made when only the properties named the state: that of the last append.
            if known is not None and properties.get(APPEND_PROPERTY) == append:
                return Pointer(known, own)
            raise _unknown(name, current, known)
        if _said(snapshot, _PICKED) is not None:
            raise _unknown(name, current, known)
        parent = snapshot.parent_snapshot_id
    if noted and noted_id == str(parent):
        return Pointer(noted, own=False)
    raise _unknown(name, current, known)


def note(snapshot_id: int, url: str) -> dict[str, str]:
    """The property that says which state a snapshot has."""
    return {SNAPSHOT_PROPERTY: f"{snapshot_id} {url}"}


def summary_of(append: Append, state: TableState) -> dict[str, str]:
    """What the summary of a snapshot says of the append that made it.

    Args:
        append: the change.
        state: of the table after it.
    """
    said = {APPEND_PROPERTY: append.id}
    for stream in sorted(append.covered)[:_MAX_NAMED]:
        if known := state.of(stream):
            said[f"coldstream.next-offset.{stream}"] = str(known.spans[-1][1])
    return said


def read_state(io: FileIO, pointer: Pointer) -> TableState:
    """The state object.

    Raises:
        CorruptDataError: it is gone or damaged.
    """
    if pointer.url is None:
        return TableState()
    source = io.new_input(pointer.url)
    try:
        if len(source) > MAX_STATE_BYTES:
            raise CorruptDataError(f"a state of {len(source)} bytes", key=pointer.url)
        with source.open() as data:
            return parse_state(data.read())
    except FileNotFoundError as exc:
        raise CorruptDataError("the state of a table is gone", key=pointer.url) from exc
    except CorruptDataError as exc:
        raise exc.located(key=pointer.url) from exc.__cause__


def write_state(name: str, io: FileIO, url: str, state: TableState) -> None:
    """Write a state object, which nothing names yet.

    Args:
        name: of the table, for errors.
        io: of the place.
        url: of the object; new.
        state: what it says.

    Raises:
        InvalidInputError: the state is larger than one that can be read again.
        UnavailableError, PermissionDeniedError: from the place.
    """
    data = state.encode()
    if len(data) > MAX_STATE_BYTES:
        raise InvalidInputError(
            f"what the table {name} would have to know of its {len(state.covered)} streams takes"
            f" {len(data)} bytes, more than {MAX_STATE_BYTES}: give some of them another table"
        )
    with answers(name), io.new_output(url).create() as out:
        out.write(data)


def _said(snapshot: Snapshot, name: str) -> str | None:
    if snapshot.summary is None:
        return None
    return snapshot.summary.additional_properties.get(name)


def _unknown(name: str, current: int, known: str | None) -> CorruptDataError:
    return CorruptDataError(
        f"nobody knows which offsets the table {name} holds: its current snapshot {current} was not"
        " made by coldstream or is an old one, and no ancestor that is left says it. If nothing was"
        f" rolled back since the last run, set the property {SNAPSHOT_PROPERTY} of the table to"
        f" '{current} {known or '<URL of its state>'}'; if it was, name the state that the table"
        " went back to, or make a snapshot of coldstream the current one"
    )
