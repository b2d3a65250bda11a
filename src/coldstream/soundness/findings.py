"""What can be wrong, as values: what, where, how bad, what was expected."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """How bad a finding is; the later, the worse."""

    NOTE = "note"  # explained and harmless
    WRONG = "wrong"  # something says what is not so, but the messages can be read
    DAMAGED = "damaged"  # offsets cannot be read as the broker wrote them


class FindingKind(StrEnum):
    """What is wrong. Stable and append-only: people filter the table by it."""

    OBJECT_MISSING = "object_missing"
    OBJECT_SIZE = "object_size"
    FRAGMENT_HEADER = "fragment_header"
    TRAILER = "trailer"
    TRAILER_KEY = "trailer_key"
    TRAILER_ENTRY = "trailer_entry"
    TRAILER_LEDGER = "trailer_ledger"
    INDEX = "index"
    INDEX_RECORD = "index_record"
    CHUNK_HEADER = "chunk_header"
    CHUNK_CRC = "chunk_crc"
    CHUNK_ENTRIES = "chunk_entries"
    CHUNK_FILTER = "chunk_filter"
    CHUNK_TRACKING = "chunk_tracking"
    OFFSETS = "offsets"
    EPOCHS = "epochs"
    DATA_CRC = "data_crc"
    LEDGER = "ledger"
    ROOT = "root"
    CATALOG_ITEM = "catalog_item"
    GROUP = "group"
    HOLE_OVER_DATA = "hole_over_data"
    UNREFERENCED = "unreferenced"
    QUARANTINE = "quarantine"
    STREAM_WITHOUT_ITEM = "stream_without_item"

    @property
    def meaning(self) -> str:
        """The kind in words."""
        return _MEANINGS[self]

    @property
    def severity(self) -> Severity:
        """How bad it is, unless whoever finds it knows better."""
        return _SEVERITIES.get(self, Severity.DAMAGED)


_MEANINGS = {
    FindingKind.OBJECT_MISSING: "the manifest refers to an object that is not there",
    FindingKind.OBJECT_SIZE: "the object has another size than the manifest says",
    FindingKind.FRAGMENT_HEADER: "the first bytes of the object are not those of a fragment",
    FindingKind.TRAILER: "the trailer cannot be read, or says of the data what is not so",
    FindingKind.TRAILER_KEY: "the trailer and the object's key differ",
    FindingKind.TRAILER_ENTRY: "the trailer and the manifest's entry differ",
    FindingKind.TRAILER_LEDGER: "the trailer and the ledger have different floors",
    FindingKind.INDEX: "the index section cannot be read",
    FindingKind.INDEX_RECORD: "an index record and the chunk it points to differ",
    FindingKind.CHUNK_HEADER: "the header of a chunk is damaged",
    FindingKind.CHUNK_CRC: "the data of a chunk does not match its CRC",
    FindingKind.CHUNK_ENTRIES: "the entries of a chunk are not what its header says",
    FindingKind.CHUNK_FILTER: "the filter section of a chunk has a size that no filter has",
    FindingKind.CHUNK_TRACKING: "the tracking data of a chunk cannot be read",
    FindingKind.OFFSETS: "offsets do not go on where they ended: a gap or an overlap",
    FindingKind.EPOCHS: "chunk epochs fall, or exceed what their fragment says",
    FindingKind.DATA_CRC: "the CRC over all chunks does not match, though each chunk does",
    FindingKind.LEDGER: "the ledger refuses a fragment of the manifest",
    FindingKind.ROOT: "the root of the manifest is gone or cannot be read",
    FindingKind.CATALOG_ITEM: "the catalog item and the manifest's root differ",
    FindingKind.GROUP: "a group of the manifest is damaged or not what its parent says",
    FindingKind.HOLE_OVER_DATA: "the manifest has a hole where an acceptable fragment lies",
    FindingKind.UNREFERENCED: "an object that the manifest does not refer to",
    FindingKind.QUARANTINE: "what says where messages are that a claim cut off cannot be read",
    FindingKind.STREAM_WITHOUT_ITEM: "the bucket has a stream that the table lacks",
}
_SEVERITIES = {
    FindingKind.TRAILER_ENTRY: Severity.WRONG,
    FindingKind.TRAILER_LEDGER: Severity.WRONG,
    FindingKind.LEDGER: Severity.WRONG,
    FindingKind.CATALOG_ITEM: Severity.WRONG,
    FindingKind.HOLE_OVER_DATA: Severity.WRONG,
    FindingKind.UNREFERENCED: Severity.NOTE,
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        stream: directory name.
        kind: what.
        severity: how bad.
        key: full key of the object concerned, "" if it is the catalog item.
        first_offset: first offset concerned.
        next_offset: one past the last.
        position: byte of the object at which it is seen, None where it concerns all of it.
        expected: what should be there, in short; "" if that cannot be said.
        found: what is there.
        words: a sentence.
    """

    stream: str
    kind: FindingKind
    severity: Severity
    key: str
    first_offset: int
    next_offset: int
    position: int | None
    expected: str
    found: str
    words: str

    def __str__(self) -> str:
        at = "" if self.position is None else f", byte {self.position}"
        return (
            f"{self.kind}: {self.words} (stream {self.stream}, offsets {self.first_offset} to"
            f" {self.next_offset - 1}, key {self.key}{at})"
        )

    def document(self) -> dict[str, Any]:
        """As a JSON value."""
        return {**asdict(self), "kind": str(self.kind), "severity": str(self.severity)}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a chunk; whoever finds it knows which chunk.

    Attributes:
        kind: what.
        words: a sentence.
        expected: what should be there, "" if that cannot be said.
        found: what is there.
    """

    kind: FindingKind
    words: str
    expected: object = ""
    found: object = ""
