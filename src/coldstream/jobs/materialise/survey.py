"""What a task saw that only looked: kinds of values by field, and what would be rescued."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from coldstream.jobs.materialise.json_bodies.fit import printable
from coldstream.jobs.materialise.json_bodies.text import parse_object
from coldstream.jobs.materialise.schema import MAX_FIELDS, RESCUED
from coldstream.jobs.materialise.transform import Transformed

Counts = dict[str, int]
#: Names of fields are a publisher's: more than these are counted together.
_MAX_NAMES = 2 * MAX_FIELDS
#: And no longer than this; a column's name is not.
_MAX_NAME = 255
OTHERS = ""


@dataclass(slots=True)
class Survey:
    """Counts over a sample.

    Attributes:
        messages: looked at.
        rows: that they would become.
        dead: dead letters among them.
        kinds: by field of a JSON body, how many values are of which kind of JSON.
        rescued: by field, how many values would be.
        reasons: of the dead letters, the first few.
        no_key: messages without a key, where the table has the latest of each.
        tombstones: messages that delete their key; they count as rows, too.
    """

    messages: int = 0
    rows: int = 0
    dead: int = 0
    kinds: dict[str, Counts] = field(default_factory=dict)
    rescued: Counts = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    no_key: int = 0
    tombstones: int = 0

    def add(self, batch: pa.RecordBatch, done: Transformed) -> None:
        """Count a batch of messages and what became of it."""
        self.messages += batch.num_rows
        self.rows += done.rows.num_rows
        self.dead += done.dead.num_rows
        self.no_key += done.no_key
        self.tombstones += done.tombstones
        self._remember(done.dead.column("error").to_pylist())
        if RESCUED in done.rows.schema.names:
            self._count_bodies(batch.column("body"))
            counts = pc.value_counts(done.rows.column(RESCUED).keys)
            for each in counts.to_pylist():
                _count(self.rescued, each["values"], each["counts"])

    def merge(self, other: Survey) -> None:
        """Count what another task has counted, too."""
        for name in ("messages", "rows", "dead", "no_key", "tombstones"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name, counts in other.kinds.items():
            for kind, count in counts.items():
                self._see(name, kind, count)
        for name, count in other.rescued.items():
            _count(self.rescued, name, count)
        self._remember(other.reasons)

    def _remember(self, reasons: Iterable[str]) -> None:
        self.reasons = list(dict.fromkeys([*self.reasons, *reasons]))[:5]

    def _count_bodies(self, bodies: pa.Array) -> None:
        for body in bodies.to_pylist():
            try:
                document: Mapping[str, Any] = parse_object(str(body or b"", "utf-8"))
            except ValueError:
                continue
            for name, value in document.items():
                self._see(printable(name), _kind(value), 1)

    def _see(self, name: str, kind: str, count: int) -> None:
        name = name[:_MAX_NAME]
        if name not in self.kinds and len(self.kinds) >= _MAX_NAMES:
            name = OTHERS
        _count(self.kinds.setdefault(name, {}), kind, count)


def _count(counts: Counts, name: str, count: int) -> None:
    name = name[:_MAX_NAME]
    if name not in counts and len(counts) >= _MAX_NAMES:
        name = OTHERS
    counts[name] = counts.get(name, 0) + count


def _kind(value: Any) -> str:
    """What JSON has; numbers with and without a point apart."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "whole number"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "text"
    return "object" if isinstance(value, dict) else "list"
