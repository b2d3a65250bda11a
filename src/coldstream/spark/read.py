"""What a worker does with a split: read it, and give record batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import pyarrow as pa

from coldstream.adapters.place import Remote, connect
from coldstream.bodies.apply import BodyMaker, needed
from coldstream.columns.damage import CorruptRange
from coldstream.columns.decode import Decoder
from coldstream.columns.schema import Origin, Selection, select
from coldstream.errors import CorruptDataError, LostRangeError
from coldstream.reader.by_index import enough
from coldstream.spark.metadata import fragment_rows, index_rows, stream_rows
from coldstream.spark.options import Rows
from coldstream.spark.plan import EntryPart, Split, decode_split
from coldstream.spark.process import keep_memory, prepare
from coldstream.spark.query import QueryTask
from coldstream.spark.saying import sentence_first
from coldstream.spark.stream_read import Damaged, Found, Lost, Sound, StreamRead
from coldstream.spark.streams import telling_deletion
from coldstream.spark.views import chunk_rows, tracking_rows


def read(task: QueryTask, split: bytes) -> Iterator[pa.RecordBatch]:
    """The rows of an encoded split, with the adapters of this process.

    A batch is valid until the next one is asked for.

    Raises:
        As `read_split`.
    """
    prepare()
    keep_memory()
    with sentence_first():
        if task.rows is Rows.STREAMS:
            yield stream_rows(task.items, task.columns)
        else:
            yield from read_split(task, decode_split(split), connect(task.place))


def read_split(task: QueryTask, split: Split, remote: Remote) -> Iterator[pa.RecordBatch]:
    """The rows of a split.

    Args:
        task: the query.
        split: of it.
        remote: where its streams are.

    Raises:
        LostRangeError: offsets exist nowhere, and failOnDataLoss is true.
        CorruptDataError: damaged bytes, and onCorrupt is fail; or a damaged group of a manifest.
        NotFoundError: an object is gone, and no newer manifest explains it.
        UnavailableError, PermissionDeniedError: from the adapters.
    """
    if task.gaps and task.rows is Rows.MESSAGES:
        planned = task.streams[0]
        # Nobody knows any more when they were written: as late as what came after them.
        lost = (Lost(gap, planned.first_timestamp, gap) for gap in task.gaps)
        yield from messages(
            judged(lost, task, planned.stream),
            task,
            planned.origin,
        )
    for number, group in groupby(split.parts, key=lambda part: part.stream):
        planned = task.streams[number]
        with telling_deletion(remote.catalog, planned.stream):
            yield from _rows(task, StreamRead(planned, remote), list(group))


def _rows(task: QueryTask, stream: StreamRead, parts: list[EntryPart]) -> Iterator[pa.RecordBatch]:
    """The rows of parts of one stream."""
    planned = stream.planned
    if task.rows is Rows.FRAGMENTS:
        yield from fragment_rows(stream, parts, task.columns)
        return
    if task.rows is Rows.INDEX:
        yield from index_rows(stream, parts, task)
        return
    by_index = task.rows is Rows.MESSAGES and not task.fail_on_corrupt and enough(task.columns)
    found = judged(stream.found(parts, by_index=by_index), task, planned.stream)
    if task.rows is Rows.MESSAGES:
        yield from messages(found, task, planned.origin)
    elif task.rows is Rows.CHUNKS:
        yield from chunk_rows(found, planned, task.columns)
    else:
        yield from tracking_rows(found, planned, task.columns)


def messages(found: Iterator[Found], task: QueryTask, origin: Origin) -> Iterator[pa.RecordBatch]:
    """A row for each message; for each offset that is damaged; for each gap.

    A batch is valid until the next one is asked for.
    """
    if not task.steps.any:
        yield from _messages(found, select(task.columns, task.body_format), origin)
        return
    maker, wanted = BodyMaker(task.steps), select(task.columns).schema
    selection = select(needed(task.steps, task.columns), task.body_format)
    for batch in _messages(found, selection, origin):
        yield from maker.made(batch, wanted)


def _messages(
    found: Iterator[Found], selection: Selection, origin: Origin
) -> Iterator[pa.RecordBatch]:
    decoder = Decoder(selection, origin=origin)
    for each in found:
        if isinstance(each, Lost):
            if each.row is not None:
                first = each.row.first_offset
                error = CorruptDataError(str(each.row), stream=origin.stream, offset=first)
                row = CorruptRange(first, first + 1, each.timestamp, error)
                yield from decoder.unreadable(row, first, first + 1)
        else:
            yield from decoded(decoder, each)
    yield from decoder.flush()


def decoded(decoder: Decoder, found: Sound | Damaged) -> Iterator[pa.RecordBatch]:
    """What is full of the rows so far and those of `found`; the rest comes with `flush`."""
    match found:
        case Sound(checked, _, first, next_offset):
            yield from decoder.decode(
                checked.data, checked.headers, checked.bounds, start=first, end=next_offset
            )
        case Damaged(damage, first, next_offset):
            yield from decoder.unreadable(damage, first, next_offset)


def judged(found: Iterator[Found], task: QueryTask, stream: str) -> Iterator[Found]:
    """The same, unless a loss or damage is to stop the query.

    Raises:
        LostRangeError: offsets exist nowhere, and failOnDataLoss is true.
        CorruptDataError: damaged bytes, and onCorrupt is fail.
    """
    for each in found:
        if isinstance(each, Lost) and task.fail_on_data_loss:
            raise LostRangeError(
                f"{each.gap}; option failOnDataLoss=false makes it a row with an error",
                stream=stream,
                offset=each.gap.first_offset,
            )
        if isinstance(each, Damaged) and task.fail_on_corrupt:
            raise each.damage.error
        yield each
