"""Where the state of scrub is kept: a bucket, or a directory of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from coldstream.adapters.bodies import check_body
from coldstream.errors import (
    AlreadyExistsError,
    CorruptDataError,
    NotFoundError,
    UnavailableError,
)
from coldstream.fragment import Buffer
from coldstream.ports import ObjectInfo


class StateStore(Protocol):
    """What keeping a state needs of an object store; see `ports.ObjectStore`."""

    def put(self, key: str, body: Buffer, *, write_id: str, crc: int | None = None) -> None:
        """Create an object; never overwrite one."""
        ...

    def get_all(self, key: str, *, limit: int) -> bytes:
        """A whole small object."""
        ...

    def list(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        """Objects below `prefix`, sorted."""
        ...


class FileStore:
    """Objects as files below a directory.

    Args:
        root: the directory that keys are relative to.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, key: str, body: Buffer, *, write_id: str, crc: int | None = None) -> None:
        """Create a file; see `ports.ObjectStore.put`."""
        check_body(key, body, crc)
        path = self._root / key
        part = path.with_name(f"{path.name}.{write_id}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(bytes(body))
        except OSError as exc:
            raise UnavailableError(f"cannot write the file: {exc.strerror}", key=key) from exc
        try:
            path.hardlink_to(part)  # fails where a file is, unlike a rename
        except FileExistsError:
            if path.read_bytes() != bytes(body):
                raise AlreadyExistsError("the file is there already", key=key) from None
        finally:
            part.unlink()

    def get_all(self, key: str, *, limit: int) -> bytes:
        """A whole file; see `ports.ObjectStore.get_all`."""
        path = self._root / key
        try:
            if path.stat().st_size > limit:
                raise CorruptDataError(f"the file has more than {limit} bytes", key=key)
            return path.read_bytes()
        except FileNotFoundError:
            raise NotFoundError("no such file", key=key) from None

    def list(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        """The files directly in the directory `prefix`; see `ports.ObjectStore.list`."""
        directory = self._root / prefix
        if not directory.is_dir():
            return []
        found = [
            ObjectInfo(
                f"{prefix}{path.name}", path.stat().st_size, path.stat().st_mtime_ns // 10**6
            )
            for path in directory.iterdir()
            if path.suffix != ".part"
        ]
        found = sorted((each for each in found if each.key > start_after), key=lambda e: e.key)
        return found[: min(limit, 1000)]
