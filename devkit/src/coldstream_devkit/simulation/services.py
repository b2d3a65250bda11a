"""S3, DynamoDB and the event bus: the in-memory adapters behind a net that loses and repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore, MemoryPolicies
from coldstream.errors import UnavailableError, UnknownOutcomeError
from coldstream.fragment import Buffer
from coldstream.manifest.catalog import CatalogItem, Commit, QueueName, StateChange
from coldstream.ports import (
    CatalogPage,
    CommitOutcome,
    Landed,
    ObjectInfo,
    ObjectVersion,
    Part,
    Unknown,
    VersionPage,
)
from coldstream_devkit.simulation.net import DYNAMODB, S3, LostError, Net

T = TypeVar("T")

#: Told of a key whose object has come or gone.
Told = Callable[[str], None]
#: Told that a task is about to change something, and of which stream; may let others act first.
Edge = Callable[[str, str], None]


def _short(key: str) -> str:
    return key.rpartition("/")[2]


class SimStore:
    """S3: `ObjectStore`, `Deleter` and `Composer`; strongly consistent, conditional, with faults.

    Args:
        net: between it and the tasks.
        objects: what is in it.
        created: told of every new object, when it is there.
        deleted: told of every object that goes, when it is gone.
        edge: told before a batch of deletes.
        before_put: told before every PUT.
    """

    def __init__(
        self,
        net: Net,
        objects: MemoryObjectStore,
        created: Told,
        deleted: Told,
        edge: Edge = lambda what, stream: None,
        before_put: Told = lambda key: None,
    ) -> None:
        self._net = net
        self._before_put = before_put
        self.inner = objects
        self._created = created
        self._deleted = deleted
        self._edge = edge

    def put(self, key: str, body: Buffer, *, write_id: str, crc: int | None = None) -> None:
        data = bytes(body)
        self._before_put(key)

        def effect() -> None:
            known = key in self.inner.objects
            self.inner.put(key, data, write_id=write_id, crc=crc)
            if not known:
                self._net.scheduler.say(f"PUT {_short(key)}")
                self._created(key)

        try:
            self._net.write(S3, f"PUT {_short(key)}", effect)
        except LostError:
            raise UnknownOutcomeError("no answer", key=key) from None

    def get(self, key: str, start: int, end: int) -> Buffer:
        return self._net.read(S3, "GET", lambda: self.inner.get(key, start, end))

    def get_all(self, key: str, *, limit: int) -> bytes:
        return self._net.read(S3, "GET", lambda: self.inner.get_all(key, limit=limit))

    def get_suffix(self, key: str, length: int) -> bytes:
        return self._net.read(S3, "GET", lambda: self.inner.get_suffix(key, length))

    def delete(self, keys: Sequence[str]) -> list[str]:
        """Some of the keys may stay; and of those that went, not all need be told."""
        scheduler = self._net.scheduler
        if keys:
            self._edge("delete", keys[0])
        self._net.read(S3, "DELETE", lambda: None)  # refused, or on its way for a while
        troubled = self._net.percent and scheduler.choices.chance(self._net.percent)
        gone: list[str] = []
        for key in keys:
            fate = scheduler.choices.below(3) if troubled else 0
            if fate < 2:
                if key in self.inner.objects:
                    scheduler.say(f"DELETE {_short(key)}")
                    self.inner.delete([key])
                    self._deleted(key)
                if fate == 0:
                    gone.append(key)
        return gone

    def versions(
        self, prefix: str, *, after: tuple[str, str] = ("", ""), limit: int = 1000
    ) -> VersionPage:
        return self._net.read(
            S3, "LIST versions", lambda: self.inner.versions(prefix, after=after, limit=limit)
        )

    def delete_versions(self, rows: Sequence[ObjectVersion]) -> list[ObjectVersion]:
        """As `delete`: here every object has the one version that it has."""
        gone = set(self.delete([row.key for row in rows]))
        return [row for row in rows if row.key in gone]

    def compose(self, key: str, parts: Sequence[Part], *, write_id: str) -> None:
        def effect() -> None:
            known = key in self.inner.objects
            self.inner.compose(key, parts, write_id=write_id)
            if not known:
                scheduler = self._net.scheduler
                scheduler.say(f"COMPOSE {_short(key)}")
                self._created(key)

        try:
            self._net.write(S3, f"COMPOSE {_short(key)}", effect)
        except LostError:
            raise UnknownOutcomeError("no answer", key=key) from None

    def level(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[str]:
        def effect() -> list[str]:
            return self.inner.level(prefix, start_after=start_after, limit=limit)

        return self._net.read(S3, "LIST", effect)

    def list(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        def effect() -> list[ObjectInfo]:
            rows = self.inner.list(prefix, start_after=start_after, limit=limit)
            if task is not None:
                task.seen.update(row.key for row in rows)
            return rows

        task = self._net.scheduler.task

        return self._net.read(S3, "LIST", effect)


class SimCatalog:
    """DynamoDB: conditional writes whose answers may be lost, and a table that may be restored.

    Args:
        net: between it and the tasks.
        landed: told of every item that a commit, an anchor or an adoption has made.
        lost: told of every commit whose condition did not hold.
        edge: told before every conditional write.
        policies: the rules in the table; a restore leaves them as they are.
    """

    def __init__(
        self,
        net: Net,
        landed: Callable[[CatalogItem, str], None],
        lost: Callable[[str], None] = lambda what: None,
        edge: Edge = lambda what, stream: None,
        policies: MemoryPolicies | None = None,
    ) -> None:
        self._net = net
        self._policies = policies
        self._landed = landed
        self._lost = lost
        self._edge = edge
        self.inner = MemoryCatalog("table 1", policies)
        self._tables = 1
        self.replaced: CatalogItem | None = None  # by the change that landed last
        self._backups: list[dict[str, CatalogItem]] = [{}]

    def back_up(self) -> None:
        """Take a point in time to which the table may be restored."""
        self._backups.append(dict(self.inner.items))

    def restore(self, back: int) -> None:
        """Another table, as the `back`-th last backup had it."""
        self._tables += 1
        self.inner = MemoryCatalog(f"table {self._tables}", self._policies)
        self.inner.items = dict(self._backups[-1 - back % len(self._backups)])
        self._backups = [dict(self.inner.items)]

    def table_id(self) -> str:
        return self.inner.table_id()

    def get(self, stream: str) -> CatalogItem | None:
        return self._net.read(DYNAMODB, "GetItem", lambda: self.inner.get(stream))

    def streams(self) -> Iterator[CatalogItem]:
        return self._net.read(DYNAMODB, "Scan", self.inner.streams)

    def page(self, cursor: str | None, limit: int, *, fresh: bool = True) -> CatalogPage:
        return self._net.read(
            DYNAMODB, "Query", lambda: self.inner.page(cursor, limit, fresh=fresh)
        )

    def cursor_at(self, token: int) -> str | None:
        return self.inner.cursor_at(token)

    def anchor(self, item: CatalogItem) -> CatalogItem:
        def effect() -> CatalogItem:
            if item.table_id != self.inner.table_id():
                raise UnavailableError("the table is gone")
            known = item.stream in self.inner.items
            there = self.inner.anchor(item)
            if not known:
                self._net.scheduler.say("anchor")
                self._landed(there, "anchor")
            return there

        return self._known("anchor", effect)

    def adopt(self, item: CatalogItem, *, replacing: CatalogItem | None) -> CommitOutcome:
        def effect() -> CommitOutcome:
            before = self.inner.items.get(item.stream)
            outcome = self.inner.adopt(item, replacing=replacing)
            return self._told(outcome, before, "adopt")

        self._edge("adopt", item.stream)
        return self._outcome("adopt", effect)

    def commit(self, commit: Commit) -> CommitOutcome:
        what = "claim" if commit.claim else "commit"

        def effect() -> CommitOutcome:
            before = self.inner.items.get(commit.stream)
            return self._told(self.inner.commit(commit), before, what)

        self._edge(what, commit.stream)
        return self._outcome(what, effect)

    def change_state(self, change: StateChange) -> CommitOutcome:
        def effect() -> CommitOutcome:
            before = self.inner.items.get(change.stream)
            return self._told(self.inner.change_state(change), before, f"state {change.state}")

        self._edge("state", change.stream)
        return self._outcome("state", effect)

    def set_name(self, stream: str, name: QueueName) -> None:
        self._known("name", lambda: self.inner.set_name(stream, name))

    def _told(self, outcome: CommitOutcome, before: CatalogItem | None, what: str) -> CommitOutcome:
        if isinstance(outcome, Landed) and outcome.item != before:
            item = outcome.item
            self._net.scheduler.say(
                f"{what} landed: version {item.version} epoch {item.epoch}"
                f" [{item.first_offset}, {item.next_offset}) {_short(item.root_key)}"
            )
            self.replaced = before
            self._landed(item, what)
        elif not isinstance(outcome, Landed):
            self._lost(what)
        return outcome

    def _outcome(self, what: str, effect: Callable[[], CommitOutcome]) -> CommitOutcome:
        try:
            return self._net.write(DYNAMODB, what, effect)
        except LostError:
            return Unknown(None)

    def _known(self, what: str, effect: Callable[[], T]) -> T:
        try:
            return self._net.write(DYNAMODB, what, effect)
        except LostError:
            raise UnavailableError(f"{what}: no answer") from None
