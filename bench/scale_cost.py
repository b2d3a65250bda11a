"""What one commit, one rebalance and one retention cost, in requests and bytes, by stream length.

The use cases themselves run, each in a world without any cache, against stores in memory that count
requests and bytes. Groups are made by arithmetic when somebody reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

from bench import synthetic_stream as synthetic
from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.fragment import Buffer
from coldstream.manifest.catalog import CatalogItem, Commit, moved
from coldstream.manifest.entries import Entries, EntryKind
from coldstream.manifest.node import Node
from coldstream.manifest.root import LastChunk, Root
from coldstream.names import GroupKey, parse_metadata_key, root_path
from coldstream.plans.policy import PolicySet, Rule
from coldstream.ports import CommitOutcome, ObjectInfo
from coldstream.remote.context import Context
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.rebalance import rebalance
from coldstream.usecases.retention import retain
from coldstream_devkit.fragments import build_fragment

#: The longest root below 2**34 fragments: one more, and group, kilo-group and mega-group are due.
FULLEST = sum((2 * synthetic.M - 1) * synthetic.M**level for level in range(3))


@dataclass(frozen=True, slots=True)
class Cost:
    """Requests to S3 and DynamoDB; bytes of objects read and written; new groups."""

    requests: int
    read: int
    written: int
    groups: int = 0


@dataclass(frozen=True, slots=True)
class Costs:
    """Of a stream of so many fragments, the root not in memory.

    Attributes:
        fragments: length of the stream.
        entries: of its root.
        append: one commit of one fragment.
        rebalance: the next one.
        half: retention by size, down to half of the bytes.
        age: retention by age, down to half of the time.
        one: retention by size that takes the oldest fragment only.
    """

    fragments: int
    entries: int
    append: Cost
    rebalance: Cost
    half: Cost
    age: Cost
    one: Cost


class _Counter:
    def __init__(self) -> None:
        self.requests = self.read = self.written = self.groups = 0


class _Store(MemoryObjectStore):
    def __init__(self, counter: _Counter) -> None:
        super().__init__()
        self._counter = counter

    def put(self, key: str, body: Buffer, *, write_id: str, crc: int | None = None) -> None:
        self._counter.requests += 1
        self._counter.written += len(body)
        self._counter.groups += not key.endswith(".manifest")
        super().put(key, body, write_id=write_id, crc=crc)

    def get_all(self, key: str, *, limit: int) -> bytes:
        data = self.objects[key] if key in self.objects else _group(key)
        self._counter.requests += 1
        self._counter.read += len(data)
        return data

    def get_suffix(self, key: str, length: int) -> bytes:
        self._counter.requests += 1
        self._counter.read += length
        return super().get_suffix(key, length)

    def list(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        self._counter.requests += 1
        return super().list(prefix, start_after=start_after, limit=limit)


class _Catalog(MemoryCatalog):
    def __init__(self, counter: _Counter) -> None:
        super().__init__()
        self._counter = counter

    def get(self, stream: str) -> CatalogItem | None:
        self._counter.requests += 1
        return super().get(stream)

    def commit(self, commit: Commit) -> CommitOutcome:
        self._counter.requests += 1
        return super().commit(commit)


def _group(key: str) -> bytes:
    """A group of the stream, by arithmetic."""
    found = parse_metadata_key(key, synthetic.PREFIX)
    assert isinstance(found, GroupKey)
    entries = synthetic.children(found.first_offset, found.level)
    return Node(EntryKind(found.level), found.uid, entries).encode()


class _Site:
    """A stream whose current root is `root`, and nothing in any cache."""

    def __init__(self, root: Root) -> None:
        self.counter = _Counter()
        store, catalog = _Store(self.counter), _Catalog(self.counter)
        key = root_path(synthetic.PREFIX, synthetic.STREAM, root.epoch, root.version, 1)
        store.objects[key] = root.encode()
        item = CatalogItem(synthetic.STREAM, catalog.table_id())
        landed = Commit(item.stream, item.table_id, 0, 0, root, root_key=key, uid=1)
        catalog.items[item.stream] = moved(item, landed)
        uids = count(2**63)
        self.store = store
        self.context = Context(store, catalog, synthetic.PREFIX, lambda: next(uids))

    def cost(self) -> Cost:
        counter = self.counter
        return Cost(counter.requests, counter.read, counter.written, counter.groups)


def costs(lengths: Sequence[int]) -> list[Costs]:
    """For each length of the stream."""
    return [_costs(fragments) for fragments in lengths]


def _costs(fragments: int) -> Costs:
    root = synthetic.root(fragments)
    crowded = _crowded(fragments)
    half = fragments // 2
    kept_ms = (fragments - half) * synthetic.STEP_MS // 1000 * 1000 or 1000
    return Costs(
        fragments=fragments,
        entries=len(root.entries),
        append=_append(root),
        rebalance=_rebalance(crowded),
        half=_retain(root, Rule("half", max_bytes=max(1, half * synthetic.SIZE))),
        age=_retain(root, Rule("age", max_age_ms=kept_ms)),
        one=_retain(root, Rule("one", max_bytes=max(1, (fragments - 1) * synthetic.SIZE))),
    )


def _append(root: Root) -> Cost:
    site = _Site(root)
    new = build_fragment(
        root.next_offset,
        root.next_offset + 10,
        stream=synthetic.STREAM,
        epoch=synthetic.EPOCH,
        timestamps=[root.version * synthetic.STEP_MS],
    )
    site.store.objects[new.path(synthetic.PREFIX)] = new.data
    report = commit_runs(site.context, synthetic.STREAM, pause=_never)
    assert (report.commits, report.fragments) == (1, 1)
    return site.cost()


def _crowded(fragments: int) -> Root:
    """The first root from here on that a rebalance would shorten."""
    made = synthetic.shape(fragments)
    youngest = fragments - synthetic.grouped(made)[0]
    full = fragments + 2 * synthetic.M - 1 - youngest
    root = synthetic.root(full)
    one = Entries(synthetic.entries(full, full + 1))
    last = LastChunk(one[0].next_offset - 1, synthetic.EPOCH)
    return replace(root.appended(one, last), version=full + 1)


def _rebalance(root: Root) -> Cost:
    site = _Site(root)
    report = rebalance(site.context, synthetic.STREAM, branching=synthetic.M, pause=_never)
    assert report.landed
    return site.cost()


def _retain(root: Root, rule: Rule) -> Cost:
    site = _Site(root)
    now = root.version * synthetic.STEP_MS
    retain(site.context, synthetic.STREAM, PolicySet((rule,)), now_ms=now, pause=_never)
    return site.cost()


def _never(attempt: int) -> None:
    raise AssertionError("a commit was lost")
