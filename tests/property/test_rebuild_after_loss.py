"""Any history, any loss of metadata: a rebuild brings back what was there, or it does not land."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.errors import ColdstreamError, CorruptDataError, UnavailableError
from coldstream.fragment import HEADER, FragmentIndex, parse_trailer
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.invariants import agreement, coverage, fencing, tree_sums
from coldstream.manifest.root import Root, parse_root
from coldstream.manifest.tree import leaves
from coldstream.names import DataKey, parse_data_key
from coldstream.osiris.chunk import Chunk, iter_chunks
from coldstream.plans.claim import LocalChunk
from coldstream.plans.policy import PolicySet, Rule
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.usecases.collect import collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.consolidate import consolidate
from coldstream.usecases.quarantine import Quarantine
from coldstream.usecases.rebalance import rebalance
from coldstream.usecases.rebuild import LackingError, RebuildReport, rebuild
from coldstream.usecases.repair import repair
from coldstream.usecases.retention import retain
from coldstream_devkit.fragments import START_MS, SyntheticFragment, build_fragment
from tests.support.remote import PREFIX, STREAM, Remote, no_pause

M, GRACE, SIZE = 2, 1000, 10
CHUNK_BYTES = len(build_fragment(0, SIZE, body_size=23).chunks)

#: Offset of a chunk, and the epoch in which it was written.
ChunkName = tuple[int, int]


class Cluster:
    """A stream with a past, of which the bucket forgets a part."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 1_800_000_000_000
        self.remote = Remote(seed)
        self.remote.memory._clock_ms = lambda: self.now
        self.remote.claimed()
        self.epoch, self.floor = 1, 0
        self.epochs: list[int] = []  # of the chunks of the broker's log
        self.rotten: set[str] = set()
        self.holes = False

    @property
    def context(self) -> Context:
        return self.remote.new_context()

    @property
    def objects(self) -> dict[str, bytes]:
        return self.remote.memory.objects

    def root(self) -> Root:
        return load(self.context, STREAM).root

    def live(self) -> list[Entry]:
        return list(leaves(self.root(), self.context.fetch(STREAM)))

    def made(self, first: int, next_offset: int, *, epoch: int, floor: int) -> SyntheticFragment:
        """The chunks of a range as the broker has them."""
        numbers = range(first // SIZE, next_offset // SIZE)
        return build_fragment(
            first,
            next_offset,
            stream=STREAM,
            epoch=epoch,
            floor=floor,
            uid=self.rng.getrandbits(64),
            chunk_epochs=[self.epochs[number] for number in numbers],
            timestamps=[START_MS + number for number in numbers],
            body=lambda offset: b"%09d of epoch %04d" % (offset, self.epochs[offset // SIZE]),
            segment_offset=0,
            segment_position=8 + first // SIZE * CHUNK_BYTES,
        )

    def put(self, made: SyntheticFragment, data: bytes | None = None) -> str:
        path = made.path(PREFIX)
        body = made.data if data is None else data
        self.remote.memory.put(path, body, write_id=path)
        if body != made.data:
            self.rotten.add(path)
        return path

    # What happens.

    def uploads(self) -> None:
        at = self.root().next_offset
        for _ in range(self.rng.randint(1, 4)):
            length = SIZE * self.rng.randint(1, 3)
            while len(self.epochs) * SIZE < at + length:
                self.epochs.append(self.epoch)
            made = self.made(at, at + length, epoch=self.epoch, floor=self.floor)
            if self.rng.random() < 0.2:
                bad = replace(made, key=replace(made.key, uid=self.rng.getrandbits(64)))
                self.put(bad, made.data[:-9] + b"?" + made.data[-8:])  # no trailer holds
            self.put(made)
            at += length
        commit_runs(self.context, STREAM, pause=no_pause)

    def rebalances(self) -> None:
        rebalance(self.context, STREAM, branching=M, pause=no_pause)

    def consolidates(self) -> None:
        lost = self.rng.random() < 0.5
        context = self.context
        if lost:

            def fails(*_: object) -> None:
                raise UnavailableError("not now")

            self.remote.catalog.before["commit"] = fails
        with suppress(ColdstreamError):
            consolidate(
                context, self.remote.memory, STREAM, target_size=3000, branching=M, pause=no_pause
            )
        self.remote.catalog.before.clear()

    def composes_what_is_rotten(self) -> None:
        """A consolidated object, composed of rotten pieces, that never landed."""
        run = self._neighbours()
        if run is None:
            return
        made = self._again(run[0].first_offset, run[-1].next_offset, run[0])
        at = len(HEADER) + self.rng.randrange(60, 120)
        data = made.data[:at] + bytes([made.data[at] ^ 1]) + made.data[at + 1 :]
        self.put(made, data)

    def uploads_late(self) -> None:
        """A second upload of a range: whole, rotten, cut short, or over several fragments."""
        run = self._neighbours()
        if run is None:
            return
        made = self._again(run[0].first_offset, run[-1].next_offset, run[0])
        flip = len(HEADER) + 70
        how = self.rng.randrange(4)
        if how == 0:
            self.put(made, made.data[:flip] + b"\xff" + made.data[flip + 1 :])
        elif how == 1:
            self.put(made, made.data[:-3])
        else:
            self.put(made)

    def rots_and_is_repaired(self) -> None:
        fragments = [each for each in self.live() if each.kind is EntryKind.FRAGMENT]
        if not fragments:
            return
        entry = self.rng.choice(fragments)
        path = entry.data_key(STREAM).path(PREFIX)
        data = self.objects[path]
        at = len(HEADER) + 60
        self.objects[path] = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        self.rotten.add(path)
        if self.rng.random() < 0.3:  # some chunks are nowhere
            others = [each for each in self.objects if each.endswith(".fragment")]
            for key in others:
                parsed = parse_data_key(key, PREFIX)
                inside = parsed.first_offset < entry.next_offset
                if key != path and inside and entry.first_offset < parsed.next_offset:
                    return
            repair(
                self.context, STREAM, ranges=[(entry.first_offset, entry.next_offset)], lost=True,
                branching=M, pause=no_pause,
            )  # fmt: skip
            self.holes = True
            return
        repair(
            self.context, STREAM, ranges=[(entry.first_offset, entry.next_offset)],
            replicas=[self], branching=M, pause=no_pause,
        )  # fmt: skip

    def retires(self) -> None:
        size = self.root().total_size
        rule = Rule("r", max_bytes=max(1, int(size * self.rng.uniform(0.5, 1))))
        retain(self.context, STREAM, PolicySet((rule,)), now_ms=self.now, pause=no_pause)

    def fails_over(self) -> None:
        """A new writer, often without the last chunks that were confirmed."""
        root = self.root()
        end = len(self.epochs)
        keep = end
        if self.rng.random() < 0.6 and root.next_offset > root.first_offset:
            least = root.first_offset // SIZE + 1
            keep = max(least, end - self.rng.randint(1, 4))
        epochs = [*self.epochs[:keep], self.epoch + 1]
        log = [
            LocalChunk(number * SIZE, number * SIZE + SIZE, epoch)
            for number, epoch in enumerate(epochs)
        ]
        item = self.remote.claim(self.epoch + 1, *log)
        self.epoch, self.epochs = self.epoch + 1, epochs
        floor = item.ledger.floor(self.epoch)
        assert floor is not None
        self.floor = floor

    def collects(self) -> None:
        self.now += self.rng.choice([1, 2, 5]) * GRACE
        collect(
            self.context,
            self.remote.memory,
            STREAM,
            grace_ms=GRACE,
            run_ms=self.now,
            now_ms=self.now,
            held=lambda _: False,
        )

    def step(self) -> None:
        steps = [self.uploads] * 4 + [self.rebalances] * 3 + [self.uploads_late] * 2
        steps += [self.consolidates, self.rots_and_is_repaired, self.rots_and_is_repaired]
        steps += [self.retires, self.fails_over, self.collects, self.composes_what_is_rotten]
        self.now += self.rng.randint(1, 50)
        with suppress(ColdstreamError):  # what is damaged stops some of them
            self.rng.choice(steps)()

    def _neighbours(self) -> list[Entry] | None:
        """Some neighbouring live fragments of one epoch."""
        live = self.live()
        if not live:
            return None
        begin = self.rng.randrange(len(live))
        run = live[begin : begin + self.rng.randint(1, 3)]
        alike = all(e.kind is EntryKind.FRAGMENT and e.epoch == run[0].epoch for e in run)
        return run if alike else None

    def _again(self, first: int, next_offset: int, like: Entry) -> SyntheticFragment:
        floor = self.root().ledger.floor(like.epoch)
        assert floor is not None
        return self.made(first, next_offset, epoch=like.epoch, floor=floor)

    # A broker's copy, for repair.

    name = "the log"

    def chunks(self, first: int, next_offset: int) -> list[Chunk]:
        return list(iter_chunks(self.made(first, next_offset, epoch=self.epoch, floor=0).chunks))

    def epoch_of(self, chunk_id: int) -> int | None:
        number = chunk_id // SIZE
        return self.epochs[number] if number < len(self.epochs) else None

    # What is to be compared.

    def readable(self) -> dict[int, int]:
        """Epochs of all chunks that the live manifest has in whole objects, by offset."""
        found: dict[int, int] = {}
        for each in self.live():
            path = each.data_key(STREAM).path(PREFIX)
            if each.kind is EntryKind.FRAGMENT and whole(self.objects.get(path, b"")):
                found.update(chunks_of(self.objects[path]))
        return found

    def loses_data(self) -> list[tuple[int, int]]:
        """Now and then some live objects go or lose their ends; the ranges of these."""
        fragments = [each for each in self.live() if each.kind is EntryKind.FRAGMENT]
        if not fragments or self.rng.random() < 0.7:
            return []
        hit = self.rng.sample(fragments, min(len(fragments), self.rng.randint(1, 2)))
        for each in hit:
            path = each.data_key(STREAM).path(PREFIX)
            if self.rng.random() < 0.5:
                del self.objects[path]
            else:
                self.objects[path] = self.objects[path][: -self.rng.randint(1, 30)]
        return [(each.first_offset, each.next_offset) for each in hit]

    def in_quarantine(self) -> set[str]:
        """Data of lost timelines that is kept."""
        try:
            kept = Quarantine(self.context, STREAM, self.root(), ())
            data = [key for key in self.objects if "/data/" in key]
            return {k for k in data if k in kept.listed or kept.names(parse_data_key(k, PREFIX))}
        except ColdstreamError:
            return set()

    def loses(self) -> tuple[bool, bool]:
        """Any set of metadata; whether the item stays, and whether all of its tree does."""
        item = self.remote.items.items[STREAM]
        nodes = [key for key in self.objects if key.endswith(("group", ".manifest"))]
        groups = [key for key in nodes if key.endswith("group")]
        how = self.rng.randrange(6)
        gone: list[str] = []
        if how == 1:
            gone = [key for key in groups if self.rng.random() < 0.5]
        elif how == 2:
            gone = [item.root_key]
        elif how == 3:
            roots = sorted(set(nodes) - set(groups))
            gone = [*roots[-self.rng.randint(1, 4) :], *self.rng.sample(groups, len(groups) // 2)]
        elif how == 4:
            gone = [key for key in nodes if self.rng.random() < 0.6]
        elif how == 5:
            gone = nodes
        for key in gone:
            if self.rng.random() < 0.5:
                del self.objects[key]
            else:
                self.objects[key] = self.objects[key][:-5]
        keeps = self.rng.random() < 0.6
        if not keeps:
            self.remote.items = MemoryCatalog("another")
            self.remote.catalog.target = self.remote.items
        return keeps, not gone


def whole(data: bytes) -> bool:
    try:
        trailer = parse_trailer(data)
        FragmentIndex(data[trailer.index_position : -len(trailer.encode())], trailer)
        for chunk in iter_chunks(data[len(HEADER) : trailer.index_position]):
            chunk.check_crc()
    except CorruptDataError:
        return False
    return trailer.size == len(data)


def chunks_of(data: bytes) -> Iterator[ChunkName]:
    trailer = parse_trailer(data)
    for chunk in iter_chunks(data[len(HEADER) : trailer.index_position]):
        yield chunk.header.chunk_id, chunk.header.epoch


def shown_claims(cluster: Cluster, item: CatalogItem | None) -> set[int]:
    """Epochs whose claims a rebuild can know of: by the item, a root, or a trailer."""
    shown: set[int] = set() if item is None else {c.epoch for c in item.ledger.claims}
    for key, data in cluster.objects.items():
        if key.endswith(".manifest"):
            try:
                shown |= {claim.epoch for claim in parse_root(data).ledger.claims}
            except CorruptDataError:
                continue
        elif key.endswith(".fragment"):
            try:
                shown.add(parse_trailer(data).epoch)
            except CorruptDataError:
                continue
    return shown


def still_named(cluster: Cluster, item: CatalogItem | None) -> Iterator[DataKey]:
    """What readable nodes of the tree that the item names have."""
    if item is None:
        return
    try:
        root = parse_root(cluster.objects[item.root_key])
    except (CorruptDataError, KeyError):
        return
    fetch, waiting = cluster.context.fetch(STREAM), list(root.entries)
    while waiting:
        entry = waiting.pop()
        if not entry.kind.level:
            yield entry.data_key(STREAM)
            continue
        with suppress(ColdstreamError):
            waiting += fetch(entry).entries


def rebuilt(cluster: Cluster, **more: bool) -> RebuildReport:
    return rebuild(cluster.context, STREAM, branching=M, dry_run=False, **more)


@pytest.mark.parametrize("seed", range(200))
def test_a_rebuild_brings_back_what_was_there_or_does_not_land(seed: int) -> None:
    cluster = Cluster(seed)
    for _ in range(cluster.rng.randint(8, 40)):
        cluster.step()
    if not any(key.endswith(".fragment") for key in cluster.objects):
        return
    live, root, readable = cluster.live(), cluster.root(), cluster.readable()
    ledger, kept_data = root.ledger, cluster.in_quarantine()
    spoiled = cluster.loses_data()
    kept_data &= set(cluster.objects)
    keeps_item, keeps_tree = cluster.loses()
    item = cluster.remote.items.items.get(STREAM)
    claims = shown_claims(cluster, item)
    named = set(still_named(cluster, item))

    try:
        report = rebuilt(cluster)
    except LackingError:
        # Where the item stays, it says all that is needed but the entries; the data is there.
        assert not keeps_item or spoiled, "everything was there"
        if not root.fragments:
            return
        try:
            report = rebuilt(cluster, accept_less=True)
        except LackingError:
            return  # nothing at all could be taken

    loaded = load(cluster.context, STREAM)
    fetch = cluster.context.fetch(STREAM)
    now = list(leaves(loaded.root, fetch))
    assert report.landed
    assert not agreement(loaded.item, loaded.root)
    assert not coverage(loaded.root, now)
    assert not fencing(loaded.root, now)
    assert not tree_sums(loaded.root, fetch)
    paths = {each.data_key(STREAM).path(PREFIX): each for each in now}
    assert not [path for path in paths if path not in cluster.objects], "names what is gone"
    if keeps_item:
        assert (loaded.root.first_offset, loaded.root.ledger) == (root.first_offset, ledger)
        assert loaded.root.next_offset >= root.next_offset
        if keeps_tree:
            ours = [each.data_key(STREAM) for each in now if each.next_offset <= root.next_offset]
            filled = {each for each in ours if each.kind == "fragment"}
            kept = {e.data_key(STREAM) for e in live if e.kind is EntryKind.FRAGMENT}
            assert kept <= filled or cluster.holes or spoiled, (
                "an object that the tree names was replaced"
            )
    keeps_the_quarantine(cluster, kept_data - set(paths))
    all_claims_known = {claim.epoch for claim in ledger.claims} <= claims
    if not all_claims_known:
        return  # nothing in the bucket says what the last claim has cut off
    have: dict[int, int] = {}
    for path, each in paths.items():
        if each.kind is EntryKind.HOLE:
            continue
        data = cluster.objects[path]
        if whole(data):
            have.update(chunks_of(data))
        elif each.data_key(STREAM) not in named:
            span = each.first_offset, each.next_offset
            assert not whole_way(cluster, *span, loaded.root), "a damaged object beside a whole one"
    first = loaded.root.first_offset
    # Where nothing is known and a gap was accepted, it ends there; commits go on behind it.
    end = loaded.root.next_offset if report.rebuilt.beyond is not None else root.next_offset
    lacking = {
        offset
        for offset, epoch in readable.items()
        if first <= offset < end
        and have.get(offset) != epoch
        # What went with its object is back if whole objects are left for its range.
        and not any(
            a <= offset < b and not whole_way(cluster, a, b, loaded.root) for a, b in spoiled
        )
    }
    assert not lacking, f"missing, or of another timeline: {sorted(lacking)[:9]}"
    for offset, epoch in have.items():
        if offset + SIZE <= root.next_offset and offset >= root.first_offset:
            assert epoch == cluster.epochs[offset // SIZE], "what a claim cut off is back"
    for each in now:
        if each.kind is EntryKind.HOLE:
            span = each.first_offset, each.next_offset
            assert not whole_way(cluster, *span, loaded.root), "a hole over what is there"


def keeps_the_quarantine(cluster: Cluster, kept: set[str]) -> None:
    """Whatever a rebuild made of it, `collect` takes nothing that was in quarantine."""
    copy = MemoryObjectStore(clock_ms=lambda: cluster.now)
    copy.take_over(cluster.remote.memory)
    context = replace(cluster.context, store=copy)
    for _ in range(4):
        cluster.now += 3 * GRACE
        with suppress(ColdstreamError):
            collect(
                context,
                copy,
                STREAM,
                grace_ms=GRACE,
                run_ms=cluster.now,
                now_ms=cluster.now,
                held=lambda _: False,
            )
    assert kept <= set(copy.objects), "collect has taken the last copy of a lost timeline"


def whole_way(cluster: Cluster, first: int, next_offset: int, root: Root) -> bool:
    """Whether whole, acceptable objects tile a range."""
    ends: dict[int, set[int]] = {}
    for path, data in cluster.objects.items():
        if not path.endswith(".fragment"):
            continue
        key: DataKey = parse_data_key(path, PREFIX)
        accepted = root.ledger.accepts(key.epoch, key.first_offset, key.next_offset)
        if accepted and whole(data) and data_fits(data, key):
            ends.setdefault(key.first_offset, set()).add(key.next_offset)
    reached, waiting = {first}, [first]
    while waiting:
        for end in ends.get(waiting.pop(), ()):
            if end <= next_offset and end not in reached:
                reached.add(end)
                waiting.append(end)
    return next_offset in reached


def data_fits(data: bytes, key: DataKey) -> bool:
    trailer = parse_trailer(data)
    return (trailer.first_offset, trailer.next_offset) == (key.first_offset, key.next_offset)
