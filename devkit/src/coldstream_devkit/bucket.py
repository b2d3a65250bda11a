"""A stream's objects in the bucket against what its manifest refers to: nothing missing, no leaks.

Called at the end of tests that have played with a whole remote tier; `coldstream verify` looks at
the same things one page of a LIST at a time. Everything here is held in memory.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.invariants import Violation
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch, leaves, nodes
from coldstream.manifest.walk import object_path
from coldstream.names import stream_prefix
from coldstream.ports import ObjectInfo, ObjectStore
from coldstream_devkit.steps import nothing_leaked, publish_before_delete

_PAGE = 1000


def referenced(prefix: str, item: CatalogItem, root: Root, fetch: Fetch) -> set[str]:
    """Keys of all objects that the item, its root and the tree below refer to.

    What the quarantine record refers to in its turn is not looked at.

    Args:
        prefix: of all keys.
        item: of the stream.
        root: that the item names.
        fetch: gives the groups.

    Raises:
        NotFoundError, CorruptDataError: a group cannot be read, so nobody knows what it refers to.
    """
    keys = {item.root_key, root.quarantine_key} - {""}
    keys |= {
        object_path(prefix, item.stream, entry)
        for entry in nodes(root.entries, fetch, first_offset=root.first_offset)
    }
    keys |= {object_path(prefix, item.stream, entry) for entry in leaves(root, fetch)}
    return keys


def listed(store: ObjectStore, under: str) -> Iterator[ObjectInfo]:
    """Every object below `under`, page by page."""
    after = ""
    while True:
        page = store.list(under, start_after=after, limit=_PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].key


def compare(
    store: ObjectStore,
    prefix: str,
    item: CatalogItem,
    root: Root,
    fetch: Fetch,
    *,
    accounted_for: Container[str] = (),
) -> list[Violation]:
    """What is wrong between a stream's objects and its manifest.

    Args:
        store: the bucket.
        prefix: of all keys.
        item: of the stream.
        root: that the item names.
        fetch: gives the groups.
        accounted_for: keys that may be there although nothing refers to them: garbage whose grace
            time is not over, records of `collect`, uploads that are ahead of the manifest.

    Raises:
        NotFoundError, CorruptDataError: a group cannot be read.
    """
    keys = {row.key for row in listed(store, stream_prefix(prefix, item.stream))}
    wanted = referenced(prefix, item, root, fetch)
    return publish_before_delete(wanted, keys) + nothing_leaked(keys, wanted, accounted_for)
