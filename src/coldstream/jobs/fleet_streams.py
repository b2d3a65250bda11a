"""What the driver of the job fleet makes of the workers' counts: one row for each stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from coldstream.jobs.fleet_tables import MAX_NUMBER, STREAMS
from coldstream.jobs.materialise.times import MAX_MS, MIN_MS
from coldstream.manifest.catalog import CatalogItem
from coldstream.plans.policy import PolicySet, effective


@dataclass(slots=True)
class Total:
    """What the workers have counted for one stream."""

    counts: dict[str, int] = field(default_factory=dict)
    smallest: int | None = None
    largest: int | None = None
    last_commit_ms: int | None = None
    quarantine_key: str = ""
    error: str | None = None


_SUMS = ("fragments", "holes", "hole_offsets", "groups", "objects", "orphans", "orphan_bytes")


def gather(rows: Iterable[Mapping[str, Any]]) -> dict[str, Total]:
    """The counts of a stream's units together."""
    totals: dict[str, Total] = {}
    for row in rows:
        total = totals.setdefault(row["stream"], Total())
        for name in _SUMS:
            total.counts[name] = total.counts.get(name, 0) + (row[name] or 0)
        for each in (total.smallest, row["smallest"]):
            if each is not None:
                total.smallest = each if total.smallest is None else min(each, total.smallest)
        for each in (total.largest, row["largest"]):
            if each is not None:
                total.largest = each if total.largest is None else max(each, total.largest)
        total.last_commit_ms = row["last_commit_ms"] or total.last_commit_ms
        total.quarantine_key = row["quarantine_key"] or total.quarantine_key
        total.error = row["error"] or total.error
    return totals


def stream_rows(
    items: Iterable[CatalogItem],
    totals: Mapping[str, Total],
    policies: PolicySet,
    taken_ms: int,
) -> pa.Table:
    """Rows of `STREAMS`, in the order of their names."""
    rows = [
        _stream_row(item, totals.get(item.stream, Total()), policies, taken_ms)
        for item in sorted(items, key=lambda each: each.stream)
    ]
    return pa.Table.from_pylist(rows, schema=STREAMS.schema)


def _stream_row(
    item: CatalogItem, total: Total, policies: PolicySet, taken_ms: int
) -> dict[str, Any]:
    rules = effective(policies, item.stream, item.name)
    has = item.fragments > 0
    counts = total.counts
    return {
        "stream": item.stream,
        "cluster": item.name.cluster,
        "vhost": item.name.vhost,
        "queue": item.name.queue,
        "state": str(item.state),
        "first_offset": _signed(item.first_offset),
        "next_offset": _signed(item.next_offset),
        "offsets": _signed(item.next_offset - item.first_offset),
        "first_time": _time(item.first_timestamp) if has else None,
        "last_time": _time(item.last_timestamp) if has else None,
        "age_seconds": (taken_ms - item.first_timestamp) // 1000 if has else None,
        "lag_seconds": (taken_ms - item.last_timestamp) // 1000 if has else None,
        "last_commit": _time(total.last_commit_ms) if total.last_commit_ms else None,
        "bytes": _signed(item.total_size),
        "fragments": item.fragments,
        "holes": counts.get("holes", 0),
        "hole_offsets": _signed(counts.get("hole_offsets", 0)),
        "smallest_bytes": total.smallest,
        "largest_bytes": total.largest,
        "groups": counts.get("groups", 0),
        "epoch": item.epoch,
        "version": item.version,
        "ledger": [
            {"epoch": each.epoch, "floor": _signed(each.floor)} for each in item.ledger.claims
        ],
        "root_key": item.root_key,
        "quarantine_key": total.quarantine_key,
        "retention_rule": rules.retention_rule,
        "max_age_seconds": None if rules.max_age_ms is None else rules.max_age_ms // 1000,
        "max_bytes": rules.max_bytes,
        "consolidate": rules.consolidate,
        "hold": rules.hold,
        "hold_rules": list(rules.hold_rules),
        "undelete_until": _time(item.undelete_until) if item.undelete_until else None,
        "error": total.error,
    }


def _signed(offset: int) -> int:
    return min(offset, MAX_NUMBER)


def _time(milliseconds: int) -> int:
    """Microseconds, within the years that a table can hold."""
    return min(max(milliseconds, MIN_MS), MAX_MS) * 1000
