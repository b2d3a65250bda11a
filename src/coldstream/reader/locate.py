"""Look-ups in a manifest: from a spec to the fragments in which a read may begin.

Osiris's boundary rules, on top of the look-ups in the tree (`manifest.tree`):

    below the first offset   -> the first retained chunk
    inside a chunk           -> that chunk
    at or above next offset  -> the end: nothing yet, the read waits there
    a time                   -> the first chunk at or after it, though clocks may have fallen
    a time after all chunks  -> the end

Which chunk of a fragment it is only its index (times) or its chunk headers (`last`) can tell, so
for those two specs there are candidates, in the order in which they are to be tried.
"""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.fragment import FragmentIndex
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch, leaves, leaves_backwards
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
