"""What a repair found, and what it did about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from coldstream.manifest.entries import Entry, EntryKind


class Action(StrEnum):
    """What became, or would become, of a fragment that was not as it should be."""

    REPLACE = "replace"  # all of it was found
    RESTATE = "restate"  # the object is whole, only the manifest's entry was wrong
    DECLARE_LOST = "declare_lost"  # some of it is nowhere, and becomes a hole
    LEAVE = "leave"  # some of it is nowhere, and nobody has said that it may be given up


@dataclass(frozen=True, slots=True)
class Repair:
    """One fragment or hole, and what is done about it.

    Attributes:
        entry: of the manifest.
        key: of its object.
        action: what is done.
        taken: number of chunks by where they were found.
        missing: offsets [first, next) that no source has.
        proved: whether the result is, byte for byte, what the lost object's trailer says.
        keys: of the new objects, once they are written.
        why: what was wrong, in words.
    """

    entry: Entry
    key: str
    action: Action
    taken: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[tuple[int, int], ...] = ()
    proved: bool = False
    keys: tuple[str, ...] = ()
    why: str = ""


@dataclass(slots=True)
class RepairReport:
    """What a repair came to.

    Attributes:
        stream: directory name.
        looked_at: fragments and holes.
        outside: offsets [first, next) that were asked for and are not in the manifest.
        repairs: of those that were not as they should be.
        landed: whether a commit has changed the manifest.
        overtaken: fragments that another writer has replaced meanwhile.
        version: of the manifest at the end.
    """

    stream: str
    looked_at: int = 0
    outside: tuple[tuple[int, int], ...] = ()
    repairs: list[Repair] = field(default_factory=list)
    landed: bool = False
    overtaken: int = 0
    version: int = 0

    @property
    def lost(self) -> list[tuple[int, int]]:
        """Offsets [first, next) that were declared lost, or would be."""
        return [
            span
            for each in self.repairs
            if each.action is Action.DECLARE_LOST and each.entry.kind is not EntryKind.HOLE
            for span in each.missing
        ]

    @property
    def left(self) -> list[Repair]:
        """What stays as it is for want of a source."""
        return [each for each in self.repairs if each.action is Action.LEAVE]
