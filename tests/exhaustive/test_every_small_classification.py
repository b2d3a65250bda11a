"""Every small bucket: what the item, a root, a record or a lost timeline names is no garbage.

Scope: a stream of three offsets in two shapes, with retention or not, whose second epoch holds the
chunks of the first or others; beside it no root, one that lost the race for the version, one that
may land, an older one, one that is damaged and one whose group is gone; no quarantine record, that
of the current root, that of the other root, one that is damaged or that no root names. In each of
these 660 buckets every object is asked for, of which there are about 60: every fragment and hole
over [0, 4) of both epochs, and all that any tree or record names.

Why it is enough: each object has at most one thing that keeps it, and each of these is there in
some bucket and missing in another that is the same but for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import pytest

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.node import Node
from coldstream.manifest.quarantine import ListedData, QuarantineRecord, Timeline
from coldstream.manifest.root import Head, LastChunk, Root
from coldstream.names import DataKey, collect_path, group_path, quarantine_path, root_path
from coldstream.plans.collect import ObjectKind
from coldstream.ports import ObjectInfo
from coldstream.remote.context import Context
from coldstream.remote.roots import Snapshot
from coldstream.usecases import references
from coldstream.usecases.classify import Classifier
from coldstream_devkit.fragments import build_fragment
from tests.exhaustive.small_trees import PREFIX, STREAM

VERSION = 5
Rival = Literal["none", "lost", "ahead", "old", "damaged", "lame"]
Recorded = Literal["none", "current", "rival", "both", "unnamed", "damaged"]
Chunk = tuple[int, int]


@dataclass(frozen=True)
class Leaf:
    """A fragment over [first, next_offset) whose last chunk is of `written`."""

    first: int
    next_offset: int
    epoch: int
    uid: int
    written: int
    hole: bool = False

    @property
    def key(self) -> DataKey:
        kind: Literal["fragment", "hole"] = "hole" if self.hole else "fragment"
        return DataKey(STREAM, self.first, self.next_offset, self.epoch, self.uid, kind)

    @property
    def entry(self) -> Entry:
        kind = EntryKind.HOLE if self.hole else EntryKind.FRAGMENT
        return Entry(self.first, self.next_offset, 0, 0, kind, 1, 1, self.epoch, self.uid)


_BODIES: dict[Leaf, bytes] = {}


def body(leaf: Leaf) -> bytes:
    """One record a chunk, all of the epoch that wrote the leaf."""
    if leaf not in _BODIES:
        _BODIES[leaf] = build_fragment(
            leaf.first,
            leaf.next_offset,
            stream=STREAM,
            epoch=leaf.epoch,
            uid=leaf.uid,
            chunk_epochs=[leaf.written],
            records_per_chunk=1,
        ).data
    return _BODIES[leaf]


@dataclass
class Grown:
    """A tree: its leaves, the group over the first two of them if there is one, and its root."""

    leaves: list[Leaf]
    group: Node | None
    root: Root

    @property
    def group_key(self) -> str:
        assert self.group is not None
        entry = self.group.entry()
        return group_path(PREFIX, STREAM, entry.first_offset, entry.uid, 1)

    def names(self, above: int = 0) -> set[str]:
        """What its live part names, as far as it ends above an offset."""
        first = self.root.first_offset
        named = {
            each.key.path(PREFIX) for each in self.leaves if each.next_offset > max(first, above)
        }
        if self.group and first < 2:
            named.add(self.group_key)
        return named

    def holds(self, chunk: Chunk) -> bool:
        """Whether a live fragment has the chunk: the same id, the same epoch."""
        return any(
            each.first <= chunk[0] < each.next_offset
            and each.written == chunk[1]
            and not each.hole
            and each.next_offset > self.root.first_offset
            for each in self.leaves
        )


def grown(
    leaves: list[Leaf],
    *,
    uid: int = 0,
    first: int = 0,
    version: int = VERSION,
    floor: int | None = 1,
    record: str = "",
) -> Grown:
    group = None
    entries = [each.entry for each in leaves]
    head = None
    if uid:
        group = Node(EntryKind.GROUP, uid, Entries.of(entries[:2]))
        dead = [each for each in entries if each.next_offset <= first]
        entries = [group.entry(), *entries[2:]]
        head = Head(0, 0, len(dead), len(dead))
    elif first:
        entries = entries[1:]
    end = leaves[-1].next_offset
    claims = [(1, 0), *([(2, floor)] if floor is not None else [])]
    root = Root(
        first,
        end,
        epoch=claims[-1][0],
        version=version,
        ledger=Ledger.of(claims),
        entries=Entries.of(entries),
        head=head,
        last_chunk=LastChunk(end - 1, leaves[-1].written),
        quarantine_key=record,
    )
    return Grown(leaves, group, root)


@dataclass
class Bucket:
    """Everything below one stream, and what of it somebody names."""

    current: Grown
    store: MemoryObjectStore
    item: CatalogItem
    named: set[str]
    held_by: list[tuple[Grown, int]]
    asked: dict[str, Leaf]
    groups: list[str]
    roots: dict[str, tuple[int, bool]]
    records: list[str]

    def context(self) -> Context:
        catalog = MemoryCatalog()
        catalog.items[STREAM] = self.item
        uids = iter(range(10**6, 10**7))
        return Context(self.store, catalog, PREFIX, lambda: next(uids))

    def loaded(self) -> Snapshot:
        return Snapshot(self.item, self.current.root)


RECORD, OTHER_RECORD = (quarantine_path(PREFIX, STREAM, 2, uid) for uid in (31, 32))
LISTED = Leaf(1, 4, 1, 600, 1)
#: What the claim of epoch 2 cut off: [0, 1) is shared with the current tree, the group is its own.
CUT = [Leaf(0, 1, 1, 100, 1), Leaf(1, 2, 1, 201, 1), Leaf(2, 4, 1, 202, 1)]


def strangers() -> Iterator[Leaf]:
    for first, next_offset, epoch in product(range(4), range(1, 5), (1, 2)):
        if first < next_offset:
            yield Leaf(first, next_offset, epoch, 900, 1)
            if epoch == 2:  # no chunk is newer than its fragment
                yield Leaf(first, next_offset, epoch, 901, 2)
            yield Leaf(first, next_offset, epoch, 902, 1, hole=True)


def bucket(
    *,
    shape: int,
    first: int,
    floor: int,
    same: bool,
    rival: Rival,
    recorded: Recorded,
    cut_hole: bool = False,
) -> Bucket:
    """One of the buckets; `same`: epoch 2 has uploaded the chunks of epoch 1 again."""
    written = 1 if same else 2
    mine = [
        Leaf(n, n + 1, 2 if n >= floor else 1, 100 + n, written if n >= floor else 1)
        for n in range(3)
    ]
    theirs = [mine[0], replace(mine[1], uid=301), Leaf(2, 4, 2, 302, 2)]
    own_record = RECORD if recorded in ("current", "both") else ""
    their_record = {"rival": OTHER_RECORD, "both": RECORD, "damaged": OTHER_RECORD}.get(
        recorded, ""
    )
    cut_leaves = [CUT[0], replace(CUT[1], hole=cut_hole), CUT[2]]
    current = grown(mine, uid=11 if shape else 0, first=first, floor=floor, record=own_record)
    cut = grown(cut_leaves, uid=13, version=3, floor=None)
    version = {"lost": VERSION, "old": VERSION - 1}.get(rival, VERSION + 1)
    other = grown(theirs, uid=12, version=version, floor=floor, record=their_record)

    store = MemoryObjectStore()
    data_objects = {*mine, *theirs, *cut_leaves, LISTED, *strangers()}
    for leaf in data_objects:
        store.put(leaf.key.path(PREFIX), b"" if leaf.hole else body(leaf), write_id="w")
    for tree in (current, cut, other):
        if tree.group and not (tree is other and rival == "lame"):
            store.put(tree.group_key, tree.group.encode(), write_id="w")
    keys = {
        "current": root_path(PREFIX, STREAM, 2, VERSION, 41),
        "cut": root_path(PREFIX, STREAM, 1, 3, 42),
        "other": root_path(PREFIX, STREAM, 2, version, 43),
    }
    store.put(keys["current"], current.root.encode(), write_id="w")
    store.put(keys["cut"], cut.root.encode(), write_id="w")
    if rival != "none":
        data = b"?" if rival == "damaged" else other.root.encode()
        store.put(keys["other"], data, write_id="w")
    listed = (ListedData(LISTED.key.path(PREFIX), 1),)
    record = QuarantineRecord((Timeline(2, floor, 4, root_key=keys["cut"], listed=listed),))
    store.put(RECORD, record.encode(), write_id="w")
    store.put(OTHER_RECORD, b"?" if recorded == "damaged" else record.encode(), write_id="w")

    item = CatalogItem(
        STREAM,
        "memory",
        uid=41,
        root_key=keys["current"],
        epoch=2,
        version=VERSION,
        first_offset=first,
        next_offset=3,
        ledger=current.root.ledger,
    )
    # What somebody names: the item its root, roots their trees and records, records what they list.
    adoptable = rival in ("lost", "ahead", "lame")
    named = {keys["current"], *current.names()}
    held_by = [(current, 0)]
    if adoptable:
        # The one whose group is gone names only what stands in the root itself, and that group.
        named |= {theirs[2].key.path(PREFIX), other.group_key} if rival == "lame" else other.names()
    if rival in ("ahead", "lame", "damaged"):
        named.add(keys["other"])
    records = {own_record, their_record if adoptable else ""} - {""}
    named |= records - ({OTHER_RECORD} if recorded == "damaged" else set())
    if own_record or (adoptable and recorded in ("rival", "both")):
        named |= {keys["cut"], listed[0].key, cut.group_key, *cut.names(above=floor)}
    if own_record:
        held_by.append((cut, floor))
    return Bucket(
        current,
        store,
        item,
        named,
        held_by,
        {
            leaf.key.path(PREFIX): leaf
            for leaf in {*mine, *theirs, *cut_leaves, LISTED, *strangers()}
        },
        [tree.group_key for tree in (current, cut, other) if tree.group],
        {
            keys["cut"]: (3, False),
            keys["other"]: (version, False),
            keys["current"]: (VERSION, True),
        },
        [RECORD, OTHER_RECORD],
    )


def needed(leaf: Leaf, made: Bucket, floor: int) -> bool:
    """Whether what nobody names can be referred to again, or is the only one of its history."""
    first, end = made.current.root.first_offset, made.current.root.next_offset
    below, above = leaf.next_offset <= first, leaf.next_offset > end
    cut = leaf.epoch < 2 and leaf.next_offset > floor
    timeline = len(made.held_by) > 1
    if below and not (cut and timeline):
        return False
    if leaf.hole:
        return above and not cut
    if above:
        return True
    may_enter = leaf.first >= floor if leaf.epoch == 2 else leaf.next_offset <= floor
    if may_enter and not below:
        return False
    chunk = (leaf.next_offset - 1, leaf.written)
    for tree, begin in made.held_by:
        lost = tree is not made.current
        over = any(
            one.hole and one.first < leaf.next_offset and leaf.first < one.next_offset
            for one in tree.leaves
        )
        if leaf.next_offset > begin and not (lost and over) and tree.holds(chunk):
            return False
    return True


def row(path: str) -> ObjectInfo:
    return ObjectInfo(path, 1, 0)


def every_bucket() -> Iterator[tuple[Bucket, int]]:
    rivals: tuple[Rival, ...] = ("none", "lost", "ahead", "old", "damaged", "lame")
    recorded: tuple[Recorded, ...] = ("none", "current", "rival", "both", "unnamed", "damaged")
    for shape, first, floor, same, rival, record in product(
        (0, 1), (0, 1, 2), (1, 2), (True, False), rivals, recorded
    ):
        if (rival == "none" and record in ("rival", "both", "damaged")) or (
            first == 2 and not shape
        ):
            continue
        made = bucket(
            shape=shape, first=first, floor=floor, same=same, rival=rival, recorded=record
        )
        yield made, floor


def test_in_every_bucket_garbage_is_exactly_what_nothing_names_and_nothing_can_need() -> None:
    for made, floor in every_bucket():
        classifier = Classifier(made.context(), made.loaded())
        assert not classifier.blind
        for path, leaf in made.asked.items():
            garbage = classifier.kind(row(path)).garbage
            assert garbage == (path not in made.named and not needed(leaf, made, floor)), path
        for path in made.groups:
            assert classifier.kind(row(path)).garbage == (path not in made.named), path
        for path, (version, current) in made.roots.items():
            stays = current or version > VERSION or path in made.named
            assert classifier.kind(row(path)).garbage == (not stays), path
        for path in made.records:
            assert classifier.kind(row(path)).garbage == (path not in made.named), path
        assert classifier.kind(row(collect_path(PREFIX, STREAM, 1, 1))) is ObjectKind.RECORD
        assert classifier.kind(row(f"{PREFIX}stream/{STREAM}/data/x")) is ObjectKind.FOREIGN


def test_a_lost_timeline_with_a_hole_there_has_no_chunk_of_it() -> None:
    for first, floor, same in product((0, 1), (1, 2), (True, False)):
        made = bucket(
            shape=1,
            first=first,
            floor=floor,
            same=same,
            rival="none",
            recorded="current",
            cut_hole=True,
        )
        classifier = Classifier(made.context(), made.loaded())
        for path, leaf in made.asked.items():
            garbage = classifier.kind(row(path)).garbage
            assert garbage == (path not in made.named and not needed(leaf, made, floor)), path


@pytest.mark.parametrize("late", [False, True])
def test_where_the_roots_cannot_all_be_looked_at_nothing_but_roots_is_garbage(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, "MAX_RIVALS", 1 if late else 0)
    for rival in ("lost", "ahead"):
        made = bucket(shape=1, first=1, floor=1, same=True, rival=rival, recorded="current")
        context = replace(made.context(), page_size=1) if late else made.context()
        classifier = Classifier(context, made.loaded(), time_left=lambda: not late)
        assert classifier.blind
        for path in (*made.asked, *made.groups, *made.records):
            assert not classifier.kind(row(path)).garbage
        older = root_path(PREFIX, STREAM, 1, 2, 9)
        assert classifier.kind(row(older)) is ObjectKind.OLD_ROOT


def test_a_renewed_classifier_says_of_every_object_what_a_new_one_would() -> None:
    """The tree moves on under it: appended, retained, one leaf copied, rewritten or lost."""
    for same, record, at, change in product(
        (True, False),
        ("none", "current"),
        range(3),
        ("copied", "rewritten", "lost", "appended", "retained", "claimed", "record", "state"),
    ):
        recorded: Recorded = "current" if record == "current" else "none"
        made = bucket(shape=0, first=0, floor=1, same=same, rival="none", recorded=recorded)
        classifier = Classifier(made.context(), made.loaded())
        for path in made.asked:
            classifier.kind(row(path))
        before = made.current
        leaves = list(before.leaves)
        first, floor, key = 0, 1, before.root.quarantine_key
        item = replace(made.item, version=VERSION + 1)
        if change == "copied":
            leaves[at] = replace(leaves[at], uid=700)
        elif change == "rewritten":
            leaves[at] = replace(leaves[at], uid=701, written=3 - leaves[at].written)
        elif change == "lost":
            leaves[at] = replace(leaves[at], uid=702, hole=True)
        elif change == "appended":
            leaves.append(Leaf(3, 4, 2, 703, 2))
        elif change == "retained":
            first = 1
        elif change == "claimed":
            floor = 2
        elif change == "record":
            key = OTHER_RECORD
        else:
            item = replace(item, revision=1)
        for leaf in leaves:
            path = leaf.key.path(PREFIX)
            if path not in made.store.objects:
                made.store.put(path, b"" if leaf.hole else body(leaf), write_id="w")
        after = grown(leaves, first=first, floor=floor, version=VERSION + 1, record=key)
        path = root_path(PREFIX, STREAM, 2, VERSION + 1, 44)
        made.store.put(path, after.root.encode(), write_id="w")
        item = replace(
            item,
            uid=44,
            root_key=path,
            first_offset=first,
            next_offset=after.root.next_offset,
            ledger=after.root.ledger,
        )
        loaded = Snapshot(item, after.root)
        renewed = classifier.renewed(loaded)
        assert (renewed is None) == (change in ("claimed", "record", "state"))
        if renewed is None:
            continue
        fresh = Classifier(made.context(), loaded)
        for each in (*made.asked, *made.groups, *made.records, path, made.item.root_key):
            assert renewed.kind(row(each)) is fresh.kind(row(each)), (each, change)
