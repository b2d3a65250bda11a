"""Small manifests and small logs, a bucket that holds them, and what rule 4 says of each pair.

A manifest is made of a chain of chunks: the history of which some items (fragments of one or two
chunks) are in the tree, some were retired from its begin, and a range may be a hole. A log shares
the first chunks of that chain and then goes on by itself under other epochs, and has forgotten its
own begin up to some chunk. So whatever has the same id and epoch in both has the same past, as in
every world that Raft allows, and the oracle can simply compare sets of chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise, product
from typing import Any, TypeAlias

from coldstream.agent.stream.commits import Commits
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
from coldstream.manifest.catalog import CatalogItem, QueueName
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.node import Node
from coldstream.manifest.root import LastChunk, Root
from coldstream.manifest.tree import head_of, leaves
from coldstream.names import DataKey, group_path
from coldstream.osiris.chunk import iter_chunks
from coldstream.plans.claim import KnownHistory, LocalChunk
from coldstream.ports import Landed
from coldstream.remote.publish import publish
from coldstream.remote.roots import load
from coldstream.usecases.claim import Claimed
from coldstream.usecases.claim_function import OwnRights
from coldstream_devkit.claims import claim
from coldstream_devkit.fragments import SyntheticFragment, build_fragment
from tests.support.remote import PREFIX, STREAM, Remote, no_pause

Log: TypeAlias = tuple[LocalChunk, ...]
#: Every manifest was claimed by this epoch at offset 0, and all was uploaded under it.
OWNER = 3
#: Claims come from this one.
CLAIMER = 4


@dataclass(frozen=True)
class Item:
    """One entry: a fragment with its chunks, or a hole with those that it stands for."""

    chunks: Log
    hole: bool = False

    @property
    def first(self) -> int:
        return self.chunks[0].chunk_id

    @property
    def next_offset(self) -> int:
        return self.chunks[-1].next_offset


@dataclass(frozen=True)
class Small:
    """A manifest.

    Attributes:
        items: the chain, in order.
        retired: how many of them retention has taken.
        grouped: how many of them, from the first on, are in a group.
        remembered: the root's last chunk.
    """

    items: tuple[Item, ...]
    retired: int = 0
    grouped: int = 0
    remembered: LastChunk | None = None

    @property
    def live(self) -> tuple[Item, ...]:
        return self.items[self.retired :]

    @property
    def first(self) -> int:
        return self.live[0].first

    @property
    def next_offset(self) -> int:
        return self.items[-1].next_offset

    @property
    def chunks(self) -> Log:
        """All that can be read."""
        return tuple(chunk for item in self.live if not item.hole for chunk in item.chunks)

    @property
    def end_of_data(self) -> int:
        return self.chunks[-1].next_offset if self.chunks else self.first


# Every chain, every manifest, every log.


def chain(sizes: Sequence[int], epochs: Sequence[int], first: int = 0) -> Log:
    offsets = list(accumulate(sizes, initial=first))
    return tuple(LocalChunk(offsets[n], offsets[n + 1], e) for n, e in enumerate(epochs))


def rising(count: int, epochs: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for found in product(epochs, repeat=count):
        if list(found) == sorted(found):
            yield found


def pairings(count: int) -> Iterator[list[int]]:
    """Every way to make fragments of one or two chunks of so many."""
    if not count:
        yield []
    for size in (1, 2):
        if size <= count:
            for rest in pairings(count - size):
                yield [size, *rest]


def fragments_of(chunks: Log) -> Iterator[tuple[Item, ...]]:
    for sizes in pairings(len(chunks)):
        ends = list(accumulate(sizes, initial=0))
        yield tuple(Item(chunks[begin:end]) for begin, end in pairwise(ends))


def with_hole(chunks: Log, begin: int, end: int) -> Iterator[tuple[Item, ...]]:
    """The chain with chunks number `begin` to `end` lost."""
    for before, after in product(fragments_of(chunks[:begin]), list(fragments_of(chunks[end:]))):
        yield (*before, Item(chunks[begin:end], hole=True), *after)


def logs(
    past: Log, shared: int, sizes: Sequence[int], epochs: Sequence[int], most: int
) -> Iterator[Log]:
    """Those that share so many chunks, have up to `most` others, and forgot some of the first."""
    start = past[shared - 1].next_offset if shared else past[0].chunk_id
    lowest = past[shared - 1].epoch if shared else 0
    taken = {chunk.epoch for chunk in past[shared:]}
    allowed = [epoch for epoch in epochs if epoch >= lowest and epoch not in taken]
    for count in range(most + 1):
        for wide, of in product(product(sizes, repeat=count), list(rising(count, allowed))):
            whole = past[:shared] + chain(wide, of, start)
            for forgotten in range(max(1, len(whole))):
                yield whole[forgotten:]


# The oracle.


@dataclass(frozen=True)
class Expected:
    """What a comparison has to say.

    Attributes:
        what: "agree", "cut" or "diverged".
        offset: where it is cut.
        last: chunk that is kept last.
        anew: whether nothing is kept.
        asked: whether others must be asked whether their log reaches further down.
    """

    what: str
    offset: int = 0
    last: LastChunk | None = None
    anew: bool = False
    asked: bool = False


def overlap(one: LocalChunk, other: LocalChunk) -> bool:
    return one.chunk_id < other.next_offset and other.chunk_id < one.next_offset


def expected(small: Small, log: Log) -> Expected:
    """Rule 4 for a manifest that has data: sets of chunks, and what lies above or overlaps."""
    data, end = small.chunks, small.next_offset
    if not log:
        return Expected("agree")
    begin = log[0].chunk_id
    newest = small.remembered or LastChunk(data[-1].chunk_id, data[-1].epoch)
    older = log[0].epoch < newest.epoch
    if begin >= end:
        return Expected("diverged") if older else Expected("agree", asked=True)
    below = [chunk for chunk in log if chunk.chunk_id < end]
    differing = [c for c in below if c not in data and any(overlap(c, d) for d in data)]
    newer = [chunk for chunk in below if chunk.epoch > data[-1].epoch]
    refilled = [c for c in below if c.next_offset > small.end_of_data and end > small.end_of_data]
    if not newer and not refilled and ends_inside_hole(small, below[-1]):
        return Expected("agree")
    if not differing and not newer and not refilled:
        return Expected("agree")
    common = [chunk for chunk in log if chunk in data]
    if common:
        last = LastChunk(common[-1].chunk_id, common[-1].epoch)
        return Expected("cut", common[-1].next_offset, last)
    if begin >= small.end_of_data:
        # The log begins in the hole: nothing differs, and nothing shows that the data is common.
        if older:
            return Expected("diverged")
        last = LastChunk(data[-1].chunk_id, data[-1].epoch)
        return Expected("cut", begin, last, asked=True)
    return Expected("cut", begin, None, anew=True, asked=begin > small.first)


def ends_inside_hole(small: Small, last: LocalChunk) -> bool:
    """Whether the last chunk of a short log lies in a hole before the manifest's last fragment.

    Such a log holds no chunk of an epoch that may still claim: that would be newer than all of the
    manifest, or lie above its end, and then the log would not end in there. It is taken as merely
    shorter, whatever differs below the hole (rule 5).
    """
    return any(
        item.hole and item.first <= last.chunk_id and last.next_offset <= item.next_offset
        for item in small.live
        if item.next_offset < small.end_of_data
    )


# The bucket.


@cache
def bytes_of(chunk: LocalChunk) -> bytes:
    """A chunk as its writer made it."""
    count = chunk.next_offset - chunk.chunk_id
    return build_fragment(
        chunk.chunk_id, chunk.next_offset, epoch=chunk.epoch, records_per_chunk=count
    ).chunks


@cache
def fragment_of(chunks: Log, epoch: int = OWNER, floor: int = 0, uid: int = 0) -> SyntheticFragment:
    """A fragment with exactly these chunks."""
    records, position = [], 0
    for chunk in chunks:
        records.append(IndexRecord(chunk.chunk_id, 1_700_000_000_000 + chunk.chunk_id, position))
        position += len(bytes_of(chunk))
    data, index = b"".join(bytes_of(chunk) for chunk in chunks), encode_index(records)
    trailer = build_trailer(
        placement=Placement(epoch, floor, chunks[0].chunk_id, 0, 8),
        index=index,
        next_offset=chunks[-1].next_offset,
        first_chunk_epoch=chunks[0].epoch,
        last_chunk_epoch=chunks[-1].epoch,
        data_size=len(data),
        data_crc=crc32(data),
    )
    # One object a key: the uid tells histories apart.
    named = sum((c.next_offset * 5 + c.epoch) * 101**n for n, c in enumerate(chunks, 1))
    key = DataKey(STREAM, chunks[0].chunk_id, chunks[-1].next_offset, epoch, uid or named)
    return SyntheticFragment(key, HEADER + data + INDEX_HEADER + index + trailer.encode())


def key_of(item: Item) -> DataKey:
    if item.hole:
        return DataKey(STREAM, item.first, item.next_offset, OWNER, 77, "hole")
    return fragment_of(item.chunks).key


def entry_of(item: Item) -> Entry:
    key, low = key_of(item), 1_700_000_000_000 + item.chunks[-1].chunk_id
    if item.hole:
        return Entry(item.first, item.next_offset, low, low, EntryKind.HOLE, 0, 0, OWNER, key.uid)
    made = fragment_of(item.chunks)
    times = made.trailer.min_timestamp, made.trailer.max_timestamp
    count = item.next_offset - item.first
    kind = EntryKind.FRAGMENT
    return Entry(item.first, item.next_offset, *times, kind, len(made.data), count, OWNER, key.uid)


def put(remote: Remote, items: Sequence[Item]) -> None:
    for item in items:
        data = b"" if item.hole else fragment_of(item.chunks).data
        path = key_of(item).path(PREFIX)
        remote.memory.put(path, data, write_id=path)


def root_of(remote: Remote, small: Small) -> Root:
    """The manifest as a value; its objects are in the bucket."""
    put(remote, small.items)
    entries = [entry_of(item) for item in small.items]
    if small.retired < small.grouped:
        group = Entries.of(entries[: small.grouped])
        uid = small.grouped * 1000 + sum(entry.uid for entry in group) % 2**60
        node = Node(EntryKind.GROUP, uid, group)
        path = group_path(PREFIX, STREAM, small.items[0].first, uid, EntryKind.GROUP)
        remote.memory.put(path, node.encode(), write_id=path)
        kept = Entries.of([node.entry(), *entries[small.grouped :]])
    else:
        kept = Entries.of(entries[small.retired :])
    return Root(
        first_offset=small.first,
        next_offset=small.next_offset,
        epoch=OWNER,
        ledger=Ledger.of([(OWNER, 0)]),
        entries=kept,
        head=head_of(kept, small.first, remote.context.fetch(STREAM)),
        last_chunk=small.remembered,
    )


def remembering(small_items: tuple[Item, ...], retired: int = 0, grouped: int = 0) -> Small:
    """A manifest whose root remembers the last chunk of its data, as one that grew does."""
    bare = Small(small_items, retired, grouped)
    last = bare.chunks[-1]
    return Small(small_items, retired, grouped, LastChunk(last.chunk_id, last.epoch))


# Claims.


def landed(small: Small, behind: int = 0) -> Remote:
    """A bucket and a table with the manifest; its last items may be only in the bucket."""
    remote = Remote()
    kept = small.items[: len(small.items) - behind]
    remote.anchor(small.first)
    root = root_of(remote, small if not behind else remembering(kept, small.retired, small.grouped))
    put(remote, small.items)
    outcome = publish(remote.context, load(remote.context, STREAM), root, claim=True)
    assert isinstance(outcome, Landed)
    return remote


def take(remote: Remote, log: Log, epoch: int = CLAIMER, **more: Any) -> Claimed:
    context = remote.new_context()
    return claim(context, STREAM, epoch, log=KnownHistory(log), pause=no_pause, now_ms=5, **more)


def ask(remote: Remote, log: Log, epoch: int = CLAIMER, **more: Any) -> Claimed:
    """The same through the function `claim`, which has no log, by an agent, which has no right."""
    function = OwnRights(remote.new_context(), no_pause, lambda: 5)
    agent = Commits(remote.new_context(), function, STREAM, no_pause)
    alone = more.get("alone", lambda begin, end: None)
    return agent.claim(epoch, 0, QueueName(), KnownHistory(log), alone)


def item_of(remote: Remote) -> CatalogItem:
    return remote.items.items[STREAM]


def content(remote: Remote, root: Root) -> tuple[dict[LocalChunk, bytes], list[tuple[int, int]]]:
    """Chunks and holes of a tree, from the bytes."""
    chunks: dict[LocalChunk, bytes] = {}
    holes = []
    for leaf in leaves(root, remote.new_context().fetch(STREAM)):
        if leaf.kind is EntryKind.HOLE:
            holes.append((leaf.first_offset, leaf.next_offset))
            continue
        data = remote.memory.objects[leaf.data_key(STREAM).path(PREFIX)]
        assert leaf.size == len(data)
        for each in iter_chunks(data, 8, parse_trailer(data[-156:]).index_position):
            header = each.header
            chunk = LocalChunk(header.chunk_id, header.next_offset, header.epoch)
            chunks[chunk] = bytes(each.buffer)
    return chunks, holes
