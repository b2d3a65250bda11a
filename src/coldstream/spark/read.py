"""What a worker does with a split: read it, and give record batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import pyarrow as pa

from coldstream.columns.schema import select
from coldstream.spark.by_index import enough
from coldstream.spark.connect import Remote, connect
from coldstream.spark.options import Rows
from coldstream.spark.plan import Split
from coldstream.spark.rows import judged, messages
from coldstream.spark.stream_read import Lost, StreamRead
from coldstream.spark.task import Task
from coldstream.spark.views import chunk_rows, fragment_rows, tracking_rows
from coldstream.spark.wire import decode_split
from coldstream.spark.worker import prepare


def read(task: Task, split: bytes) -> Iterator[pa.RecordBatch]:
    """The rows of an encoded split, with the adapters of this process.

    A batch is valid until the next one is asked for.

    Raises:
        As `read_split`.
    """
    prepare()
    yield from read_split(task, decode_split(split), connect(task.place))


def read_split(task: Task, split: Split, remote: Remote) -> Iterator[pa.RecordBatch]:
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
            judged(lost, task, planned.stream), select(task.columns), planned.stream
        )
    for number, group in groupby(split.parts, key=lambda part: part.stream):
        planned = task.streams[number]
        stream, parts = StreamRead(planned, remote), list(group)
        if task.rows is Rows.FRAGMENTS:
            yield from fragment_rows(stream, parts, task.columns)
            continue
        by_index = task.rows is Rows.MESSAGES and not task.fail_on_corrupt and enough(task.columns)
        found = judged(stream.found(parts, by_index=by_index), task, planned.stream)
        if task.rows is Rows.MESSAGES:
            yield from messages(found, select(task.columns), planned.stream)
        elif task.rows is Rows.CHUNKS:
            yield from chunk_rows(found, planned, task.columns)
        else:
            yield from tracking_rows(found, planned, task.columns)
