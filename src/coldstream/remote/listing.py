"""What LIST shows of a stream, page by page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from coldstream.errors import InvalidInputError
from coldstream.names import RootKey, metadata_prefix, parse_data_key, parse_metadata_key
from coldstream.plans.resolve import Listed
from coldstream.ports import ObjectInfo

#: Keys in one answer of S3.
PAGE_SIZE = 1000


class Lists(Protocol):
    """What is needed of an object store here; see `ports.ObjectStore`."""

    def list(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        """Objects below `prefix`, sorted."""
        ...


def pages(
    store: Lists,
    under: str,
    *,
    after: str = "",
    until: str = "",
    page_size: int = PAGE_SIZE,
) -> Iterator[list[ObjectInfo]]:
    """All objects below `under` with keys behind `after`, up to `until` if there is one.

    The last page may be empty.

    Each page is what was there when it was asked for. What is written meanwhile is seen if it sorts
    behind the last key so far.

    Raises:
        UnavailableError, PermissionDeniedError: from the store.
    """
    while True:
        page = store.list(under, start_after=after, limit=page_size)
        mine = [row for row in page if row.key <= until] if until else page
        yield mine
        if len(page) < page_size or len(mine) < len(page):
            return
        after = page[-1].key


def data_objects(page: Iterable[ObjectInfo], prefix: str) -> list[Listed]:
    """The fragments and holes of a page; what has another name is not ours, and left out.

    Where an event names such a key, it is refused where the event is read.
    """
    found = []
    for row in page:
        try:
            found.append(Listed(parse_data_key(row.key, prefix), row.key, row.size))
        except InvalidInputError:
            continue
    return found


def roots(
    store: Lists, prefix: str, stream: str, *, page_size: int = PAGE_SIZE
) -> Iterator[tuple[RootKey, ObjectInfo]]:
    """Every root of a stream, oldest epoch first; what has another name is left out.

    Raises:
        UnavailableError, PermissionDeniedError: from the store.
    """
    for page in pages(store, f"{metadata_prefix(prefix, stream)}root.", page_size=page_size):
        for row in page:
            try:
                key = parse_metadata_key(row.key, prefix)
            except InvalidInputError:
                continue  # a bucket may hold anything
            if isinstance(key, RootKey):
                yield key, row


class SizesInOrder:
    """Sizes of objects, asked for in rising order of their keys; one page in memory.

    What lies between two keys that are asked for is passed over without listing it, where it fills
    whole pages.

    Args:
        store: the bucket.
        under: what the keys begin with.
    """

    def __init__(self, store: Lists, under: str) -> None:
        self._store = store
        self._under = under
        self._after = ""
        self._page: list[ObjectInfo] = []
        self._at = 0
        self._ended = False

    def size(self, key: str) -> int | None:
        """Bytes of the object under `key`, None if there is none; `key` is above all before it.

        Raises:
            UnavailableError, PermissionDeniedError: from the store.
        """
        while True:
            while self._at < len(self._page):
                row = self._page[self._at]
                if row.key >= key:
                    return row.size if row.key == key else None
                self._at += 1
            if self._ended:
                return None
            # The key without its last character sorts before it, and above all that was asked for.
            after = max(self._after, key[:-1])
            self._page = self._store.list(self._under, start_after=after, limit=PAGE_SIZE)
            self._at = 0
            self._ended = len(self._page) < PAGE_SIZE
            self._after = self._page[-1].key if self._page else self._after
