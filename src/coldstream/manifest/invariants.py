"""The invariants of docs/architecture.md as named, pure predicates.

Each looks at one state and returns what is wrong, in words; nothing wrong is an empty list. Tests,
the simulator and `coldstream verify` call the same functions, so they cannot disagree about what
holds. What a step from one state to the next must keep is checked by proof only
(`coldstream_devkit.steps`).

A tree may have millions of fragments. So what is checked entry by entry is a function that passes
on what it sees (`covered`, `fenced`, `summed`): `verify` puts them one behind the other in front of
its own work, in one walk; `coverage`, `fencing` and `tree_sums` are the same for those who only
want the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from coldstream.errors import CorruptDataError
from coldstream.fragment import Trailer
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.node import Node
from coldstream.manifest.root import Head, Root
from coldstream.manifest.tree import Fetch
from coldstream.manifest.walk import Visited, walk

#: Entries of the longest group that any setting allows.
MAX_BRANCHING = 4096


class Invariant(StrEnum):
    """Names of the invariants that a state, or a step between two states, can break."""

    AGREEMENT = "agreement"
    COVERAGE = "coverage"
    DURABILITY = "durability"
    CONTIGUOUS_ADVANCE = "contiguous_advance"
    PREFIX_RETENTION = "prefix_retention"
    FENCING = "fencing"
    EPOCH_ORDER = "epoch_order"
    TREE_SUMS = "tree_sums"
    IMMUTABILITY = "immutability"
    PUBLISH_BEFORE_DELETE = "publish_before_delete"
    NOTHING_LEAKED = "nothing_leaked"

    @property
    def rule(self) -> str:
        """The invariant in one sentence."""
        return _RULES[self]


_RULES = {
    Invariant.AGREEMENT: "the catalog item says what its root says",
    Invariant.COVERAGE: "fragments and holes tile [first, next): no gap, no overlap, in order",
    Invariant.DURABILITY: "every fragment of the manifest can be read, byte for byte",
    Invariant.CONTIGUOUS_ADVANCE: "next grows only by a run or a hole that starts at next",
    Invariant.PREFIX_RETENTION: "retention only moves first forward and keeps the last fragment",
    Invariant.FENCING: "the ledger accepts every fragment of the manifest",
    Invariant.EPOCH_ORDER: "chunk epochs never fall and never exceed their fragment's epoch",
    Invariant.TREE_SUMS: "groups, totals and head say what the fragments below them add up to",
    Invariant.IMMUTABILITY: "no object ever changes",
    Invariant.PUBLISH_BEFORE_DELETE: "every object that the manifest refers to is there",
    Invariant.NOTHING_LEAKED: "every object is referred to, or it is known why it is not",
}


@dataclass(frozen=True, slots=True)
class Violation:
    """What is wrong, and where.

    Attributes:
        invariant: that does not hold.
        message: how, in words.
        first_offset: where it begins, if it has a place.
        next_offset: one past where it ends.
        key: object concerned, "" if none.
    """

    invariant: Invariant
    message: str
    first_offset: int | None = None
    next_offset: int | None = None
    key: str = ""


#: Told of every violation.
Note = Callable[[Violation], object]


def agreement(item: CatalogItem, root: Root) -> list[Violation]:
    """The catalog item says what its root says."""
    pairs = {
        "epoch": (item.epoch, root.epoch),
        "version": (item.version, root.version),
        "first offset": (item.first_offset, root.first_offset),
        "next offset": (item.next_offset, root.next_offset),
        "first timestamp": (item.first_timestamp, root.first_timestamp),
        "last timestamp": (item.last_timestamp, root.last_timestamp),
        "total size": (item.total_size, root.total_size),
        "number of fragments": (item.fragments, root.fragments),
        "ledger": (item.ledger, root.ledger),
    }
    return [
        Violation(Invariant.AGREEMENT, f"the item has {what} {ours}, its root has {theirs}")
        for what, (ours, theirs) in pairs.items()
        if ours != theirs
    ]


def coverage(root: Root, leaves: Iterable[Entry] | None = None) -> list[Violation]:
    """Fragments and holes tile [first, next): no gap, no overlap, in offset order.

    Args:
        root: of the tree.
        leaves: its live fragments and holes; the root's own entries if None.
    """
    return _all_of(covered, root, leaves)


def covered(root: Root, visits: Iterable[Visited], note: Note) -> Iterator[Visited]:
    """Pass on `visits`; note what `coverage` finds wrong with what is alive."""
    at: int | None = None
    for visit in visits:
        yield visit
        if not visit.live_end:
            continue
        entry = visit.entry
        if entry.first_offset >= entry.next_offset:
            note(_at(Invariant.COVERAGE, entry, "an entry without offsets"))
        if at is None:
            if not entry.first_offset <= root.first_offset < entry.next_offset:
                note(_at(Invariant.COVERAGE, entry, f"does not hold offset {root.first_offset}"))
        elif entry.first_offset != at:
            note(_at(Invariant.COVERAGE, entry, f"does not begin at {at}"))
        at = entry.next_offset
    if at is None and root.first_offset != root.next_offset:
        place = (root.first_offset, root.next_offset)
        note(Violation(Invariant.COVERAGE, "there is no entry", *place))
    elif at is not None and at != root.next_offset:
        note(Violation(Invariant.COVERAGE, f"ends at {at}, not at {root.next_offset}"))


def fencing(root: Root, leaves: Iterable[Entry] | None = None) -> list[Violation]:
    """The ledger accepts every fragment of the manifest; arguments as `coverage`."""
    return _all_of(fenced, root, leaves)


def fenced(root: Root, visits: Iterable[Visited], note: Note) -> Iterator[Visited]:
    """Pass on `visits`; note what `fencing` finds wrong with what is alive."""
    for visit in visits:
        yield visit
        entry = visit.entry
        if (
            entry.kind is EntryKind.FRAGMENT
            and not visit.dead
            and not root.ledger.accepts(entry.epoch, entry.first_offset, entry.next_offset)
        ):
            note(_at(Invariant.FENCING, entry, f"the ledger refuses epoch {entry.epoch} here"))


def tree_sums(root: Root, fetch: Fetch, *, longest: int = MAX_BRANCHING) -> list[Violation]:
    """Every group entry says what its group says; the root's totals, head and levels are right.

    Args:
        root: of the tree.
        fetch: gives the groups; one that is gone or damaged is not this invariant's business.
        longest: entries that a group has at the most.
    """
    found: list[Violation] = []
    for _ in summed(root, walk(root, fetch), found.append, longest=longest):
        pass
    return found


def summed(
    root: Root, visits: Iterable[Visited], note: Note, *, longest: int = MAX_BRANCHING
) -> Iterator[Visited]:
    """Pass on `visits`, of a whole walk; note what `tree_sums` finds wrong."""
    for one, other in pairwise(root.entries):
        if other.kind.level > one.kind.level:
            note(_at(Invariant.TREE_SUMS, other, "a group behind an entry of a lower level"))
    size = fragments = dead_size = dead_fragments = 0
    oldest: Entry | None = None
    known = True
    for visit in visits:
        yield visit
        entry = visit.entry
        if visit.node is not None:
            for problem in _group_problems(entry, visit.node, longest):
                note(_at(Invariant.TREE_SUMS, entry, problem))
        elif visit.dead:
            dead_size += entry.size
            dead_fragments += entry.fragments
        else:
            if oldest is None and visit.error is not None:
                known = False  # nobody can say how much of this group is dead
            oldest = oldest or entry
            size += entry.size
            fragments += entry.fragments
    if not known:
        return
    head = None
    if oldest is not None and root.entries[0].kind.level:
        head = Head(oldest.min_timestamp, oldest.max_timestamp, dead_size, dead_fragments)
    for what, ours, theirs in (
        ("the oldest fragment and the dead part before it", root.head, head),
        ("bytes", root.total_size, size),
        ("number of fragments", root.fragments, fragments),
    ):
        if ours != theirs:
            message = f"the root says {what}: {ours}; its tree has {theirs}"
            note(Violation(Invariant.TREE_SUMS, message, root.first_offset, root.next_offset))


def _group_problems(entry: Entry, node: Node, longest: int) -> Iterator[str]:
    if len(node.entries) > longest:
        yield f"a group of {len(node.entries)} entries, more than {longest}"
    try:
        said = node.entry()
    except CorruptDataError as error:
        yield error.reason
        return
    if said != entry:
        yield f"the group says {said}, the entry above it {entry}"


def epoch_order(
    trailers: Iterable[tuple[Trailer, str]], *, after_epoch: int = 0
) -> list[Violation]:
    """Chunk epochs never fall along the chain and never exceed their fragment's epoch.

    Args:
        trailers: of neighbours in offset order, each with its key.
        after_epoch: highest chunk epoch of what lies before them.
    """
    found: list[Violation] = []
    last = after_epoch
    for trailer, path in trailers:
        if trailer.first_chunk_epoch < last:
            message = f"chunk epoch {trailer.first_chunk_epoch} follows epoch {last}"
            found.append(_of(Invariant.EPOCH_ORDER, trailer, message, path))
        if not trailer.first_chunk_epoch <= trailer.last_chunk_epoch <= trailer.epoch:
            message = (
                f"chunk epochs {trailer.first_chunk_epoch} to {trailer.last_chunk_epoch} in a "
                f"fragment of epoch {trailer.epoch}"
            )
            found.append(_of(Invariant.EPOCH_ORDER, trailer, message, path))
        last = max(last, trailer.last_chunk_epoch)
    return found


def _all_of(
    check: Callable[[Root, Iterable[Visited], Note], Iterator[Visited]],
    root: Root,
    leaves: Iterable[Entry] | None,
) -> list[Violation]:
    found: list[Violation] = []
    for _ in check(root, map(Visited, root.entries if leaves is None else leaves), found.append):
        pass
    return found


def _at(invariant: Invariant, entry: Entry, message: str, key: str = "") -> Violation:
    return Violation(invariant, message, entry.first_offset, entry.next_offset, key)


def _of(invariant: Invariant, trailer: Trailer, message: str, key: str) -> Violation:
    return Violation(invariant, message, trailer.first_offset, trailer.next_offset, key)
