"""Groups of manifests, read through the object store and kept: they never change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from coldstream.errors import CorruptDataError, NotFoundError, UnknownVersionError
from coldstream.manifest.entries import Entry
from coldstream.manifest.node import Node, parse_node
from coldstream.names import group_path
from coldstream.ports import ObjectStore

#: No group is ever larger: 4,096 entries, the greatest branching factor, and room to spare.
MAX_NODE_SIZE = 2**19

#: Entries of all groups in a cache: about 60 MB where every group is full.
MAX_CACHED_ENTRIES = 2**20


class NodeCache:
    """Groups by the entries that refer to them, of all streams; the oldest go first. Thread-safe.

    Args:
        capacity: entries of all groups that are kept.
    """

    def __init__(self, capacity: int = MAX_CACHED_ENTRIES) -> None:
        self._capacity = capacity
        self._size = 0
        self._nodes: OrderedDict[Entry, Node] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, entry: Entry) -> Node | None:
        """The group that was read by way of this very entry, if it is here."""
        with self._lock:
            node = self._nodes.get(entry)
            if node is not None:
                self._nodes.move_to_end(entry)
            return node

    def put(self, entry: Entry, node: Node) -> None:
        """Remember a group, under the entry that it was checked against."""
        with self._lock:
            if self._nodes.pop(entry, None) is None:
                self._size += len(node.entries)
            self._nodes[entry] = node
            while self._size > self._capacity and len(self._nodes) > 1:
                _, oldest = self._nodes.popitem(last=False)
                self._size -= len(oldest.entries)


#: Groups of all streams that this process reads; shared by every reader that has none of its own.
PROCESS_NODES = NodeCache()


def fetcher(
    store: ObjectStore, cache: NodeCache, prefix: str, stream: str
) -> Callable[[Entry], Node]:
    """A function that gives the groups of one stream; see `manifest.tree.Fetch`.

    It raises NotFoundError where the object is gone, CorruptDataError where it is damaged or not
    what the entry says, and what the store raises.
    """

    def fetch(entry: Entry) -> Node:
        known = cache.get(entry)
        if known is not None:
            return known
        key = group_path(prefix, stream, entry.first_offset, entry.uid, entry.kind)
        try:
            node = parse_node(store.get_all(key, limit=MAX_NODE_SIZE), entry)
        except (CorruptDataError, NotFoundError, UnknownVersionError) as exc:
            exc.located(stream=stream, offset=entry.first_offset, key=key)
            raise
        cache.put(entry, node)
        return node

    return fetch
