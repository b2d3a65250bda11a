"""How a live manifest and one made anew can differ, as values and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

from coldstream.jobs.snapshots import STREAM, TIME, SnapshotTable, column


class DifferenceKind(StrEnum):
    """How the rebuilt manifest differs from the live one."""

    UNREADABLE = "unreadable"
    ABSENT = "absent"
    OTHER_OBJECT = "other_object"
    ENTRY = "entry"
    NO_ITEM = "no_item"

    @property
    def meaning(self) -> str:
        """The kind in words."""
        return _MEANINGS[self]


_MEANINGS = {
    DifferenceKind.UNREADABLE: "the live manifest cannot be read",
    DifferenceKind.ABSENT: "the bucket has no acceptable object for what the manifest has",
    DifferenceKind.OTHER_OBJECT: "what the manifest has is damaged; a rebuild would take another"
    " object",
    DifferenceKind.ENTRY: "the manifest says of an object what its key or trailer does not",
    DifferenceKind.NO_ITEM: "the bucket has a stream that the table lacks: its item was lost;"
    " `coldstream reconcile` gives it its newest root back",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference.

    Attributes:
        stream: directory name.
        kind: of which kind.
        first_offset: first offset concerned.
        next_offset: one past the last.
        live: what the live manifest has, in short.
        rebuilt: what the bucket has.
    """

    stream: str
    kind: DifferenceKind
    first_offset: int
    next_offset: int
    live: str
    rebuilt: str


DIFFERENCES = SnapshotTable(
    "rebuild_differences",
    "One row for each difference between a live manifest and one made anew from the bucket",
    pa.schema(
        [
            STREAM,
            column("kind", pa.string(), "unreadable, absent, other_object, entry or no_item"),
            column("first_offset", pa.int64(), "first offset concerned"),
            column("next_offset", pa.int64(), "one past the last"),
            column("live", pa.string(), "what the live manifest has"),
            column("rebuilt", pa.string(), "what the bucket has"),
            column("found_at", TIME, "when the run began"),
        ]
    ),
)


def differences_batch(found: Sequence[Difference], now_ms: int) -> pa.RecordBatch:
    """Differences as rows of the table; `now_ms` is when the run began, ms since the epoch."""
    rows: list[dict[str, Any]] = [
        {
            **asdict(each),
            "kind": str(each.kind),
            "first_offset": min(each.first_offset, 2**63 - 1),
            "next_offset": min(each.next_offset, 2**63 - 1),
            "found_at": now_ms * 1000,
        }
        for each in found
    ]
    return pa.RecordBatch.from_pylist(rows, DIFFERENCES.schema)
