"""Which directory of the remote tier a client means by the name of a stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field

from coldstream.errors import (
    CorruptDataError,
    InvalidInputError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.gateway.look import SharedLook
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.names import check_stream, made_ns
from coldstream.ports import Catalog

#: A listing is used for so long. A name that is not in it is looked for anew, but listing takes no
#: more than a small part of the time, however many ask for what is not there.
_FRESH_SECONDS, _AGAIN_SECONDS, _PART = 60.0, 1.0, 20
_READABLE = (StreamState.LIVE, StreamState.REBUILDING)


@dataclass(frozen=True, slots=True)
class Found:
    """A stream of the remote tier.

    Attributes:
        directory: its name in the remote tier.
        vhost: of its queue; "" if it has no name.
        queue: its name; "" if it has none.
    """

    directory: str
    vhost: str
    queue: str


@dataclass(frozen=True, slots=True)
class _Listing:
    """All items that can be read, and the error of those that cannot; seconds that it took."""

    found: Mapping[tuple[str, str], Found]
    damaged: CorruptDataError | None
    took: float


def newest(items: Iterable[CatalogItem]) -> dict[tuple[str, str], Found]:
    """The directory of each queue: of several, that which was made last and can be read.

    A queue that was deleted and declared anew has a directory of its own each time, whose name ends
    in the time, ns.
    """
    found: dict[tuple[str, str], Found] = {}
    for item in items:
        name = item.name
        if not name.queue or item.state not in _READABLE:
            continue
        place = name.vhost, name.queue
        other = found.get(place)
        if other is None or made_ns(other.directory) < made_ns(item.stream):
            found[place] = Found(item.stream, *place)
    return found


@dataclass(slots=True)
class Names:
    """Looks streams up, with a listing of the catalog that is kept for a minute.

    Args:
        catalog: the table.
        pool: threads for what blocks.
        clock: monotonic seconds.
    """

    catalog: Catalog
    pool: Executor
    clock: Callable[[], float] = time.monotonic
    _listing: SharedLook[_Listing] = field(init=False)
    _is_stale: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._listing = SharedLook(self._list, self.pool, self.clock)

    async def find(self, vhost: str, name: str) -> Found | None:
        """The stream of a queue, or of a directory; None if the remote tier has none.

        Raises:
            CorruptDataError: an item cannot be read, and it may be this stream's.
            UnavailableError, PermissionDeniedError: from the catalog.
        """
        listing = await self._listed(self._again_seconds if self._is_stale else _FRESH_SECONDS)
        found = listing.found.get((vhost, name))
        if found is None and (found := await self._directory(vhost, name)) is None:
            listing = await self._listed(self._again_seconds)
            found = listing.found.get((vhost, name))
        if found is None and listing.damaged is not None:
            raise listing.damaged  # "no such stream" would have its history passed over
        return found

    async def is_replaced(self, found: Found) -> bool:
        """Whether the queue of a stream was declared anew, as far as the catalog says.

        Of a listing of the last minute; False while nobody can say.
        """
        try:
            listing = await self._listed(_FRESH_SECONDS)
        except (UnavailableError, PermissionDeniedError):
            return False
        now = listing.found.get((found.vhost, found.queue))
        return now is not None and made_ns(found.directory) < made_ns(now.directory)

    async def refresh(self) -> None:
        """List the catalog; raises as `find`, but for damage."""
        await self._listed(0)

    def forget(self) -> None:
        """A stream is not what it was: list anew, as soon as for a name that nobody knows."""
        self._is_stale = True

    @property
    def _again_seconds(self) -> float:
        took = 0.0 if self._listing.found is None else self._listing.found.took
        return min(max(_AGAIN_SECONDS, _PART * took), _FRESH_SECONDS)

    async def _directory(self, vhost: str, name: str) -> Found | None:
        try:
            check_stream(name)
        except InvalidInputError:
            return None
        loop = asyncio.get_running_loop()
        item = await loop.run_in_executor(self.pool, self.catalog.get, name)
        if item is None or item.state not in _READABLE:
            return None
        if item.name.queue and item.name.vhost != vhost:
            return None  # of another virtual host
        return Found(item.stream, item.name.vhost, item.name.queue)

    async def _listed(self, seconds: float) -> _Listing:
        """A listing that began no longer ago."""
        return await self._listing.since(self.clock() - seconds)

    def _list(self) -> _Listing:
        began = self.clock()
        self._is_stale = False  # who says so from now on may mean what is not in this listing
        items: list[CatalogItem] = []
        damaged = None
        try:
            items.extend(self.catalog.streams())
        except CorruptDataError as exc:
            damaged = exc
        except BaseException:
            self._is_stale = True
            raise
        return _Listing(newest(items), damaged, self.clock() - began)
