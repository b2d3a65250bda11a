"""Every entry of a manifest's tree in offset order, whatever is broken in it.

Unlike the walks of `manifest.tree` this one does not stop at a group that is gone or damaged, and
shows the dead part of the first group too, because sums can only be checked with it. It holds one
path of the tree at a time: three nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coldstream.errors import CorruptDataError, NotFoundError
from coldstream.manifest.entries import Entries, Entry
from coldstream.manifest.node import Node
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch
from coldstream.names import group_path


@dataclass(frozen=True, slots=True)
class Visited:
    """One entry of the tree. A group that can be read comes before what lies below it.

    Attributes:
        entry: as its parent has it.
        node: the group; None for fragments, holes, and groups that were not entered.
        error: why a live group could not be entered, None if that is not the case.
        dead: whether all of it lies below the first offset; dead groups are not entered.
    """

    entry: Entry
    node: Node | None = None
    error: NotFoundError | CorruptDataError | None = None
    dead: bool = False

    @property
    def live_end(self) -> bool:
        """Whether the walk went no deeper here although there is something alive."""
        return self.node is None and not self.dead


def walk(root: Root, fetch: Fetch) -> Iterator[Visited]:
    """All entries below `root`; what `fetch` raises but these two errors is raised."""
    yield from _walk(root.entries, root.first_offset, fetch)


def _walk(entries: Entries, first_offset: int, fetch: Fetch) -> Iterator[Visited]:
    for entry in entries:
        if entry.next_offset <= first_offset:
            yield Visited(entry, dead=True)
        elif not entry.kind.level:
            yield Visited(entry)
        else:
            try:
                node = fetch(entry)
            except (NotFoundError, CorruptDataError) as error:
                yield Visited(entry, error=error)
                continue
            yield Visited(entry, node)
            yield from _walk(node.entries, first_offset, fetch)


def object_path(prefix: str, stream: str, entry: Entry) -> str:
    """The key of the fragment, hole or group that an entry stands for."""
    if entry.kind.level:
        return group_path(prefix, stream, entry.first_offset, entry.uid, entry.kind)
    return entry.data_key(stream).path(prefix)


def refers(root: Root, offset: int, key: str, prefix: str, stream: str, fetch: Fetch) -> bool:
    """Whether an entry on the path from `root` to `offset` stands for the object under `key`.

    Raises:
        NotFoundError, CorruptDataError: a group above it cannot be read.
    """
    if not root.first_offset <= offset < root.next_offset:
        return False
    entries = root.entries
    while True:
        number = entries.number_of_offset(offset)
        if number is None:
            return False
        entry = entries[number]
        if object_path(prefix, stream, entry) == key:
            return True
        if not entry.kind.level:
            return False
        entries = fetch(entry).entries
