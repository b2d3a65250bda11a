"""What a worker finds, as record batches: messages, chunks, tracking data, or fragments."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from coldstream.columns.damage import CorruptRange
from coldstream.columns.decode import Decoder
from coldstream.columns.schema import Selection
from coldstream.errors import CorruptDataError, LostRangeError
from coldstream.spark.stream_read import Damaged, Found, Lost, Sound
from coldstream.spark.task import Task


def messages(found: Iterator[Found], selection: Selection, stream: str) -> Iterator[pa.RecordBatch]:
    """A row for each message; for each offset that is damaged; for each gap.

    A batch is valid until the next one is asked for.
    """
    decoder = Decoder(selection, stream=stream)
    for each in found:
        if isinstance(each, Lost):
            if each.row is not None:
                first = each.row.first_offset
                error = CorruptDataError(str(each.row), stream=stream, offset=first)
                row = CorruptRange(first, first + 1, each.timestamp, error)
                yield from decoder.unreadable(row, first, first + 1)
        else:
            yield from decoded(decoder, each)
    yield from decoder.flush()


def decoded(decoder: Decoder, found: Sound | Damaged) -> Iterator[pa.RecordBatch]:
    """What is full of the rows so far and those of `found`; the rest comes with `flush`."""
    match found:
        case Sound(checked, _, first, following):
            yield from decoder.decode(
                checked.data, checked.headers, checked.bounds, start=first, end=following
            )
        case Damaged(damage, first, following):
            yield from decoder.unreadable(damage, first, following)


def judged(found: Iterator[Found], task: Task, stream: str) -> Iterator[Found]:
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
