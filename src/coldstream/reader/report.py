"""What `verify` found out about a stream, as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from coldstream.manifest.invariants import Invariant, Violation

#: The invariants that the state of one stream can show.
CHECKED = (
    Invariant.AGREEMENT,
    Invariant.TREE_SUMS,
    Invariant.COVERAGE,
    Invariant.FENCING,
    Invariant.DURABILITY,
    Invariant.EPOCH_ORDER,
)


#: More findings than this are counted, and more ranges than this are put together.
MAX_LISTED = 10_000


class RangeStatus(StrEnum):
    """What became of a range of offsets; the later, the worse."""

    PRESENT = "PRESENT"
    LOST = "LOST"
    MISSING = "MISSING"
    CORRUPT = "CORRUPT"

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
class VerifyReport:
    """The result of verifying a stream.

    Attributes:
        stream: directory name.
        deep: whether all data was read.
        version: of the manifest that was checked.
        first_offset: of that manifest.
        next_offset: of that manifest.
        ranges: tile [first_offset, next_offset), neighbours of one status joined.
        violations: everything that is wrong; empty if the stream is sound.
        unlisted: violations beyond those, by invariant.
        groups: of the tree that were read.
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
    unlisted: Mapping[Invariant, int] = field(default_factory=dict)
    groups: int = 0

    def checked(self, invariant: Invariant) -> bool:
        """Whether anything was looked at for this invariant; if not, nothing is known of it."""
        return self.rooted or invariant is Invariant.AGREEMENT

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.violations

    @property
    def lost(self) -> tuple[CheckedRange, ...]:
        """The ranges that were declared lost before; no finding, but never silent."""
        return tuple(each for each in self.ranges if each.status is RangeStatus.LOST)

    def violations_of(self, invariant: Invariant) -> tuple[Violation, ...]:
        """What breaks one invariant, as far as it is listed."""
        return tuple(each for each in self.violations if each.invariant is invariant)

    def count_of(self, invariant: Invariant) -> int:
        """How often one invariant is broken."""
        return len(self.violations_of(invariant)) + self.unlisted.get(invariant, 0)


class Findings:
    """What a long verification has found so far, in bounded memory: for a stream of any length.

    Attributes:
        violations: the first `MAX_LISTED`.
        unlisted: how many came later, by invariant.
        ranges: neighbours of one status joined; when there are too many, all later ones are one.
    """

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.unlisted: dict[Invariant, int] = {}
        self.ranges: list[CheckedRange] = []

    def note(self, violation: Violation) -> None:
        """Add something that is wrong."""
        if len(self.violations) < MAX_LISTED:
            self.violations.append(violation)
        else:
            known = self.unlisted.get(violation.invariant, 0)
            self.unlisted[violation.invariant] = known + 1

    def add(self, each: CheckedRange) -> None:
        """Add what follows the last range."""
        last = self.ranges[-1] if self.ranges else None
        if last is None or not (_alike(last, each) or len(self.ranges) >= MAX_LISTED):
            self.ranges.append(each)
            return
        alike = _alike(last, each)
        self.ranges[-1] = replace(
            last,
            next_offset=each.next_offset,
            status=max(last.status, each.status, key=list(RangeStatus).index),
            fragments=last.fragments + each.fragments,
            size_bytes=last.size_bytes + each.size_bytes,
            key="",
            problem="" if alike else "too many ranges to tell apart; this is the worst of them",
        )


def _alike(one: CheckedRange, other: CheckedRange) -> bool:
    """Whether two ranges are neighbours without a problem and of one status."""
    return (
        one.status is other.status
        and one.next_offset == other.first_offset
        and not one.problem
        and not other.problem
    )


def joined(ranges: Iterable[CheckedRange]) -> tuple[CheckedRange, ...]:
    """Neighbours without a problem and of one status as one range."""
    findings = Findings()
    for each in ranges:
        findings.add(each)
    return tuple(findings.ranges)
