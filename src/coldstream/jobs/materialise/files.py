"""Where finished Parquet files go, and come from: S3, or a disk in tests and benchmarks."""

from __future__ import annotations

import mmap
import tempfile
from functools import partial
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import urlsplit

from coldstream.adapters.s3 import S3ObjectStore
from coldstream.errors import InvalidInputError, NotFoundError, UnavailableError

#: What is asked for at once of a file that is read.
_PART_BYTES = 16 * 2**20


class Files(Protocol):
    """Takes finished files."""

    def save(self, path: str, content: IO[bytes], size: int) -> None:
        """Create what the URL `path` names out of a file of `size` bytes; never overwrite.

        Raises:
            AlreadyExistsError: another file has this name.
            UnavailableError, PermissionDeniedError, UnknownOutcomeError: from the store.
        """
        ...


class ReadableFiles(Files, Protocol):
    """Gives them back as well."""

    def open(self, path: str, size: int) -> IO[bytes]:
        """What the URL `path` names, `size` bytes of it, as a file of this machine.

        Raises:
            NotFoundError: there is nothing of this name.
            CorruptDataError: it has fewer bytes.
            UnavailableError, PermissionDeniedError: from the store.
        """
        ...


class StoredFiles:
    """Files in any bucket (`s3://bucket/key`) or on this machine (`file:///path`).

    Args:
        region: of the buckets; "" for what the environment says.
        endpoint: URL of S3; "" for what the environment says.
    """

    def __init__(self, *, region: str = "", endpoint: str = "") -> None:
        self._open = partial(S3ObjectStore, region=region, endpoint=endpoint)
        self._stores: dict[str, S3ObjectStore] = {}

    def open(self, path: str, size: int) -> IO[bytes]:
        where = urlsplit(path)
        if where.scheme == "file" and not where.netloc:
            try:
                return Path(where.path).open("rb")
            except FileNotFoundError as exc:
                raise NotFoundError("no such file", key=path) from exc
            except OSError as exc:
                raise UnavailableError(f"cannot read the file: {exc.strerror}", key=path) from exc
        store = self._store(path)
        content = tempfile.TemporaryFile()  # noqa: SIM115 - closed by who asked for it
        try:
            for begin in range(0, size, _PART_BYTES):
                end = min(size, begin + _PART_BYTES)
                content.write(store.get(where.path.removeprefix("/"), begin, end))
            content.seek(0)
        except BaseException:
            content.close()
            raise
        return content

    def _store(self, path: str) -> S3ObjectStore:
        bucket = bucket_of(path)
        store = self._stores.get(bucket)
        if store is None:
            store = self._stores[bucket] = self._open(bucket=bucket)
        return store

    def save(self, path: str, content: IO[bytes], size: int) -> None:
        where = urlsplit(path)
        if where.scheme == "file" and not where.netloc:
            try:
                _save_locally(Path(where.path), content)
            except OSError as exc:
                raise UnavailableError(f"cannot write the file: {exc.strerror}", key=path) from exc
            return
        if not size:
            raise InvalidInputError(f"{path!r} is no place for a file of nothing")
        store = self._store(path)
        content.flush()
        # The bytes go from the page cache to the socket; the name is new, so it is the write's id.
        with mmap.mmap(content.fileno(), size, prot=mmap.PROT_READ) as mapped:
            view = memoryview(mapped)
            try:
                store.put(where.path.removeprefix("/"), view, write_id=Path(where.path).name)
            finally:
                view.release()


def bucket_of(path: str) -> str:
    """The bucket in a URL; other writers of a table, which compact it, may call S3 `s3a` or `s3n`.

    Raises:
        InvalidInputError: it is no place in S3.
    """
    where = urlsplit(path)
    if where.scheme not in ("s3", "s3a", "s3n") or not where.netloc:
        raise InvalidInputError(f"{path!r} is no place for a file")
    return where.netloc


def _save_locally(target: Path, content: IO[bytes]) -> None:
    """Write beside the name, then rename: nobody sees half a file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    with part.open("wb") as out:
        while data := content.read(2**20):
            out.write(data)
    part.rename(target)
