"""What must hold after every step, whatever happened (DESIGN section 3).

The oracle sees the bucket and the table themselves, not through the net, and knows every chunk that
any writer ever made. It looks when something has changed: an item, an object that came, one that
went. So each look costs what has changed, and a history costs little. It reads manifests itself,
by `reading`, which shares no code with the product; what the product reads must be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Literal

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.errors import ColdstreamError, InvalidInputError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.manifest.invariants import Invariant, Violation, agreement
from coldstream.manifest.root import Root, parse_root
from coldstream.manifest.tree import leaves
from coldstream.names import DataKey, metadata_prefix, parse_data_key
from coldstream.remote.context import Context
from coldstream_devkit.simulation.cluster import ChunkId, Cluster, SimChunk
from coldstream_devkit.simulation.contents import Contents
from coldstream_devkit.simulation.reading import (
    HOLE,
    Leaf,
    Manifest,
    MisreadError,
    accepts,
    read_manifest,
)


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
        root: its root, as the product reads it.
        manifest: all of it, as the oracle reads it.
        keys: everything that it refers to.
        until: when it was replaced, ms; None while it is current.
    """

    item: CatalogItem
    root: Root
    manifest: Manifest
    keys: frozenset[str]
    until: int | None = None


@dataclass
class Oracle:
    """Classifier of one stream in one history.

    Args:
        cluster: that wrote it.
        objects: the bucket.
        catalog: gives the table there is now.
        prefix: of all keys.
        stream: directory name.
        now: gives the time.
        grace_ms: for so long after it was replaced a manifest must still be readable.
        seen: gives the keys that the task at work has listed.
        moment: gives the step of the history.
        began: gives the step at which the task that runs now was started.

    Attributes:
        contents: what each object holds.
        asked: when an agent asked the other members last, ms.
        given_up: chunks of lost timelines that an operator does not want any more.
    """

    cluster: Cluster
    objects: MemoryObjectStore
    catalog: Callable[[], MemoryCatalog]
    prefix: str
    stream: str
    now: Callable[[], int]
    grace_ms: int
    seen: Callable[[], Collection[str]] = frozenset
    moment: Callable[[], int] = lambda: 0
    began: Callable[[], int] = lambda: 0
    current: Known | None = None
    past: list[Known] = field(default_factory=list)
    asked: int = -1
    given_up: set[ChunkId] = field(default_factory=set)
    contents: Contents = field(init=False)

    def __post_init__(self) -> None:
        self.contents = Contents(lambda: self.cluster)
        self._folder = metadata_prefix(self.prefix, self.stream)
        context = Context(self.objects, self.catalog(), self.prefix, lambda: 0)
        self.fetch = context.fetch(self.stream)

    def take_over(self, before: Oracle) -> None:
        """Know what another one knew."""
        self.contents.take_over(before.contents)
        self.current, self.past = before.current, list(before.past)

    # --- told by the services ---

    def created(self, key: str) -> None:
        """A new object is there."""
        if key in self.contents.sizes:
            raise self._broken(Invariant.IMMUTABILITY, "an object came twice", key=key)
        epoch = parse_data_key(key, self.prefix).epoch if key.endswith(".fragment") else None
        for wrong in self.contents.add(key, self.objects.objects[key], self.moment(), epoch=epoch):
            raise self._broken(Invariant.DURABILITY, wrong, key=key)
        if key.endswith(".hole"):
            self._hole_is_true(key)

    def deleted(self, key: str) -> None:
        """An object is gone: nobody may miss it."""
        now, current = self.now(), self.current
        lost = self.contents.forget(key)
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
        for identity in lost:
            self._still_held(identity, key)

    def _still_held(self, identity: ChunkId, key: str) -> None:
        """A committed chunk that was in the bucket stays, unless retention took its offsets."""
        if (
            identity not in self.cluster.committed
            or identity in self.given_up
            or self.contents.readable(identity)
        ):
            return
        current = self.current
        if current is not None and self.cluster.written[identity].next_offset <= (
            current.manifest.first
        ):
            return
        if (
            current is not None
            and identity in self.contents.rotten
            and any(identity in self.identities(leaf) for leaf in current.manifest.leaves)
        ):
            return  # rot that no scrub has found yet: collect goes by trailers
        raise self._broken(
            Invariant.PUBLISH_BEFORE_DELETE,
            f"the last copy of committed chunk {identity} was deleted",
            identity[0],
            key=key,
        )

    def landed(self, item: CatalogItem, what: str, *, known: bool = True) -> None:
        """The item has changed.

        Args:
            item: as it is now.
            what: changed it.
            known: whether the table had an item of its own before.
        """
        table = self.catalog().table_id()
        if not item.root_key or item.table_id != table:
            # Whoever read from a table that is gone may still write into the restored one, where
            # nothing else may: whatever that makes, adoption looks at all roots afresh.
            return
        before = self.current
        if before is not None and before.item.root_key == item.root_key:
            return
        if before is not None and item.version == 1 and before.keys <= self.contents.harmed:
            before = None  # item, metadata and all data were lost: the stream begins once more
        root, after = self._read(item)
        keys = self._references(item, after)
        if what == "adopt":
            self._adopted_whole(keys)
        if strays := keys & self.contents.strays:
            raise self._broken(Invariant.FENCING, "a stray upload is live", key=min(strays))
        missing = keys - self.objects.objects.keys() - self.contents.harmed
        found = agreement(item, root)
        found += [
            Violation(Invariant.PUBLISH_BEFORE_DELETE, "referred to, and not there", key=each)
            for each in sorted(missing)
        ]
        if found:
            raise BrokenError(found)
        old = before.manifest if before is not None else None
        self._enters_rightly(after, old, what)
        if old is not None:
            anew = what == "claim" and self._anew(old, after)
            self._advances(old, after, what, anew=anew)
            certain = before is not None and self._certain(before)
            if what != "adopt" or (certain and (known or self._is_alone(before))):
                self._survives(old, after, what, anew=anew)
            self._cut_for_a_reason(old, after)
            if what == "claim":
                self._kept_for_a_reason(after)
        if before is not None:
            now = self.now()
            self.past = [k for k in self.past if k.until and k.until > now - self.grace_ms]
            self.past.append(Known(before.item, before.root, before.manifest, before.keys, now))
        self.current = Known(item, root, after, keys)

    def buried(self, item: CatalogItem, *, held: bool) -> None:
        """The item became a tombstone: never under a legal hold."""
        if held:
            raise self._broken(
                Invariant.DURABILITY, f"{item.state} at revision {item.revision}, under a hold"
            )

    def give_up(self, floor: int) -> None:
        """An operator has dropped what a claim cut off above its floor."""
        live = (
            {e for leaf in self.current.manifest.leaves for e in self.identities(leaf)}
            if (self.current is not None)
            else set()
        )
        self.given_up.update(
            identity
            for identity in self.contents.holders
            if identity not in live and self.cluster.written[identity].next_offset > floor
        )

    def restored(self) -> None:
        """The table is another one; what it says is no step from what it said before."""
        self.past.clear()

    # --- reading ---

    def key_of(self, leaf: Leaf) -> str:
        """Key of the object that a fragment or hole refers to."""
        kind: Literal["hole", "fragment"] = "hole" if leaf.kind == HOLE else "fragment"
        return DataKey(self.stream, leaf.first, leaf.next, leaf.epoch, leaf.uid, kind).path(
            self.prefix
        )

    def identities(self, leaf: Leaf) -> tuple[ChunkId, ...]:
        """Chunks of a fragment; none of a hole."""
        return self.contents.chunks.get(self.key_of(leaf), ())

    def read(self, root: bytes) -> Manifest:
        """A manifest as it was written, whatever has become of its groups since."""
        return read_manifest(root, self._folder, self.contents.pristine.__getitem__)

    def _read(self, item: CatalogItem) -> tuple[Root, Manifest]:
        data = self.contents.pristine[item.root_key]
        try:
            root, manifest = parse_root(data), self.read(data)
            if not self.contents.harmed.isdisjoint(manifest.nodes):
                return root, manifest  # the product cannot read it any more
            ours = [(e.first, e.next, e.kind, e.size, e.epoch, e.uid) for e in manifest.leaves]
            theirs = [
                (e.first_offset, e.next_offset, int(e.kind), e.size, e.epoch, e.uid)
                for e in leaves(root, self.fetch)
            ]
        except (ColdstreamError, MisreadError, KeyError) as exc:
            raise self._broken(Invariant.PUBLISH_BEFORE_DELETE, f"no tree: {exc!r}") from exc
        if ours != theirs or (root.first_offset, root.next_offset, root.total_size) != (
            manifest.first, manifest.next, manifest.size,
        ):  # fmt: skip
            raise self._broken(Invariant.AGREEMENT, "the product reads another manifest than this")
        return root, manifest

    def _references(self, item: CatalogItem, manifest: Manifest) -> frozenset[str]:
        keys = {item.root_key, manifest.quarantine, *manifest.nodes} - {""}
        return frozenset(keys).union(self.key_of(leaf) for leaf in manifest.leaves)

    # --- checks ---

    def _adopted_whole(self, keys: Collection[str]) -> None:
        """All that an adopted root refers to is there, unless it went while that was looked at."""
        began = self.began()
        for key in keys:
            if key not in self.objects.objects and self.contents.harmed_at.get(key, began) < began:
                raise self._broken(
                    Invariant.PUBLISH_BEFORE_DELETE, "adopted, and long gone", key=key
                )

    def _enters_rightly(self, after: Manifest, old: Manifest | None, what: str) -> None:
        """Leaves tile the offsets; what is new was let in by the ledger and holds what it says."""
        known = {each.uid for each in old.leaves} if old is not None else set()
        epoch, last = 0, None
        at = after.leaves[0].first if after.leaves else after.first
        for leaf in after.leaves:
            if leaf.first != at:
                raise self._broken(Invariant.COVERAGE, f"a leaf at {leaf.first}, not {at}", at)
            at = leaf.next
            new = leaf.uid not in known
            if leaf.kind == HOLE:
                last = None
                if new:
                    self._no_data_below(leaf, after.ledger, what)
                continue
            key, held = self.key_of(leaf), self.identities(leaf)
            if new:
                if not accepts(after.ledger, leaf.epoch, leaf.first, leaf.next) and not (
                    leaf.next <= after.first
                ):
                    raise self._broken(Invariant.FENCING, "not acceptable", leaf.first, key)
                last = self._holds_what_it_says(leaf, key, held, last)
            if held[0][1] < epoch:
                raise self._broken(
                    Invariant.EPOCH_ORDER, f"epoch {held[0][1]} after {epoch}", held[0][0], key
                )
            epoch, last = held[-1][1], held[-1]
        if at != after.next:
            raise self._broken(Invariant.COVERAGE, f"the last leaf ends at {at}", at)
        if last is not None and after.last_chunk not in (last, None):
            raise self._broken(
                Invariant.AGREEMENT, f"the last chunk is {last}, the root has {after.last_chunk}"
            )

    def _holds_what_it_says(
        self, leaf: Leaf, key: str, held: tuple[ChunkId, ...], last: ChunkId | None
    ) -> ChunkId | None:
        """Committed chunks that tile the leaf's offsets, and follow what they followed."""
        at = leaf.first
        times: list[int] = []
        for identity in held:
            chunk = self.cluster.written[identity]
            times.append(chunk.timestamp)
            if identity not in self.cluster.committed:
                raise self._broken(
                    Invariant.DURABILITY,
                    f"chunk {identity} in the manifest was never committed",
                    identity[0],
                    key,
                )
            if chunk.chunk_id != at:
                raise self._broken(Invariant.COVERAGE, f"chunk at {at}", at, key)
            at = chunk.next_offset
            if last is not None and self._joins_wrongly(chunk, last):
                raise self._broken(
                    Invariant.CONTIGUOUS_ADVANCE,
                    f"chunk {identity} follows {last}, which its writer never had: its log"
                    f" had {chunk.previous} there",
                    identity[0],
                    key,
                )
            last = identity
        size = self.contents.sizes[key]
        records = leaf.next - leaf.first
        if at != leaf.next or (size, records, min(times), max(times)) != (
            leaf.size, leaf.records, leaf.low_ms, leaf.high_ms,
        ):  # fmt: skip
            raise self._broken(Invariant.COVERAGE, f"not what its entry says, to {at}", at, key)
        return last

    def _advances(self, old: Manifest, after: Manifest, what: str, *, anew: bool) -> None:
        """Next grows, and falls only where a higher epoch claims; first only rises."""
        cut = self._cut(old, after)
        # An older root may be adopted; what lies behind it is resolved by the commits that follow.
        if what != "adopt" and after.next < min(old.next, cut):
            raise self._broken(
                Invariant.CONTIGUOUS_ADVANCE,
                f"next fell from {old.next} to {after.next} within epoch {after.epoch}",
                after.next,
            )
        end = min(old.next, cut)
        for leaf in after.leaves if what != "adopt" else ():
            if leaf.first < end < leaf.next:
                raise self._broken(
                    Invariant.CONTIGUOUS_ADVANCE, f"reaches over the old end {end}", leaf.first
                )
        if what == "adopt" or anew:
            return
        if after.epoch < old.epoch:
            raise self._broken(Invariant.FENCING, f"epoch {after.epoch} after {old.epoch}")
        if after.first < old.first:
            raise self._broken(
                Invariant.PREFIX_RETENTION, f"first fell from {old.first} to {after.first}"
            )
        data = [any(e.kind != HOLE for e in each.leaves) for each in (old, after)]
        if data == [True, False] and after.epoch == old.epoch and not self.contents.rotten:
            raise self._broken(Invariant.PREFIX_RETENTION, "the last fragment is gone")

    def _survives(self, old: Manifest, after: Manifest, what: str, *, anew: bool) -> None:
        """What could be read can be read, in the manifest, unless a claim or retention took it.

        It may be cut otherwise. A chunk that the world has destroyed may become a hole; one that is
        whole somewhere is never given up for one that is not.
        """
        if anew:
            return
        end = min(old.next, after.next, self._cut(old, after), *self._ceilings(old, after))
        first = max(old.first, after.first)
        kept = {leaf.uid for leaf in after.leaves}
        there: dict[ChunkId, bool] = {}
        for leaf in after.leaves:
            sound = self.contents.sound.get(self.key_of(leaf), frozenset())
            for identity in self.identities(leaf):
                there[identity] = identity in sound
        for leaf in old.leaves:
            if leaf.uid in kept:
                continue
            sound = self.contents.sound.get(self.key_of(leaf), frozenset())
            for identity in self.identities(leaf):
                chunk = self.cluster.written[identity]
                if not first < chunk.next_offset <= end or there.get(identity):
                    continue
                rebuilt = after if what == "adopt" else None
                if identity in sound or (
                    identity not in there and self._acceptable(identity, old, rebuilt)
                ):
                    how = "only damaged" if identity in there else "not"
                    raise self._broken(
                        Invariant.PREFIX_RETENTION,
                        f"chunk {identity} is {how} in what was put in its manifest's place",
                        identity[0],
                        self.key_of(leaf),
                    )

    def _certain(self, before: Known) -> bool:
        """Whether the manifest that is replaced could still be read."""
        return self.contents.harmed.isdisjoint({before.item.root_key, *before.manifest.nodes})

    def _is_alone(self, before: Known | None) -> bool:
        """Whether the bucket has no other root of the same version, and all that it names."""
        if before is None or not before.keys <= self.objects.objects.keys():
            return False
        version = before.item.version
        same = [
            key
            for key in self.objects.objects
            if key.startswith(f"{self._folder}root.") and f".{version:012d}." in key
        ]
        return len(same) == 1

    def _acceptable(self, identity: ChunkId, old: Manifest, rebuilt: Manifest | None) -> bool:
        """Whether a whole copy of a chunk was listed, in an object that the ledger lets in.

        A repair takes a part of it. A rebuild names whole objects: only what lies in the old
        manifest, and overlaps nothing that is named and no hole that was there before.
        """
        uids = {leaf.uid for leaf in old.leaves}
        beside = [e for e in rebuilt.leaves if e.kind != HOLE or e.uid in uids] if rebuilt else []
        seen = self.seen()
        for key in self.contents.holders.get(identity, ()):
            parsed = parse_data_key(key, self.prefix)
            first, next_offset = parsed.first_offset, parsed.next_offset
            if (
                key in seen
                and accepts(old.ledger, parsed.epoch, first, next_offset)
                and (rebuilt is None or old.first <= first < next_offset <= old.next)
                and not any(leaf.first < next_offset and first < leaf.next for leaf in beside)
            ):
                return True
        return False

    @staticmethod
    def _cut(old: Manifest, after: Manifest) -> int:
        """The lowest floor that was claimed since: what lies above it may be cut off."""
        claims = set(after.ledger) - set(old.ledger)
        return min((floor for _, floor in claims), default=2**64 - 1)

    @staticmethod
    def _ceilings(old: Manifest, after: Manifest) -> list[int]:
        return [floor for epoch, floor in after.ledger if epoch > old.epoch]

    @staticmethod
    def _anew(old: Manifest, after: Manifest) -> bool:
        """Whether a claim has begun the stream anew: nothing of the old manifest is in it."""
        return (
            after.epoch > old.epoch
            and dict(after.ledger).get(after.epoch) == after.first
            and (
                after.quarantine != old.quarantine
                or all(leaf.kind == HOLE for leaf in old.leaves)  # there was nothing to keep
            )
        )

    def _cut_for_a_reason(self, old: Manifest, after: Manifest) -> None:
        """What a claim cuts off is in no log that follows its writer; a later one may have it."""
        floor = dict(after.ledger).get(after.epoch)
        if after.epoch <= old.epoch or floor is None or floor >= old.next:
            return
        for leaf in old.leaves:
            if leaf.kind == HOLE or leaf.next <= floor:
                continue
            for identity in self.identities(leaf):
                chunk = self.cluster.written[identity]
                if chunk.next_offset <= max(floor, after.first):
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

    def _kept_for_a_reason(self, after: Manifest) -> None:
        """What a claim keeps at its end is in the log of every member that follows its writer."""
        last = after.last_chunk
        if last is None:
            return
        for replica in self.cluster.reachable:
            if not replica.joined or replica.epoch != after.epoch:
                continue
            if replica.begin <= last[0] < replica.committed:
                there = replica.chunk_at(last[0])
                if there is None or there.identity != last:
                    raise self._broken(
                        Invariant.CONTIGUOUS_ADVANCE,
                        f"a claim of epoch {after.epoch} keeps chunk {last}, which {replica.name}"
                        " does not have",
                        last[0],
                    )

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

    def retired(
        self, old: Manifest, after: Manifest, most: int | None, oldest_ms: int | None
    ) -> None:
        """Retention took what breaks its rule, all of it, and nothing else.

        Args:
            old: before it.
            after: what it made.
            most: bytes that may stay, None if any number may.
            oldest_ms: a fragment whose chunks are all older goes, None if none does.
        """

        def goes(leaf: Leaf, left: int) -> bool:
            return (most is not None and left > most) or (
                oldest_ms is not None and leaf.high_ms < oldest_ms
            )

        left = old.size
        fragments = [leaf.first for leaf in old.leaves if leaf.kind != HOLE]
        stays = fragments[-1] if fragments else old.first
        for leaf in old.leaves:
            if leaf.next > after.first:
                if leaf.first == after.first and goes(leaf, left) and leaf.next <= stays:
                    raise self._broken(
                        Invariant.PREFIX_RETENTION,
                        "retention left what breaks its rule",
                        leaf.first,
                    )
                return
            if not goes(leaf, left) or leaf.next > stays:
                raise self._broken(
                    Invariant.PREFIX_RETENTION, "retention took what no rule retires", leaf.first
                )
            left -= leaf.size

    # --- holes ---

    def _hole_is_true(self, key: str) -> None:
        """No member that could be asked, nor any object that was seen, has any of a new hole."""
        hole = parse_data_key(key, self.prefix)
        current = self.current
        if current is None or hole.first_offset < current.manifest.next:
            return  # a part of one that is in the manifest: a claim or a repair cuts it back
        span = Leaf(hole.first_offset, hole.next_offset, 0, 0, HOLE, 0, 0, hole.epoch, hole.uid)
        self._no_data_below(span, current.manifest.ledger, "created")
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

    def _no_data_below(self, hole: Leaf, ledger: tuple[tuple[int, int], ...], what: str) -> None:
        """No acceptable fragment that was listed by whoever makes a hole has what it gives up."""
        for key, parsed in self._seen_fragments():
            if parsed.next_offset <= hole.first or parsed.first_offset >= hole.next:
                continue
            if not accepts(ledger, parsed.epoch, parsed.first_offset, parsed.next_offset):
                continue
            sound = self.contents.sound[key]
            begins = {chunk_id for chunk_id, _ in sound}
            whole = len(sound) == len(self.contents.chunks[key])
            had = hole.first in begins or (whole and parsed.first_offset > hole.first)
            # A rebuild that accepts less names whole objects side by side; a repair does the rest.
            fits = whole and hole.first <= parsed.first_offset and parsed.next_offset <= hole.next
            if had and (fits or what != "adopt"):
                raise self._broken(
                    Invariant.CONTIGUOUS_ADVANCE,
                    f"a hole [{hole.first}, {hole.next}) over data that the bucket has",
                    hole.first,
                    key,
                )

    def _seen_fragments(self) -> Iterator[tuple[str, DataKey]]:
        for key in self.seen():
            if key in self.objects.objects and key in self.contents.chunks:
                try:
                    yield key, parse_data_key(key, self.prefix)
                except InvalidInputError:
                    continue

    def _broken(
        self, invariant: Invariant, message: str, offset: int | None = None, key: str = ""
    ) -> BrokenError:
        return BrokenError([Violation(invariant, message, offset, None, key)])
