"""What an object is to its stream, and whether it can be proved to be garbage.

docs/workflows.md has the proof, under "collect".

Deciding here is pure; who asks brings the root and what its look-ups gave. An object is deleted
only if it is of a garbage kind, old enough, and was already seen as such a grace time ago. Whatever
is not proved stays: fragments that may still be appended, what a root names that lost or has not
landed yet (after the loss of the table it may be adopted), objects whose keys are not ours, and the
only copy of a lost timeline.

Entries below the first offset do not count as references. Retention moves the first offset into a
group and leaves the group as it is; what lies below it is dead all the same, and nothing that is
built on this root or a later one ever reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum

from coldstream.errors import CorruptDataError, NotFoundError
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.entries import Entry
from coldstream.manifest.quarantine import QuarantineRecord
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch, leaf_at
from coldstream.names import DataKey, GroupKey, MarkKey, RootKey
from coldstream.plans.undo_epoch import may_undo


class ObjectKind(StrEnum):
    """What an object is to its stream."""

    REFERENCED = "referenced"
    PENDING = "pending"
    UNIQUE = "unique"
    FOREIGN = "foreign"
    RECORD = "record"
    ERASURE = "erasure"
    RETIRED = "retired"
    SUPERSEDED = "superseded"
    FENCED = "fenced"
    OLD_HOLE = "old_hole"
    OLD_ROOT = "old_root"
    OLD_GROUP = "old_group"
    OLD_RECORD = "old_record"
    STRAGGLER = "straggler"
    QUARANTINED = "quarantined"
    OLD_QUARANTINE = "old_quarantine"
    DROPPED = "dropped"

    @property
    def garbage(self) -> bool:
        """Whether nothing can ever refer to such an object again."""
        return self not in _KEPT

    @property
    def meaning(self) -> str:
        """The kind in words."""
        return _MEANINGS[self]


_KEPT = frozenset(
    {
        ObjectKind.REFERENCED,
        ObjectKind.PENDING,
        ObjectKind.UNIQUE,
        ObjectKind.FOREIGN,
        ObjectKind.RECORD,
        ObjectKind.ERASURE,
        ObjectKind.QUARANTINED,
    }
)
_MEANINGS = {
    ObjectKind.REFERENCED: "the manifest refers to it",
    ObjectKind.PENDING: "may be appended or adopted yet: it, a part of it, or a root that names it",
    ObjectKind.UNIQUE: "holds chunks that the manifest lacks, of another timeline or over a hole: "
    "kept for a person",
    ObjectKind.FOREIGN: "its key is not one of ours: never touched",
    ObjectKind.RECORD: "what collect has seen: needed for its proofs",
    ObjectKind.ERASURE: "says which messages were erased: kept for as long as the stream",
    ObjectKind.RETIRED: "wholly below the first offset: retention took it",
    ObjectKind.SUPERSEDED: "another object holds its offsets",
    ObjectKind.FENCED: "of a deposed writer; the manifest or the quarantine holds its last chunk "
    "from another upload",
    ObjectKind.OLD_HOLE: "a hole that the manifest does not need",
    ObjectKind.OLD_ROOT: "a root before the current one, or one that lost the race for its version",
    ObjectKind.OLD_GROUP: "a group outside the tree",
    ObjectKind.OLD_RECORD: "a record that a later one has replaced",
    ObjectKind.STRAGGLER: "of a stream that was deleted",
    ObjectKind.QUARANTINED: "a claim has cut it off; it may be the last copy of messages that the "
    "cluster has lost",
    ObjectKind.OLD_QUARANTINE: "a quarantine record that a later one has replaced, or that no root "
    "names",
    ObjectKind.DROPPED: "a claim has cut it off, and a person has given it up",
}

#: Asked about a fragment.
Asked = Callable[[DataKey], bool]
_NOTHING_CUT = QuarantineRecord()


def classify_data(
    key: DataKey,
    root: Root,
    leaf: Entry | None,
    holds: Asked,
    *,
    over_hole: Asked = lambda _: False,
    record: QuarantineRecord = _NOTHING_CUT,
    modified_ms: int = 0,
) -> ObjectKind:
    """What a fragment or a hole is that no lost timeline names.

    Args:
        key: of the object.
        root: current one.
        leaf: entry of the tree that contains the key's first offset, None if none does.
        holds: whether the manifest, or a tree in quarantine, holds the chunk in which a fragment
            ends: the same id and the same epoch. Asked for what the ledger refuses; costs requests.
        over_hole: whether the tree has a hole over some of its offsets.
        record: quarantine record of the root.
        modified_ms: when S3 took the object.
    """
    if leaf is not None and leaf.data_key(key.stream) == key:
        return ObjectKind.REFERENCED
    if may_undo(key.epoch, root.ledger.epoch):
        # Its claim may be about to land: an undo copies what it puts back before it claims, and a
        # claim may have its floor anywhere (docs/decisions/0025).
        return ObjectKind.PENDING
    claims = [(claim.epoch, claim.floor) for claim in root.ledger.claims]
    cut_off = record.first_cut(key, iter(claims)) is not None
    dead = key.next_offset <= root.first_offset
    # A claim that has recorded nothing cut nothing off that anybody had seen, so what comes later
    # goes with its offsets. Where one began the stream anew, offsets below are not retired ones.
    recorded = record.first_cut(key, iter(())) is not None
    if dead and not recorded:
        return ObjectKind.RETIRED
    ahead = key.next_offset > root.next_offset
    if key.kind == "hole":
        return ObjectKind.PENDING if ahead and not cut_off else ObjectKind.OLD_HOLE
    if not dead and over_hole(key):
        # Data always wins: it may be the only copy of what was thought to be lost.
        return ObjectKind.PENDING if ahead else ObjectKind.UNIQUE
    accepted = root.ledger.accepts(key.epoch, key.first_offset, key.next_offset)
    given_up = cut_off and record.gives_up(key, modified_ms, iter(claims))
    if ahead:
        # From the next offset on it can be appended. If it begins below, or the ledger refuses it,
        # it never will be as it is, but it may be the only copy of its end until the agent has cut
        # it again.
        return ObjectKind.DROPPED if given_up and not accepted else ObjectKind.PENDING
    if accepted and not dead:
        return ObjectKind.SUPERSEDED
    if given_up:
        return ObjectKind.DROPPED
    return ObjectKind.FENCED if holds(key) else ObjectKind.UNIQUE


def survives(before: CatalogItem, now: CatalogItem) -> bool:
    """Whether the commits between two reads of an item leave garbage what was garbage.

    They do where nothing has happened but appends, retention, rebalancing, consolidation and
    repairs: all of these refer to what the root before referred to, to new objects, and to what
    lies from its next offset on. A claim cuts the manifest off and may set its offsets anew; a
    change of the state, an adoption and a rebuild begin a new history.
    """
    claims = now.ledger.claims
    return (
        (now.table_id, now.state, now.revision, now.state_token)
        == (before.table_id, before.state, before.revision, before.state_token)
        and now.version >= before.version
        and now.epoch == before.epoch
        # Retention drops the oldest claims, which accept nothing any more.
        and claims == before.ledger.claims[len(before.ledger.claims) - len(claims) :]
        and now.first_offset >= before.first_offset
        and now.next_offset >= before.next_offset
    )


def classify_group(key: GroupKey, root: Root, fetch: Fetch) -> ObjectKind:
    """What a group is: whether the path to its first live offset leads through it."""
    offset = max(key.first_offset, root.first_offset)
    entries = root.entries
    while (number := entries.number_of_offset(offset)) is not None:
        entry = entries[number]
        if entry.kind.level == key.level:
            same = (entry.uid, entry.first_offset) == (key.uid, key.first_offset)
            return ObjectKind.REFERENCED if same else ObjectKind.OLD_GROUP
        if entry.kind.level < key.level:
            break
        entries = fetch(entry).entries
    return ObjectKind.OLD_GROUP


def classify_root(key: RootKey, *, version: int, current: bool) -> ObjectKind:
    """What a root is.

    Args:
        key: of the object.
        version: of the catalog item.
        current: whether the item names this very object.
    """
    if current:
        return ObjectKind.REFERENCED
    # One above the item's version may be about to land. It also may never: then it stays until
    # another root of its version has landed, for whoever adopts the newest root of the bucket.
    return ObjectKind.OLD_ROOT if key.version <= version else ObjectKind.PENDING


def refers(root: Root, key: DataKey | GroupKey, fetch: Fetch) -> bool:
    """Whether the tree of a root that may be adopted yet names an object.

    A root whose own groups are damaged or gone is adopted by nobody, so it names nothing.
    """
    try:
        return named_by(root, key, fetch)
    except (CorruptDataError, NotFoundError):
        return False


def named_by(root: Root, key: DataKey | GroupKey, fetch: Fetch) -> bool:
    """Whether the tree of a root names an object.

    Raises:
        CorruptDataError, NotFoundError: a group on the way is damaged or gone.
    """
    if isinstance(key, GroupKey):
        return classify_group(key, root, fetch) is ObjectKind.REFERENCED
    leaf = leaf_at(root, max(key.first_offset, root.first_offset), fetch)
    return leaf is not None and leaf.data_key(key.stream) == key


@dataclass(frozen=True, slots=True)
class Record:
    """A collect record in a listing.

    Attributes:
        key: what its key says.
        path: its key.
        modified_ms: when S3 took it, ms since the Unix epoch.
        size: bytes.
    """

    key: MarkKey
    path: str
    modified_ms: int
    size: int = 0


def mature(records: Collection[Record], *, now_ms: int, grace_ms: int) -> list[Record]:
    """The records that are old enough to prove that something was unreferenced a grace time ago."""
    return [each for each in records if each.modified_ms <= now_ms - grace_ms]


def replaced(records: Collection[Record], *, now_ms: int, grace_ms: int) -> list[Record]:
    """The mature records that no later run needs.

    A run looks at all mature records, and the newest mature run among them proves as much as those
    before it. After four grace times even that one goes: had there been garbage, some later run
    would have written a record.
    """
    old = mature(records, now_ms=now_ms, grace_ms=grace_ms)
    newest = max((each.key.created_ms for each in old), default=0)
    return [
        each
        for each in old
        if each.key.created_ms < newest or each.modified_ms <= now_ms - 4 * grace_ms
    ]
