"""A stream at one moment: its catalog item and the root that the item names, checked.

Every reader and every writer loads them here, so both check the same things.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from coldstream.errors import (
    ConflictError,
    CorruptDataError,
    NotFoundError,
    UnknownVersionError,
)
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.manifest.root import Root, parse_root
from coldstream.names import check_stream, root_path
from coldstream.ports import Catalog, ObjectStore

#: Bytes. No root is larger: a million entries, far above the load at which it is rebalanced.
MAX_ROOT_SIZE = 64 * 2**20


class RootCache:
    """Parsed roots by key; they never change. The least recently used go first. Thread-safe.

    Args:
        capacity: roots that are kept.
    """

    def __init__(self, capacity: int = 64) -> None:
        self._capacity = capacity
        self._roots: OrderedDict[str, Root] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> Root | None:
        """The root under `key`, if it is here."""
        with self._lock:
            root = self._roots.get(key)
            if root is not None:
                self._roots.move_to_end(key)
            return root

    def put(self, key: str, root: Root) -> None:
        """Remember a root."""
        with self._lock:
            self._roots[key] = root
            self._roots.move_to_end(key)
            while len(self._roots) > self._capacity:
                self._roots.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A stream at one moment.

    Attributes:
        item: as read, strongly consistent.
        root: the one that the item names; an empty one before the first.
    """

    item: CatalogItem
    root: Root

    @property
    def extent(self) -> Root:
        """Offsets, epoch and ledger of the stream."""
        return self.root

    @property
    def old_part(self) -> None:
        """As `Glance` says; the whole is here."""
        return None

    def confirm(self) -> None:
        """As `Glance` says; it was done."""


class Glance:
    """A stream at one moment by its item alone, which tells of the old part of its manifest.

    Args:
        item: as read, strongly consistent.
        old_part: what it tells.
        fetch: gives the root that the item names, and checks that it says what the item says.

    Attributes:
        item: as given.
        old_part: the manifest as if the stream ended there.
    """

    def __init__(self, item: CatalogItem, old_part: Root, fetch: Callable[[], Root]) -> None:
        self.item, self.old_part = item, old_part
        self._fetch = fetch
        self._root: Root | None = None

    @property
    def extent(self) -> CatalogItem:
        """Offsets, epoch and ledger of the stream."""
        return self.item

    @property
    def root(self) -> Root:
        """The root; it is fetched when it is first asked for.

        Raises:
            NotFoundError: it is gone.
            CorruptDataError: it is damaged, or another one than the item describes.
            UnavailableError, PermissionDeniedError: from the store.
        """
        if self._root is None:
            self._root = self._fetch()
        return self._root

    def confirm(self) -> None:
        """See that the root is there and says what the item says, unless that was done.

        Raises:
            As `root`.
        """
        self._root = self.root


class Tier(Protocol):
    """What it takes to load a stream; a `Context` is one."""

    @property
    def store(self) -> ObjectStore:
        """The bucket."""
        ...

    @property
    def catalog(self) -> Catalog:
        """The table."""
        ...

    @property
    def prefix(self) -> str:
        """Of all keys."""
        ...

    @property
    def roots(self) -> RootCache:
        """Parsed roots by key."""
        ...


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Loads snapshots for readers, in whatever state the stream is.

    Attributes:
        store: the bucket.
        catalog: the table.
        prefix: of all keys, ends in "/".
        roots: parsed roots by key.
    """

    store: ObjectStore
    catalog: Catalog
    prefix: str
    roots: RootCache = field(default_factory=RootCache)

    def load(self, stream: str) -> Snapshot:
        """The stream now: one read of its item, and one GET unless its root is cached.

        Raises:
            NotFoundError: the catalog has no such stream, or its root is gone.
            CorruptDataError: the root is damaged, or another one than the item describes.
            UnavailableError, PermissionDeniedError: from the adapters.
        """
        return self._loaded(read_item(self.catalog, stream))

    def glance(self, stream: str) -> Snapshot | Glance:
        """The stream now, without a GET where its item tells of the old part of its manifest.

        Raises:
            As `load`; what is wrong with a root that is not fetched yet, its first use raises.
        """
        item = read_item(self.catalog, stream)
        old_part = item.old_part()
        if old_part is None or self.roots.get(item.root_key) is not None:
            return self._loaded(item)
        return Glance(item, old_part, partial(self._root, item))

    def _loaded(self, item: CatalogItem) -> Snapshot:
        try:
            return Snapshot(item, load_root(self, item))
        except NotFoundError as error:
            # The root may have been collected between the two reads; then the item has moved on.
            fresh = read_item(self.catalog, item.stream)
            if fresh.root_key == item.root_key:
                check_not_deleted(fresh, error)
                raise
            return Snapshot(fresh, self._root(fresh))

    def _root(self, item: CatalogItem) -> Root:
        try:
            return load_root(self, item)
        except NotFoundError as error:
            check_not_deleted(item, error)
            raise


def check_not_deleted(item: CatalogItem, error: NotFoundError) -> None:
    """Say that a stream was deleted, where an object of it is missing for that reason.

    Args:
        item: of the stream, as it is now.
        error: names the object.

    Raises:
        NotFoundError: it was; `error` would sound as if data had been lost.
    """
    if item.state.is_tombstone:
        raise NotFoundError(
            "the stream was deleted: its objects are gone, or are going now", stream=item.stream
        ) from error


def load(tier: Tier, stream: str) -> Snapshot:
    """The stream for a change: its item takes commits. One read, one GET unless the root is cached.

    Raises:
        NotFoundError: no item, or its root is missing.
        ConflictError: the stream takes no commits.
        CorruptDataError: the root is damaged or not the one that the item describes.
    """
    item = load_item(tier, stream)
    return Snapshot(item, load_root(tier, item))


def load_item(tier: Tier, stream: str) -> CatalogItem:
    """The stream's item, checked to belong to this table and to take commits.

    Raises:
        NotFoundError: no item; objects without an item are refused, never adopted silently.
        ConflictError: the stream is being deleted or rebuilt, or the item is of a restored table.
    """
    item = own_item(tier.catalog, stream)
    if item.state is not StreamState.LIVE:
        raise ConflictError(
            f"the stream is {item.state}",
            stream=stream,
            remedy="see what becomes of it with `coldstream streams`",
        )
    return item


def own_item(catalog: Catalog, stream: str) -> CatalogItem:
    """The stream's item in whatever state, checked to belong to this table.

    Raises:
        NotFoundError: there is none.
        ConflictError: it is of a restored table.
    """
    item = read_item(catalog, stream)
    if item.table_id != catalog.table_id():
        raise ConflictError(
            "the item was written to another table (a restore?); it must be reconciled first",
            stream=stream,
            remedy="`coldstream reconcile STREAM` adopts the newest root, then run this again",
        )
    return item


def read_item(catalog: Catalog, stream: str) -> CatalogItem:
    """The stream's item, in whatever state.

    Raises:
        NotFoundError: there is none.
    """
    item = catalog.get(check_stream(stream))
    if item is None:
        raise NotFoundError("the catalog does not know this stream", stream=stream)
    return item


def load_root(tier: Tier, item: CatalogItem) -> Root:
    """The root that `item` names; an empty one where the stream begins, before the first.

    Raises:
        NotFoundError: the root is missing.
        CorruptDataError: the root is damaged or not the one that the item describes.
    """
    if not item.root_key:
        return Root(first_offset=item.first_offset, next_offset=item.first_offset)
    cached = tier.roots.get(item.root_key)
    if cached is not None:
        return cached
    root = read_root(tier.store, tier.prefix, item)
    tier.roots.put(item.root_key, root)
    return root


def read_root(store: ObjectStore, prefix: str, item: CatalogItem) -> Root:
    """`load_root` without a cache, of an item that names a root: one GET.

    Raises:
        As `load_root`.
    """
    expected = root_path(prefix, item.stream, item.epoch, item.version, item.uid)
    if item.root_key != expected:
        raise CorruptDataError(
            f"the item names a root that is not its own; {expected} would be",
            stream=item.stream,
            offset=item.next_offset,
            key=item.root_key,
        )
    root = root_at(store, item.root_key, item.stream)
    if not (describes(item, root) and _tells(item, root)):
        described = (item.version, item.epoch, item.first_offset, item.next_offset)
        found = (root.version, root.epoch, root.first_offset, root.next_offset)
        raise CorruptDataError(
            "the catalog item says (version, epoch, first, next) = "
            f"{described}, its root says {found}"
            + ("" if root.ledger == item.ledger else ", and their ledgers differ")
            + ("" if _tells(item, root) else ", and it begins with other entries"),
            stream=item.stream,
            offset=item.next_offset,
            key=item.root_key,
        )
    return root


def describes(item: CatalogItem, root: Root) -> bool:
    """Whether `root` is the one that `item` describes, whatever its outline says."""
    found = (root.version, root.epoch, root.first_offset, root.next_offset, root.ledger)
    described = (item.version, item.epoch, item.first_offset, item.next_offset, item.ledger)
    return found == described


def _tells(item: CatalogItem, root: Root) -> bool:
    """Whether the entries that `item` tells are those of `root`."""
    return item.uid != item.outline.uid or item.outline.begins(root)


def root_at(store: ObjectStore, key: str, stream: str | None = None) -> Root:
    """The root under a key, whatever an item says: one GET.

    Raises:
        NotFoundError: it is missing.
        CorruptDataError: it is damaged.
    """
    try:
        return parse_root(store.get_all(key, limit=MAX_ROOT_SIZE))
    except (CorruptDataError, NotFoundError, UnknownVersionError) as exc:
        exc.located(stream=stream, key=key)
        raise
