"""What `verify` found out about a stream, as values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from coldstream.testing.invariants import Invariant, Violation

#: The invariants that the state of one stream can show.
CHECKED = (
    Invariant.AGREEMENT,
    Invariant.COVERAGE,
    Invariant.FENCING,
    Invariant.DURABILITY,
    Invariant.EPOCH_ORDER,
)


class RangeStatus(StrEnum):
    """What became of a range of offsets."""

    PRESENT = "PRESENT"
    MISSING = "MISSING"
    CORRUPT = "CORRUPT"
    LOST = "LOST"

    @property
    def meaning(self) -> str:
        """The status in words."""
        return _MEANINGS[self]


_MEANINGS = {
    RangeStatus.PRESENT: "there, and as the manifest says",
    RangeStatus.MISSING: "the manifest refers to an object that is gone",
    RangeStatus.CORRUPT: "damaged, or not what the manifest says",
    RangeStatus.LOST: "a hole: declared lost before; no finding",
}


@dataclass(frozen=True, slots=True)
class CheckedRange:
    """Offsets [first_offset, next_offset) and what became of them.

    Attributes:
        first_offset: where it begins.
        next_offset: one past where it ends.
        status: of all of it.
        fragments: number of objects it lies in.
        size_bytes: of these objects.
        key: of the object, "" if they are several.
        problem: what is wrong, in words; "" if nothing is.
    """

    first_offset: int
    next_offset: int
    status: RangeStatus
    fragments: int = 1
    size_bytes: int = 0
    key: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of verifying a stream.

    Attributes:
        stream: directory name.
        deep: whether all data was read.
        version: of the manifest that was checked.
        first_offset: of that manifest.
        next_offset: of that manifest.
        ranges: tile [first_offset, next_offset), neighbours of one status joined.
        violations: everything that is wrong; empty if the stream is sound.
        chunks: that were read; 0 unless `deep`.
        messages: that were decoded; 0 unless `deep`.
        rooted: whether there was a root to check; without one only agreement was.
    """

    stream: str
    deep: bool
    version: int
    first_offset: int
    next_offset: int
    ranges: tuple[CheckedRange, ...]
    violations: tuple[Violation, ...]
    chunks: int = 0
    messages: int = 0
    rooted: bool = True

    def checked(self, invariant: Invariant) -> bool:
        """Whether anything was looked at for this invariant; if not, nothing is known of it."""
        return self.rooted or invariant is Invariant.AGREEMENT

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.violations

    def violations_of(self, invariant: Invariant) -> tuple[Violation, ...]:
        """What breaks one invariant."""
        return tuple(each for each in self.violations if each.invariant is invariant)


def joined(ranges: Iterable[CheckedRange]) -> tuple[CheckedRange, ...]:
    """Neighbours without a problem and of one status as one range."""
    found: list[CheckedRange] = []
    for each in ranges:
        last = found[-1] if found else None
        if (
            last is not None
            and last.status is each.status
            and last.next_offset == each.first_offset
            and not last.problem
            and not each.problem
        ):
            found[-1] = replace(
                last,
                next_offset=each.next_offset,
                fragments=last.fragments + each.fragments,
                size_bytes=last.size_bytes + each.size_bytes,
                key="",
            )
        else:
            found.append(each)
    return tuple(found)
