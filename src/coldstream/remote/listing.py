"""What LIST shows of a stream, page by page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from coldstream.errors import InvalidInputError
from coldstream.names import parse_data_key
from coldstream.plans.resolve import Listed
from coldstream.ports import ObjectInfo, ObjectStore

#: Keys in one answer of S3.
PAGE_SIZE = 1000


def pages(
    store: ObjectStore, under: str, *, after: str = "", page_size: int = PAGE_SIZE
) -> Iterator[list[ObjectInfo]]:
    """All objects below `under` whose keys sort behind `after`; the last page may be empty.

    Each page is what was there when it was asked for. What is written meanwhile is seen if it sorts
    behind the last key so far.

    Raises:
        UnavailableError, PermissionDeniedError: from the store.
    """
    while True:
        page = store.list(under, start_after=after, limit=page_size)
        yield page
        if len(page) < page_size:
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


class SizesInOrder:
    """Sizes of objects, asked for in rising order of their keys; one page in memory.

    What lies between two keys that are asked for is passed over without listing it, where it fills
    whole pages.

    Args:
        store: the bucket.
        under: what the keys begin with.
    """

    def __init__(self, store: ObjectStore, under: str) -> None:
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
