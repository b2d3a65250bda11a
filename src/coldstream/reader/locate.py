"""Look-ups in a manifest root: from a spec to the entries in which a read may begin.

Pure functions with Osiris's boundary rules:

    below the first offset   -> the first retained chunk
    inside a chunk           -> that chunk
    at or above next offset  -> the end: nothing yet, the read waits there
    a time                   -> the first chunk at or after it, though clocks may have fallen
    a time after all chunks  -> the end

Which chunk of an entry it is only its index (times) or its chunk headers (`last`) can tell, so
those two specs give candidates, in the order in which they are to be tried.
"""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.fragment import FragmentIndex
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.root import Root
from coldstream.reader.spec import First, Next, Offset


def locate(root: Root, spec: First | Next | Offset) -> int:
    """The offset at which a read from `spec` begins, within [first, next] of `root`.

    The chunk that contains it is the first to be read; `root.next_offset` means the end.
    """
    match spec:
        case First():
            return root.first_offset
        case Next():
            return root.next_offset
        case Offset(value):
            return min(max(value, root.first_offset), root.next_offset)


def entries_from(root: Root, offset: int) -> Iterator[Entry]:
    """Entries from the one that contains `offset` on; none if it lies at or above the end."""
    number = root.entries.number_of_offset(max(offset, root.first_offset))
    if number is not None:
        for each in range(number, len(root.entries)):
            yield root.entries[each]


def fragments_reaching(root: Root, timestamp: int) -> Iterator[Entry]:
    """Fragments that hold a chunk at or after `timestamp` (ms), in offset order.

    A hole has no chunk; it carries the maximum before it only to keep look-ups simple.
    """
    number = root.entries.number_of_timestamp(timestamp)
    if number is not None:
        for each in range(number, len(root.entries)):
            entry = root.entries[each]
            if entry.kind is EntryKind.FRAGMENT and entry.max_timestamp >= timestamp:
                yield entry


def chunk_reaching(index: FragmentIndex, timestamp: int, first_offset: int) -> int | None:
    """Number of the first chunk at or after `timestamp` that is not below `first_offset`.

    None if the fragment's only such chunks lie below the stream's first offset.
    """
    start = index.chunk_of_offset(first_offset)
    for number in range(start, len(index)):
        if index[number].timestamp >= timestamp:
            return number
    return None


def fragments_backwards(root: Root) -> Iterator[Entry]:
    """Fragments from the last to the first."""
    for number in range(len(root.entries) - 1, -1, -1):
        entry = root.entries[number]
        if entry.kind is EntryKind.FRAGMENT:
            yield entry
