"""A read as Arrow record batches, with the columns that Spark has (`columns.schema`)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing

import pyarrow as pa

from coldstream.columns.damage import CorruptRange
from coldstream.columns.decode import Decoder
from coldstream.columns.schema import Origin, select
from coldstream.errors import ColdstreamError
from coldstream.osiris.body import parse_body_format
from coldstream.reader.follow import RangeRead
from coldstream.reader.gap import Gap


def batches(
    read: RangeRead,
    origin: tuple[str, str, str],
    columns: Sequence[str] | None,
    body_format: str,
    on_gap: Callable[[Gap], None],
) -> pa.RecordBatchReader:
    """The messages of a read; each batch has memory of its own.

    Args:
        read: not used yet.
        origin: directory, virtual host and queue.
        columns: names; the usual ones if None.
        body_format: how messages are read.
        on_gap: told of gaps in their turn.

    Raises:
        InvalidInputError: no such column or format.
    """
    selection = select(columns, parse_body_format(body_format))
    decoder = Decoder(selection, reuse=False, origin=Origin(*origin))
    return pa.RecordBatchReader.from_batches(selection.schema, _rows(read, decoder, on_gap))


def _rows(
    read: RangeRead, decoder: Decoder, on_gap: Callable[[Gap], None]
) -> Generator[pa.RecordBatch, None, None]:
    try:
        yield from _decoded(read, decoder, on_gap)
    except ColdstreamError:
        yield from decoder.flush()  # all that is sound comes before it
        raise
    yield from decoder.flush()


def _decoded(
    read: RangeRead, decoder: Decoder, on_gap: Callable[[Gap], None]
) -> Generator[pa.RecordBatch, None, None]:
    with closing(read.found()) as found:
        for each in found:
            if isinstance(each, Gap):
                yield from decoder.flush()  # who is told of it must have what stands before it
                on_gap(each)
            elif isinstance(each, CorruptRange):
                raise each.error
            else:
                checked = each.checked
                yield from decoder.decode(
                    checked.data,
                    checked.headers,
                    checked.bounds,
                    start=read.lowest,
                    end=read.end,
                )
                if checked.error is not None:
                    raise checked.error
