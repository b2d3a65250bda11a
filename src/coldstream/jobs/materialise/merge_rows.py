"""Rows of several sources in one order, with a batch of each source in memory and no more.

Each source should give its rows in this order. If one does not, no row is lost or doubled: only the
order of what comes out is then as good as what went in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RowSource:
    """Gives rows.

    Attributes:
        open: gives its batches, which stay good; closing them frees what was opened.
        rows: how many there are in all of them.
        low: keys below which it has no row; nothing where that is not known.
    """

    open: Callable[[], Iterator[pa.RecordBatch]]
    rows: int
    low: tuple[Any, ...] = ()


@dataclass(slots=True)
class _Cursor:
    """Where a source is."""

    batches: Iterator[pa.RecordBatch]
    left: int
    now: pa.RecordBatch | None = None
    keys: pa.Table = field(default_factory=lambda: pa.table({}))
    largest: int = 0

    def advance(self, names: Sequence[str]) -> bool:
        """Have rows again where few are left; False if there are none any more.

        Half a batch is few: sources that go in step would else come to their ends one by one, and
        all rows that are held would be sorted for each.
        """
        while self.now is None or self.now.num_rows <= self.largest // 2:
            batch = next(self.batches, None)
            if batch is None:
                break
            self.left -= batch.num_rows
            self.largest = max(self.largest, batch.num_rows)
            rest = self.now is not None and self.now.num_rows > 0
            self.keep(pa.concat_batches([self.now, batch]) if rest else batch, names)
        return self.now is not None and self.now.num_rows > 0

    def keep(self, batch: pa.RecordBatch, names: Sequence[str]) -> None:
        self.now = batch
        self.keys = pa.table([batch.column(name) for name in names], list(names))


def merged_rows(sources: Sequence[RowSource], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """All rows of all sources.

    A source is opened when its first row may be the next one, and those before it stay open no
    longer than they have rows.

    Args:
        sources: of rows with the same columns.
        names: of the columns by which they are in order, rising; nothing comes last.
    """
    waiting = sorted(sources, key=lambda each: (each.low != (), each.low), reverse=True)
    active: list[_Cursor] = []
    try:
        while waiting or active:
            if not active:
                active += _opened(waiting.pop(), names)
                continue
            ranks, order = _ranks(active)
            cut = _cut(active, ranks)
            if waiting and _may_come_before(waiting[-1], _key(active, ranks, order, cut)):
                active += _opened(waiting.pop(), names)
                continue
            yield from _taken(active, ranks, cut, names)
            active = [each for each in active if each.advance(names)]
    finally:
        for each in active:
            close = getattr(each.batches, "close", None)
            if close is not None:
                close()


def _opened(source: RowSource, names: Sequence[str]) -> list[_Cursor]:
    cursor = _Cursor(source.open(), source.rows)
    return [cursor] if cursor.advance(names) else []


def _may_come_before(source: RowSource, end: Iterator[Any]) -> bool:
    """Whether a source may have a row before these keys, which not all have a value in Python."""
    if not source.low:
        return True
    keys = tuple(end)
    return None in keys or source.low <= keys


def _ranks(active: Sequence[_Cursor]) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
    """The place of each row that is held in the order of all of them, by cursor; and that order."""
    keys = pa.concat_tables([each.keys for each in active])
    by = [(name, "ascending") for name in keys.column_names]
    order = pc.sort_indices(keys, sort_keys=by).to_numpy()  # nulls come last
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    ends = np.cumsum([each.keys.num_rows for each in active])[:-1]
    return np.split(ranks, ends), order


def _cut(active: Sequence[_Cursor], ranks: Sequence[NDArray[np.int64]]) -> int:
    """The last place up to which no source can have another row."""
    highest = [int(mine.max()) for mine in ranks]
    more = [high for each, high in zip(active, highest, strict=True) if each.left > 0]
    return min(more, default=max(highest))


def _key(
    active: Sequence[_Cursor],
    ranks: Sequence[NDArray[np.int64]],
    order: NDArray[np.int64],
    place: int,
) -> Iterator[Any]:
    """The keys of the row at a place of the order."""
    at = int(order[place])
    for each, mine in zip(active, ranks, strict=True):
        if at < len(mine):
            for column in each.keys.columns:
                yield column[at].as_py()
            return
        at -= len(mine)


def _taken(
    active: Sequence[_Cursor], ranks: Sequence[NDArray[np.int64]], cut: int, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Take the rows up to a place away from their cursors; as one batch, in order."""
    parts: list[pa.RecordBatch] = []
    places: list[NDArray[np.int64]] = []
    for each, mine in zip(active, ranks, strict=True):
        now = each.now
        assert now is not None
        taken = mine <= cut
        count = int(taken.sum())
        if not count:
            continue
        if taken[:count].all():
            parts.append(now.slice(0, count))
            each.keep(now.slice(count), names)
        else:
            parts.append(now.filter(pa.array(taken)))
            each.keep(now.filter(pa.array(~taken)), names)
        places.append(mine[taken])
    together = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
    found = np.concatenate(places)
    if (np.diff(found) < 0).any():
        together = together.take(pa.array(np.argsort(found)))
    yield together
