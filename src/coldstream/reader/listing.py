"""A LIST that is read in step with the keys that somebody looks for: one page in memory."""

from __future__ import annotations

from coldstream.ports import ObjectInfo, ObjectStore

_PAGE = 1000


class Listing:
    """Sizes of objects, asked for in rising order of their keys.

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
            self._page = self._store.list(self._under, start_after=after, limit=_PAGE)
            self._at = 0
            self._ended = len(self._page) < _PAGE
            self._after = self._page[-1].key if self._page else self._after
