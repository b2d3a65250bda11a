"""The table of what scrub finds."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from coldstream.jobs.snapshots import STREAM, TIME, SnapshotTable, column
from coldstream.soundness.findings import Finding

FINDINGS = SnapshotTable(
    "scrub_findings",
    "One row for each thing that the job scrub has found",
    pa.schema(
        [
            STREAM,
            column("kind", pa.string(), "what is wrong, see docs/how-to/scrub-and-repair.md"),
            column("severity", pa.string(), "note, wrong or damaged"),
            column("key", pa.string(), "of the object concerned"),
            column("first_offset", pa.int64(), "first offset concerned"),
            column("next_offset", pa.int64(), "one past the last"),
            column("position", pa.int64(), "byte of the object, empty where it is all of it"),
            column("expected", pa.string(), "what should be there"),
            column("found", pa.string(), "what is there"),
            column("words", pa.string(), "a sentence"),
            column("found_at", TIME, "when the run began"),
        ]
    ),
)
_MAX_INT64 = 2**63 - 1


def findings_batch(findings: Iterable[Finding], now_ms: int) -> pa.RecordBatch:
    """Findings as rows of the table; `now_ms` is when the run began, ms since the Unix epoch."""
    rows = [
        {
            **each.document(),
            # Offsets are unsigned, the table's numbers are not.
            "first_offset": min(each.first_offset, _MAX_INT64),
            "next_offset": min(each.next_offset, _MAX_INT64),
            "found_at": now_ms * 1000,
        }
        for each in findings
    ]
    return pa.RecordBatch.from_pylist(rows, FINDINGS.schema)
