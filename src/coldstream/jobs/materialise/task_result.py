"""What a task did: on its way from a worker to the driver, and beside what the others did."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from typing import Literal, NoReturn

import pyarrow as pa

from coldstream.errors import ColdstreamError, ConflictError, InternalError
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.schema import grown, merged
from coldstream.jobs.materialise.survey import Survey
from coldstream.jobs.materialise.table import WrittenFile
from coldstream.jobs.materialise.worker_errors import error_from, error_json
from coldstream.jobs.materialise.written import written_from, written_json


@dataclass(slots=True)
class TaskResult:
    """What a task did.

    Attributes:
        stream: directory name.
        files: of rows; where streams share files, also of other parts of the task.
        dead_files: of dead letters, likewise.
        covered: offsets that were read.
        lost: those of them that exist nowhere any more.
        rows: how many were written.
        dead: how many dead letters.
        bytes_read: of messages, uncompressed wire bytes.
        last_ms: time of the last message, ms since the Unix epoch; None without any.
        times_moved: that lay outside of the years that a table can hold.
        found: fields of bodies that the table has no column for.
        survey: what a task that only looked has seen.
        no_key: messages without a key, where the table has the latest of each.
        tombstones: messages that delete their key.
        unread: where a table has the latest of each key: offsets that are there, and whose messages
            cannot be read.
        error: why the stream cannot be read: an object is damaged or lost. Then nothing of it was
            written, by no part of the task.
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
    times_moved: int = 0
    found: pa.Schema = field(default_factory=lambda: pa.schema([]))
    survey: Survey = field(default_factory=Survey)
    no_key: int = 0
    tombstones: int = 0
    unread: list[tuple[int, int]] = field(default_factory=list)
    error: ColdstreamError | None = None


def with_found(schema: pa.Schema, results: Iterable[TaskResult]) -> pa.Schema:
    """The columns of a table, and those that tasks have found in bodies."""
    found = pa.schema([])
    for result in results:
        found = merged(found, result.found)
    return grown(schema, found)


def unreadable(results: Iterable[TaskResult]) -> dict[str, ColdstreamError]:
    """The streams that cannot be read, and why: of several errors of one, the first."""
    found: dict[str, ColdstreamError] = {}
    for result in results:
        if result.error is not None:
            found.setdefault(result.stream, result.error)
    return found


def encode_result(result: TaskResult) -> str:
    """As text, for the way from a worker to the driver."""
    # Schemas are not copied: a copy goes down into every type by itself.
    document = {each.name: getattr(result, each.name) for each in fields(result)}
    document["found"] = base64.b64encode(result.found.serialize().to_pybytes()).decode()
    document["survey"] = asdict(result.survey)
    for name in ("files", "dead_files"):
        document[name] = [written_json(each) for each in document[name]]
    document["error"] = None if result.error is None else error_json(result.error)
    return json.dumps(document)


def encode_results(results: Sequence[TaskResult]) -> str:
    """Those of a task as text, for the way from a worker to the driver."""
    return json.dumps([encode_result(each) for each in results])


def parse_results(text: str) -> tuple[TaskResult, ...]:
    """What `encode_results` made."""
    return tuple(map(parse_result, json.loads(text)))


def parse_result(text: str) -> TaskResult:
    """What `encode_result` made."""
    document = json.loads(text)
    document["found"] = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(document["found"])))
    document["survey"] = Survey(**document["survey"])
    for name in ("files", "dead_files"):
        document[name] = [written_from(each) for each in document[name]]
    if document["error"] is not None:
        document["error"] = error_from(document["error"])
    for name in ("covered", "lost", "unread"):
        document[name] = [tuple(span) for span in document[name]]
    return TaskResult(**document)


def spans_of(
    results: Sequence[TaskResult], name: Literal["covered", "lost", "unread"]
) -> dict[str, Ranges]:
    """What results say of offsets, by stream."""
    found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for result in results:
        found[result.stream] += getattr(result, name)
    return {stream: Ranges.of(spans) for stream, spans in found.items()}


def check_tiling(stream: str, results: Iterable[TaskResult], expected: Ranges) -> None:
    """The tasks of a stream have covered what they should, each offset once, and wrote no more.

    Raises:
        InternalError: they have not; nothing may be committed.
        ConflictError: likewise, because retention took meanwhile what two of them share.
    """
    results = list(results)
    if any((each.rows or each.dead) and not each.covered for each in results):
        reason = "the tasks did not read what was planned: one has rows of no offset"
        raise InternalError(reason, stream=stream)
    spans = sorted(span for result in results for span in result.covered)
    lost = Ranges.of(span for result in results for span in result.lost)
    for (_, end), (begin, _) in pairwise(spans):
        if begin < end:
            _refuse(lost, "two tasks read the same offset", stream, begin)
    found = Ranges.of(spans)
    if found != expected:
        wrong = (expected - found) or (found - expected)
        _refuse(lost, "the tasks did not read what was planned", stream, wrong.spans[0][0])


def _refuse(lost: Ranges, reason: str, stream: str, offset: int) -> NoReturn:
    if lost.contains(offset):
        # Each task of a fragment that is gone tells of the whole fragment: its index is gone, too.
        reason = "retention took what was being read: run again"
        raise ConflictError(reason, stream=stream, offset=offset)
    raise InternalError(reason, stream=stream, offset=offset)
