"""One piece of work: read some offsets of one stream, write files, tell what was done.

A task and its result travel as JSON (between driver and workers of one job). A task that is done
twice writes twice under different names; the driver takes one of the two results.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from typing import Any, Protocol

import pyarrow as pa

from coldstream.columns.schema import Origin
from coldstream.errors import InternalError
from coldstream.jobs.materialise.files import Files
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.schema import DEAD_COLUMNS, dead_schema, grown
from coldstream.jobs.materialise.table import WrittenFile
from coldstream.jobs.materialise.transform import transform
from coldstream.jobs.materialise.write import FileLayout, TableWriter
from coldstream.osiris.body import BodyFormat
from coldstream.reader.gap import Gap

#: A batch becomes a row group.
BATCH_BYTES = 32 * 2**20


class Source(Protocol):
    """Gives the messages of a task."""

    def batches(self, covered: list[tuple[int, int]], gaps: list[Gap]) -> Iterator[pa.RecordBatch]:
        """The columns READ_COLUMNS of all its messages; a batch is good until the next one.

        Offsets that were read are put into `covered`, also those that hold no message; those that
        exist nowhere any more into `gaps`, too.
        """
        ...


@dataclass(frozen=True, slots=True)
class TaskRules:
    """What all tasks of a table have in common.

    Attributes:
        body: as in a rule.
        rows: how the table's files are written.
        dead: the same for its dead letters.
        body_format: as in a rule.
    """

    body: str
    rows: FileLayout
    dead: FileLayout
    body_format: BodyFormat = BodyFormat.AUTO


@dataclass(slots=True)
class TaskResult:
    """What a task did.

    Attributes:
        stream: directory name.
        files: of rows.
        dead_files: of dead letters.
        covered: offsets that were read.
        lost: those of them that exist nowhere any more.
        rows: how many were written.
        dead: how many dead letters.
        bytes_read: of messages, uncompressed wire bytes.
        last_ms: time of the last message, ms since the Unix epoch; None without any.
        found: fields of bodies that the table has no column for.
    """

    stream: str
    files: list[WrittenFile] = field(default_factory=list)
    dead_files: list[WrittenFile] = field(default_factory=list)
    covered: list[tuple[int, int]] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)
    rows: int = 0
    dead: int = 0
    bytes_read: int = 0
    last_ms: int | None = None
    found: pa.Schema = field(default_factory=lambda: pa.schema([]))


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
    result = TaskResult(stream)
    with (
        TableWriter(rules.rows, stream, files, new_id) as rows,
        TableWriter(rules.dead, stream, files, new_id) as dead,
    ):
        if row_limit is not None:
            _look(result, source, rules, row_limit)
            return result
        _fill(result, source, rules, rows, dead, now_ms, origin or Origin(stream))
        result.files += rows.close()
        result.dead_files += dead.close()
    return result


def _look(result: TaskResult, source: Source, rules: TaskRules, row_limit: int) -> None:
    """Only learn which fields the first bodies have."""
    seen = 0
    for batch in source.batches([], []):
        found = transform(batch, rules.body, rules.rows.schema).found
        result.found = grown(result.found, found)
        seen += batch.num_rows
        if seen >= row_limit:
            return


def _fill(
    result: TaskResult,
    source: Source,
    rules: TaskRules,
    rows: TableWriter,
    dead: TableWriter,
    now_ms: int,
    origin: Origin,
) -> None:
    gaps: list[Gap] = []
    for batch in source.batches(result.covered, gaps):
        done = transform(batch, rules.body, rules.rows.schema)
        result.found = grown(result.found, done.found)
        result.bytes_read += batch.column("raw").nbytes
        if batch.num_rows:
            last = batch.column("timestamp")[batch.num_rows - 1].value
            result.last_ms = None if last is None else last // 1000
        result.rows += done.rows.num_rows
        result.files += rows.write(done.rows)
        result.dead += done.dead.num_rows
        result.dead_files += dead.write(_with_schema(done.dead, rules.dead.schema))
    for gap in gaps:
        result.lost.append((gap.first_offset, gap.next_offset))
        told = _with_schema(_gap_row(origin, gap, now_ms), rules.dead.schema)
        result.dead += told.num_rows
        result.dead_files += dead.write(told)


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


def _with_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        batch.column(each.name)
        if each.name in DEAD_COLUMNS
        else pa.nulls(batch.num_rows, each.type)
        for each in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def with_found(schema: pa.Schema, results: Iterable[TaskResult]) -> pa.Schema:
    """The columns of a table, and those that tasks have found in bodies."""
    for result in results:
        schema = grown(schema, result.found)
    return schema


def encode_result(result: TaskResult) -> str:
    """As text, for the way from a worker to the driver."""
    # Schemas are not copied: a copy goes down into every type by itself.
    document = {each.name: getattr(result, each.name) for each in fields(result)}
    document["found"] = base64.b64encode(result.found.serialize().to_pybytes()).decode()
    for name in ("files", "dead_files"):
        footers = [base64.b64encode(each.footer).decode() for each in document[name]]
        document[name] = [
            asdict(each) | {"footer": footer}
            for each, footer in zip(document[name], footers, strict=True)
        ]
    return json.dumps(document)


def parse_result(text: str) -> TaskResult:
    """What `encode_result` made."""
    document = json.loads(text)
    document["found"] = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(document["found"])))
    for name in ("files", "dead_files"):
        for each in document[name]:
            each["footer"] = base64.b64decode(each["footer"])
        document[name] = [WrittenFile(**each) for each in document[name]]
    for name in ("covered", "lost"):
        document[name] = [tuple(span) for span in document[name]]
    return TaskResult(**document)


def check_tiling(stream: str, results: Iterable[TaskResult], expected: Ranges) -> None:
    """The tasks of a stream have covered what they should, each offset once.

    Raises:
        InternalError: they have not; nothing may be committed.
    """
    spans = sorted(span for result in results for span in result.covered)
    for (_, end), (begin, _) in pairwise(spans):
        if begin < end:
            raise InternalError("two tasks read the same offset", stream=stream, offset=begin)
    found = Ranges.of(spans)
    if found != expected:
        wrong = (expected - found) or (found - expected)
        raise InternalError(
            "the tasks did not read what was planned", stream=stream, offset=wrong.spans[0][0]
        )
