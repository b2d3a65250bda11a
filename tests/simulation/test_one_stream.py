"""One stream and everything that works on it, in any order.

Hypothesis plays uploads (late, twice, in any order), commits, claims, rebalance, retention,
consolidation, collection, deletion, undeletion and restores of a lost table on the in-memory ports
with a branching factor of 4, each killed, or overtaken by another, between any two of its calls. A
small model knows what the broker wrote. After every step the named invariants must hold, every
offset of the manifest must read back byte for byte, and everything that a root of the last grace
time refers to must be there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, pairwise

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.errors import ConflictError
from coldstream.manifest.catalog import CatalogItem, Commit, QueueName, StreamState
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.invariants import Violation, agreement, coverage, fencing, tree_sums
from coldstream.manifest.root import Root, parse_root
from coldstream.manifest.tree import leaf_at, leaves
from coldstream.names import MarkKey, RootKey, parse_data_key, parse_metadata_key
from coldstream.plans.claim import KnownHistory, LocalChunk
from coldstream.plans.collect import ObjectKind, refers
from coldstream.plans.policy import PolicySet, Rule
from coldstream.ports import CommitOutcome, Landed
from coldstream.remote.context import Context
from coldstream.remote.roots import Snapshot, load
from coldstream.usecases.adopt import adopt
from coldstream.usecases.claim import anchor
from coldstream.usecases.collect import collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.consolidate import consolidate
from coldstream.usecases.delete_stream import (
    delete_stream,
    sweep,
    undelete_stream,
)
from coldstream.usecases.rebalance import rebalance
from coldstream.usecases.references import rivals
from coldstream.usecases.retention import retain
from coldstream.usecases.stragglers import sweep_stragglers
from coldstream_devkit.bucket import compare, referenced
from coldstream_devkit.claims import claim
from coldstream_devkit.fragments import SyntheticFragment, build_fragment
from coldstream_devkit.steps import contiguous_advance, immutability, prefix_retention
from tests.support.crashes import Crash, OverWire, Wire
from tests.support.examples import examples

STREAM = "__orders_1"
PREFIX = "rabbitmq/"
FIRST = 100
M = 4
GRACE_MS = 1000
UNDELETE_MS = 500
TARGET = 4000


@dataclass(frozen=True)
class Slice:
    """What the agent cut: chunks that it can upload again under another uid."""

    first: int
    next_offset: int
    epoch: int
    floor: int
    chunk_epochs: tuple[int, ...]
    timestamps: tuple[int, ...]
    segment: int
    position: int

    def upload(self, uid: int) -> SyntheticFragment:
        return build_fragment(
            self.first,
            self.next_offset,
            stream=STREAM,
            epoch=self.epoch,
            floor=self.floor,
            uid=uid,
            chunk_epochs=self.chunk_epochs,
            timestamps=self.timestamps,
            records_per_chunk=5,
            segment_offset=self.segment,
            segment_position=self.position,
        )


#: At which call, and what: the process ends there, or somebody else gets in between.
Disturbance = tuple[int, str]
disturbances = st.one_of(
    st.none(),
    st.tuples(
        st.integers(0, 25),
        st.sampled_from(
            [
                "dies",
                "is carried out and dies",
                "commit",
                "group",
                "retire",
                "join",
                "collect",
            ]
        ),
    ),
)


class Catalog(MemoryCatalog):
    """The catalog, with every item that a commit has made."""

    def __init__(self, table_id: str = "table") -> None:
        super().__init__(table_id)
        self.landed: list[CatalogItem] = []

    def commit(self, commit: Commit) -> CommitOutcome:
        outcome = super().commit(commit)
        if isinstance(outcome, Landed):
            self.landed.append(outcome.item)
        return outcome


class OneStream(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 10_000
        self.uids: Iterator[int] = count(1)
        self.store = MemoryObjectStore(lambda: self.now)
        self.catalog = Catalog()
        self.log: dict[int, bytes] = {}  # chunks of the broker by their offset
        self.chunks: list[LocalChunk] = []
        self.slices: list[Slice] = []
        self.outbox: list[Slice] = []
        self.epoch = 0
        self.segment, self.position = FIRST, 8
        # The newest root, what it holds, and the keys that it refers to.
        self.before: tuple[Root, list[Entry], set[str]] | None = None
        self.hashes: dict[str, str] = {}
        # When a root was replaced, and the data that it refers to.
        self.old_roots: list[tuple[int, set[str]]] = []
        self.deleted_for_good = False
        self.crashed = 0
        self.tables = 0
        self.backups: list[CatalogItem] = []

    @initialize()
    def begin(self) -> None:
        anchor(self.context(), STREAM, FIRST, QueueName("c", "/", "orders"))
        self.new_writer(crash=None)

    # --- the world ---

    def context(self, crash: Disturbance | None = None) -> Context:
        return self._over(self._wire(crash))

    def _over(self, wire: Wire) -> Context:
        self.deleter = OverWire(self.store, wire)
        return Context(
            OverWire(self.store, wire),
            OverWire(self.catalog, wire),
            PREFIX,
            lambda: next(self.uids),
        )

    def _wire(self, crash: Disturbance | None) -> Wire:
        if crash is None:
            return Wire()
        calls, what = crash
        others: dict[str, Callable[[], object]] = {
            "commit": lambda: self.commit_now(None),
            "group": lambda: self.group_now(None),
            "retire": lambda: self.retire_now(3000, None),
            "join": lambda: self.join_now(TARGET, None),
            "collect": lambda: self.collect_now(None),
        }
        if what not in others:
            return Wire(calls, carried_out=what != "dies")

        def meanwhile() -> None:
            mine = self.deleter
            others[what]()
            self.deleter = mine

        return Wire(calls, meanwhile=meanwhile)

    def doing(self, crash: Disturbance | None, act: Callable[[Context], object]) -> object:
        """Run a use case; it may be killed, and it may find the stream deleted."""
        try:
            return act(self.context(crash))
        except Crash:
            self.crashed += 1
        except ConflictError:
            assert self.state is not StreamState.LIVE
        return None

    @property
    def state(self) -> StreamState:
        return self.catalog.items[STREAM].state

    @property
    def live(self) -> bool:
        return self.state is StreamState.LIVE

    @property
    def end(self) -> int:
        return self.chunks[-1].next_offset if self.chunks else FIRST

    # --- the broker and its agent ---

    @rule(crash=disturbances)
    def new_writer(self, crash: Disturbance | None) -> None:
        """A fail-over: the new epoch claims. What was not uploaded is cut again by its agent."""
        epoch = self.epoch + 1
        done = self.doing(
            crash,
            lambda context: claim(
                context, STREAM, epoch, log=KnownHistory(tuple(self.chunks)), pause=lambda _: None
            ),
        )
        claimed = self.catalog.items[STREAM].ledger.floor(epoch)
        if done is None and claimed is None:
            return
        self.epoch = epoch
        # The new writer begins where the manifest ends, under its own epoch.
        tail = self.catalog.items[STREAM].next_offset
        fresh = [s for s in self.outbox if s.next_offset > tail]
        self.outbox = []
        assert claimed is not None
        for old in fresh:
            if old.first >= tail:
                self._queue(old, claimed)

    def _queue(self, old: Slice, floor: int) -> None:
        again = Slice(
            old.first,
            old.next_offset,
            self.epoch,
            floor,
            old.chunk_epochs,
            old.timestamps,
            old.segment,
            old.position,
        )
        self.outbox.append(again)
        self.slices.append(again)

    @precondition(lambda self: self.live)
    @rule(
        sizes=st.lists(st.integers(1, 12), min_size=8, max_size=24),
        step=st.integers(-40, 80),
        roll=st.booleans(),
    )
    def run_undisturbed(self, sizes: list[int], step: int, roll: bool) -> None:
        """A while in which all goes well, so that histories get long enough to have a tree."""
        self.write(sizes, step, roll)
        while self.outbox:
            self._put(self.outbox.pop(0))
        commit_runs(self.context(), STREAM, pause=lambda _: None)

    @rule(
        sizes=st.lists(st.integers(1, 12), min_size=1, max_size=10),
        step=st.integers(-40, 80),
        roll=st.booleans(),
    )
    def write(self, sizes: list[int], step: int, roll: bool) -> None:
        """The broker writes chunks of five records or fewer, one slice for each size."""
        if roll:
            self.segment, self.position = self.end, 8
        floor = self.catalog.items[STREAM].ledger.floor(self.epoch) or 0
        for size in sizes:
            first = self.end
            starts = range(first, first + size, 5)
            times = tuple(self.now + step + number for number in range(len(starts)))
            made = Slice(
                first,
                first + size,
                self.epoch,
                floor,
                (self.epoch,) * len(starts),
                times,
                self.segment,
                self.position,
            )
            fragment = made.upload(0)
            self.log[first] = fragment.chunks
            self.position += len(fragment.chunks)
            for start, next_offset in pairwise((*starts, first + size)):
                self.chunks.append(LocalChunk(start, next_offset, self.epoch))
            self.outbox.append(made)
            self.slices.append(made)

    @precondition(lambda self: self.outbox)
    @rule(data=st.data())
    def upload(self, data: st.DataObject) -> None:
        """Some of what waits reaches S3, in any order."""
        for _ in range(data.draw(st.integers(1, len(self.outbox)))):
            number = data.draw(st.integers(0, min(2, len(self.outbox) - 1)))
            self._put(self.outbox.pop(number))

    @precondition(lambda self: self.slices)
    @rule(data=st.data())
    def upload_again(self, data: st.DataObject) -> None:
        """An upload whose answer was lost, or of a writer that does not know it was deposed."""
        self._put(self.slices[data.draw(st.integers(0, len(self.slices) - 1))])

    def _put(self, which: Slice) -> None:
        fragment = which.upload(next(self.uids))
        self.store.put(fragment.path(PREFIX), fragment.data, write_id=f"{fragment.key.uid}")

    @rule(by=st.integers(1, 2 * GRACE_MS))
    def wait(self, by: int) -> None:
        self.now += by

    # --- what runs in AWS ---

    @rule(crash=disturbances)
    def commit(self, crash: Disturbance | None) -> None:
        self.commit_now(crash)

    def commit_now(self, crash: Disturbance | None) -> None:
        self.doing(crash, lambda context: commit_runs(context, STREAM, pause=lambda _: None))

    @rule(crash=disturbances)
    def group(self, crash: Disturbance | None) -> None:
        self.group_now(crash)

    def group_now(self, crash: Disturbance | None) -> None:
        self.doing(
            crash, lambda context: rebalance(context, STREAM, branching=M, pause=lambda _: None)
        )

    @rule(size=st.integers(0, 8000), age=st.integers(0, 5), crash=disturbances)
    def retire(self, size: int, age: int, crash: Disturbance | None) -> None:
        self.retire_now(size, crash, age=age)

    def retire_now(self, size: int, crash: Disturbance | None, *, age: int = 0) -> None:
        limits = Rule("r", max_bytes=size or None, max_age_ms=age * 1000 or None)
        self.doing(
            crash,
            lambda context: retain(
                context, STREAM, PolicySet((limits,)), now_ms=self.now, pause=lambda _: None
            ),
        )

    @rule()
    def retire_under_a_hold(self) -> None:
        before = self.catalog.items[STREAM].first_offset
        limits = Rule("r", max_bytes=1, hold=True)
        self.doing(
            None,
            lambda context: retain(
                context, STREAM, PolicySet((limits,)), now_ms=self.now, pause=lambda _: None
            ),
        )
        assert self.catalog.items[STREAM].first_offset == before

    @rule(full=st.sampled_from([500, TARGET, 100_000]), crash=disturbances)
    def join(self, full: int, crash: Disturbance | None) -> None:
        self.join_now(full, crash)

    def join_now(self, full: int, crash: Disturbance | None) -> None:
        self.doing(
            crash,
            lambda context: consolidate(
                context,
                self.deleter,
                STREAM,
                target_size=full,
                branching=M,
                pause=lambda _: None,
            ),
        )

    @rule(crash=disturbances)
    def take_out_the_garbage(self, crash: Disturbance | None) -> None:
        self.collect_now(crash)

    def collect_now(self, crash: Disturbance | None) -> None:
        def act(context: Context) -> object:
            if self.state is StreamState.DELETED:
                return sweep_stragglers(
                    context,
                    self.deleter,
                    STREAM,
                    grace_ms=GRACE_MS,
                    run_ms=self.now,
                    now_ms=self.now,
                    held=lambda _: False,
                )
            return collect(
                context,
                self.deleter,
                STREAM,
                grace_ms=GRACE_MS,
                run_ms=self.now,
                now_ms=self.now,
                held=lambda _: False,
            )

        self.doing(crash, act)

    @rule(crash=disturbances, rarely=st.integers(0, 5))
    def delete(self, crash: Disturbance | None, rarely: int) -> None:
        if rarely != 5:
            return
        self.doing(
            crash,
            lambda context: delete_stream(
                context, STREAM, PolicySet(), now_ms=self.now, undelete_ms=UNDELETE_MS
            ),
        )

    @precondition(lambda self: self.state is StreamState.DELETING)
    @rule(crash=disturbances)
    def undelete(self, crash: Disturbance | None) -> None:
        self.doing(crash, lambda context: undelete_stream(context, STREAM))

    @precondition(lambda self: not self.live)
    @rule(crash=disturbances, late=st.integers(0, 3))
    def sweep(self, crash: Disturbance | None, late: int) -> None:
        item = self.catalog.items[STREAM]
        if self.state is StreamState.DELETING and (late or self.now < item.undelete_until):
            return  # keep most histories alive: what follows the sweep is short
        revision = item.revision - (self.state is StreamState.DELETED)
        self.doing(
            crash,
            lambda context: sweep(
                context,
                self.deleter,
                STREAM,
                PolicySet(),
                revision=revision,
                empty=0,
                now_ms=self.now,
                time_left=lambda: True,
            ),
        )

    @precondition(lambda self: self.state in (StreamState.LIVE, StreamState.DELETED))
    @rule(lost=st.booleans(), crashes=st.lists(disturbances, max_size=2))
    def lose_the_table(self, lost: bool, crashes: list[Disturbance | None]) -> None:
        """The table is gone; there is an empty one, or one from a backup, and adoptions may die.

        Whatever root is adopted, also one that never landed: everything must be there.
        """
        if not self.store.objects or (lost and not self.live):
            return  # nobody can know of it any more; and a tombstone that is lost is no tombstone
        self.tables += 1
        backup = self.backups[-1 if self.tables % 2 else 0] if self.backups else None
        current = self.catalog.items[STREAM]
        if not self.live:
            backup = current
        self.catalog = Catalog(f"table {self.tables}")
        if not lost and backup is not None:
            self.catalog.items[STREAM] = backup
        elif not lost:
            self.catalog.items[STREAM] = current
        for crash in crashes:
            if crash is not None and crash[1].startswith(("dies", "is")):
                self._adopting(crash)
        self._adopting(None)
        self.backups.clear()
        item = self.catalog.items[STREAM]
        assert item.table_id == self.catalog.table_id()
        if item.state is StreamState.LIVE:
            # Not to be compared with the root before it: one that never landed may be the newest.
            self.catalog.landed.clear()
            self.before = None

    def _adopting(self, crash: Disturbance | None) -> None:
        try:
            adopt(self.context(crash), STREAM)
        except Crash:
            self.crashed += 1

    @precondition(lambda self: self.live)
    @rule(what=st.sampled_from(["group", "join", "retire"]), days=st.integers(0, 3))
    def leave_a_root_that_never_landed(self, what: str, days: int) -> None:
        """A machine dies after the PUT of its root; collect has all the time it wants."""
        landing = self.catalog.commit

        def dies(commit: Commit) -> CommitOutcome:
            del commit
            raise Crash

        self.catalog.commit = dies  # type: ignore[method-assign]
        try:
            {
                "group": lambda: self.group_now(None),
                "join": lambda: self.join_now(100_000, None),
                "retire": lambda: self.retire_now(3000, None),
            }[what]()
        finally:
            self.catalog.commit = landing  # type: ignore[method-assign]
        for _ in range(days):
            self.now += 2 * GRACE_MS
            self.collect_now(None)

    @rule()
    def back_up(self) -> None:
        """A backup of the table, as it is now."""
        if self.live:
            self.backups.append(self.catalog.items[STREAM])

    # --- what must hold after every step ---

    @invariant()
    def nothing_changes_in_place(self) -> None:
        now = {key: hashlib.sha256(data).hexdigest() for key, data in self.store.objects.items()}
        _none(immutability(self.hashes, now))
        self.hashes |= now

    @invariant()
    def the_manifest_holds(self) -> None:
        if STREAM not in self.catalog.items or self.state is StreamState.DELETED:
            return
        item = self.catalog.items[STREAM]
        if not item.root_key:
            return
        root = parse_root(self.store.objects[item.root_key])
        context = self.context()
        fetch = context.fetch(STREAM)
        live = list(leaves(root, fetch))
        _none(agreement(item, root))
        _none(coverage(root, live))
        _none(fencing(root, live))
        _none(tree_sums(root, fetch))
        assert root.next_offset <= self.end
        for entry in live:
            self._reads_back(entry)
        self._still_there()
        self.steps_between_roots_hold()

    def steps_between_roots_hold(self) -> None:
        """Every root that landed against the one before it."""
        fetch = self.context().fetch(STREAM)
        for item in self.catalog.landed:
            root = parse_root(self.store.objects[item.root_key])
            live = list(leaves(root, fetch))
            if self.before is not None:
                old, old_leaves, old_data = self.before
                _none(contiguous_advance(old, root, live))
                _none(prefix_retention(old, root, old_leaves, live))
                self.old_roots.append((self.now, old_data))
            self.before = root, live, referenced(PREFIX, item, root, fetch)
        self.catalog.landed.clear()

    def _reads_back(self, entry: Entry) -> None:
        assert entry.kind is EntryKind.FRAGMENT
        data = self.store.objects[entry.data_key(STREAM).path(PREFIX)]
        assert len(data) == entry.size
        offsets = [at for at in self.log if entry.first_offset <= at < entry.next_offset]
        wanted = b"".join(self.log[at] for at in sorted(offsets))
        assert data[8 : 8 + len(wanted)] == wanted
        assert data[8 + len(wanted) :][:4] == b"OSII"

    def _still_there(self) -> None:
        """Who loaded a root within the last grace time finds everything that it refers to."""
        self.old_roots = [
            (when, keys) for when, keys in self.old_roots if when > self.now - GRACE_MS
        ]
        for _, keys in self.old_roots:
            gone = {key for key in keys if key not in self.store.objects}
            assert not gone, f"a reader of the last grace time misses {gone}"

    def teardown(self) -> None:
        """Without crashes everything comes to rest: all uploads in the manifest, no garbage."""
        if STREAM not in self.catalog.items:
            return
        if self.live:
            self._settle()
        elif self.state is StreamState.DELETED:
            for _ in range(2):
                self.now += 2 * GRACE_MS
                sweep_stragglers(
                    self.context(),
                    self.store,
                    STREAM,
                    grace_ms=GRACE_MS,
                    run_ms=self.now,
                    now_ms=self.now,
                    held=lambda _: False,
                )
            assert not self.store.objects

    def _settle(self) -> None:
        context = self.context()
        root = load(context, STREAM).root
        # The agent cuts again what lies behind the manifest, as it does when nothing follows.
        while self.outbox:
            self._put(self.outbox.pop(0))
        commit_runs(context, STREAM, pause=lambda _: None)
        rebalance(context, STREAM, branching=M, pause=lambda _: None)
        # A root that lost goes first, then what only it has named, and each is seen twice.
        for _ in range(6):
            self.now += 2 * GRACE_MS
            report = collect(
                context,
                self.store,
                STREAM,
                grace_ms=GRACE_MS,
                run_ms=self.now,
                now_ms=self.now,
                held=lambda _: False,
            )
        assert report.waiting.objects == 0
        loaded = load(context, STREAM)
        assert loaded.root.next_offset >= root.next_offset
        kept = {ObjectKind.PENDING, ObjectKind.UNIQUE, ObjectKind.RECORD}
        pending = {key for key in self.store.objects if _kind(context, loaded, key) in kept}
        _none(
            compare(
                self.store,
                PREFIX,
                loaded.item,
                loaded.root,
                context.fetch(STREAM),
                accounted_for=pending,
            )
        )


def _kind(context: Context, loaded: Snapshot, key: str) -> ObjectKind:
    fetch = context.fetch(STREAM)
    others = rivals(context, loaded.item) or []
    if "/data/" not in key:
        node = parse_metadata_key(key, PREFIX)
        if isinstance(node, MarkKey):
            return ObjectKind.RECORD
        if isinstance(node, RootKey):
            # One that never landed may be adopted until the version after it has landed.
            return (
                ObjectKind.PENDING if node.version > loaded.item.version else ObjectKind.REFERENCED
            )
        named = any(refers(root, node, fetch) for root in others)
        return ObjectKind.PENDING if named else ObjectKind.REFERENCED
    parsed = parse_data_key(key, PREFIX)
    if any(refers(root, parsed, fetch) for root in others):
        return ObjectKind.PENDING
    leaf = leaf_at(loaded.root, parsed.first_offset, context.fetch(STREAM))
    if leaf is not None and leaf.data_key(STREAM) == parsed:
        return ObjectKind.REFERENCED
    if parsed.next_offset > loaded.root.next_offset:
        return ObjectKind.PENDING
    # A deposed writer never wrote anything of its own here, so nothing is unique.
    return ObjectKind.SUPERSEDED


def _none(violations: list[Violation]) -> None:
    assert not violations, "; ".join(
        f"{each.invariant}: {each.message} ({each.first_offset})" for each in violations
    )


OneStream.TestCase.settings = examples(0.6, stateful_step_count=50, print_blob=True)
TestOneStream = OneStream.TestCase
