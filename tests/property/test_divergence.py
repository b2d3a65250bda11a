"""Random histories of fail-overs that lose data: no uploaded chunk ever disappears from the bucket.

A model cluster has one log. Writers upload it in pieces of any size; a fail-over may take the log
back to any offset and go on from there under a new epoch; deposed writers upload late; local logs
forget their beginning; garbage is collected again and again. Nobody retires or gives up anything,
so every chunk that was ever uploaded must still be somewhere, and the manifest must be the log.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from coldstream.adapters.memory import MemoryCatalog
from coldstream.crc import crc32
from coldstream.fragment import (
    HEADER,
    INDEX_HEADER,
    IndexRecord,
    Placement,
    build_trailer,
    encode_index,
    parse_trailer,
)
from coldstream.manifest.invariants import agreement, coverage, fencing, tree_sums
from coldstream.manifest.tree import leaves
from coldstream.names import DataKey, parse_data_key
from coldstream.osiris.chunk import iter_chunks
from coldstream.plans.claim import KnownHistory, LocalChunk
from coldstream.ports import Unknown
from coldstream.remote.roots import load
from coldstream.usecases.adopt import adopt
from coldstream.usecases.collect import collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.quarantine import current_record, lost_data
from coldstream.usecases.rebalance import rebalance
from coldstream.usecases.rebuild import rebuild
from coldstream.usecases.references import first_missing
from coldstream_devkit.claims import claim
from coldstream_devkit.fragments import SyntheticFragment, build_fragment
from tests.support.remote import PREFIX, STREAM, Remote, no_pause

GRACE = 1000
Chunk = tuple[int, int, int]


class Killed(BaseException):
    """The process ends."""


def _dies(_: Any) -> None:
    raise Killed


def chunks_of(data: bytes) -> set[Chunk]:
    trailer = parse_trailer(data)
    headers = [each.header for each in iter_chunks(data[8 : trailer.index_position])]
    return {(h.chunk_id, h.next_offset, h.epoch) for h in headers}


@dataclass
class Cluster:
    """The model and the real remote tier."""

    dice: random.Random
    remote: Remote = field(init=False)
    log: list[Chunk] = field(default_factory=list)
    begin: int = 0  # offset at which the local log begins
    epoch: int = 0
    uid: int = 0
    uploaded: set[Chunk] = field(default_factory=set)
    late: list[SyntheticFragment] = field(default_factory=list)
    now: int = 10**6

    def __post_init__(self) -> None:
        self.remote = Remote(self.dice.getrandbits(32))
        self.remote.memory._clock_ms = lambda: self.now
        self.remote.anchor()
        self.elect(0)

    @property
    def end(self) -> int:
        return self.log[-1][1] if self.log else 0

    def write(self) -> None:
        for _ in range(self.dice.randint(1, 6)):
            size = self.dice.choice((1, 3, 5))
            self.log.append((self.end, self.end + size, self.epoch))

    def elect(self, keep: int) -> None:
        """A fail-over after which the log has only its first `keep` chunks, and one more."""
        del self.log[keep:]
        self.epoch += self.dice.randint(1, 2)
        self.log.append((self.end, self.end + self.dice.choice((1, 3, 5)), self.epoch))
        local = [c for c in self.log if c[0] >= self.begin] or self.log[-1:]
        self.begin = local[0][0]
        log = KnownHistory(tuple(LocalChunk(*each) for each in local))
        self.something_happens()
        limit = self.dice.choice((2, 500))
        try:
            claim(
                self.remote.new_context(), STREAM, self.epoch, log=log, pause=no_pause, limit=limit
            )
        except Killed:
            self.in_peace()
            if self.dice.random() < 0.5:
                self.commit()
            claim(self.remote.new_context(), STREAM, self.epoch, log=log, pause=no_pause)
        self.in_peace()

    def something_happens(self) -> None:
        """An answer is lost, somebody else commits first, or the process dies at any request."""
        remote = self.remote
        chance = self.dice.random()
        if chance < 0.15:
            remote.catalog.after["commit"] = lambda answer: Unknown(answer.item)
        elif chance < 0.3:
            remote.catalog.before["commit"] = lambda *_: self.commit()
        elif chance < 0.4:
            remote.catalog.after["commit"] = _dies
        elif chance < 0.5:
            remote.catalog.before["commit"] = _dies
        elif chance < 0.6:
            remote.store.after["put"] = _dies

    def in_peace(self) -> None:
        for each in (self.remote.store, self.remote.catalog):
            each.before.clear()
            each.after.clear()

    def lose_table(self) -> None:
        """The table is gone, or restored from a backup of right now."""
        table = MemoryCatalog(f"table {self.now}")
        if self.dice.random() < 0.5:
            table.items.update(self.remote.items.items)
        self.remote.items = self.remote.catalog.target = table
        adopt(self.remote.new_context(), STREAM)

    def cut(self, start: int) -> SyntheticFragment | None:
        """A fragment of the log from an offset on, under the claim that holds."""
        ledger = self.remote.items.items[STREAM].ledger
        floor = ledger.floor(self.epoch)
        assert floor is not None
        found = [c for c in self.log if c[0] >= start][: self.dice.randint(1, 5)]
        if not found or found[0][0] < floor:
            return None
        self.uid += 1
        return _fragment(found, epoch=self.epoch, floor=floor, uid=self.uid)

    def put(self, fragment: SyntheticFragment) -> None:
        self.remote.upload(fragment)
        self.uploaded |= chunks_of(fragment.data)

    def upload(self) -> None:
        start = self.remote.items.items[STREAM].next_offset
        while (fragment := self.cut(start)) is not None:
            chance = self.dice.random()
            if chance < 0.15:
                self.late.append(fragment)
            else:
                self.put(fragment)
            start = fragment.key.next_offset
            if chance > 0.8:
                return

    def commit(self) -> None:
        commit_runs(self.remote.new_context(), STREAM, pause=no_pause)

    def collect(self) -> None:
        self.now += GRACE
        cursor = None
        while True:
            done = collect(
                self.remote.new_context(), self.remote.memory, STREAM,
                grace_ms=GRACE, run_ms=self.now, now_ms=self.now,
                cursor=cursor, held=lambda _: False,
            )  # fmt: skip
            cursor = done.cursor
            if cursor is None:
                return

    def step(self) -> None:
        self.now += 1
        match self.dice.randint(0, 10):
            case 0 | 1:
                self.write()
            case 2 | 3:
                self.upload()
            case 4:
                self.commit()
            case 5:
                kept = [n for n, c in enumerate(self.log) if c[0] >= self.begin] or [0]
                self.elect(self.dice.randint(kept[0], len(self.log)))
            case 6:
                if self.late:
                    self.put(self.late.pop(self.dice.randrange(len(self.late))))
            case 7:
                self.collect()
            case 8:
                rebalance(self.remote.new_context(), STREAM, branching=2, pause=no_pause)
            case 9:
                done = self.remote.items.items[STREAM].next_offset
                begins = [c[0] for c in self.log if self.begin <= c[0] <= done]
                if begins and self.dice.random() < 0.3:
                    self.begin = self.dice.choice(begins)
            case 10:
                if self.dice.random() < 0.2:
                    self.lose_table()

    def check(self) -> None:
        context = self.remote.new_context()
        loaded, fetch = load(context, STREAM), context.fetch(STREAM)
        live = list(leaves(loaded.root, fetch))
        assert not agreement(loaded.item, loaded.root)
        assert not coverage(loaded.root, live)
        assert not fencing(loaded.root, live)
        assert not tree_sums(loaded.root, fetch)
        objects = self.remote.memory.objects
        held: set[Chunk] = set()
        for entry in live:
            held |= chunks_of(objects[entry.data_key(STREAM).path(PREFIX)])
        assert held <= set(self.log), "the manifest is the log, as far as it goes"
        there: set[Chunk] = set()
        for key, data in objects.items():
            if key.endswith(".fragment"):
                parse_data_key(key, PREFIX)
                there |= chunks_of(data)
        assert self.uploaded <= there, f"lost for ever: {sorted(self.uploaded - there)}"

    def check_quarantine(self) -> None:
        context = self.remote.new_context()
        loaded, record = current_record(context, STREAM)
        assert first_missing(context, STREAM, loaded.root) is None
        for timeline in record.timelines:
            data = lost_data(context, STREAM, timeline)
            if data.root is not None:
                for entry in leaves(data.root, context.fetch(STREAM), start=timeline.floor):
                    assert entry.data_key(STREAM).path(PREFIX) in self.remote.memory.objects


def _fragment(found: list[Chunk], *, epoch: int, floor: int, uid: int) -> SyntheticFragment:
    """A fragment with exactly these chunks: `build_fragment` makes equal ones, so it is joined."""
    parts = [
        build_fragment(
            first, next_offset, stream=STREAM, epoch=of, records_per_chunk=next_offset - first
        ).chunks
        for first, next_offset, of in found
    ]
    records, position = [], 0
    for (first, _, _), part in zip(found, parts, strict=True):
        records.append(IndexRecord(first, 1_700_000_000_000 + first, position))
        position += len(part)
    data, index = b"".join(parts), encode_index(records)
    trailer = build_trailer(
        placement=Placement(epoch, floor, found[0][0], 0, 8),
        index=index,
        next_offset=found[-1][1],
        first_chunk_epoch=found[0][2],
        last_chunk_epoch=found[-1][2],
        data_size=len(data),
        data_crc=crc32(data),
    )
    key = DataKey(STREAM, found[0][0], found[-1][1], epoch, uid)
    return SyntheticFragment(key, HEADER + data + INDEX_HEADER + index + trailer.encode())


@pytest.mark.parametrize("seed", range(60))
def test_whatever_fail_overs_lose_is_still_in_the_bucket(seed: int) -> None:
    cluster = Cluster(random.Random(seed))
    for _ in range(60):
        cluster.step()
        cluster.check()
    for _ in range(3):
        cluster.now += 2 * GRACE
        cluster.collect()
    cluster.check()
    cluster.check_quarantine()


@pytest.mark.parametrize("seed", range(60, 75))
def test_a_rebuild_from_the_bucket_gives_the_same_tree_after_any_fail_overs(seed: int) -> None:
    cluster = Cluster(random.Random(seed))
    for _ in range(50):
        cluster.step()
    cluster.commit()
    before = load(cluster.remote.new_context(), STREAM).root

    rebuild(cluster.remote.new_context(), STREAM, branching=4, dry_run=False)

    after = load(cluster.remote.new_context(), STREAM).root
    assert (after.first_offset, after.quarantine_key) == (
        before.first_offset,
        before.quarantine_key,
    )
    assert after.next_offset >= before.next_offset
    cluster.check()
    cluster.check_quarantine()
