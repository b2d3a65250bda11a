"""The fast decoder: checked chunks to Arrow record batches, without a Python object for a message.

The C kernel finds the messages of many chunks in one call and decodes them into the buffers of the
batch in another. What it leaves (damaged messages, rare values) is decoded by `reference`, row by
row, and put in its place. Buffers are made once and used again: the page faults of fresh memory
would cost more than decoding.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import coldstream_kernel as kernel
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coldstream.columns.assemble import Assembler
from coldstream.columns.chunks import ChunkArrays, Run, chunk_columns
from coldstream.columns.damage import CorruptRange
from coldstream.columns.reference import OF_CHUNK, clamped_us
from coldstream.columns.schema import NO_ORIGIN, TIMESTAMP, Origin, Selection
from coldstream.errors import CorruptDataError, InternalError, InvalidInputError
from coldstream.osiris.chunk import Buffer, Chunk
from coldstream.osiris.entry import iter_messages, sub_batch_at

#: No more bytes of messages go into one batch: Arrow's offsets have 31 bits, and text grows.
MAX_BATCH_BYTES = 256 * 2**20
#: Bytes that waiting rows may hold on to; then they wait no longer for others.
_MAX_KEPT = 64 * 2**20


@dataclass(slots=True)
class _Batch:
    """Rows that wait until there are enough of them.

    Attributes:
        runs: where rows come from.
        rows: how many.
        bytes: of their messages.
        wrong: rows without a message, in order: (first, after the last, reason).
        kept: pieces and inflated sub-batches that addresses point into,
        kept_bytes: and their size, which may be much more than that of their messages.
    """

    runs: list[Run] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    wrong: list[tuple[int, int, str]] = field(default_factory=list)
    kept: list[memoryview] = field(default_factory=list)
    kept_bytes: int = 0

    def reason(self, row: int) -> str | None:
        """Why a row has no message; None if it has one."""
        at = bisect_right(self.wrong, row, key=itemgetter(0)) - 1
        if at < 0:
            return None
        _, end, why = self.wrong[at]
        return why if row < end else None


class Decoder:
    """Turns chunks into record batches.

    Args:
        selection: columns.
        batch_bytes: bytes of messages in a batch, about; one message always fits.
        batch_rows: the most rows in a batch.
        reuse: a batch is overwritten when the next one is asked for. Otherwise its memory is used
            again when nobody holds it any more.
        origin: stream of the rows.
    """

    def __init__(
        self,
        selection: Selection,
        *,
        batch_bytes: int = 4 * 2**20,
        batch_rows: int = 2**17,
        reuse: bool = True,
        origin: Origin = NO_ORIGIN,
    ) -> None:
        if not 1 <= batch_bytes <= MAX_BATCH_BYTES or batch_rows < 1:
            raise InvalidInputError(
                f"a batch has 1 to {MAX_BATCH_BYTES} bytes and at least one row"
            )
        self._selection = selection
        self._origin = origin
        self._batch_bytes = batch_bytes
        self._batch_rows = batch_rows
        self._of_chunk = OF_CHUNK.issuperset(selection.names)
        self._messages = np.zeros(0 if self._of_chunk else batch_rows, np.uint64)
        self._lengths = np.zeros(len(self._messages), np.int32)
        #: For the kernel to count in; zero between calls.
        self._rows = np.zeros(1, np.int64)
        #: What a sub-batch is as a chunk: begin, end, entries, first and last that is wanted.
        self._inner = np.zeros(5, np.int64)
        self._inner_addresses = [self._inner.ctypes.data + 8 * n for n in range(5)]
        self._publishers = "publishers" in selection
        self._assembler = Assembler(
            selection, batch_bytes=batch_bytes, batch_rows=batch_rows, reuse=reuse
        )
        self._batch = _Batch()
        self._given: tuple[_Batch, NDArray[np.int64]] | None = None
        #: Of all messages in batches so far.
        self.bytes = 0

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
            data: bytes of whole chunks, checked as `soundness.chunks` does: CRCs, and headers that
                agree with the index.
            headers: of these chunks, CHUNK_DTYPE.
            bounds: positions in `data` where they begin, and one more where the last ends.
            start: rows below this offset are left out,
            end: and rows from this one on.
        """
        chunks = ChunkArrays.of(data, headers, bounds, start, end)
        if self._of_chunk:
            yield from self._without_messages(chunks)
        else:
            yield from self._with_messages(chunks)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """What is left over, if anything."""
        if self._batch.rows:
            yield from self._full()

    def raw(self, offsets: pa.Array) -> pa.Array:
        """The bytes of some messages of the last batch, before the next is asked for.

        For who wants those of a few rows only: as a column they are a copy of everything.

        Args:
            offsets: of the messages; the selection has the column `offset` and some of messages.

        Returns:
            Null where the batch has no such message, or one that cannot be read.
        """
        found: list[bytes | None] = [None] * len(offsets)
        if self._given is not None:
            batch, known = self._given
            rows = np.searchsorted(known, offsets.to_numpy())
            for number, row in enumerate(rows.tolist()):
                if row == batch.rows or known[row] != offsets[number].as_py():
                    continue
                if batch.reason(row) is None:
                    address, length = int(self._messages[row]), int(self._lengths[row])
                    found[number] = ctypes.string_at(address, length)
        return pa.array(found, pa.binary())

    def unreadable(self, damage: CorruptRange, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Rows for offsets that nobody can read: an offset, a time and an error.

        What waits for a batch comes first, so rows stay in order.

        Args:
            damage: the offsets.
            start: those below this one are left out,
            end: and those from this one on.
        """
        yield from self.flush()
        first, next_offset = max(damage.first_offset, start), min(damage.next_offset, end)
        reason, timestamp = damage.error.reason, damage.timestamp
        schema = self._selection.schema
        us = clamped_us(timestamp)
        for begin in range(first, next_offset, self._batch_rows):
            rows = min(self._batch_rows, next_offset - begin)
            known = {
                **{n: pa.scalar(v, pa.string()) for n, v in self._origin.columns().items()},
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

    def _without_messages(self, chunks: ChunkArrays) -> Iterator[pa.RecordBatch]:
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
            self._add(chunks, number, taken, begin)
            if whole:
                number, done = number + whole, 0
            if whole < len(counts):
                done += int(taken[whole])
                yield from self._full()

    # Columns of messages.

    def _with_messages(self, chunks: ChunkArrays) -> Iterator[pa.RecordBatch]:
        if len(self._rows) < len(chunks.begin):
            self._rows = np.zeros(len(chunks.begin), np.int64)
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
            rows=self._rows.ctypes.data,
        )
        while True:
            number = walk.chunk
            done = walk.record if walk.position >= 0 else 0
            status, rows = self._walk(walk, chunks.data)
            if rows is not None:
                begin = chunks.first[number : number + len(rows)].copy()
                begin[0] = max(int(begin[0]), done)
                self._add(chunks, number, rows, begin)
            if status == kernel.END:
                break
            if status == kernel.FULL:
                yield from self._full()
            elif status == kernel.SUB_BATCH:
                yield from self._sub_batch(chunks, walk)
            else:
                yield from self._damaged(chunks, walk)
        if self._batch.kept_bytes > _MAX_KEPT:
            yield from self._full()

    def _walk(self, walk: kernel.Walk, memory: memoryview) -> tuple[int, NDArray[np.int64] | None]:
        """Let the kernel find messages.

        Args:
            walk: where it is, and what it walks: chunks, or one sub-batch.
            memory: what the addresses of messages point into.

        Returns:
            Why the kernel stopped, and how many rows it has found in each chunk, from the one in
            which it began; None if it has found none at all.
        """
        batch, first = self._batch, walk.chunk
        walk.room, walk.most_bytes = self._batch_rows, self._batch_bytes
        walk.found, walk.bytes = batch.rows, batch.bytes
        status: int = kernel.library().coldstream_walk(ctypes.byref(walk))
        if walk.found == batch.rows:
            return status, None
        found = self._rows[first : min(walk.chunk + 1, walk.chunks)]
        rows = found.copy()
        found[:] = 0
        batch.bytes = walk.bytes
        if not batch.kept or batch.kept[-1] is not memory:
            batch.kept.append(memory)
            batch.kept_bytes += memory.nbytes
        return status, rows

    def _sub_batch(self, chunks: ChunkArrays, walk: kernel.Walk) -> Iterator[pa.RecordBatch]:
        """The messages of one sub-batch; or the rest of the chunk is damaged."""
        number, before = walk.chunk, walk.record
        spare = int(chunks.records[number]) - before - (int(chunks.entries[number]) - walk.entry)
        view = chunks.data[: chunks.end[number]]
        try:
            records, inflated, position = sub_batch_at(view, walk.position)
        except CorruptDataError:
            yield from self._damaged(chunks, walk)
            return
        if records - 1 > spare:
            yield from self._damaged(chunks, walk)
            return
        # Its messages are walked as a chunk of their own: the same format, simple entries only.
        first = min(max(int(chunks.first[number]) - before, 0), records)
        last = min(max(int(chunks.last[number]) - before, 0), records)
        self._inner[:] = (0, len(inflated), records, first, last)
        begin, end, count, wanted, unwanted = self._inner_addresses
        inner = kernel.Walk(
            data=np.frombuffer(inflated, np.uint8).ctypes.data,
            begin=begin,
            end=end,
            entries=count,
            records=count,
            first=wanted,
            last=unwanted,
            chunks=1,
            position=-1,
            messages=walk.messages,
            lengths=walk.lengths,
            rows=walk.rows,
        )
        while True:
            done = inner.record if inner.position >= 0 else 0
            status, rows = self._walk(inner, inflated)
            if rows is not None:
                self._add_to_one(chunks, number, int(rows[0]), before + max(done, first))
            if status != kernel.FULL:
                break
            yield from self._full()
        if status == kernel.END and inner.stopped == len(inflated):
            walk.position = position
            walk.entry += 1
            walk.record += records
            return
        walk.record += records if status == kernel.END else inner.record
        yield from self._damaged(chunks, walk)

    def _damaged(self, chunks: ChunkArrays, walk: kernel.Walk) -> Iterator[pa.RecordBatch]:
        """All records of the chunk from here on become rows with an error."""
        number = walk.chunk
        reason = _reason(chunks.chunk(number))
        record = max(walk.record, int(chunks.first[number]))
        last = int(chunks.last[number])
        while record < last:
            room = self._batch_rows - self._batch.rows
            if not room:
                yield from self._full()
                continue
            taken = min(room, last - record)
            begin = self._batch.rows
            self._batch.wrong.append((begin, begin + taken, reason))
            self._lengths[begin : begin + taken] = 0
            self._add_to_one(chunks, number, taken, record)
            record += taken
        walk.chunk += 1
        walk.position = -1

    def _add(
        self, chunks: ChunkArrays, number: int, rows: NDArray[np.int64], begin: NDArray[np.int64]
    ) -> None:
        """Remember of which chunks the next rows are; see `Chunks.run`."""
        run = chunks.run(number, rows, begin, with_publishers=self._publishers)
        if len(run.rows):
            self._batch.runs.append(run)
            self._batch.rows += int(run.rows.sum())

    def _add_to_one(self, chunks: ChunkArrays, number: int, rows: int, begin: int) -> None:
        """The same for rows of one chunk."""
        counts, begins = np.array([[rows], [begin]], np.int64)
        self._add(chunks, number, counts, begins)

    def _full(self) -> Iterator[pa.RecordBatch]:
        """What waits, as a batch; its messages stay where they are until the next is asked for."""
        batch, self._batch = self._batch, _Batch()
        made = self._made(batch)
        self.bytes += batch.bytes
        if not self._of_chunk and "offset" in self._selection:
            self._given = batch, made.column("offset").to_numpy()
        yield made
        self._given = None

    def _made(self, batch: _Batch) -> pa.RecordBatch:
        made = chunk_columns(self._selection, batch.runs, batch.rows, self._origin)
        if not self._of_chunk:
            made |= self._assembler.columns(
                self._messages[: batch.rows],
                self._lengths[: batch.rows],
                batch.reason,
                bool(batch.wrong),
            )
        schema = self._selection.schema
        return pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)


def _reason(chunk: Chunk) -> str:
    """What is wrong with a chunk's entries, in the plain decoder's words."""
    try:
        for _ in iter_messages(chunk):
            pass
    except CorruptDataError as exc:
        return exc.reason
    raise InternalError("the kernel and the plain decoder disagree about a chunk")
