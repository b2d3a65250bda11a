"""The catalog of a remote tier that lies in a directory: what its newest roots say. Read only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from coldstream.errors import InvalidInputError, PermissionDeniedError
from coldstream.manifest.catalog import CatalogItem, Commit, QueueName, StateChange, moved
from coldstream.names import check_prefix, check_stream
from coldstream.ports import CatalogPage, CommitOutcome
from coldstream.remote.roots import root_at
from coldstream.spark.directory import DirectoryStore
from coldstream.spark.earlier import roots_of

_TABLE = "directory"


class DirectoryCatalog:
    """The reading half of the `Catalog` port.

    Args:
        store: of the directory.
        prefix: of all keys.
    """

    def __init__(self, store: DirectoryStore, prefix: str) -> None:
        self._store = store
        self._prefix = check_prefix(prefix)

    def table_id(self) -> str:
        """The same for every directory."""
        return _TABLE

    def get(self, stream: str) -> CatalogItem | None:
        """The item that the newest root of a stream stands for; None where there is no root."""
        newest: tuple[tuple[int, int, int], str, int] | None = None
        for found, key in roots_of(self._store, self._prefix, check_stream(stream)):
            # As adoption does: version, then epoch; of two such roots any, but always the same one.
            rank = (found.version, found.epoch, found.uid)
            if newest is None or rank > newest[0]:
                newest = (rank, key, found.uid)
        if newest is None:
            return None
        _, key, uid = newest
        root = root_at(self._store, key, stream)
        commit = Commit(stream, _TABLE, root.version - 1, 0, root, key, uid)
        # Of a revision above the first: as after an adoption, nobody knows which roots landed.
        return moved(CatalogItem(stream, _TABLE, revision=1), commit)

    def streams(self) -> Iterator[CatalogItem]:
        """Every stream that has a root."""
        for name in self._store.folders(f"{self._prefix}stream/"):
            item = self.get(name)
            if item is not None:
                yield item

    def page(self, cursor: str | None, limit: int) -> CatalogPage:
        """All of them at once: a directory has no pages."""
        if cursor is not None:
            raise InvalidInputError("a directory has no pages")
        return CatalogPage(tuple(self.streams()), None)

    def cursor_at(self, token: int) -> str | None:
        """The begin: a directory has no pages."""
        del token
        return None

    def anchor(self, item: CatalogItem) -> CatalogItem:
        """Refuse, as everything that follows."""
        return _refuse(item.stream)

    def adopt(self, item: CatalogItem, *, replacing: CatalogItem | None) -> CommitOutcome:
        """Refuse."""
        return _refuse(item.stream)

    def commit(self, commit: Commit) -> CommitOutcome:
        """Refuse."""
        return _refuse(commit.stream)

    def change_state(self, change: StateChange) -> CommitOutcome:
        """Refuse."""
        return _refuse(change.stream)

    def set_name(self, stream: str, name: QueueName) -> None:
        """Refuse."""
        _refuse(stream)


def _refuse(stream: str) -> NoReturn:
    raise PermissionDeniedError("a directory is only read", stream=stream)
