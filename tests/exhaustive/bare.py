"""What the exhaustive scopes look at: the bare bucket and table, offset by offset.

Nothing here asks the product what a manifest says or which object is garbage. Manifests are read by
`simulation.reading`, which knows the page that draws the formats and nothing else; a chunk
is what the broker wrote at its offset under its epoch; and what may be deleted is a list that the
scope has written down by hand before anything ran.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, cast

from coldstream.manifest.catalog import CatalogItem
from coldstream.remote.context import Context
from coldstream_devkit.simulation.points import Place
from coldstream_devkit.simulation.reading import HOLE, Leaf, Manifest, data_of, read_manifest
from tests.support.stage import CHUNK, PREFIX, STREAM, chunk

FOLDER = f"{PREFIX}stream/{STREAM}/"
METADATA = f"{FOLDER}metadata/"


def key_of(leaf: Leaf) -> str:
    """The key of a fragment or a hole."""
    kind = "hole" if leaf.kind == HOLE else "fragment"
    return (
        f"{FOLDER}data/{leaf.first:020d}-{leaf.next:020d}.{leaf.epoch:010d}.{leaf.uid:016x}.{kind}"
    )


def manifest_at(place: Place, root_key: str) -> Manifest:
    return read_manifest(place.store.objects[root_key], METADATA, place.store.objects.__getitem__)


def manifest_of(place: Place) -> Manifest | None:
    item = place.catalog.items.get(STREAM)
    return manifest_at(place, item.root_key) if item is not None and item.root_key else None


def named_by(manifest: Manifest) -> set[str]:
    """Keys that a manifest refers to."""
    found = {key_of(leaf) for leaf in manifest.leaves} | set(manifest.nodes)
    return found | {manifest.quarantine} if manifest.quarantine else found


def objects_below(place: Place) -> set[str]:
    return {key for key in place.store.objects if key.startswith(FOLDER)}


def chunks_of(place: Place, manifest: Manifest, damaged: Collection[str] = ()) -> list[int]:
    """The epoch of the chunk at each chunk's offset, 0 where a hole or damage is.

    Raises:
        AssertionError: an object is gone, or holds something else than some writer has written.
    """
    found: list[int] = []
    for leaf in manifest.leaves:
        key = key_of(leaf)
        assert key in place.store.objects, f"the manifest refers to {key}, which is gone"
        offsets = range(leaf.first, leaf.next, CHUNK)
        if leaf.kind == HOLE or key in damaged:
            found += [0] * len(offsets)
            continue
        data = data_of(place.store.objects[key])
        for offset in offsets:
            size = len(chunk(offset, 1))
            by = {chunk(offset, epoch): epoch for epoch in range(1, leaf.epoch + 1)}
            assert data[:size] in by, f"{key} holds at {offset} what nobody has written there"
            found.append(by[data[:size]])
            data = data[size:]
        assert not data, f"{key} holds more than its offsets"
    written = [epoch for epoch in found if epoch]
    assert written == sorted(written), f"epochs fall: {found}"
    return found


@dataclass(slots=True)
class Unharmed:
    """What `Scenario.changed` asks: nothing is gone but what may go, and what is named is whole.

    Attributes:
        begin: the place as it is at the beginning.
        may_go: keys that may be deleted, written down by hand.
        damaged: keys of objects that are damaged from the beginning.
    """

    begin: Place
    may_go: Collection[str]
    damaged: Collection[str] = ()
    _seen: set[object] = field(default_factory=set)

    def __call__(self, place: Place, before: CatalogItem | None) -> None:
        gone = objects_below(self.begin) - objects_below(place) - set(self.may_go)
        assert not gone, f"deleted, though it may not go: {sorted(gone)}"
        item = place.catalog.items.get(STREAM)
        key = (item, tuple(sorted(place.store.objects.items())))
        if key in self._seen:
            return
        self._seen.add(key)
        manifest = manifest_of(place)
        if manifest is None:
            return
        assert item is not None
        assert (manifest.first, manifest.next) == (item.first_offset, item.next_offset)
        assert named_by(manifest) <= objects_below(place), "something that is named is gone"
        chunks_of(place, manifest, self.damaged)


@dataclass(frozen=True, slots=True)
class Look:
    """One call of a collector, as the scope overhears it.

    Attributes:
        item: that the table gave; None if this was another call.
        deletes: keys that were to be deleted.
    """

    item: CatalogItem | None = None
    deletes: tuple[str, ...] = ()


class Overheard:
    """A port that writes down what was read of the item, and what was deleted."""

    def __init__(self, port: object, looks: list[Look]) -> None:
        self._port, self._looks = port, looks

    def __getattr__(self, method: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            answer = getattr(self._port, method)(*args, **kwargs)
            if method == "delete":
                self._looks.append(Look(deletes=tuple(args[0])))
            elif method == "get" and isinstance(answer, CatalogItem):
                self._looks.append(Look(item=answer))
            elif method != "table_id":
                self._looks.append(Look())
            return answer

        return call


def overheard(context: Context) -> tuple[Context, list[Look]]:
    """The same world, and what was done in it."""
    looks: list[Look] = []
    store, catalog = (
        cast(Any, Overheard(context.store, looks)),
        cast(Any, Overheard(context.catalog, looks)),
    )
    return replace(context, store=store, catalog=catalog), looks


def batches(looks: list[Look]) -> Iterator[tuple[CatalogItem, CatalogItem, tuple[str, ...]]]:
    """For each batch of deletes: the first item that was read, the last one, and the keys.

    Raises:
        AssertionError: something was done between the last look at the item and the deletes.
    """
    items = [each.item for each in looks if each.item is not None]
    for before, each in pairwise(looks):
        if each.deletes:
            assert before.item is not None, "a batch was deleted without a fresh look at the item"
            yield items[0], before.item, each.deletes
