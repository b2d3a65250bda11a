"""Both ports in memory, for tests. They pass the same conformance suites as the real ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

from coldstream.errors import AlreadyExistsError, CorruptDataError, NotFoundError
from coldstream.fragment import Buffer
from coldstream.manifest.catalog import CatalogItem, Commit, QueueName, StreamState, moved
from coldstream.ports import CommitOutcome, Landed, ObjectInfo, outcome_of_failed_condition


class MemoryObjectStore:
    """Objects in a dict. `objects` maps keys to bytes and may be tampered with by tests.

    Args:
        clock_ms: gives the time of a PUT; a counter by default.
    """

    def __init__(self, clock_ms: Callable[[], int] = lambda: 0) -> None:
        self.objects: dict[str, bytes] = {}
        self._written: dict[str, tuple[str, int]] = {}
        self._clock_ms = clock_ms
        self._lock = threading.Lock()

    def put(self, key: str, body: Buffer, *, write_id: str) -> None:
        with self._lock:
            if key in self.objects:
                if self._written.get(key, ("", 0))[0] != write_id:
                    raise AlreadyExistsError("the key is taken", key=key)
                return
            self.objects[key] = bytes(body)
            self._written[key] = (write_id, self._clock_ms())

    def get(self, key: str, start: int, end: int) -> Buffer:
        data = self._object(key)
        if end > len(data):
            raise CorruptDataError(f"the object ends at {len(data)}, not at {end}", key=key)
        return data[start:end]

    def get_all(self, key: str, *, limit: int) -> bytes:
        data = self._object(key)
        if len(data) > limit:
            raise CorruptDataError(f"the object has more than {limit} bytes", key=key)
        return data

    def get_suffix(self, key: str, length: int) -> bytes:
        return self._object(key)[-length:]

    def list(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        with self._lock:
            keys = sorted(k for k in self.objects if k.startswith(prefix) and k > start_after)
            return [
                ObjectInfo(k, len(self.objects[k]), self._written.get(k, ("", 0))[1])
                for k in keys[: min(limit, 1000)]
            ]

    def _object(self, key: str) -> bytes:
        with self._lock:
            if key not in self.objects:
                raise NotFoundError("no such object", key=key)
            return self.objects[key]


class MemoryCatalog:
    """Items in a dict. `items` may be tampered with by tests."""

    def __init__(self, table_id: str = "memory") -> None:
        self.items: dict[str, CatalogItem] = {}
        self._table_id = table_id
        self._lock = threading.Lock()

    def table_id(self) -> str:
        return self._table_id

    def get(self, stream: str) -> CatalogItem | None:
        with self._lock:
            return self.items.get(stream)

    def streams(self) -> Iterator[CatalogItem]:
        with self._lock:
            return iter(list(self.items.values()))

    def anchor(self, item: CatalogItem) -> CatalogItem:
        with self._lock:
            return self.items.setdefault(item.stream, item)

    def commit(self, commit: Commit) -> CommitOutcome:
        with self._lock:
            item = self.items.get(commit.stream)
            holds = item is not None and (
                item.version == commit.read_version
                and item.uid == commit.read_uid
                and item.table_id == commit.table_id
                and item.state is StreamState.LIVE
                and (
                    item.epoch < commit.root.epoch
                    if commit.claim
                    else item.epoch <= commit.root.epoch
                )
            )
            if holds and item is not None:
                self.items[commit.stream] = moved(item, commit)
                return Landed(self.items[commit.stream])
            return outcome_of_failed_condition(item, commit)

    def set_name(self, stream: str, name: QueueName) -> None:
        with self._lock:
            if stream not in self.items:
                raise NotFoundError("the catalog does not know this stream", stream=stream)
            self.items[stream] = replace(self.items[stream], name=name)
