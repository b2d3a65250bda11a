"""The fast decoder: checked chunks to Arrow record batches, without a Python object for a message.

The C kernel finds the messages of many chunks in one call and decodes them into the buffers of the
batch in another. What it leaves (damaged messages, rare values) is decoded by `reference`, row by
row, and put in its place. Buffers are made once and used again: the page faults of fresh memory
would cost more than decoding.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import coldstream_kernel as kernel
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coldstream.columns.assemble import Assembler
from coldstream.columns.damage import CorruptRange
from coldstream.columns.reference import MAX_MS, MIN_MS, OF_CHUNK, clamped_us, publishers
from coldstream.columns.schema import TIMESTAMP, Selection
from coldstream.errors import CorruptDataError, InternalError, InvalidInputError
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE, Buffer, Chunk, ChunkHeader, ChunkType
from coldstream.osiris.entry import iter_messages, sub_batch_at

#: No more bytes of messages go into one batch: Arrow's offsets have 31 bits, and text grows.
MAX_BATCH_BYTES = 256 * 2**20
_MOST = 2**63 - 1


@dataclass(slots=True)
class _Chunks:
    """The chunks of one piece, as arrays for the kernel (i64, one value a chunk)."""

    data: memoryview
    address: int
    headers: NDArray[np.void]
    bounds: Sequence[int]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    entries: NDArray[np.int64]
    records: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]

    def chunk(self, number: int) -> Chunk:
        """One of them as the plain decoder wants it."""
        header = ChunkHeader(*self.headers[number].tolist()[1:11])
        return Chunk(header, self.data[self.bounds[number] : self.bounds[number + 1]])

    def trailer(self, number: int) -> Buffer:
        """What tells of publishers; mostly empty."""
        size = int(self.headers[number]["trailer_size"])
        end = self.bounds[number + 1]
        return self.data[end - size : end] if size else b""


@dataclass(slots=True)
class _Batch:
    """Rows that wait until there are enough of them.

    Attributes:
        runs: where rows come from: chunks, number of the first of them, rows of each from there on,
            and record number of the first row of each.
        rows: how many.
        bytes: of their messages.
        wrong: rows without a message: (first, after the last, reason).
        kept: inflated sub-batches that addresses point into.
    """

    runs: list[tuple[_Chunks, int, NDArray[np.int64], NDArray[np.int64]]] = field(
        default_factory=list
    )
    rows: int = 0
    bytes: int = 0
    wrong: list[tuple[int, int, str]] = field(default_factory=list)
    kept: list[object] = field(default_factory=list)

    def reason(self, row: int) -> str | None:
        """Why a row has no message; None if it has one."""
        return next((why for first, end, why in self.wrong if first <= row < end), None)


class Decoder:
    """Turns chunks into record batches.

    Args:
        selection: columns.
        batch_bytes: a batch has about so many bytes of messages; one message always fits.
        batch_rows: and at most so many rows.
        reuse: a batch is overwritten when the next one is asked for. Otherwise each has memory of
            its own.
        stream: what the column `stream` says.
    """

    def __init__(
        self,
        selection: Selection,
        *,
        batch_bytes: int = 4 * 2**20,
        batch_rows: int = 2**17,
        reuse: bool = True,
        stream: str = "",
    ) -> None:
        if not 1 <= batch_bytes <= MAX_BATCH_BYTES or batch_rows < 1:
            raise InvalidInputError(
                f"a batch has 1 to {MAX_BATCH_BYTES} bytes and at least one row"
            )
        self._selection = selection
        self._stream = stream
        self._batch_bytes = batch_bytes
        self._batch_rows = batch_rows
        self._of_chunk = OF_CHUNK.issuperset(selection.names)
        self._messages = np.zeros(0 if self._of_chunk else batch_rows, np.uint64)
        self._lengths = np.zeros(len(self._messages), np.int32)
        self._assembler = Assembler(selection, reuse=reuse)
        self._batch = _Batch()

    def decode(
        self,
        data: Buffer,
        headers: NDArray[np.void],
        bounds: Sequence[int],
        *,
        start: int = 0,
        end: int = 2**63,
    ) -> Iterator[pa.RecordBatch]:
        """Rows of chunks, as many full batches as they give; the rest stays for the next call.

        Args:
            data: bytes of whole chunks, checked as `reader.check` does: CRCs, and headers that
                agree with the index.
            headers: of these chunks, CHUNK_DTYPE.
            bounds: positions in `data` where they begin, and one more where the last ends.
            start: rows below this offset are left out,
            end: and rows from this one on.
        """
        chunks = _chunks(data, headers, bounds, start, end)
        if self._of_chunk:
            yield from self._without_messages(chunks)
        else:
            yield from self._with_messages(chunks)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """What is left over, if anything."""
        if self._batch.rows:
            yield self._finished()

    def unreadable(self, damage: CorruptRange, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Rows for offsets that nobody can read: an offset, a time and an error.

        What waits for a batch comes first, so rows stay in order.

        Args:
            damage: the offsets.
            start: those below this one are left out,
            end: and those from this one on.
        """
        yield from self.flush()
        first, following = max(damage.first_offset, start), min(damage.next_offset, end)
        reason, timestamp = damage.error.reason, damage.timestamp
        schema = self._selection.schema
        us = clamped_us(timestamp)
        for begin in range(first, following, self._batch_rows):
            rows = min(self._batch_rows, following - begin)
            known = {
                "stream": pa.scalar(self._stream),
                "timestamp": pa.scalar(us, TIMESTAMP),
                "error": pa.scalar(reason),
            }
            columns = [
                pa.array(np.arange(begin, begin + rows))
                if each.name == "offset"
                else pa.repeat(known.get(each.name, pa.scalar(None, each.type)), rows)
                for each in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    # Columns of chunks only: no entry is looked at.

    def _without_messages(self, chunks: _Chunks) -> Iterator[pa.RecordBatch]:
        first, last = chunks.first, chunks.last
        number, done = 0, 0
        while number < len(first):
            room = self._batch_rows - self._batch.rows
            counts = last[number:] - first[number:]
            counts[0] -= done
            totals = np.cumsum(counts)
            whole = int(np.searchsorted(totals, room, side="right"))
            taken = counts[: whole + 1].copy()
            if whole < len(counts):
                taken[whole] = room - (int(totals[whole - 1]) if whole else 0)
            begin = first[number : number + len(taken)].copy()
            begin[0] += done
            self._batch.runs.append((chunks, number, taken, begin))
            self._batch.rows += int(taken.sum())
            if whole:
                number, done = number + whole, 0
            if whole < len(counts):
                done += int(taken[whole])
                yield self._finished()

    # Columns of messages.

    def _with_messages(self, chunks: _Chunks) -> Iterator[pa.RecordBatch]:
        walk = kernel.Walk(
            data=chunks.address,
            begin=chunks.begin.ctypes.data,
            end=chunks.end.ctypes.data,
            entries=chunks.entries.ctypes.data,
            records=chunks.records.ctypes.data,
            first=chunks.first.ctypes.data,
            last=chunks.last.ctypes.data,
            chunks=len(chunks.begin),
            position=-1,
            messages=self._messages.ctypes.data,
            lengths=self._lengths.ctypes.data,
        )
        while True:
            number = walk.chunk
            begin = chunks.first[number:].copy()
            if walk.position >= 0:
                begin[0] = max(int(begin[0]), walk.record)
            status = self._walk(walk, chunks, number, begin)
            if status == kernel.END:
                return
            if status == kernel.FULL:
                yield self._finished()
            elif status == kernel.SUB_BATCH:
                yield from self._sub_batch(chunks, walk)
            else:
                yield from self._damaged(chunks, walk)

    def _walk(
        self, walk: kernel.Walk, chunks: _Chunks, number: int, begin: NDArray[np.int64]
    ) -> int:
        """Let the kernel find messages, and remember of which chunks they are.

        Args:
            walk: where it is, and what it walks: chunks, or one sub-batch.
            chunks: to which the rows belong,
            number: from this one on.
            begin: record number of the first row of each chunk that may come.
        """
        batch = self._batch
        first = walk.chunk
        rows = np.zeros(walk.chunks, np.int64)
        walk.rows = rows.ctypes.data
        walk.room, walk.most_bytes = self._batch_rows, self._batch_bytes
        walk.found, walk.bytes = batch.rows, batch.bytes
        status: int = kernel.library().coldstream_walk(ctypes.byref(walk))
        if walk.found > batch.rows:
            added = rows[first : walk.chunk + 1]
            batch.runs.append((chunks, number, added, begin[: len(added)]))
            batch.rows, batch.bytes = walk.found, walk.bytes
        return status

    def _sub_batch(self, chunks: _Chunks, walk: kernel.Walk) -> Iterator[pa.RecordBatch]:
        """The messages of one sub-batch; or the rest of the chunk is damaged."""
        number = walk.chunk
        view = chunks.data[: chunks.end[number]]
        spare = (
            int(chunks.records[number]) - walk.record - (int(chunks.entries[number]) - walk.entry)
        )
        try:
            records, inflated, position = sub_batch_at(view, walk.position)
        except CorruptDataError:
            yield from self._damaged(chunks, walk)
            return
        if records - 1 > spare:
            yield from self._damaged(chunks, walk)
            return
        # Its messages are walked as a chunk of their own: the same format, simple entries only.
        bounds = np.array([0, len(inflated), records, records], np.int64)
        wanted = np.clip(
            np.array([chunks.first[number], chunks.last[number]]) - walk.record, 0, records
        )
        address = np.frombuffer(inflated, np.uint8).ctypes.data
        inner = kernel.Walk(
            data=address,
            begin=bounds[0:].ctypes.data,
            end=bounds[1:].ctypes.data,
            entries=bounds[2:].ctypes.data,
            records=bounds[3:].ctypes.data,
            first=wanted[0:].ctypes.data,
            last=wanted[1:].ctypes.data,
            chunks=1,
            position=-1,
            messages=self._messages.ctypes.data,
            lengths=self._lengths.ctypes.data,
        )
        while True:
            self._batch.kept.append(inflated)
            done = inner.record if inner.position >= 0 else 0
            begin = max(done, int(wanted[0])) + walk.record
            status = self._walk(inner, chunks, number, np.array([begin], np.int64))
            if status != kernel.FULL:
                break
            yield self._finished()
        if status == kernel.END and inner.stopped == len(inflated):
            walk.position = position
            walk.entry += 1
            walk.record += records
            return
        walk.record += records if status == kernel.END else inner.record
        yield from self._damaged(chunks, walk)

    def _damaged(self, chunks: _Chunks, walk: kernel.Walk) -> Iterator[pa.RecordBatch]:
        """All records of the chunk from here on become rows with an error."""
        number = walk.chunk
        reason = _reason(chunks.chunk(number))
        record = max(walk.record, int(chunks.first[number]))
        last = int(chunks.last[number])
        while record < last:
            room = self._batch_rows - self._batch.rows
            if not room:
                yield self._finished()
                continue
            taken = min(room, last - record)
            begin = self._batch.rows
            self._batch.runs.append(
                (chunks, number, np.array([taken], np.int64), np.array([record], np.int64))
            )
            self._batch.wrong.append((begin, begin + taken, reason))
            if not self._of_chunk:
                self._lengths[begin : begin + taken] = 0
            self._batch.rows += taken
            record += taken
        walk.chunk += 1
        walk.position = -1

    def _finished(self) -> pa.RecordBatch:
        batch, self._batch = self._batch, _Batch()
        made = chunk_columns(self._selection, batch.runs, batch.rows, self._stream)
        if not self._of_chunk:
            made |= self._assembler.columns(
                self._messages[: batch.rows],
                self._lengths[: batch.rows],
                batch.reason,
                bool(batch.wrong),
            )
        schema = self._selection.schema
        return pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)


def chunk_columns(
    selection: Selection,
    runs: Sequence[tuple[_Chunks, int, NDArray[np.int64], NDArray[np.int64]]],
    total: int,
    stream: str,
) -> dict[str, pa.Array]:
    """The columns that are the same for all messages of a chunk, and the offsets."""
    headers = np.concatenate([c.headers[n : n + len(rows)] for c, n, rows, _ in runs])
    rows = np.concatenate([rows for _, _, rows, _ in runs])
    made: dict[str, pa.Array] = {}
    if "stream" in selection:
        made["stream"] = pa.repeat(pa.scalar(stream, pa.string()), total)
    if "offset" in selection:
        first = headers["chunk_id"].astype(np.int64) + np.concatenate([b for *_, b in runs])
        # The rows of a chunk count up from its first one.
        shift = first - (np.cumsum(rows) - rows)
        made["offset"] = pa.array(np.arange(total) + np.repeat(shift, rows))
    if "timestamp" in selection:
        us = np.clip(headers["timestamp"].astype(np.int64), MIN_MS, MAX_MS) * 1000
        made["timestamp"] = pa.array(np.repeat(us, rows)).cast(TIMESTAMP)
    for name in ("chunk_id", "epoch"):
        if name in selection:
            made[name] = pa.array(np.repeat(headers[name].astype(np.int64), rows))
    if "publishers" in selection:
        each = [publishers(c.trailer(n + k)) for c, n, r, _ in runs for k in range(len(r))]
        known = pa.array(each, selection.schema.field("publishers").type)
        made["publishers"] = known.take(pa.array(np.repeat(np.arange(len(rows)), rows)))
    return made


def _chunks(
    data: Buffer, headers: NDArray[np.void], bounds: Sequence[int], start: int, end: int
) -> _Chunks:
    view = memoryview(data)
    places = np.asarray(bounds[: len(headers)], np.int64)
    begin = places + CHUNK_HEADER_SIZE + headers["bloom_size"]
    user = headers["chunk_type"] == ChunkType.USER
    records = np.where(user, headers["records"], 0).astype(np.int64)
    ids = headers["chunk_id"].astype(np.int64)
    low, high = min(start, _MOST), min(end, _MOST)
    # Not `low - ids`: that could leave 64 bits.
    first = np.where(ids < low, np.minimum(low - np.minimum(ids, low), records), 0)
    last = np.where(ids < high, np.minimum(high - np.minimum(ids, high), records), 0)
    return _Chunks(
        data=view,
        address=np.frombuffer(view, np.uint8).ctypes.data if len(view) else 0,
        headers=headers,
        bounds=bounds,
        begin=begin,
        end=begin + headers["data_size"],
        entries=np.where(user, headers["entries"], 0).astype(np.int64),
        records=records,
        first=first.astype(np.int64),
        last=np.maximum(first, last).astype(np.int64),
    )


def _reason(chunk: Chunk) -> str:
    """What is wrong with a chunk's entries, in the plain decoder's words."""
    try:
        for _ in iter_messages(chunk):
            pass
    except CorruptDataError as exc:
        return exc.reason
    raise InternalError("the kernel and the plain decoder disagree about a chunk")
