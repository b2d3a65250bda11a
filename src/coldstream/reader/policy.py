"""What a read policy makes of a store that gives chunks and indexes.

Nodes of manifests are not its subject: whatever the policy, they come from the table and the
bucket, or from memory, because they say what there is.
"""

from __future__ import annotations

from typing import NoReturn

from coldstream.errors import NotKeptError
from coldstream.fragment import Buffer
from coldstream.ports import KeepingStore, ObjectInfo, ObjectStore
from coldstream.read_policy import ReadPolicy


def answering(store: ObjectStore, policy: ReadPolicy) -> ObjectStore:
    """The store that is asked for what memory does not have.

    Args:
        store: the bucket, perhaps with a disk before it.
        policy: which of the two may answer.
    """
    match policy:
        case ReadPolicy.NOT_IN_DISK:
            return store
        case ReadPolicy.DISABLE:
            return store.over(_Nothing()) if isinstance(store, KeepingStore) else _Nothing()
        case ReadPolicy.NOT_IN_MEM | ReadPolicy.FORCE:
            return store.bucket if isinstance(store, KeepingStore) else store


class _Nothing:
    """The bucket of a reader that may not ask it."""

    def put(self, key: str, body: Buffer, *, write_id: str, crc: int | None = None) -> None:
        """Refuse, as everything here."""
        del body, write_id, crc
        _refuse(key)

    def get(self, key: str, start: int, end: int) -> Buffer:
        """Refuse."""
        del start, end
        _refuse(key)

    def get_all(self, key: str, *, limit: int) -> bytes:
        """Refuse."""
        del limit
        _refuse(key)

    def get_suffix(self, key: str, length: int) -> bytes:
        """Refuse."""
        del length
        _refuse(key)

    def level(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[str]:
        """Refuse."""
        del start_after, limit
        _refuse(prefix)

    def list(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        """Refuse."""
        del start_after, limit
        _refuse(prefix)


def _refuse(key: str) -> NoReturn:
    raise NotKeptError(
        f"no cache has it, and the read policy {ReadPolicy.DISABLE} asks the bucket for nothing",
        key=key,
    )
