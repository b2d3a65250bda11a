"""Read a stream's item and root, and publish a new root: the two ends of every use case."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from coldstream.errors import ConflictError, CorruptDataError, InternalError, NotFoundError
from coldstream.manifest.catalog import CatalogItem, Commit, StreamState
from coldstream.manifest.node import Node
from coldstream.manifest.root import Root, parse_root
from coldstream.manifest.tree import Fetch
from coldstream.names import group_path, root_path
from coldstream.nodes import NodeCache, fetcher
from coldstream.ports import Catalog, CommitOutcome, ObjectStore

#: No root is ever larger: a million entries, far above the load at which it is rebalanced.
MAX_ROOT_SIZE = 64 * 2**20
#: More than any Lambda lives, and less than half of any grace time that is worth its name.
MAX_HOLD_MS = 1_200_000


class RootCache:
    """Parsed roots by key. Roots never change, so an entry is never stale; the oldest go first."""

    def __init__(self, capacity: int = 64) -> None:
        self._capacity = capacity
        self._roots: OrderedDict[str, Root] = OrderedDict()

    def get(self, key: str) -> Root | None:
        """The root under `key`, if it is here."""
        root = self._roots.get(key)
        if root is not None:
            self._roots.move_to_end(key)
        return root

    def put(self, key: str, root: Root) -> None:
        """Remember a root."""
        self._roots[key] = root
        self._roots.move_to_end(key)
        while len(self._roots) > self._capacity:
            self._roots.popitem(last=False)


@dataclass(frozen=True, slots=True)
class World:
    """What every use case works with.

    Attributes:
        store: the bucket.
        catalog: the table.
        prefix: of all keys, ends in "/".
        new_uid: gives a 64-bit id from a CSPRNG, new for every upload attempt.
        roots: parsed roots that were seen before.
        nodes: parsed groups that were seen before.
        pool: makes what carries out so many requests at once.
        hold_ms: by S3's clock, so much time may pass from the first object that is written for a
            root to the root; see `publish`.
        page_size: keys in one LIST answer, at most the 1,000 that S3 gives.
    """

    store: ObjectStore
    catalog: Catalog
    prefix: str
    new_uid: Callable[[], int]
    roots: RootCache = field(default_factory=RootCache)
    nodes: NodeCache = field(default_factory=NodeCache)
    pool: Callable[[int], Executor] = ThreadPoolExecutor
    hold_ms: int = MAX_HOLD_MS
    page_size: int = 1000

    def fetch(self, stream: str) -> Fetch:
        """What reads the groups of a stream; its errors name stream, offset and key."""
        return fetcher(self.store, self.nodes, self.prefix, stream)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A stream as it was at one moment."""

    item: CatalogItem
    root: Root


def load_item(world: World, stream: str) -> CatalogItem:
    """The stream's item, checked to belong to this table and to take commits.

    Raises:
        NotFoundError: no item; objects without an item are refused, never adopted silently.
        ConflictError: the stream is being deleted or rebuilt, or the item is of a restored table.
    """
    item = world.catalog.get(stream)
    if item is None:
        raise NotFoundError("the catalog does not know this stream", stream=stream)
    if item.state is not StreamState.LIVE:
        raise ConflictError(f"the stream is {item.state}", stream=stream)
    if item.table_id != world.catalog.table_id():
        raise ConflictError(
            "the item was written to another table (a restore?); it must be reconciled first",
            stream=stream,
        )
    return item


def load(world: World, stream: str) -> Loaded:
    """The stream's item and current root: one read of the item, one GET unless the root is cached.

    Raises:
        NotFoundError: no item, or its root is missing.
        ConflictError: the stream takes no commits.
        CorruptDataError: the root is damaged or not the one that the item describes.
    """
    item = load_item(world, stream)
    return Loaded(item, load_root(world, item))


def load_root(world: World, item: CatalogItem) -> Root:
    """The root that `item` names; an empty one where the stream begins, before the first.

    Raises:
        NotFoundError: the root is missing.
        CorruptDataError: the root is damaged or not the one that the item describes.
    """
    if not item.root_key:
        return Root(first_offset=item.first_offset, next_offset=item.first_offset)
    cached = world.roots.get(item.root_key)
    if cached is not None:
        return cached
    expected = root_path(world.prefix, item.stream, item.epoch, item.version, item.uid)
    if item.root_key != expected:
        raise CorruptDataError(
            f"the item names a root that is not its own; {expected} would be",
            stream=item.stream,
            key=item.root_key,
        )
    try:
        data = world.store.get_all(item.root_key, limit=MAX_ROOT_SIZE)
        root = parse_root(data)
    except (CorruptDataError, NotFoundError) as exc:
        exc.located(stream=item.stream, key=item.root_key)
        raise
    described = (root.version, root.epoch, root.next_offset, root.ledger) == (
        item.version,
        item.epoch,
        item.next_offset,
        item.ledger,
    )
    if not described:
        raise CorruptDataError(
            f"the item says version {item.version}, epoch {item.epoch}, next {item.next_offset};"
            f" its root says {root.version}, {root.epoch}, {root.next_offset}"
            + ("" if root.ledger == item.ledger else ", and their ledgers differ"),
            stream=item.stream,
            key=item.root_key,
        )
    world.roots.put(item.root_key, root)
    return root


def publish(
    world: World,
    loaded: Loaded,
    root: Root,
    *,
    nodes: Sequence[Node] = (),
    claim: bool = False,
    first_written: str = "",
) -> CommitOutcome:
    """PUT new groups and `root`, then move the item to it if the item is still what was read.

    The groups come first: a root whose references are not all there must never exist, because a
    root that never landed may be adopted after the table was lost.

    Before the root is there, nothing tells `collect` of what was written for it. So a process that
    was stopped in between for longer than `hold_ms` gives up: what it wrote may be gone. Once the
    root is there, it protects what it refers to, however late the rest comes.

    Nothing is cleaned up here, whatever the outcome: only `collect` deletes.

    Args:
        world: where.
        loaded: what the new root was planned from.
        root: planned; its version is set here to one above the item's.
        nodes: new groups that it refers to.
        claim: whether this commit claims `root.epoch`.
        first_written: key of the first object that was written for the root, groups apart.

    Raises:
        ConflictError: it took too long; the item was not touched.
        InternalError: the root is too large to be read again; nothing was written.
        UnavailableError, UnknownOutcomeError: the store; the item was not touched.
    """
    item = loaded.item
    root = replace(root, version=item.version + 1)
    uid = world.new_uid()
    key = root_path(world.prefix, item.stream, root.epoch, root.version, uid)
    data = root.encode()
    if len(data) > MAX_ROOT_SIZE:
        raise InternalError(
            f"a root of {len(data)} bytes, more than anybody would read", stream=item.stream
        )
    for node in nodes:
        entry = node.entry()
        body = node.encode(catalog_version=root.version)
        path = group_path(world.prefix, item.stream, entry.first_offset, node.uid, node.kind)
        world.store.put(path, body, write_id=f"{node.uid:016x}-{zlib.crc32(body):08x}")
        world.nodes.put(entry, node)
        first_written = first_written or path
    world.store.put(key, data, write_id=f"{uid:016x}-{zlib.crc32(data):08x}")
    if first_written:
        _check_haste(world, item.stream, first_written, key)
    outcome = world.catalog.commit(
        Commit(
            stream=item.stream,
            table_id=item.table_id,
            read_version=item.version,
            read_uid=item.uid,
            root=root,
            root_key=key,
            uid=uid,
            claim=claim,
        )
    )
    world.roots.put(key, root)
    return outcome


def _check_haste(world: World, stream: str, first_written: str, root_key: str) -> None:
    """Little time has passed between two PUTs, by S3's clock, which `collect` judges by too.

    Raises:
        ConflictError: too much, or one of the objects is gone.
    """
    written, rooted = (modified_ms(world, key) for key in (first_written, root_key))
    if written is None or rooted is None or rooted - written > world.hold_ms:
        raise ConflictError(
            f"more than {world.hold_ms} ms have passed since the first object of a new root was"
            " written; it may be gone, so nothing was committed: try again",
            stream=stream,
            key=first_written,
        )


def modified_ms(world: World, key: str) -> int | None:
    """When S3 took an object; None if there is none."""
    folder = key[: key.rindex("/") + 1]
    # Keys that are not ours may lie between; nobody can have put many beside a uid that is so new.
    rows = world.store.list(folder, start_after=key[:-1], limit=100)
    return next((row.modified_ms for row in rows if row.key == key), None)
