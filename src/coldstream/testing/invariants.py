"""The invariants of DESIGN section 3 as named, pure predicates.

Each looks at values and returns what is wrong, in words; nothing wrong is an empty list. Tests, the
simulator and `coldstream verify` call the same functions, so they cannot disagree about what holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from coldstream.errors import CorruptDataError
from coldstream.fragment import Trailer, check_against_key
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.root import Root
from coldstream.names import DataKey


class Invariant(StrEnum):
    """Names of the invariants that a state, or a step between two states, can break."""

    AGREEMENT = "agreement"
    COVERAGE = "coverage"
    DURABILITY = "durability"
    CONTIGUOUS_ADVANCE = "contiguous_advance"
    PREFIX_RETENTION = "prefix_retention"
    FENCING = "fencing"
    EPOCH_ORDER = "epoch_order"

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
}


@dataclass(frozen=True, slots=True)
class Violation:
    """What is wrong, and where.

    Attributes:
        invariant: which one does not hold.
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
        "number of fragments": (item.fragments, len(root.entries)),
        "ledger": (item.ledger, root.ledger),
    }
    return [
        Violation(Invariant.AGREEMENT, f"the item has {what} {ours}, its root has {theirs}")
        for what, (ours, theirs) in pairs.items()
        if ours != theirs
    ]


def coverage(root: Root) -> list[Violation]:
    """Fragments and holes tile [first, next): no gap, no overlap, in offset order."""
    found: list[Violation] = []
    at: int | None = None
    for entry in root.entries:
        if entry.first_offset >= entry.next_offset:
            found.append(_at(Invariant.COVERAGE, entry, "an entry without offsets"))
        if at is None:
            if not entry.first_offset <= root.first_offset < entry.next_offset:
                found.append(
                    _at(Invariant.COVERAGE, entry, f"does not hold offset {root.first_offset}")
                )
        elif entry.first_offset != at:
            found.append(_at(Invariant.COVERAGE, entry, f"does not begin at {at}"))
        at = entry.next_offset
    if (root.next_offset if at is None else at) != root.next_offset:
        found.append(Violation(Invariant.COVERAGE, f"ends at {at}, not at {root.next_offset}"))
    if at is None and root.first_offset != root.next_offset:
        found.append(
            Violation(Invariant.COVERAGE, "there is no entry", root.first_offset, root.next_offset)
        )
    return found


def fencing(root: Root) -> list[Violation]:
    """The ledger accepts every fragment of the manifest."""
    return [
        _at(Invariant.FENCING, entry, f"the ledger refuses epoch {entry.epoch} here")
        for entry in root.entries
        if entry.kind is EntryKind.FRAGMENT
        and not root.ledger.accepts(entry.epoch, entry.first_offset, entry.next_offset)
    ]


def trailer_agrees(trailer: Trailer, entry: Entry, key: DataKey, path: str) -> list[Violation]:
    """A fragment's trailer says what its key and its manifest entry say."""
    found: list[Violation] = []
    try:
        check_against_key(trailer, key, entry.size)
    except CorruptDataError as error:
        found.append(_at(Invariant.DURABILITY, entry, error.reason, path))
    for what, ours, theirs in (
        ("minimum timestamp", trailer.min_timestamp, entry.min_timestamp),
        ("maximum timestamp", trailer.max_timestamp, entry.max_timestamp),
        ("number of records", min(trailer.records, 2**32 - 1), entry.records),
    ):
        if ours != theirs:
            message = f"the trailer says {what} {ours}, the manifest says {theirs}"
            found.append(_at(Invariant.DURABILITY, entry, message, path))
    return found


def epoch_order(trailers: Iterable[tuple[Trailer, str]]) -> list[Violation]:
    """Chunk epochs never fall along the chain and never exceed their fragment's epoch.

    Args:
        trailers: of neighbours in offset order, each with its key.
    """
    found: list[Violation] = []
    last = 0
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


def contiguous_advance(before: Root, after: Root) -> list[Violation]:
    """From one root to a later one: next grows by entries that start at it.

    It shrinks only under a higher epoch (a truncate), and then the kept part is unchanged.
    """
    if after.next_offset >= before.next_offset:
        grown = [e for e in after.entries if e.next_offset > before.next_offset]
        starts = [e for e in grown if e.first_offset < before.next_offset]
        if starts:
            return [_at(Invariant.CONTIGUOUS_ADVANCE, starts[0], "reaches over the old end")]
        return []
    if after.epoch > before.epoch:
        return []
    return [
        Violation(
            Invariant.CONTIGUOUS_ADVANCE,
            f"next fell from {before.next_offset} to {after.next_offset} within epoch "
            f"{after.epoch}",
            after.next_offset,
            before.next_offset,
        )
    ]


def prefix_retention(before: Root, after: Root) -> list[Violation]:
    """From one root to a later one: first only moves forward, and everything above it survives."""
    found: list[Violation] = []
    if after.first_offset < before.first_offset:
        message = f"first fell from {before.first_offset} to {after.first_offset}"
        found.append(Violation(Invariant.PREFIX_RETENTION, message, after.first_offset))
    if len(before.entries) and not len(after.entries) and after.epoch == before.epoch:
        found.append(Violation(Invariant.PREFIX_RETENTION, "the last fragment is gone"))
    return found


def _at(invariant: Invariant, entry: Entry, message: str, key: str = "") -> Violation:
    return Violation(invariant, message, entry.first_offset, entry.next_offset, key)


def _of(invariant: Invariant, trailer: Trailer, message: str, key: str) -> Violation:
    return Violation(invariant, message, trailer.first_offset, trailer.next_offset, key)
