"""Where finished Parquet files go: S3, or a disk in tests and benchmarks."""

from __future__ import annotations

import mmap
from functools import partial
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import urlsplit

from coldstream.adapters.s3 import S3ObjectStore
from coldstream.errors import InvalidInputError, UnavailableError


class Files(Protocol):
    """Takes finished files."""

    def save(self, path: str, content: IO[bytes], size: int) -> None:
        """Create what the URL `path` names out of a file of `size` bytes; never overwrite.

        Raises:
            AlreadyExistsError: another file has this name.
            UnavailableError, PermissionDeniedError, UnknownOutcomeError: from the store.
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

    def save(self, path: str, content: IO[bytes], size: int) -> None:
        where = urlsplit(path)
        if where.scheme == "file" and not where.netloc:
            try:
                _save_locally(Path(where.path), content)
            except OSError as exc:
                raise UnavailableError(f"cannot write the file: {exc.strerror}", key=path) from exc
            return
        if where.scheme != "s3" or not where.netloc or not size:
            raise InvalidInputError(f"{path!r} is no place for a file")
        store = self._stores.get(where.netloc)
        if store is None:
            store = self._stores[where.netloc] = self._open(bucket=where.netloc)
        content.flush()
        # The bytes go from the page cache to the socket; the name is new, so it is the write's id.
        with mmap.mmap(content.fileno(), size, prot=mmap.PROT_READ) as mapped:
            view = memoryview(mapped)
            try:
                store.put(where.path.removeprefix("/"), view, write_id=Path(where.path).name)
            finally:
                view.release()


def _save_locally(target: Path, content: IO[bytes]) -> None:
    """Write beside the name, then rename: nobody sees half a file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    with part.open("wb") as out:
        while data := content.read(2**20):
            out.write(data)
    part.rename(target)
