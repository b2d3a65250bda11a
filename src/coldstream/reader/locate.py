"""Look-ups in a manifest: from a spec to the offset at which a read begins.

Osiris's boundary rules, on top of the look-ups in the tree (`manifest.tree`):

    below the first offset   -> the first retained chunk
    inside a chunk           -> that chunk
    at or above next offset  -> the end: nothing yet, the read waits there
    a time                   -> the first chunk at or after it, though clocks may have fallen
    a time after all chunks  -> the end

Which chunk of a fragment it is only its index (times) or its chunk headers (`last`) can tell, so
for those two specs there are candidates, in the order in which they are to be tried. Where these
are damaged a reader that gives what can be read may begin before the damage and end behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto

from coldstream.errors import CorruptDataError
from coldstream.fragment import FragmentIndex
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch, fragments_reaching, leaves, leaves_backwards
from coldstream.reader.objects import StreamObjects
from coldstream.reader.spec import First, Last, Next, Offset, OffsetSpec, Timestamp
from coldstream.remote.roots import Glance, Snapshot


class Edge(Enum):
    """What of a range an offset is."""

    START = auto()
    END = auto()


def offset_of(
    root: Root, spec: OffsetSpec, objects: StreamObjects, edge: Edge | None = None
) -> int:
    """The offset that a spec means, within [first, next] of `root`.

    The chunk that contains it is the first to be read; `root.next_offset` means the end: there is
    nothing yet.

    Args:
        root: of the stream.
        spec: that is asked for.
        objects: of the stream.
        edge: for a range that is to have what is damaged and may be meant, so that whoever reads it
            is told: a start is then that of the damage, an end lies behind its fragment. By
            default such damage is an error.

    Raises:
        NotFoundError: an object of the manifest is gone.
        CorruptDataError: an object of the manifest is damaged.
        UnavailableError, PermissionDeniedError: from the adapters.
    """
    match spec:
        case First():
            return root.first_offset
        case Next():
            return root.next_offset
        case Offset(value):
            return min(max(value, root.first_offset), root.next_offset)
        case Timestamp(value):
            found = _of_time(root, value, objects, edge)
        case Last():
            found = _of_last(root, objects, edge)
    return root.next_offset if found is None else max(found, root.first_offset)


def _of_time(root: Root, value: int, objects: StreamObjects, edge: Edge | None) -> int | None:
    """Of the first chunk at or after a time; None if there is none."""
    for entry in fragments_reaching(root, value, objects.groups):
        try:
            index = objects.fragments.open(entry).index
        except CorruptDataError:
            if edge is None:
                raise
            if edge is Edge.START or entry.min_timestamp >= value:
                return entry.first_offset
            if entry.first_offset < root.first_offset:
                continue  # the chunk may be one that retention took
            return entry.next_offset
        number = chunk_reaching(index, value, root.first_offset)
        if number is not None:
            return index[number].chunk_id
    return None


def _of_last(root: Root, objects: StreamObjects, edge: Edge | None) -> int | None:
    """Of the last chunk with messages; None if there is none."""
    for entry in fragments_backwards(root, objects.groups):
        try:
            opened = objects.fragments.open(entry)
            number = objects.fragments.last_user_chunk(opened)
        except CorruptDataError as error:
            if edge is None:
                raise
            if edge is Edge.END:
                return entry.next_offset
            return max(error.offset or 0, entry.first_offset)
        if number is not None:
            return opened.index[number].chunk_id
    return None


def offset_within(seen: Snapshot | Glance, spec: OffsetSpec, objects: StreamObjects) -> int:
    """As `offset_of`, of a stream whose root is fetched only if its item does not tell enough.

    Raises:
        As `offset_of`; and what fetching the root raises.
    """
    part = seen.old_part
    if isinstance(spec, Next):
        return seen.extent.next_offset
    if part is not None and not isinstance(spec, Last):
        # What comes first in the old part, comes first in the stream.
        found = offset_of(part, spec, objects)
        if found < part.next_offset:
            return found
    return offset_of(seen.root, spec, objects)


def leaves_between(root: Root, start: int, end: int, fetch: Fetch) -> Iterator[Entry]:
    """Fragments and holes from the one that contains `start` to the one that reaches `end`.

    Groups are fetched one by one, when their turn has come.
    """
    for leaf in leaves(root, fetch, start=start) if start < end else ():
        yield leaf
        if leaf.next_offset >= end:
            return


def chunk_reaching(index: FragmentIndex, timestamp: int, first_offset: int) -> int | None:
    """Number of the first chunk at or after `timestamp` that is not below `first_offset`.

    None if the fragment's only such chunks lie below the stream's first offset.
    """
    start = index.chunk_of_offset(first_offset)
    for number in range(start, len(index)):
        if index[number].timestamp >= timestamp:
            return number
    return None


def fragments_backwards(root: Root, fetch: Fetch) -> Iterator[Entry]:
    """Fragments from the last to the first; groups are fetched one by one."""
    return (e for e in leaves_backwards(root, fetch) if e.kind is EntryKind.FRAGMENT)
