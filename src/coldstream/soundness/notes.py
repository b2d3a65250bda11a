"""What is known of one fragment from elsewhere, and what is found to be wrong with it."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.manifest.entries import Entry
from coldstream.names import DataKey
from coldstream.soundness.findings import Finding, FindingKind

_OF_CHUNKS = frozenset(
    {
        FindingKind.CHUNK_HEADER,
        FindingKind.CHUNK_CRC,
        FindingKind.CHUNK_ENTRIES,
        FindingKind.CHUNK_FILTER,
        FindingKind.CHUNK_TRACKING,
        FindingKind.OFFSETS,
        FindingKind.EPOCHS,
    }
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A fragment, and all that is said about it elsewhere.

    Attributes:
        key: what its key says.
        path: its full key.
        entry: of the manifest.
        floor: of its epoch in the ledger, None if the ledger does not have the epoch.
    """

    key: DataKey
    path: str
    entry: Entry
    floor: int | None


@dataclass(frozen=True, slots=True)
class Edges:
    """Chunk epochs at the ends of a fragment; None where the chunk cannot be read."""

    first: int | None
    last: int | None


class Notes:
    """Findings about one fragment.

    Attributes:
        subject: the fragment.
        findings: so far.
        damaged: whether something is wrong with a chunk itself: then sums over all chunks that do
            not come out right are no news.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.findings: list[Finding] = []
        self.damaged = False

    def add(
        self,
        kind: FindingKind,
        words: str,
        *,
        first: int | None = None,
        next_offset: int | None = None,
        position: int | None = None,
        expected: object = "",
        found: object = "",
    ) -> None:
        """Note what is wrong with [first, next_offset), by default with the whole fragment.

        Whatever a damaged number says, offsets of other fragments are not concerned.
        """
        entry = self.subject.entry
        if kind in _OF_CHUNKS:
            self.damaged = True
        first = entry.first_offset if first is None else first
        next_offset = entry.next_offset if next_offset is None else next_offset
        first = max(entry.first_offset, min(first, entry.next_offset - 1))
        next_offset = min(next_offset, entry.next_offset)
        self.findings.append(
            Finding(
                stream=self.subject.key.stream,
                kind=kind,
                severity=kind.severity,
                key=self.subject.path,
                first_offset=first,
                next_offset=max(next_offset, first + 1),
                position=position,
                expected=str(expected),
                found=str(found),
                words=words,
            )
        )

    def has(self, kind: FindingKind) -> bool:
        """Whether there is a finding of this kind."""
        return any(each.kind is kind for each in self.findings)
