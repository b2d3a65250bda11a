"""The ports in memory, for tests. They pass the same conformance suites as the real ones."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from coldstream.adapters.bodies import check_body
from coldstream.adapters.executions import check_execution_name, input_text
from coldstream.adapters.parts import check_parts
from coldstream.errors import (
    AlreadyExistsError,
    CorruptDataError,
    InternalError,
    InvalidInputError,
    NotFoundError,
)
from coldstream.fragment import Buffer
from coldstream.manifest.catalog import (
    CatalogItem,
    Commit,
    QueueName,
    StateChange,
    StreamState,
    changed,
    moved,
)
from coldstream.names import MAX_NAME, check_stream
from coldstream.plans.heartbeats import Heartbeat
from coldstream.plans.policy import PolicySet
from coldstream.plans.stream_words import WordsPage
from coldstream.ports import (
    MAX_DELETES,
    MAX_REFERENCES,
    BytesPart,
    CatalogPage,
    CommitOutcome,
    Execution,
    ExecutionStatus,
    Landed,
    ObjectInfo,
    ObjectVersion,
    Part,
    VersionPage,
    check_reference,
    outcome_of_failed_adoption,
    outcome_of_failed_change,
    outcome_of_failed_condition,
)


class MemoryObjectStore:
    """The ports `ObjectStore`, `Deleter`, `VersionDeleter` and `Composer`.

    Objects in a dict. `objects` maps keys to bytes and may be tampered with by tests. What was
    deleted stays in `deleted`, as a version, where versions are kept.

    Args:
        clock_ms: gives the time of a write, ms since the Unix epoch; always 0 by default.
        versioned: whether versions are kept.
    """

    def __init__(self, clock_ms: Callable[[], int] = lambda: 0, *, versioned: bool = False) -> None:
        self.objects: dict[str, bytes] = {}
        self.deleted: dict[str, bytes] = {}
        self._versioned = versioned
        self._written: dict[str, tuple[str, int]] = {}
        self._clock_ms = clock_ms
        self._lock = threading.Lock()

    def put(self, key: str, body: Buffer, *, write_id: str, crc: int | None = None) -> None:
        check_body(key, body, crc)
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

    def delete(self, keys: Sequence[str]) -> list[str]:
        if len(keys) > MAX_DELETES:
            raise InternalError(f"{len(keys)} keys are more than {MAX_DELETES}")
        with self._lock:
            for key in keys:
                data = self.objects.pop(key, None)
                if data is not None and self._versioned:
                    self.deleted[key] = data
                self._written.pop(key, None)
        return [*dict.fromkeys(keys)]

    def versions(
        self, prefix: str, *, after: tuple[str, str] = ("", ""), limit: int = 1000
    ) -> VersionPage:
        with self._lock:
            rows = [
                ObjectVersion(key, version, len(data), self._written.get(key, ("", 0))[1])
                for version, held in (("1", self.objects), ("0", self.deleted))
                for key, data in held.items()
                if key.startswith(prefix)
                and (key, _behind(version)) > (after[0], _behind(after[1]))
            ]
        rows.sort(key=lambda row: (row.key, _behind(row.version)))
        page = rows[: min(limit, 1000)]
        following = (page[-1].key, page[-1].version) if len(page) < len(rows) else None
        return VersionPage(tuple(page), following)

    def delete_versions(self, rows: Sequence[ObjectVersion]) -> list[ObjectVersion]:
        if len(rows) > MAX_DELETES:
            raise InternalError(f"{len(rows)} versions are more than {MAX_DELETES}")
        with self._lock:
            for row in rows:
                if row.version == "1":
                    self.objects.pop(row.key, None)
                    self._written.pop(row.key, None)
                else:
                    self.deleted.pop(row.key, None)
        return [*dict.fromkeys(rows)]

    def compose(self, key: str, parts: Sequence[Part], *, write_id: str) -> None:
        check_parts(parts)
        body = b"".join(
            part.data if isinstance(part, BytesPart) else self.get(part.key, part.start, part.end)
            for part in parts
        )
        self.put(key, body, write_id=write_id)

    def level(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[str]:
        with self._lock:
            keys = [k for k in self.objects if k.startswith(prefix) and k > start_after]
        here = (k[len(prefix) :].partition("/") for k in keys)
        return sorted({f"{prefix}{name}{slash}" for name, slash, _ in here})[: min(limit, 1000)]

    def list(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        with self._lock:
            keys = sorted(k for k in self.objects if k.startswith(prefix) and k > start_after)
            return [
                ObjectInfo(k, len(self.objects[k]), self._written.get(k, ("", 0))[1])
                for k in keys[: min(limit, 1000)]
            ]

    def take_over(self, other: MemoryObjectStore) -> None:
        """Hold what another store holds, instead of what is here."""
        self.objects, self._written = dict(other.objects), dict(other._written)
        self.deleted, self._versioned = dict(other.deleted), other._versioned

    def _object(self, key: str) -> bytes:
        with self._lock:
            if key not in self.objects:
                raise NotFoundError("no such object", key=key)
            return self.objects[key]


def _behind(version: str) -> int:
    """The place of a version among those of its key: the current one, the deleted, and no more."""
    return {"1": 0, "0": 1}.get(version, 2)


class MemoryPolicies:
    """Rules in an attribute."""

    def __init__(self) -> None:
        self._policies, self.revision = PolicySet(), 0
        self.lock = threading.Lock()

    def load(self) -> tuple[PolicySet, int]:
        with self.lock:
            return self._policies, self.revision

    def save(self, policies: PolicySet, read_revision: int) -> bool:
        with self.lock:
            if self.revision == read_revision:
                self._policies, self.revision = policies, read_revision + 1
            return (self._policies, self.revision) == (policies, read_revision + 1)


class MemoryCatalog:
    """Items in a dict. `items` may be tampered with by tests.

    Args:
        table_id: of this table.
        policies: the rules in it; None for one that is never asked about them.
    """

    def __init__(self, table_id: str = "memory", policies: MemoryPolicies | None = None) -> None:
        self.items: dict[str, CatalogItem] = {}
        self._policies = policies
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

    def page(self, cursor: str | None, limit: int, *, fresh: bool = True) -> CatalogPage:
        del fresh  # it always is
        if cursor == "":
            raise InvalidInputError("not a cursor of this catalog")
        with self._lock:
            rest = sorted(stream for stream in self.items if stream > (cursor or ""))
            items = tuple(self.items[stream] for stream in rest[:limit])
        return CatalogPage(items, items[-1].stream if len(rest) > limit else None)

    def cursor_at(self, token: int) -> str | None:
        with self._lock:
            return sorted(self.items)[token % len(self.items)] if self.items else None

    def anchor(self, item: CatalogItem) -> CatalogItem:
        with self._lock:
            return self.items.setdefault(item.stream, item)

    def adopt(self, item: CatalogItem, *, replacing: CatalogItem | None) -> CommitOutcome:
        with self._lock:
            found = self.items.get(item.stream)
            if (found is None) if replacing is None else _same(found, replacing):
                self.items[item.stream] = item
                return Landed(item)
            return outcome_of_failed_adoption(found, item)

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

    def change_state(self, change: StateChange) -> CommitOutcome:
        with self._lock, self._unchanged_rules(change.rules_revision) as unchanged:
            item = self.items.get(change.stream)
            if (
                item is not None
                and item.revision == change.read_revision
                and item.state is change.read_state
                and item.table_id == change.table_id
                and unchanged
            ):
                self.items[change.stream] = changed(item, change)
                return Landed(self.items[change.stream])
            return outcome_of_failed_change(item, change)

    @contextmanager
    def _unchanged_rules(self, revision: int | None) -> Iterator[bool]:
        """Whether the rules still have this revision; they keep it within the context."""
        if self._policies is None or revision is None:
            yield True
            return
        with self._policies.lock:
            yield self._policies.revision == revision

    def set_name(self, stream: str, name: QueueName) -> None:
        with self._lock:
            if stream not in self.items:
                raise NotFoundError("the catalog does not know this stream", stream=stream)
            self.items[stream] = replace(self.items[stream], name=name)


def _same(found: CatalogItem | None, item: CatalogItem) -> bool:
    return found is not None and (
        (found.table_id, found.version, found.uid, found.revision)
        == (item.table_id, item.version, item.uid, item.revision)
        and (found.name.cluster, *found.name.key) == (item.name.cluster, *item.name.key)
    )


class MemoryHeartbeats:
    """Heartbeats in a dict, by node."""

    def __init__(self) -> None:
        self._heartbeats: dict[str, Heartbeat] = {}
        self._pages: dict[tuple[str, int, int], WordsPage] = {}

    def beat(self, heartbeat: Heartbeat) -> Heartbeat | None:
        if not 0 < len(heartbeat.node) <= MAX_NAME:
            raise InvalidInputError(f"a node's name has 1 to {MAX_NAME} characters")
        before = self._heartbeats.get(heartbeat.node)
        self._heartbeats[heartbeat.node] = heartbeat
        return before

    def all(self) -> list[Heartbeat | CorruptDataError]:
        return list(self._heartbeats.values())

    def tell(self, page: WordsPage) -> None:
        if not 0 < len(page.node) <= MAX_NAME:
            raise InvalidInputError(f"a node's name has 1 to {MAX_NAME} characters")
        self._pages[page.node, page.count, page.number] = page

    def told(
        self, node: str, count: int, number: int | None = None
    ) -> list[WordsPage | CorruptDataError]:
        return [
            page
            for (owner, pages, place), page in sorted(self._pages.items())
            if (owner, pages) == (node, count) and number in (None, place)
        ]


class MemoryOffsets:
    """Stored offsets in a dict, by stream and reference.

    Args:
        most: references that a stream may have.
    """

    def __init__(self, most: int = MAX_REFERENCES) -> None:
        self._most = most
        self._offsets: dict[str, dict[str, int]] = {}
        self._lock = threading.Lock()

    def query(self, stream: str, reference: str) -> int | None:
        check_reference(reference)
        return self._offsets.get(check_stream(stream), {}).get(reference)

    def store(
        self, stream: str, reference: str, offset: int, *, seen: int | None = None, first: int = 0
    ) -> int:
        check_reference(reference, offset)
        with self._lock:
            kept = self._offsets.setdefault(check_stream(stream), {})
            found = kept.get(reference)
            if found is None and len(kept) >= self._most:
                for each in [name for name, stored in kept.items() if stored < first]:
                    del kept[each]
                if len(kept) >= self._most:
                    raise InvalidInputError(
                        f"{self._most} consumers have stored offsets", stream=stream
                    )
            if found is None or found <= offset or found == seen:
                kept[reference] = offset
            return kept[reference]


class MemoryWorkflows:
    """Executions in a dict, by workflow and name. Nothing runs: a test says how each one ends.

    Args:
        workflows: names of those that exist.
    """

    def __init__(self, *workflows: str) -> None:
        self.executions: dict[tuple[str, str], Execution] = {}
        self.inputs: dict[tuple[str, str], dict[str, Any]] = {}
        self._workflows = workflows
        self._lock = threading.Lock()

    def start(self, workflow: str, name: str, document: Mapping[str, Any]) -> bool:
        check_execution_name(name)
        text = input_text(document)
        with self._lock:
            if workflow not in self._workflows:
                raise NotFoundError(f"no such workflow: {workflow}")
            if (workflow, name) in self.executions:
                return False
            self.executions[workflow, name] = Execution(ExecutionStatus.RUNNING)
            self.inputs[workflow, name] = json.loads(text)
            return True

    def describe(self, workflow: str, name: str) -> Execution:
        check_execution_name(name)
        with self._lock:
            if (workflow, name) not in self.executions:
                raise NotFoundError(f"no execution of {workflow} is called {name}")
            return self.executions[workflow, name]
