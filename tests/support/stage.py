"""A small stream in memory: how it is made, and what must hold of it at every moment.

Every record of the stream is known: chunk by chunk, whatever fragment it is in, its bytes depend on
nothing but its offset and epoch. So any tree can be read back and compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from itertools import count, pairwise
from typing import Any

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.fragment import HEADER, TRAILER_SIZE, parse_trailer
from coldstream.manifest.catalog import CatalogItem, QueueName
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.invariants import (
    Violation,
    agreement,
    coverage,
    epoch_order,
    fencing,
    tree_sums,
)
from coldstream.manifest.root import Root, parse_root
from coldstream.manifest.tree import leaves
from coldstream.plans.claim import KnownHistory, LocalChunk
from coldstream.remote.context import Context
from coldstream.soundness.trailer import trailer_agrees
from coldstream.usecases.claim import anchor
from coldstream_devkit.bucket import referenced
from coldstream_devkit.claims import claim
from coldstream_devkit.fragments import START_MS, SyntheticFragment, build_fragment
from coldstream_devkit.simulation.inline import Inline
from coldstream_devkit.simulation.points import Place
from coldstream_devkit.steps import contiguous_advance, prefix_retention, publish_before_delete

STREAM = "__orders_1"
PREFIX = "rabbitmq/"
CHUNK = 5  # records in a chunk
M = 4


def no_pause(attempt: int) -> None:
    del attempt


def piece(
    first: int, next_offset: int, *, epoch: int = 1, uid: int, **more: Any
) -> SyntheticFragment:
    """A fragment of `STREAM`; the same chunks wherever it is cut."""
    return build_fragment(
        first,
        next_offset,
        stream=STREAM,
        epoch=epoch,
        uid=uid,
        timestamps=tuple(START_MS + offset for offset in range(first, next_offset, CHUNK)),
        records_per_chunk=CHUNK,
        segment_offset=0,
        segment_position=8 + _before(first),
        **more,
    )


@cache
def _before(offset: int) -> int:
    """Bytes of all chunks below an offset of a segment that begins at 0."""
    return sum(len(chunk(at, 1)) for at in range(0, offset, CHUNK))


@cache
def chunk(offset: int, epoch: int) -> bytes:
    """A chunk as the broker wrote it."""
    return build_fragment(
        offset,
        offset + CHUNK,
        stream=STREAM,
        epoch=epoch,
        timestamps=(START_MS + offset,),
        records_per_chunk=CHUNK,
    ).chunks


def history(*runs: tuple[int, int, int]) -> tuple[LocalChunk, ...]:
    """A broker's log: chunks of [first, next_offset) by the epoch that wrote them."""
    return tuple(
        LocalChunk(start, end, epoch)
        for first, next_offset, epoch in runs
        for start, end in pairwise(range(first, next_offset + 1, CHUNK))
    )


def claiming(context: Context, epoch: int, log: tuple[LocalChunk, ...]) -> object:
    """Claim `STREAM` for a writer with this log."""
    return claim(context, STREAM, epoch, log=KnownHistory(log), pause=no_pause)


def context_of(place: Place, uids: Iterable[int] | None = None) -> Context:
    """What a new process sees of a place, without anything in between."""
    ids = iter(count(900_000_000) if uids is None else uids)
    return Context(place.store, place.catalog, PREFIX, lambda: next(ids), pool=Inline)


def bucket_of(context: Context) -> Any:
    """The world's store as the `Deleter` and `Composer` that it is here, too."""
    return context.store


def upload(place: Place, *fragments: SyntheticFragment) -> None:
    """PUT fragments under their keys."""
    for each in fragments:
        place.store.put(each.path(PREFIX), each.data, write_id=f"{each.key.uid}")


def anchored(clock_ms: Callable[[], int] = lambda: 0, *, epoch: int = 1) -> Place:
    """A stream that begins at 0 and that `epoch` has claimed."""
    place = Place(MemoryObjectStore(clock_ms), MemoryCatalog(), clock_ms)
    context = context_of(place, count(1000))
    anchor(context, STREAM, 0, QueueName("cluster", "/", "orders"))
    claiming(context, epoch, ())
    return place


# --- what must hold ---


def item_of(place: Place) -> CatalogItem:
    return place.catalog.items[STREAM]


def root_at(place: Place, key: str) -> Root:
    return parse_root(place.store.objects[key])


def leaves_of(place: Place, root: Root) -> list[Entry]:
    return list(leaves(root, context_of(place).fetch(STREAM)))


def none(violations: Iterable[Violation]) -> None:
    """Nothing is wrong."""
    found = "; ".join(f"{v.invariant}: {v.message} ({v.first_offset}) {v.key}" for v in violations)
    assert not found, found


def holds(place: Place, *, damaged: Iterable[str] = ()) -> Root | None:
    """The named invariants of a state hold, and everything reads back; the current root.

    Args:
        place: where.
        damaged: keys of objects that somebody has damaged; they are not read.
    """
    item = item_of(place)
    if not item.root_key:
        return None
    root = root_at(place, item.root_key)
    fetch = context_of(place).fetch(STREAM)
    live = leaves_of(place, root)
    none(agreement(item, root))
    none(coverage(root, live))
    none(fencing(root, live))
    none(tree_sums(root, fetch, longest=M))
    none(publish_before_delete(referenced(PREFIX, item, root, fetch), place.store.objects))
    reads_back(place, (each for each in live if path_of(each) not in set(damaged)))
    return root


def path_of(entry: Entry) -> str:
    return entry.data_key(STREAM).path(PREFIX)


def reads_back(place: Place, live: Iterable[Entry]) -> None:
    """Every fragment is what the broker wrote, and its trailer is right."""
    trailers = []
    for entry in live:
        if entry.kind is EntryKind.HOLE:
            continue
        key, path = entry.data_key(STREAM), path_of(entry)
        data = place.store.objects[path]
        trailer = parse_trailer(data[-TRAILER_SIZE:])
        none(trailer_agrees(trailer, entry, key, path, None))
        begin = len(HEADER)
        for offset in range(entry.first_offset, entry.next_offset, CHUNK):
            epochs = range(trailer.first_chunk_epoch, trailer.last_chunk_epoch + 1)
            written = [chunk(offset, epoch) for epoch in epochs]
            assert data[begin : begin + len(written[0])] in written, f"{path} at {offset}"
            begin += len(written[0])
        assert begin == trailer.index_position
        trailers.append((trailer, path))
    none(epoch_order(trailers))


class Steps:
    """Looks at every change of the item and at every deletion: what `Scenario.changed` wants.

    The same change is looked at once, however many histories it is part of.

    Args:
        begin: the place as it is at the beginning; what its root refers to must stay.
        damaged: keys of objects that are damaged from the beginning.
    """

    def __init__(self, begin: Place, *, damaged: Iterable[str] = ()) -> None:
        item = begin.catalog.items.get(STREAM)
        self._damaged = tuple(damaged)
        self._kept: set[str] = set()
        if item is not None and item.root_key:
            root = root_at(begin, item.root_key)
            self._kept = referenced(PREFIX, item, root, context_of(begin).fetch(STREAM))
        self._seen: set[object] = set()

    def __call__(self, place: Place, before: CatalogItem | None) -> None:
        item = item_of(place)
        gone = self._kept - place.store.objects.keys()
        assert not gone, f"a reader of the first root misses {gone}"
        key = (before, item, tuple(sorted(place.store.objects.items())))
        if key in self._seen:
            return
        self._seen.add(key)
        root = holds(place, damaged=self._damaged)
        if root is None or before is None or not before.root_key:
            return
        if before.root_key not in place.store.objects:
            return
        old = root_at(place, before.root_key)
        was, live = leaves_of(place, old), leaves_of(place, root)
        none(contiguous_advance(old, root, live))
        none(prefix_retention(old, root, was, live))


def once(look: Callable[[Place], str]) -> Callable[[Place], str]:
    """The same look at the same place is taken once."""
    seen: dict[object, str] = {}

    def looked(place: Place) -> str:
        key = (tuple(place.catalog.items.items()), tuple(sorted(place.store.objects.items())))
        if key not in seen:
            seen[key] = look(place)
        return seen[key]

    return looked


def with_damage(place: Place) -> Place:
    """The fragment of [40, 50) is damaged; other uploads may hold the same chunks."""
    key = piece(40, 50, uid=41).path(PREFIX)
    data = bytearray(place.store.objects[key])
    data[100] ^= 1
    place.store.objects[key] = bytes(data)
    return place


def of_another_table(place: Place) -> Place:
    """A backup of the table was restored."""
    restored = MemoryCatalog("restored")
    restored.items.update(place.catalog.items)
    return replace(place, catalog=restored)


def without_a_table(place: Place) -> Place:
    """The table is lost."""
    return replace(place, catalog=MemoryCatalog("new"))
