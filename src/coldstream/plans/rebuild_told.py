"""What a rebuild is given by trees, and what it tells of what it did not take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from coldstream.errors import RefusedFragmentError
from coldstream.manifest.entries import Entries, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.names import MAX_OFFSET

#: How many of each kind are named; the others are counted.
MAX_TOLD = 1000


@dataclass(frozen=True, slots=True)
class Named:
    """Neighbouring fragments and holes that a readable node names.

    Attributes:
        entries: at least one.
        certain: whether the tree is the one that the catalog names; of any other one, nobody knows
            whether a later one had replaced what it says.
    """

    entries: Entries
    certain: bool

    @property
    def first(self) -> int:
        """Where they begin."""
        return self.entries[0].first_offset

    @property
    def next_offset(self) -> int:
        """Where they end."""
        return self.entries[-1].next_offset

    @property
    def fragments(self) -> int:
        """How many of them are no holes."""
        return sum(each.kind is EntryKind.FRAGMENT for each in self.entries)


@dataclass(frozen=True, slots=True)
class Open:
    """Offsets of which no readable node speaks; `next_offset` is None at the end."""

    first: int
    next_offset: int | None


Section: TypeAlias = Named | Open


@dataclass(frozen=True, slots=True)
class KnownManifest:
    """What is known of the manifest before a rebuild.

    Attributes:
        ledger: of the newest tree, or as guessed.
        first_offset: of the newest tree; None for that of the first acceptable fragment.
        sections: what trees say, in offset order, the last one open; None if there is no tree.
        until: where the sections before the last one end; what reaches over it is behind it.
        guessed: whether some of the ledger was guessed, so that what it refuses is lacking.
        certain_end: whether the catalog says where the manifest ends, so that what lies behind a
            gap after it is only ahead, and not lacking.
    """

    ledger: Ledger
    first_offset: int | None = None
    sections: Iterable[Section] | None = None
    until: int = MAX_OFFSET
    guessed: bool = False
    certain_end: bool = False


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Offsets [first, next_offset) that a tree or LIST shows and the new manifest does not have."""

    first: int
    next_offset: int
    why: str


@dataclass(frozen=True, slots=True)
class Replaced:
    """An object that a tree names and the new manifest does not.

    Attributes:
        first: its first offset.
        next_offset: one past its last.
        uid: in its key.
        why: in words.
    """

    first: int
    next_offset: int
    uid: int
    why: str


@dataclass(slots=True)
class Told:
    """What people are told of a rebuild; of each kind the first 1,000.

    Attributes:
        refused: fragments whose trailer does not hold, one error each.
        replaced: what trees name and the manifest does not.
        damaged: ranges [first, next) for which no object is whole, so that one that is not was
            taken.
        shortfalls: what the manifest lacks.
        more: how many more there were of all.
    """

    refused: list[RefusedFragmentError] = field(default_factory=list)
    replaced: list[Replaced] = field(default_factory=list)
    damaged: list[tuple[int, int]] = field(default_factory=list)
    shortfalls: list[Shortfall] = field(default_factory=list)
    more: int = 0

    def refuse(self, error: RefusedFragmentError) -> None:
        """A fragment was left out, because its trailer does not hold."""
        if len(self.refused) < MAX_TOLD:
            self.refused.append(error)
        else:
            self.more += 1

    def replace(self, replaced: Replaced) -> None:
        """What a tree names was left out."""
        if len(self.replaced) < MAX_TOLD:
            self.replaced.append(replaced)
        else:
            self.more += 1

    def damage(self, first: int, next_offset: int) -> None:
        """What was taken is damaged."""
        if len(self.damaged) < MAX_TOLD:
            self.damaged.append((first, next_offset))
        else:
            self.more += 1

    def lack(self, shortfall: Shortfall) -> None:
        """Offsets are missing."""
        if len(self.shortfalls) < MAX_TOLD:
            self.shortfalls.append(shortfall)
        else:
            self.more += 1
