"""What must hold after every step, whatever happened (DESIGN section 3).

The oracle sees the bucket and the table themselves, not through the net, and knows every chunk that
any writer ever made. It looks when something has changed: an item, an object that came, one that
went. So each look costs what has changed, and a history costs little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.errors import ColdstreamError
from coldstream.fragment import TRAILER_SIZE, parse_trailer
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.root import Root, parse_root
from coldstream.manifest.tree import leaves
from coldstream.names import parse_data_key
from coldstream.osiris.chunk import iter_chunks
from coldstream.testing.bucket import referenced
from coldstream.testing.invariants import (
    Invariant,
    Violation,
    agreement,
    contiguous_advance,
    coverage,
    fencing,
    prefix_retention,
    tree_sums,
)
from coldstream.testing.simulation.cluster import ChunkId, Cluster, SimChunk
from coldstream.usecases.load import World


class BrokenError(BaseException):  # the agent survives every Exception
    """An invariant does not hold.

    Args:
        violations: what is wrong.
    """

    def __init__(self, violations: list[Violation]) -> None:
        super().__init__(violations)  # as it is: other processes make it anew from that
        self.violations = violations

    def __str__(self) -> str:
        return "; ".join(
            f"{v.invariant.value}: {v.message}"
            + (f" at {v.first_offset}" if v.first_offset is not None else "")
            + (f" ({v.key.rpartition('/')[2]})" if v.key else "")
            for v in self.violations
        )


@dataclass(frozen=True, slots=True)
class Known:
    """A manifest that was current.

    Attributes:
        item: that named it.
        root: its root.
        leaves: its live fragments and holes.
        keys: everything that it refers to.
        until: when it was replaced, ms; None while it is current.
    """

    item: CatalogItem
    root: Root
    leaves: list[Entry]
    keys: set[str]
    until: int | None = None


@dataclass
class Oracle:
    """Judge of one history.

    Args:
        cluster: that wrote it.
        objects: the bucket.
        catalog: gives the table there is now.
        prefix: of all keys.
        stream: directory name.
        now: gives the time.
        grace_ms: for so long after it was replaced a manifest must still be readable.

    Attributes:
        contents: identities of the chunks in each data object that ever was, by key.
        asked: when an agent asked the other members last, ms.
    """

    cluster: Cluster
    objects: MemoryObjectStore
    catalog: Callable[[], MemoryCatalog]
    prefix: str
    stream: str
    now: Callable[[], int]
    grace_ms: int
    contents: dict[str, tuple[ChunkId, ...]] = field(default_factory=dict)
    current: Known | None = None
    past: list[Known] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    asked: int = -1

    def __post_init__(self) -> None:
        self._holders: dict[ChunkId, set[str]] = {}
        world = World(self.objects, self.catalog(), self.prefix, lambda: 0)
        self.fetch = world.fetch(self.stream)

    def take_over(self, before: Oracle) -> None:
        """Know what another one knew."""
        self.contents = dict(before.contents)
        self.sizes = dict(before.sizes)
        self._holders = {identity: set(keys) for identity, keys in before._holders.items()}
        self.current, self.past = before.current, list(before.past)

    # --- told by the services ---

    def created(self, key: str) -> None:
        """A new object is there."""
        data = self.objects.objects[key]
        if key in self.sizes:
            raise self._broken(Invariant.IMMUTABILITY, "an object came twice", key=key)
        self.sizes[key] = len(data)
        if key.endswith(".hole"):
            self._hole_is_true(key)
        if not key.endswith(".fragment"):
            return
        found: list[ChunkId] = []
        try:
            trailer = parse_trailer(data[-TRAILER_SIZE:])
            for chunk in iter_chunks(data[8 : 8 + trailer.data_size], 0):
                identity = chunk.header.chunk_id, chunk.header.epoch
                written = self.cluster.written.get(identity)
                if written is None or bytes(chunk.buffer) != written.data:
                    raise self._broken(
                        Invariant.DURABILITY, "not what the broker wrote", identity[0], key=key
                    )
                found.append(identity)
        except ColdstreamError as exc:
            raise self._broken(Invariant.DURABILITY, f"unreadable: {exc}", key=key) from exc
        self.contents[key] = tuple(found)
        for identity in found:
            self._holders.setdefault(identity, set()).add(key)

    def deleted(self, key: str) -> None:
        """An object is gone: nobody may miss it."""
        now, current = self.now(), self.current
        item = self.catalog().items.get(self.stream)
        if item is not None and item.state is StreamState.DELETED:
            return
        if current is not None and key in current.keys:
            raise self._broken(Invariant.PUBLISH_BEFORE_DELETE, "deleted, and live", key=key)
        for known in self.past:
            if known.until is not None and known.until > now - self.grace_ms and key in known.keys:
                raise self._broken(
                    Invariant.PUBLISH_BEFORE_DELETE,
                    f"deleted, and version {known.item.version}, replaced {now - known.until} ms"
                    " ago, refers to it",
                    key=key,
                )
        for identity in self.contents.get(key, ()):
            self._holders[identity].discard(key)
            self._still_held(identity, key)

    def _still_held(self, identity: ChunkId, key: str) -> None:
        """A committed chunk that was in the bucket stays, unless retention took its offsets."""
        if identity not in self.cluster.committed:
            return
        if self._holders[identity]:
            return
        current = self.current
        if current is not None and self.cluster.written[identity].next_offset <= (
            current.root.first_offset
        ):
            return
        raise self._broken(
            Invariant.PUBLISH_BEFORE_DELETE,
            f"the last copy of committed chunk {identity} was deleted",
            identity[0],
            key=key,
        )

    def landed(self, item: CatalogItem, what: str) -> None:
        """The item has changed."""
        table = self.catalog().table_id()
        if not item.root_key or item.table_id != table:
            # Whoever read from a table that is gone may still write into the restored one, where
            # nothing else may: whatever that makes, adoption looks at all roots afresh.
            return
        before = self.current
        if before is not None and before.item.root_key == item.root_key:
            return
        root = parse_root(self.objects.objects[item.root_key])
        try:
            live = list(leaves(root, self.fetch))
            keys = referenced(self.prefix, item, root, self.fetch)
        except ColdstreamError as exc:
            raise self._broken(Invariant.PUBLISH_BEFORE_DELETE, f"no tree: {exc}") from exc
        found = agreement(item, root) + coverage(root, live) + fencing(root, live)
        found += tree_sums(root, self.fetch)
        missing = keys - self.objects.objects.keys()
        found += [
            Violation(Invariant.PUBLISH_BEFORE_DELETE, "referred to, and not there", key=each)
            for each in sorted(missing)
        ]
        if found:
            raise BrokenError(found)
        self._contents_hold(root, live, before)
        if before is not None:
            if what == "adopt":
                self._survives(before, root, live)
            else:
                found = contiguous_advance(before.root, root, live)
                if not self._anew(before.root, root):
                    found += prefix_retention(before.root, root, before.leaves, live)
                if found:
                    raise BrokenError(found)
            self._cut_for_a_reason(before, root)
            if what == "claim":
                self._kept_for_a_reason(root)
        if before is not None:
            now = self.now()
            self.past = [k for k in self.past if k.until and k.until > now - self.grace_ms]
            self.past.append(Known(before.item, before.root, before.leaves, before.keys, now))
        self.current = Known(item, root, live, keys)

    def restored(self) -> None:
        """The table is another one; what it says is no step from what it said before."""
        self.past.clear()

    # --- checks ---

    def _survives(self, before: Known, after: Root, live: list[Entry]) -> None:
        """What an adoption or a rebuild puts in the place of a manifest has all of its chunks.

        It may cut them otherwise, and have what retention took meanwhile: a root that never landed
        may be older. What later claims have cut off stays cut off.
        """
        end = min(before.root.next_offset, after.ledger.ceiling(before.root.epoch))
        first = max(before.root.first_offset, after.first_offset)
        there = {identity for entry in live for identity in self._identities(entry)}
        for entry in before.leaves:
            for identity in self._identities(entry):
                chunk = self.cluster.written[identity]
                inside = first < chunk.next_offset <= end
                if inside and identity not in there:
                    raise self._broken(
                        Invariant.PREFIX_RETENTION,
                        f"chunk {identity} is not in what was put in its manifest's place",
                        identity[0],
                    )

    def _identities(self, entry: Entry) -> tuple[ChunkId, ...]:
        return self.contents.get(entry.data_key(self.stream).path(self.prefix), ())

    @staticmethod
    def _anew(before: Root, after: Root) -> bool:
        """Whether a claim has begun the stream anew: nothing of the old manifest is in it."""
        return (
            after.epoch > before.epoch
            and after.ledger.floor(after.epoch) == after.first_offset
            and after.quarantine_key != before.quarantine_key
        )

    def _cut_for_a_reason(self, before: Known, after: Root) -> None:
        """What a claim cuts off is in no log that follows its writer; a later one may have it."""
        floor = after.ledger.floor(after.epoch)
        if after.epoch == before.root.epoch or floor is None or floor >= before.root.next_offset:
            return
        for entry in before.leaves:
            if entry.kind is EntryKind.HOLE or entry.next_offset <= floor:
                continue
            for identity in self.contents[entry.data_key(self.stream).path(self.prefix)]:
                chunk = self.cluster.written[identity]
                if chunk.next_offset <= max(floor, after.first_offset):
                    continue
                for replica in self.cluster.replicas:
                    if (
                        replica.up
                        and replica.joined
                        and replica.epoch == after.epoch
                        and chunk.next_offset <= replica.committed
                        and replica.chunk_at(chunk.chunk_id) is chunk
                    ):
                        raise self._broken(
                            Invariant.CONTIGUOUS_ADVANCE,
                            f"a claim of epoch {after.epoch} cuts off chunk {identity}, which"
                            f" {replica.name} has",
                            identity[0],
                        )

    def _kept_for_a_reason(self, after: Root) -> None:
        """What a claim keeps at its end is in the log of every member that follows its writer."""
        last = after.last_chunk
        if last is None:
            return
        for replica in self.cluster.reachable:
            if not replica.joined or replica.epoch != after.epoch:
                continue
            if replica.begin <= last.chunk_id < replica.committed:
                there = replica.chunk_at(last.chunk_id)
                if there is None or there.epoch != last.epoch:
                    raise self._broken(
                        Invariant.CONTIGUOUS_ADVANCE,
                        f"a claim of epoch {after.epoch} keeps chunk {last}, which {replica.name}"
                        " does not have",
                        last.chunk_id,
                    )

    def _contents_hold(self, root: Root, live: list[Entry], before: Known | None) -> None:
        """Fragments hold committed chunks that tile their offsets; epochs never fall."""
        known = {each.uid for each in before.leaves} if before is not None else set()
        epoch = 0
        last: ChunkId | None = None
        for entry in live:
            if entry.kind is EntryKind.HOLE:
                last = None
                continue
            key = entry.data_key(self.stream).path(self.prefix)
            held = self.contents[key]
            if entry.uid not in known:
                at = entry.first_offset
                for identity in held:
                    chunk = self.cluster.written[identity]
                    if identity not in self.cluster.committed:
                        raise self._broken(
                            Invariant.DURABILITY,
                            f"chunk {identity} in the manifest was never committed",
                            identity[0],
                            key=key,
                        )
                    if chunk.chunk_id != at:
                        raise self._broken(Invariant.COVERAGE, f"chunk at {at}", at, key=key)
                    at = chunk.next_offset
                    if last is not None and self._joins_wrongly(chunk, last):
                        raise self._broken(
                            Invariant.CONTIGUOUS_ADVANCE,
                            f"chunk {identity} follows {last}, which its writer never had: its log"
                            f" had {chunk.previous} there",
                            identity[0],
                            key=key,
                        )
                    last = identity
                if at != entry.next_offset or self.sizes[key] != entry.size:
                    raise self._broken(Invariant.COVERAGE, f"ends at {at}", at, key=key)
            if held[0][1] < epoch:
                raise self._broken(
                    Invariant.EPOCH_ORDER, f"epoch {held[0][1]} after {epoch}", held[0][0], key=key
                )
            epoch = held[-1][1]
            last = held[-1]

    def _joins_wrongly(self, chunk: SimChunk, last: ChunkId) -> bool:
        """Whether some member shows that another chunk than `last` came before this one.

        If all that can be asked begin at or above it, nothing can tell (`docs/architecture`).
        """
        if chunk.previous is None or chunk.previous == last:
            return False
        self.cluster.unseen_joins.add((last, chunk.identity))
        return any(
            replica.reachable_since <= self.asked
            and (before := replica.chunk_at(chunk.previous[0])) is not None
            and before.identity == chunk.previous
            for replica in self.cluster.reachable
        )

    def _hole_is_true(self, key: str) -> None:
        """No member that could be asked has any committed chunk of a hole that is uploaded."""
        hole = parse_data_key(key, self.prefix)
        current = self.current
        if current is not None and hole.first_offset < current.root.next_offset:
            return  # a part of one that is in the manifest: a claim cuts it back
        for replica in self.cluster.reachable:
            if replica.reachable_since > self.asked:
                continue
            for chunk in replica.chunks():
                if (
                    chunk.chunk_id < hole.next_offset
                    and hole.first_offset < chunk.next_offset <= replica.committed
                ):
                    raise self._broken(
                        Invariant.CONTIGUOUS_ADVANCE,
                        f"a hole over chunk {chunk.identity}, which {replica.name} has",
                        hole.first_offset,
                    )

    def _broken(
        self, invariant: Invariant, message: str, offset: int | None = None, key: str = ""
    ) -> BrokenError:
        return BrokenError([Violation(invariant, message, offset, None, key)])


def data_objects(objects: MemoryObjectStore, prefix: str) -> list[str]:
    """Keys of all fragments and holes."""
    return [key for key in objects.objects if "/data/" in key and parse_data_key(key, prefix)]
