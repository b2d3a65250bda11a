"""A remote tier that lies in a directory: a copy of a bucket, read without AWS.

    aws s3 sync s3://BUCKET/rabbitmq/ /backup/rabbitmq/
    spark.read.format("rabbitmq_stream").option("endpoint", "file:///backup")...

There is no table in it, so a stream's manifest is the root with the highest version, as when a lost
table is adopted again (`usecases.adopt`), and streams have no names but those of their directories.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from coldstream.errors import (
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.fragment import Buffer
from coldstream.manifest.catalog import CatalogItem, Commit, QueueName, StateChange, moved
from coldstream.names import check_prefix, check_stream
from coldstream.ports import CatalogPage, CommitOutcome, ObjectInfo
from coldstream.remote.directories import directories
from coldstream.remote.listing import roots
from coldstream.remote.roots import root_at

_TABLE = "directory"


class DirectoryStore:
    """The reading half of the `ObjectStore` port on files; keys are paths below a directory.

    Args:
        directory: path of it.

    Raises:
        InvalidInputError: there is no such directory.
    """

    def __init__(self, directory: str) -> None:
        self._base = Path(directory)
        if not self._base.is_dir():
            raise InvalidInputError(f"there is no directory {directory[:300]!r}")

    def put(self, key: str, body: Buffer, *, write_id: str, crc: int | None = None) -> None:
        """Refuse: a copy is for reading.

        Raises:
            PermissionDeniedError: always.
        """
        raise PermissionDeniedError("a directory is only read", key=key)

    def get(self, key: str, start: int, end: int) -> Buffer:
        """As the port says."""
        data = self._read(key, start, end - start)
        if len(data) != end - start:
            raise CorruptDataError(
                f"bytes {start}-{end} were asked, the file gave {len(data)}", key=key
            )
        return data

    def get_all(self, key: str, *, limit: int) -> bytes:
        """As the port says."""
        data = self._read(key, 0, limit + 1)
        if len(data) > limit:
            raise CorruptDataError(f"the file has more than {limit} bytes", key=key)
        return bytes(data)

    def get_suffix(self, key: str, length: int) -> bytes:
        """As the port says."""
        return bytes(self._read(key, None, length))

    def level(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[str]:
        """As the port says, but that `prefix` ends in "/", and a folder may have no file."""
        base = self._base / prefix
        found = base.iterdir() if base.is_dir() else iter(())
        names = (f"{prefix}{each.name}{'/' if each.is_dir() else ''}" for each in found)
        return sorted(each for each in names if each > start_after)[: min(limit, 1000)]

    def list(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        """As the port says; the files of one directory, which is all that is ever listed here."""
        folder, _, begin = prefix.rpartition("/")
        try:
            paths = sorted((self._base / folder).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        rows = []
        for path in paths:
            key = f"{folder}/{path.name}"
            if path.name.startswith(begin) and key > start_after and path.is_file():
                found = path.stat()
                rows.append(ObjectInfo(key, found.st_size, found.st_mtime_ns // 1_000_000))
                if len(rows) == min(limit, 1000):
                    break
        return rows

    def _read(self, key: str, start: int | None, length: int) -> bytes:
        """`length` bytes from `start` on, or the last ones where it is None; fewer at the end."""
        try:
            file = os.open(f"{self._base}/{key}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                if start is None:
                    start = max(0, os.fstat(file).st_size - length)
                return os.pread(file, length, start)
            finally:
                os.close(file)
        except (FileNotFoundError, NotADirectoryError) as exc:
            raise NotFoundError("no such file", key=key) from exc
        except PermissionError as exc:
            raise PermissionDeniedError("the file cannot be read", key=key) from exc
        except OSError as exc:
            raise UnavailableError(f"the file cannot be read: {exc}", key=key) from exc


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
        for found, row in roots(self._store, self._prefix, check_stream(stream)):
            # As adoption does: version, then epoch; of two such roots any, but always the same one.
            rank = (found.version, found.epoch, found.uid)
            if newest is None or rank > newest[0]:
                newest = (rank, row.key, found.uid)
        if newest is None:
            return None
        _, key, uid = newest
        root = root_at(self._store, key, stream)
        commit = Commit(stream, _TABLE, root.version - 1, 0, root, key, uid)
        # Of a revision above the first: as after an adoption, nobody knows which roots landed.
        return moved(CatalogItem(stream, _TABLE, revision=1), commit)

    def streams(self) -> Iterator[CatalogItem]:
        """Every stream that has a root."""
        for name in directories(self._store, self._prefix):
            item = self.get(name)
            if item is not None:
                yield item

    def page(self, cursor: str | None, limit: int, *, fresh: bool = True) -> CatalogPage:
        """All of them at once: a directory has no pages."""
        del fresh
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
