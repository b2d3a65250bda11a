"""A trailer against all who speak of its fragment: key, manifest entry, ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coldstream.fragment import Trailer
from coldstream.manifest.entries import MAX_RECORDS, Entry, EntryKind
from coldstream.manifest.invariants import Invariant, Violation
from coldstream.names import DataKey
from coldstream.soundness.findings import FindingKind

MIN_TIMESTAMP = "minimum timestamp"
MAX_TIMESTAMP = "maximum timestamp"


@dataclass(frozen=True, slots=True)
class TrailerDifference:
    """One value of a trailer that another source contradicts.

    Attributes:
        kind: who says so, as a finding.
        field: which value.
        ours: what the trailer says.
        whose: who says so, in words.
        theirs: what they say.
    """

    kind: FindingKind
    field: str
    ours: int
    whose: str
    theirs: int

    @property
    def words(self) -> str:
        """A sentence."""
        return f"the trailer says {self.field} {self.ours}, the {self.whose} says {self.theirs}"


def differences(
    trailer: Trailer, key: DataKey, entry: Entry, floor: int | None
) -> Iterator[TrailerDifference]:
    """Everything that a trailer says otherwise than its key, its manifest entry or the ledger.

    Args:
        trailer: as parsed from the object.
        key: of the object.
        entry: of the manifest.
        floor: of the trailer's epoch in the ledger, None if the ledger does not have the epoch.
    """
    yield from _differ_from_key(trailer, key)
    stated = entry_of(trailer, key)
    for field, ours, theirs in (
        ("size", stated.size, entry.size),
        ("number of records", stated.records, entry.records),
        (MIN_TIMESTAMP, stated.min_timestamp, entry.min_timestamp),
        (MAX_TIMESTAMP, stated.max_timestamp, entry.max_timestamp),
    ):
        if ours != theirs:
            yield TrailerDifference(FindingKind.TRAILER_ENTRY, field, ours, "manifest", theirs)
    yield from _differ_from_ledger(trailer, floor)


def fits(trailer: Trailer, key: DataKey, floor: int | None) -> bool:
    """Whether a trailer says what key and ledger say, whatever the manifest's entry says."""
    return not any(_differ_from_key(trailer, key)) and floor in (None, trailer.floor)


def entry_of(trailer: Trailer, key: DataKey) -> Entry:
    """The entry that the manifest should have for a fragment."""
    return Entry(
        first_offset=trailer.first_offset,
        next_offset=trailer.next_offset,
        min_timestamp=trailer.min_timestamp,
        max_timestamp=trailer.max_timestamp,
        kind=EntryKind.FRAGMENT,
        size=trailer.size,
        records=min(trailer.records, MAX_RECORDS),
        epoch=trailer.epoch,
        uid=key.uid,
    )


def trailer_agrees(
    trailer: Trailer, entry: Entry, key: DataKey, path: str, floor: int | None
) -> list[Violation]:
    """A fragment's trailer says what its key, its manifest entry and the ledger say."""
    place = (entry.first_offset, entry.next_offset, path)
    return [
        Violation(Invariant.DURABILITY, each.words, *place)
        for each in differences(trailer, key, entry, floor)
    ]


def _differ_from_key(trailer: Trailer, key: DataKey) -> Iterator[TrailerDifference]:
    for field, ours, theirs in (
        ("first offset", trailer.first_offset, key.first_offset),
        ("next offset", trailer.next_offset, key.next_offset),
        ("epoch", trailer.epoch, key.epoch),
    ):
        if ours != theirs:
            yield TrailerDifference(FindingKind.TRAILER_KEY, field, ours, "key", theirs)


def _differ_from_ledger(trailer: Trailer, floor: int | None) -> Iterator[TrailerDifference]:
    if floor is not None and floor != trailer.floor:
        yield TrailerDifference(FindingKind.TRAILER_LEDGER, "floor", trailer.floor, "ledger", floor)
