"""Look-ups and walks in the tree below a root. Groups come from a function that the caller gives.

Every look-up goes down one path: a mega-group, a kilo-group and a group at the most, so three nodes
below the root, each searched in halves. A group whose own entry settles the question (all of it
lies below the first offset, or ends before the time that is asked for) is never fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from coldstream.errors import CorruptDataError
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.node import Node
from coldstream.manifest.root import Head, Root

#: Gives the group that an entry refers to; raises as a GET does.
Fetch = Callable[[Entry], Node]


def leaf_at(root: Root, offset: int, fetch: Fetch) -> Entry | None:
    """The fragment or hole that contains `offset`; None if it lies outside [first, next)."""
    if not root.first_offset <= offset < root.next_offset:
        return None
    return path_to(root.entries, offset, fetch)[-1]


def path_to(entries: Entries, offset: int, fetch: Fetch) -> list[Entry]:
    """The entries from the top down to the fragment or hole that contains `offset`.

    Raises:
        CorruptDataError: no entry contains it, which the tiling of all nodes excludes.
    """
    path: list[Entry] = []
    while True:
        number = entries.number_of_offset(offset)
        if number is None:
            raise CorruptDataError("no entry of the manifest holds this offset", offset=offset)
        path.append(entries[number])
        if not path[-1].kind.level:
            return path
        entries = fetch(path[-1]).entries


def leaves(root: Root, fetch: Fetch, *, start: int = 0) -> Iterator[Entry]:
    """Live fragments and holes in offset order, from the one that contains `start` on."""
    start = max(start, root.first_offset)
    if start < root.next_offset:
        yield from _leaves(root.entries, start, fetch)


def _leaves(entries: Entries, start: int, fetch: Fetch) -> Iterator[Entry]:
    for number in range(entries.number_of_offset(start) or 0, len(entries)):
        entry = entries[number]
        if entry.kind.level:
            yield from _leaves(fetch(entry).entries, start, fetch)
        else:
            yield entry


def over_hole(root: Root, first: int, next_offset: int, fetch: Fetch) -> bool:
    """Whether the live tree has a hole over some of the offsets [first, next_offset)."""
    for leaf in leaves(root, fetch, start=first):
        if leaf.first_offset >= next_offset:
            return False
        if leaf.kind is EntryKind.HOLE:
            return True
    return False


def holes_before(root: Root, offset: int, fetch: Fetch) -> int:
    """Where the holes begin of which the last ends at `offset`; `offset` where none does."""
    while (leaf := leaf_at(root, offset - 1, fetch)) and leaf.kind is EntryKind.HOLE:
        offset = max(leaf.first_offset, root.first_offset)
    return offset


def leaves_backwards(root: Root, fetch: Fetch) -> Iterator[Entry]:
    """Live fragments and holes from the youngest to the oldest."""
    return _backwards(root.entries, root.first_offset, fetch)


def _backwards(entries: Entries, first: int, fetch: Fetch) -> Iterator[Entry]:
    for number in range(len(entries) - 1, -1, -1):
        entry = entries[number]
        if entry.next_offset <= first:
            return  # all before it is dead, and a dead group may be gone
        if entry.kind.level:
            yield from _backwards(fetch(entry).entries, first, fetch)
        else:
            yield entry


def last_bytes(root: Root, size: int, fetch: Fetch) -> int | None:
    """First offset of the fragment with which the youngest live ones come to `size` bytes.

    Fetches one path: three nodes at the most.

    Returns:
        None if all together have fewer.
    """
    entries, number = root.entries, len(root.entries)
    while number:
        number -= 1
        entry = entries[number]
        if entry.next_offset <= root.first_offset:
            return None
        if entry.size < size:
            size -= entry.size
        elif entry.kind.level:
            entries = fetch(entry).entries
            number = len(entries)
        else:
            return entry.first_offset
    return None


def fragments_reaching(root: Root, timestamp: int, fetch: Fetch) -> Iterator[Entry]:
    """Live fragments that hold a chunk at or after `timestamp` (ms), in offset order.

    The first one holds the first such chunk of the whole stream, however clocks have jumped: every
    entry has the maximum of all chunks below it, and the first entry whose maximum reaches the time
    is taken on every level. Only where retention has ended inside the first group may that group's
    maximum belong to a dead fragment; then the search goes on behind it.
    """
    yield from _reaching(root.entries, timestamp, root.first_offset, fetch)


def _reaching(entries: Entries, timestamp: int, first: int, fetch: Fetch) -> Iterator[Entry]:
    number = entries.number_of_timestamp(timestamp)
    if number is None:
        return
    for each in range(number, len(entries)):
        entry = entries[each]
        if entry.max_timestamp < timestamp or entry.next_offset <= first:
            continue
        if entry.kind.level:
            yield from _reaching(fetch(entry).entries, timestamp, first, fetch)
        elif entry.kind is EntryKind.FRAGMENT:
            yield entry


def nodes(entries: Entries, fetch: Fetch, *, first_offset: int = 0) -> Iterator[Entry]:
    """The entries of all groups below `entries` that reach above `first_offset`, parents first.

    A group that lies wholly below it is dead, also where the entry of a living parent still names
    it: nobody fetches it any more, and `collect` takes it.
    """
    for entry in entries:
        if not entry.kind.level:
            return
        if entry.next_offset <= first_offset:
            continue
        yield entry
        if entry.kind is not EntryKind.GROUP:
            yield from nodes(fetch(entry).entries, fetch, first_offset=first_offset)


def head_of(entries: Entries, first_offset: int, fetch: Fetch) -> Head | None:
    """What is alive of the first entry from `first_offset` on; None if it is no group.

    Fetches one path: three nodes at the most.

    Raises:
        CorruptDataError: no entry contains `first_offset`.
    """
    if not len(entries) or not entries[0].kind.level:
        return None
    size = fragments = 0
    level = entries
    while True:
        number = level.number_of_offset(first_offset)
        if number is None:
            raise CorruptDataError("no entry holds the first offset", offset=first_offset)
        if level is not entries:
            for each in range(number):
                size += level[each].size
                fragments += level[each].fragments
        entry = level[number]
        if not entry.kind.level:
            return Head(entry.min_timestamp, entry.max_timestamp, size, fragments)
        level = fetch(entry).entries
