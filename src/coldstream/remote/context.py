"""What every use case works with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field

from coldstream.manifest.tree import Fetch
from coldstream.names import data_prefix, list_start
from coldstream.plans.resolve import Listed
from coldstream.ports import Catalog, ObjectInfo, ObjectStore
from coldstream.remote.listing import PAGE_SIZE, data_objects, pages
from coldstream.remote.nodes import NodeCache, fetcher
from coldstream.remote.roots import RootCache

#: Longer than any Lambda lives, and less than half of any useful grace time.
MAX_HOLD_MS = 1_200_000


@dataclass(frozen=True, slots=True)
class Context:
    """Ports, caches and limits of one remote tier.

    Attributes:
        store: the bucket.
        catalog: the table.
        prefix: of all keys, ends in "/".
        new_uid: gives a 64-bit id from a CSPRNG, new for every upload attempt.
        roots: parsed roots by key.
        nodes: parsed groups by entry.
        pool: factory for an executor with n workers.
        hold_ms: longest time by S3's clock from the first object that is written for a root to the
            root; see `publish`.
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
    page_size: int = PAGE_SIZE

    def fetch(self, stream: str) -> Fetch:
        """The function that reads the groups of a stream; its errors name stream, offset, key."""
        return fetcher(self.store, self.nodes, self.prefix, stream)

    def pages(self, under: str, *, after: str = "", until: str = "") -> Iterator[list[ObjectInfo]]:
        """All objects below `under`; see `listing.pages`."""
        return pages(self.store, under, after=after, until=until, page_size=self.page_size)

    def data_pages(self, stream: str, offset: int) -> Iterator[list[Listed]]:
        """Fragments and holes that begin at or above an offset, in the order of their keys.

        Raises:
            UnavailableError, PermissionDeniedError: from the store.
        """
        after = list_start(self.prefix, stream, offset)
        for page in self.pages(data_prefix(self.prefix, stream), after=after):
            yield data_objects(page, self.prefix)
