"""Chunks of one piece as arrays, and the columns that are the same for all messages of a chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coldstream.columns.reference import MAX_MS, MIN_MS, publishers
from coldstream.columns.schema import TIMESTAMP, Origin, Selection
from coldstream.errors import InvalidInputError
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE, Buffer, Chunk, ChunkHeader, ChunkType

_MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Run:
    """Rows of some chunks, in order; it keeps no bytes of them.

    Attributes:
        facts: of chunks that have rows; see `ChunkArrays`.
        rows: how many, of each.
        begin: record number of the first row of each.
        publishers: of each; empty unless that column is wanted.
    """

    facts: NDArray[np.int64]
    rows: NDArray[np.int64]
    begin: NDArray[np.int64]
    publishers: list[list[tuple[str, int]]]


@dataclass(frozen=True, slots=True)
class ChunkArrays:
    """Chunks as the kernel wants them: i64 arrays of one value a chunk.

    Attributes:
        data: bytes of all of them.
        address: of the first.
        headers: CHUNK_DTYPE.
        bounds: positions in `data` where they begin, and one more where the last ends.
        begin: where their entries begin,
        end: and end.
        entries: how many; none of chunks that are not for users.
        records: as above.
        first: of their records, the first that is wanted,
        last: and the one after the last.
        facts: chunk id, timestamp in us and epoch; shape (chunks, 3).
    """

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
    facts: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        data: Buffer,
        headers: NDArray[np.void],
        bounds: Sequence[int],
        start: int,
        end: int,
    ) -> ChunkArrays:
        """Chunks of which the records with offsets `start` to `end` (left out) are wanted.

        Raises:
            InvalidInputError: a chunk does not lie within its bounds, or these not within `data`.
                The kernel works on addresses, so nobody else would notice.
        """
        view = memoryview(data)
        places = np.asarray(bounds, np.int64)
        begin = places[:-1] + CHUNK_HEADER_SIZE + headers["bloom_size"]
        ends = begin + headers["data_size"]
        if (
            len(places) != len(headers) + 1
            or not 0 <= places[0] <= places[-1] <= view.nbytes
            or (ends + headers["trailer_size"] > places[1:]).any()
        ):
            raise InvalidInputError("chunks that do not lie within their bounds")
        user = headers["chunk_type"] == ChunkType.USER
        records = np.where(user, headers["records"], 0).astype(np.int64)
        ids = headers["chunk_id"].astype(np.int64)
        us = np.clip(headers["timestamp"].astype(np.int64), MIN_MS, MAX_MS) * 1000
        low, high = min(start, _MAX_INT64), min(end, _MAX_INT64)
        # Not `low - ids`: that could leave 64 bits.
        first = np.where(ids < low, np.minimum(low - np.minimum(ids, low), records), 0)
        last = np.where(ids < high, np.minimum(high - np.minimum(ids, high), records), 0)
        return cls(
            data=view,
            address=np.frombuffer(view, np.uint8).ctypes.data if len(view) else 0,
            headers=headers,
            bounds=bounds,
            begin=begin,
            end=ends,
            entries=np.where(user, headers["entries"], 0).astype(np.int64),
            records=records,
            first=first.astype(np.int64),
            last=np.maximum(first, last).astype(np.int64),
            facts=np.stack((ids, us, headers["epoch"].astype(np.int64)), axis=1),
        )

    def chunk(self, number: int) -> Chunk:
        """One of them as the plain decoder wants it."""
        header = ChunkHeader(*self.headers[number].tolist()[1:11])
        return Chunk(header, self.data[self.bounds[number] : self.bounds[number + 1]])

    def run(
        self,
        number: int,
        rows: NDArray[np.int64],
        begin: NDArray[np.int64],
        *,
        with_publishers: bool,
    ) -> Run:
        """Rows of these chunks.

        Args:
            number: of the first chunk.
            rows: how many, of each chunk from there on.
            begin: record number of the first row of each.
            with_publishers: whether trailers are to be looked at.
        """
        some = rows.nonzero()[0]
        facts = self.facts[number : number + len(rows)]
        if len(some) < len(rows):
            facts, rows, begin = facts[some], rows[some], begin[some]
        trailers = some.tolist() if with_publishers else []
        known = [publishers(self._trailer(number + each)) for each in trailers]
        # A copy, because a view would keep the arrays of the whole piece.
        return Run(facts.copy(), rows, begin, known)

    def _trailer(self, number: int) -> Buffer:
        """What tells of publishers; mostly empty."""
        size = int(self.headers[number]["trailer_size"])
        end = int(self.end[number]) + size
        return self.data[end - size : end] if size else b""


def chunk_columns(
    selection: Selection, runs: Sequence[Run], total: int, origin: Origin
) -> dict[str, pa.Array]:
    """The columns that need no message, of a batch of `total` rows."""
    chunk_ids, us, epochs = np.concatenate([run.facts for run in runs]).T
    rows = np.concatenate([run.rows for run in runs])
    made: dict[str, pa.Array] = {}
    for name, text in origin.columns().items():
        if name in selection:
            made[name] = pa.repeat(pa.scalar(text, pa.string()), total)
    if "offset" in selection:
        first = chunk_ids + np.concatenate([run.begin for run in runs])
        # The rows of a chunk count up from its first one.
        shift = first - (np.cumsum(rows) - rows)
        made["offset"] = pa.array(np.arange(total) + np.repeat(shift, rows))
    if "timestamp" in selection:
        made["timestamp"] = pa.array(np.repeat(us, rows)).view(TIMESTAMP)
    for name, values in (("chunk_id", chunk_ids), ("epoch", epochs)):
        if name in selection:
            made[name] = pa.array(np.repeat(values, rows))
    if "publishers" in selection:
        each = [known for run in runs for known in run.publishers]
        tracked = pa.array(each, selection.schema.field("publishers").type)
        made["publishers"] = tracked.take(pa.array(np.repeat(np.arange(len(rows)), rows)))
    return made
