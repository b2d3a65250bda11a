"""One piece of work: read some offsets of one stream, write files, tell what was done.

A task and its result travel as JSON (between driver and workers of one job). A task that is done
twice writes twice under different names; the driver takes one of the two results.

Where a value cannot be written the task begins anew, with care (`task_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldstream.columns.schema import Origin
from coldstream.errors import (
    ColdstreamError,
    CorruptDataError,
    InternalError,
    NotFoundError,
    UnknownVersionError,
)
from coldstream.jobs.materialise.files import Files
from coldstream.jobs.materialise.latest.rows import last_of
from coldstream.jobs.materialise.schema import DEAD_COLUMNS, dead_schema, merged
from coldstream.jobs.materialise.task_result import TaskResult
from coldstream.jobs.materialise.task_rows import (
    OF_VALUES,
    TaskRules,
    transform_all,
    transform_what_can_be,
)
from coldstream.jobs.materialise.times import bounded
from coldstream.jobs.materialise.transform import Transformed
from coldstream.jobs.materialise.write import FileLayout, TableWriter
from coldstream.osiris.offsets import OffsetSet
from coldstream.reader.gap import Gap

#: What a source decodes at once.
BATCH_BYTES = 32 * 2**20


class Source(Protocol):
    """Gives the messages of a task."""

    @property
    def bytes_read(self) -> int:
        """Of all messages that were given so far."""
        ...

    def batches(self, covered: list[tuple[int, int]], gaps: list[Gap]) -> Iterator[pa.RecordBatch]:
        """The columns READ_COLUMNS of all its messages; a batch stays as it is.

        Offsets that were read are put into `covered`, also those that hold no message; those that
        exist nowhere any more into `gaps`, too.

        Raises:
            CorruptDataError: an object of the stream is damaged, and nobody can say what of it.
            NotFoundError: an object is gone, and no newer manifest explains it.
        """
        ...

    def raw(self, offsets: pa.Array) -> pa.Array:
        """The bytes of some messages of the batch that was given last, where its column `raw` is
        null; null where nobody has them.

        Few rows want them, and a column of all is a copy of everything.
        """
        ...


def perform(
    stream: str,
    source: Source,
    rules: TaskRules,
    files: Files,
    new_id: Callable[[], str],
    *,
    now_ms: int,
    row_limit: int | None = None,
    origin: Origin | None = None,
) -> TaskResult:
    """Do one task.

    Args:
        stream: directory name.
        source: gives its messages.
        rules: of the table.
        files: take what is written.
        new_id: gives a name that is used once.
        now_ms: ms since the Unix epoch; the time of a dead letter about offsets that are lost.
        row_limit: messages to look at without writing any, to learn the fields of bodies.
        origin: what a dead letter about lost offsets says; the stream alone by default.
    """
    part = Part(stream, source, origin)
    return perform_all([part], rules, files, new_id, now_ms=now_ms, row_limit=row_limit)[0]


@dataclass(frozen=True, slots=True)
class Part:
    """Work of one stream in a task.

    Attributes:
        stream: directory name.
        source: gives its messages.
        origin: what a dead letter about lost offsets says; the stream alone by default.
        erased: offsets whose messages become neither rows nor dead letters.
    """

    stream: str
    source: Source
    origin: Origin | None = None
    erased: OffsetSet = field(default_factory=OffsetSet)


def perform_all(
    parts: Sequence[Part],
    rules: TaskRules,
    files: Files,
    new_id: Callable[[], str],
    *,
    now_ms: int,
    row_limit: int | None = None,
) -> list[TaskResult]:
    """Do one task of several parts; what became of each, in their order.

    A file that has rows of several is told with one of them, so the results belong together. Where
    an object of a stream is damaged or lost, the error is the result of all its parts, and the task
    begins anew without them: no file has a row of it.

    Args:
        parts: in the order of streams and offsets; several only where streams share files.
        rules, files, new_id, now_ms, row_limit: as for `perform`.
    """
    if row_limit is not None:
        return [_look(each, rules, row_limit) for each in parts]
    if len(parts) > 1 and not (rules.rows.shared and rules.dead.shared):
        raise InternalError("a task of several streams that share no files")
    wrong: dict[str, ColdstreamError] = {}
    while True:
        sound = [each for each in parts if each.stream not in wrong]
        try:
            done = iter(_done(sound, rules, files, new_id, now_ms))
        except _UnreadableError as found:
            wrong[found.stream] = found.error
        else:
            return [
                TaskResult(each.stream, error=wrong[each.stream])
                if each.stream in wrong
                else next(done)
                for each in parts
            ]


class _UnreadableError(Exception):
    """An object of a stream is damaged or lost."""

    def __init__(self, stream: str, error: ColdstreamError) -> None:
        super().__init__(stream, error)
        self.stream = stream
        self.error = error


def _given(part: Part, covered: list[tuple[int, int]], gaps: list[Gap]) -> Iterator[pa.RecordBatch]:
    """What a part reads. What goes wrong here is the stream's, and elsewhere it is the table's."""
    try:
        for batch in part.source.batches(covered, gaps):
            yield _without(batch, part.erased)
    except (CorruptDataError, NotFoundError, UnknownVersionError) as error:
        raise _UnreadableError(part.stream, error.located(stream=part.stream)) from error


def _without(batch: pa.RecordBatch, erased: OffsetSet) -> pa.RecordBatch:
    """A batch without its erased messages."""
    if not erased or not batch.num_rows:
        return batch
    offsets = batch.column("offset")
    span = pc.min_max(offsets)
    inside = erased.within(span["min"].as_py(), span["max"].as_py() + 1)
    if not inside:
        return batch
    begins, ends = np.array(inside.ranges).T
    found = offsets.to_numpy()
    # The last range that begins at or below an offset, if any, is the only one that may have it.
    before = np.searchsorted(begins, found, side="right")
    gone = (before > 0) & (found < ends[before - 1])
    return batch.filter(pa.array(~gone))


def _done(
    parts: Sequence[Part], rules: TaskRules, files: Files, new_id: Callable[[], str], now_ms: int
) -> list[TaskResult]:
    if not parts:
        return []
    try:
        return _written(parts, rules, files, new_id, now_ms, transform_all)
    except OF_VALUES as error:
        if isinstance(error, ColdstreamError):
            raise
    return _written(parts, rules, files, new_id, now_ms, transform_what_can_be)


_Way = Callable[[pa.RecordBatch, TaskRules], Transformed]


def _written(
    parts: Sequence[Part],
    rules: TaskRules,
    files: Files,
    new_id: Callable[[], str],
    now_ms: int,
    way: _Way,
) -> list[TaskResult]:
    results = [TaskResult(each.stream) for each in parts]
    with (
        TableWriter(rules.rows, parts[0].stream, files, new_id) as rows,
        TableWriter(rules.dead, parts[0].stream, files, new_id) as dead,
    ):
        for part, result in zip(parts, results, strict=True):
            _fill(result, part, rules, rows, dead, now_ms, way)
        results[-1].files += rows.close()
        results[-1].dead_files += dead.close()
    return results


def _look(part: Part, rules: TaskRules, row_limit: int) -> TaskResult:
    """Only learn which fields the first bodies have, as far as they can be read."""
    result, seen = TaskResult(part.stream), 0
    try:
        for given in _given(part, [], []):
            batch, _ = bounded(given)
            done = _looked_at(batch, rules)
            result.found = merged(result.found, done.found)
            if rules.survey:
                result.survey.add(batch, done)
            seen += batch.num_rows
            if seen >= row_limit:
                break
    except _UnreadableError as found:
        result.error = found.error
    return result


def _looked_at(batch: pa.RecordBatch, rules: TaskRules) -> Transformed:
    """What becomes of a batch; whether rows can be written matters only to who counts them."""
    if not rules.survey:
        with suppress(*OF_VALUES):
            return transform_all(batch, rules)
    return transform_what_can_be(batch, rules)


def _fill(
    result: TaskResult,
    part: Part,
    rules: TaskRules,
    rows: TableWriter,
    dead: TableWriter,
    now_ms: int,
    way: _Way,
) -> None:
    source, origin = part.source, part.origin or Origin(part.stream)
    gaps: list[Gap] = []
    unread = _Unread()
    for given in _given(part, result.covered, gaps):
        batch, moved = bounded(given)
        if rules.latest is not None:
            unread.see(batch)
        done = way(batch, rules)
        result.times_moved += moved
        result.found = merged(result.found, done.found)
        if batch.num_rows:
            last = batch.column("timestamp")[batch.num_rows - 1].value
            result.last_ms = None if last is None else last // 1000
        result.no_key += done.no_key
        result.tombstones += done.tombstones
        new = done.rows if rules.latest is None else _last(done.rows, rules.rows)
        result.rows += new.num_rows
        result.files += rows.write(new)
        result.dead += done.dead.num_rows
        if done.dead.num_rows:
            known = _with_raw(done.dead, source)
            result.dead_files += dead.write(_with_schema(known, rules.dead.schema))
    result.bytes_read += source.bytes_read
    result.unread = unread.spans(result.covered)
    for gap in gaps:
        result.lost.append((gap.first_offset, gap.next_offset))
        told = _with_schema(_gap_row(origin, gap, now_ms), rules.dead.schema)
        result.dead += told.num_rows
        result.dead_files += dead.write(told)


@dataclass(slots=True)
class _Unread:
    """Offsets that cannot be read; a row may speak for all those up to the next row."""

    begun: int | None = None
    found: list[tuple[int, int]] = field(default_factory=list)

    def see(self, batch: pa.RecordBatch) -> None:
        if self.begun is None and batch.column("error").null_count == batch.num_rows:
            return
        bad = batch.column("error").is_valid().to_pylist()
        for offset, is_bad in zip(batch.column("offset").to_pylist(), bad, strict=True):
            if self.begun is not None and not is_bad:
                self.found.append((self.begun, offset))
                self.begun = None
            elif self.begun is None and is_bad:
                self.begun = offset

    def spans(self, covered: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        if self.begun is None:
            return self.found
        return [*self.found, (self.begun, max(end for _, end in covered))]


def _last(rows: pa.RecordBatch, layout: FileLayout) -> pa.RecordBatch:
    """The last row of each key in a batch: nobody asks for the others."""
    assert layout.buckets is not None
    return last_of(rows, layout.buckets.column, layout.columns[1])


def _gap_row(origin: Origin, gap: Gap, now_ms: int) -> pa.RecordBatch:
    values: dict[str, Any] = {
        **origin.columns(),
        "offset": gap.first_offset,
        "timestamp": now_ms * 1000,
        "error": str(gap),
    }
    schema = dead_schema()
    columns = [pa.array([values.get(name)], schema.field(name).type) for name in DEAD_COLUMNS]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _with_raw(dead: pa.RecordBatch, source: Source) -> pa.RecordBatch:
    """Dead letters with the bytes of their messages."""
    raw = pc.coalesce(dead.column("raw"), source.raw(dead.column("offset")))
    return dead.set_column(dead.schema.get_field_index("raw"), dead.schema.field("raw"), raw)


def _with_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        batch.column(each.name)
        if each.name in DEAD_COLUMNS
        else pa.nulls(batch.num_rows, each.type)
        for each in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
