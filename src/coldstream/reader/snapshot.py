"""What a reader knows of a stream at one moment: the catalog item and the root it names."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from coldstream.errors import CorruptDataError, NotFoundError
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.root import Root, parse_root
from coldstream.names import check_stream
from coldstream.nodes import NodeCache
from coldstream.ports import Catalog, ObjectStore

#: Groups of all streams that this process reads; shared by every reader that has none of its own.
PROCESS_NODES = NodeCache()

#: No root is ever larger than this many bytes; a larger object is damage, not a manifest.
MAX_ROOT_SIZE = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A stream at one moment.

    Attributes:
        item: as read, strongly consistent.
        root: the one that the item names; an empty one before the first.
    """

    item: CatalogItem
    root: Root


class Snapshots:
    """Loads snapshots. Roots never change, so they are kept by key; the oldest go first.

    Args:
        store: where the roots are.
        catalog: where the items are.
        capacity: roots to keep.
    """

    def __init__(self, store: ObjectStore, catalog: Catalog, *, capacity: int = 16) -> None:
        self._store = store
        self._catalog = catalog
        self._capacity = capacity
        self._roots: OrderedDict[str, Root] = OrderedDict()
        self._lock = threading.Lock()

    def load(self, stream: str) -> Snapshot:
        """The stream now: one read of its item, and one GET unless its root is known.

        Raises:
            NotFoundError: the catalog has no such stream, or its root is gone.
            CorruptDataError: the root is damaged, or another one than the item describes.
            UnavailableError, PermissionDeniedError: from the adapters.
        """
        item = self._item(stream)
        try:
            return Snapshot(item, self._root(item))
        except NotFoundError:
            # The root may have been collected between the two reads; then the item has moved on.
            fresh = self._item(stream)
            if fresh.root_key == item.root_key:
                raise
            return Snapshot(fresh, self._root(fresh))

    def _item(self, stream: str) -> CatalogItem:
        item = self._catalog.get(check_stream(stream))
        if item is None:
            raise NotFoundError("the catalog does not know this stream", stream=stream)
        return item

    def _root(self, item: CatalogItem) -> Root:
        if not item.root_key:
            return Root(first_offset=item.first_offset, next_offset=item.first_offset)
        with self._lock:
            known = self._roots.get(item.root_key)
            if known is not None:
                self._roots.move_to_end(item.root_key)
                return known
        try:
            root = parse_root(self._store.get_all(item.root_key, limit=MAX_ROOT_SIZE))
            _check(item, root)
        except (NotFoundError, CorruptDataError) as exc:
            exc.located(stream=item.stream, key=item.root_key)
            raise
        with self._lock:
            self._roots[item.root_key] = root
            while len(self._roots) > self._capacity:
                self._roots.popitem(last=False)
        return root


def _check(item: CatalogItem, root: Root) -> None:
    described = (item.version, item.epoch, item.first_offset, item.next_offset)
    found = (root.version, root.epoch, root.first_offset, root.next_offset)
    if described != found:
        raise CorruptDataError(
            "the catalog item says (version, epoch, first, next) = "
            f"{described}, its root says {found}",
            offset=item.next_offset,
        )
