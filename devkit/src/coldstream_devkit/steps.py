"""What docs/architecture.md says must hold of two states, or of a bucket beside a manifest.

Pure predicates, as those of one state are (`coldstream.manifest.invariants`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.invariants import Invariant, Violation
from coldstream.manifest.root import Root
from coldstream.names import MAX_OFFSET
from coldstream_devkit.survival import losses


def contiguous_advance(
    before: Root, after: Root, leaves_after: Iterable[Entry] | None = None
) -> list[Violation]:
    """From one root to the next: next grows by entries that start at it.

    It falls only under a higher epoch that has claimed the stream at that offset (a truncate), and
    grows again from there.

    Args:
        before: older root.
        after: newer root.
        leaves_after: live fragments and holes of the newer one; its own entries if None.
    """
    end = min(before.next_offset, _cut(before, after))
    if after.next_offset < end:
        message = (
            f"next fell from {before.next_offset} to {after.next_offset} within epoch {after.epoch}"
        )
        place = (after.next_offset, before.next_offset)
        return [Violation(Invariant.CONTIGUOUS_ADVANCE, message, *place)]
    return [
        _at(Invariant.CONTIGUOUS_ADVANCE, entry, f"reaches over the old end {end}")
        for entry in (after.entries if leaves_after is None else leaves_after)
        if entry.first_offset < end < entry.next_offset
    ]


def prefix_retention(
    before: Root,
    after: Root,
    leaves_before: Iterable[Entry] | None = None,
    leaves_after: Iterable[Entry] | None = None,
) -> list[Violation]:
    """From one root to a later one: first only moves forward, and everything above it survives.

    What survives is there as it was, or replaced by fragments that hold the same; see
    `survival`. What a higher epoch has claimed meanwhile may be cut off. The last fragment
    stays unless such a claim has begun the stream anew; only that may take the first offset back.

    Args:
        before: older root.
        after: newer root.
        leaves_before: live fragments and holes of the older one; its own entries if None.
        leaves_after: the same of the newer one.
    """
    old = list(before.entries if leaves_before is None else leaves_before)
    new = list(after.entries if leaves_after is None else leaves_after)
    found: list[Violation] = []
    if after.first_offset < before.first_offset and _cut(before, after) > before.first_offset:
        message = f"first fell from {before.first_offset} to {after.first_offset}"
        found.append(Violation(Invariant.PREFIX_RETENTION, message, after.first_offset))
    cut = _cut(before, after)
    if after.epoch == before.epoch and _any_data(old) and not _any_data(new):
        found.append(Violation(Invariant.PREFIX_RETENTION, "the last fragment is gone"))
    end = min(before.next_offset, cut)
    return found + [
        _at(Invariant.PREFIX_RETENTION, entry, problem)
        for entry, problem in losses(old, new, after.first_offset, end)
    ]


def _cut(before: Root, after: Root) -> int:
    """The lowest floor that was claimed since `before`: what lies above it may be cut off."""
    claims = set(after.ledger.claims) - set(before.ledger.claims)
    return min((claim.floor for claim in claims), default=MAX_OFFSET)


def _any_data(leaves: Iterable[Entry]) -> bool:
    return any(entry.kind is not EntryKind.HOLE for entry in leaves)


def immutability(before: Mapping[str, object], after: Mapping[str, object]) -> list[Violation]:
    """No object changes while it is there.

    Args:
        before: what tells an object's bytes apart (its CRC and size, say) by key.
        after: the same, later.
    """
    return [
        Violation(Invariant.IMMUTABILITY, "the object was overwritten", key=key)
        for key in before.keys() & after.keys()
        if before[key] != after[key]
    ]


def publish_before_delete(referenced: Iterable[str], listed: Container[str]) -> list[Violation]:
    """Nothing is missing: every key that the item or the tree refers to is in the LIST."""
    message = "the manifest refers to an object that is gone"
    return [
        Violation(Invariant.PUBLISH_BEFORE_DELETE, message, key=key)
        for key in referenced
        if key not in listed
    ]


def nothing_leaked(
    listed: Iterable[str], referenced: Container[str], accounted_for: Container[str] = ()
) -> list[Violation]:
    """Every listed key is referred to, or is one of `accounted_for`."""
    message = "nothing refers to this object, and nobody knows of it"
    return [
        Violation(Invariant.NOTHING_LEAKED, message, key=key)
        for key in listed
        if key not in referenced and key not in accounted_for
    ]


def _at(invariant: Invariant, entry: Entry, message: str) -> Violation:
    return Violation(invariant, message, entry.first_offset, entry.next_offset)
