"""A remote tier that can only be read: what every --dry-run works on.

Reading is all that a plan needs, and it must be harmless whatever the credentials allow; so an
attempt to write ends here, as the bug of ours that it would be.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import NoReturn

from coldstream.cli.connect import Remote
from coldstream.errors import InternalError
from coldstream.fragment import Buffer
from coldstream.manifest.catalog import CatalogItem, Commit, QueueName, StateChange
from coldstream.ports import Catalog, CatalogPage, ObjectInfo, ObjectStore, Part
from coldstream.remote.context import Context


class ReadOnlyStore:
    """The ports `ObjectStore`, `Deleter` and `Composer` on a bucket that must not change."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def get(self, key: str, start: int, end: int) -> Buffer:
        """As the port says."""
        return self._store.get(key, start, end)

    def get_all(self, key: str, *, limit: int) -> bytes:
        """As the port says."""
        return self._store.get_all(key, limit=limit)

    def get_suffix(self, key: str, length: int) -> bytes:
        """As the port says."""
        return self._store.get_suffix(key, length)

    def level(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[str]:
        """As the port says."""
        return self._store.level(prefix, start_after=start_after, limit=limit)

    def list(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        """As the port says."""
        return self._store.list(prefix, start_after=start_after, limit=limit)

    def put(self, key: str, body: Buffer, *, write_id: str, crc: int | None = None) -> None:
        """Refused."""
        _refuse(f"the object {key}")

    def delete(self, keys: Sequence[str]) -> NoReturn:
        """Refused."""
        _refuse(f"{len(keys)} objects")

    def compose(self, key: str, parts: Sequence[Part], *, write_id: str) -> None:
        """Refused."""
        _refuse(f"the object {key}")


class ReadOnlyCatalog:
    """The port `Catalog` on a table that must not change."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def table_id(self) -> str:
        """As the port says."""
        return self._catalog.table_id()

    def get(self, stream: str) -> CatalogItem | None:
        """As the port says."""
        return self._catalog.get(stream)

    def streams(self) -> Iterator[CatalogItem]:
        """As the port says."""
        return self._catalog.streams()

    def page(self, cursor: str | None, limit: int, *, fresh: bool = True) -> CatalogPage:
        """As the port says."""
        return self._catalog.page(cursor, limit, fresh=fresh)

    def cursor_at(self, token: int) -> str | None:
        """As the port says."""
        return self._catalog.cursor_at(token)

    def anchor(self, item: CatalogItem) -> NoReturn:
        """Refused."""
        _refuse(f"the item of {item.stream}")

    def adopt(self, item: CatalogItem, *, replacing: CatalogItem | None) -> NoReturn:
        """Refused."""
        _refuse(f"the item of {item.stream}")

    def commit(self, commit: Commit) -> NoReturn:
        """Refused."""
        _refuse(f"the item of {commit.stream}")

    def change_state(self, change: StateChange) -> NoReturn:
        """Refused."""
        _refuse(f"the item of {change.stream}")

    def set_name(self, stream: str, name: QueueName) -> None:
        """Refused."""
        _refuse(f"the item of {stream}")


def read_only(remote: Remote) -> tuple[Context, ReadOnlyStore]:
    """What a use case works with in a dry run; the store also as `Deleter` and `Composer`."""
    store = ReadOnlyStore(remote.store)
    catalog = ReadOnlyCatalog(remote.catalog)
    return Context(store, catalog, remote.prefix, lambda: secrets.randbits(64)), store


def _refuse(what: str) -> NoReturn:
    raise InternalError(f"a dry run was about to change {what}")
