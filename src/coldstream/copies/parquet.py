"""Parquet files with the columns that Spark has (`columns.schema`), without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from coldstream.columns.decode import Decoder
from coldstream.columns.schema import ALL, Origin, select
from coldstream.osiris.body import BodyFormat
from coldstream.reader import Gap
from coldstream.reader.fragments import FetchedChunks

#: Messages of a row group, about, and so what is held in memory.
_GROUP_BYTES = 32 * 2**20
_GROUP_ROWS = 2**18


class Parquet:
    """Writes one file, with all columns but `raw`. What does not decode is a row with an `error`.

    Args:
        path: of it; must not be there.
        origin: stream of the rows.
        body_format: how messages are read.
    """

    def __init__(self, path: Path, origin: Origin, body_format: BodyFormat) -> None:
        selection = select([name for name in ALL if name != "raw"], body_format)
        self._file = path.open("xb")
        self._decoder = Decoder(
            selection, batch_bytes=_GROUP_BYTES, batch_rows=_GROUP_ROWS, origin=origin
        )
        self._writer = pq.ParquetWriter(self._file, selection.schema, compression="zstd")
        self.messages = 0

    @property
    def size(self) -> int:
        """Bytes of the row groups so far."""
        return self._file.tell()

    def write(self, piece: FetchedChunks, start: int, end: int) -> None:
        """The messages of a piece with the offsets [start, end)."""
        checked = piece.checked
        self._put(
            self._decoder.decode(
                checked.data, checked.headers, checked.bounds, start=start, end=end
            )
        )

    def gap(self, gap: Gap) -> None:
        """Rows have offsets, so a gap shows by itself."""

    def close(self) -> None:
        """Write what waits for a row group, and the end of the file."""
        if not self._file.closed:
            with closing(self._file):  # also where the disk has no room for it
                self._put(self._decoder.flush())
                self._writer.close()

    def _put(self, batches: Iterator[pa.RecordBatch]) -> None:
        for batch in batches:
            self._writer.write_batch(batch)
            self.messages += batch.num_rows
