"""What must hold after every step, whatever happened (docs/architecture/correctness.md).

The oracle sees the bucket and the table themselves, not through the net, and knows every chunk that
any writer ever made. It looks when something has changed: an item, an object that came, one that
went. So each look costs what has changed, and a history costs little. It reads manifests itself,
by `reading`, which shares no code with the product; what the product reads must be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import astuple, dataclass, field
from typing import Literal

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.errors import ColdstreamError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.manifest.invariants import Invariant, Violation, agreement
from coldstream.manifest.root import Root, parse_root
from coldstream.manifest.tree import leaves
from coldstream.names import DataKey, metadata_prefix, parse_data_key
from coldstream.remote.context import Context
from coldstream_devkit.simulation import oracle_entries, oracle_steps
from coldstream_devkit.simulation.cluster import ChunkId, Cluster
from coldstream_devkit.simulation.contents import Contents
from coldstream_devkit.simulation.reading import (
    HOLE,
    Leaf,
    Manifest,
    MisreadError,
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
        purging: whether it makes go what was erased.

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
    purging: Callable[[], bool] = lambda: True
    current: Known | None = None
    past: list[Known] = field(default_factory=list)
    asked: int = -1
    given_up: set[ChunkId] = field(default_factory=set)
    _swept: bool = False  # it was deleted, and its undelete time was over
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
            if key in self.contents.harmed:
                return  # it was lost between a PUT and the SDK's second try of it
            raise self.broken(Invariant.IMMUTABILITY, "an object came twice", key=key)
        epoch = parse_data_key(key, self.prefix).epoch if key.endswith(".fragment") else None
        for wrong in self.contents.add(key, self.objects.objects[key], self.moment(), epoch=epoch):
            raise self.broken(Invariant.DURABILITY, wrong, key=key)
        if key.endswith(".hole"):
            oracle_entries.hole_is_true(self, key)

    def deleted(self, key: str) -> None:
        """An object is gone: nobody may miss it."""
        now, current = self.now(), self.current
        lost = self.contents.forget(key)
        item = self.catalog().items.get(self.stream)
        if item is not None and item.state is StreamState.DELETED:
            return
        if current is not None and key in current.keys:
            raise self.broken(Invariant.PUBLISH_BEFORE_DELETE, "deleted, and live", key=key)
        purged = self.purging() and self._was_erased(key)
        for known in () if purged else self.past:
            if known.until is not None and known.until > now - self.grace_ms and key in known.keys:
                raise self.broken(
                    Invariant.PUBLISH_BEFORE_DELETE,
                    f"deleted, and version {known.item.version}, replaced {now - known.until} ms"
                    " ago, refers to it",
                    key=key,
                )
        for identity in lost:
            self._still_held(identity, key)

    def _was_erased(self, key: str) -> bool:
        """Whether an object holds erased offsets: it may go before its grace time is over."""
        if not key.endswith(".fragment"):
            return False
        parsed = parse_data_key(key, self.prefix)
        return self.contents.erased.overlaps(parsed.first_offset, parsed.next_offset)

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
        raise self.broken(
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
        if before is not None and item.version == 1 and self._is_gone(before):
            before, self._swept = None, False  # the item was lost too: the stream begins once more
        root, after = self._read(item)
        keys = self._references(item, after)
        if what == "adopt":
            self._adopted_whole(keys)
            self._adopted_by_name(item, after)
        if strays := keys & self.contents.strays:
            raise self.broken(Invariant.FENCING, "a stray upload is live", key=min(strays))
        missing = keys - self.objects.objects.keys() - self.contents.harmed
        found = agreement(item, root)
        found += [
            Violation(Invariant.PUBLISH_BEFORE_DELETE, "referred to, and not there", key=each)
            for each in sorted(missing)
        ]
        if found:
            raise BrokenError(found)
        old = before.manifest if before is not None else None
        oracle_entries.enters_rightly(self, after, old, what)
        if old is not None:
            anew = what == "claim" and oracle_steps.begun_anew(old, after)
            oracle_steps.advances(self, old, after, what, anew=anew)
            certain = before is not None and self._certain(before)
            if what != "adopt" or (certain and (known or self._is_alone(before))):
                oracle_steps.survives(self, old, after, what, anew=anew)
            oracle_steps.cut_for_a_reason(self, old, after)
            if what == "claim":
                oracle_steps.kept_for_a_reason(self, after)
        if before is not None:
            now = self.now()
            self.past = [k for k in self.past if k.until and k.until > now - self.grace_ms]
            self.past.append(Known(before.item, before.root, before.manifest, before.keys, now))
        self.current = Known(item, root, after, keys)

    def _is_gone(self, known: Known) -> bool:
        """Whether all metadata and data were lost, or deleted with the stream."""
        there = known.keys & self.objects.objects.keys()
        return known.keys <= self.contents.harmed or (self._swept and not there)

    def buried(self, item: CatalogItem, *, held: bool) -> None:
        """The item became a tombstone: never under a legal hold."""
        self._swept |= item.state is StreamState.DELETED
        if held:
            raise self.broken(
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
            raise self.broken(Invariant.PUBLISH_BEFORE_DELETE, f"no tree: {exc!r}") from exc
        name = astuple(root.name)
        if ours != theirs or (root.first_offset, root.next_offset, root.total_size, name) != (
            manifest.first, manifest.next, manifest.size, manifest.name,
        ):  # fmt: skip
            raise self.broken(Invariant.AGREEMENT, "the product reads another manifest than this")
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
                raise self.broken(
                    Invariant.PUBLISH_BEFORE_DELETE, "adopted, and long gone", key=key
                )

    def _adopted_by_name(self, item: CatalogItem, after: Manifest) -> None:
        """An adopted root and its item say the same name, and none that was known is forgotten."""
        if astuple(item.name) != after.name:
            raise self.broken(Invariant.AGREEMENT, f"{item.name} in the item, not {after.name}")
        before = self.current
        if before and self._certain(before) and before.manifest.name[2] and not after.name[2]:
            raise self.broken(Invariant.AGREEMENT, f"the name {before.manifest.name} was forgotten")

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

    # --- holes ---

    def broken(
        self, invariant: Invariant, message: str, offset: int | None = None, key: str = ""
    ) -> BrokenError:
        """The error that says so; nothing is raised."""
        return BrokenError([Violation(invariant, message, offset, None, key)])
