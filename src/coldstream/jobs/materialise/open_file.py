"""A Parquet file that is being written: rows are held until there are enough for a row group.

What a reader can skip, and what it has to hold at once, is a row group; so its size is a choice of
the table's, and not what batches happened to have.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from coldstream.jobs.materialise.merge_rows import RowSource, merged_rows
from coldstream.jobs.materialise.rows import batches_of

#: A row group in memory, before it is encoded and compressed, unless the job is told otherwise.
DEFAULT_GROUP_BYTES = 64 * 2**20
#: So many batches become one: small streams give a row or two of a day at a time.
_FEW = 16
#: From so many bytes on a batch is held as it came.
_LARGE = 2**20
#: What a column of a batch costs beside its values, about.
_COLUMN_BYTES = 512


class OpenFile:
    """A file of one unit of a table.

    Where rows have an order of their own, each row group is sorted when it is full, and all of them
    are merged at the end, with a batch of each in memory.

    Args:
        unit: of time, or bucket.
        schema: of its rows.
        level: of zstd.
        order: names of the columns by which its rows are sorted; as they come by default.
    """

    def __init__(
        self, unit: int | None, schema: pa.Schema, level: int, order: Sequence[str] = ()
    ) -> None:
        self.unit = unit
        self._content: IO[bytes] | None = None
        self._writer: pq.ParquetWriter | None = None
        self._level = level
        self._order = order
        self._groups = 0
        self.rows = 0
        self.first = 2**63
        self.last = -1
        self.in_order = True
        self.held_bytes = 0
        self._schema = schema
        self._held: list[pa.RecordBatch] = []
        self._few: list[pa.RecordBatch] = []
        self._bytes = 0
        self._newest: tuple[str, int] | None = None

    def hold(
        self,
        rows: pa.RecordBatch,
        streams: pa.Array | None,
        offsets: NDArray[np.int64],
        *,
        part: bool,
    ) -> None:
        """Take in some rows, whose memory stays as it is.

        Args:
            rows: one at least.
            streams: of each of them; None where a file is of one stream.
            offsets: of each of them.
            part: whether they are the lesser part of a batch, and must not hold on to all of it.
        """
        end = len(offsets) - 1
        first = "" if streams is None else streams[0].as_py()
        last = "" if streams is None else streams[end].as_py()
        follows = self._newest is None or (first, int(offsets[0])) >= self._newest
        self.in_order &= follows and _rising(streams, offsets)
        self._newest = (last, int(offsets[end]))
        self.first = min(self.first, int(offsets.min()))
        self.last = max(self.last, int(offsets.max()))
        self.rows += rows.num_rows
        self._bytes += rows.nbytes
        self.held_bytes += rows.nbytes + _COLUMN_BYTES * rows.num_columns
        if rows.nbytes >= _LARGE and not part:
            self._together()
            self._held.append(rows)
            return
        self._few.append(pa.ipc.read_record_batch(rows.serialize(), rows.schema))
        if len(self._few) >= _FEW:
            self._together()

    def _together(self) -> None:
        """Make one batch of small ones, which cost more than their values have bytes."""
        if self._few:
            self._held.append(pa.concat_batches(self._few))
            self.held_bytes -= _COLUMN_BYTES * self._held[-1].num_columns * (len(self._few) - 1)
            self._few = []

    @property
    def size(self) -> int:
        """Bytes that it has on disk so far."""
        return 0 if self._content is None else self._content.tell()

    def flush(self) -> None:
        """Make what is held a row group. Before that there is no file: very many may be open."""
        self._together()
        if self._held:
            if self._content is None:
                self._content = tempfile.TemporaryFile()  # noqa: SIM115 - closed by who saves it
            if self._writer is None:
                self._writer = parquet_writer(self._content, self._schema, self._level)
            held = pa.Table.from_batches(self._held, self._schema)
            if self._order:
                held = held.sort_by([(name, "ascending") for name in self._order])
            self._writer.write_table(held, row_group_size=held.num_rows)
            self._groups += 1
            self._held, self.held_bytes = [], 0

    def drop(self) -> None:
        """Forget all of it."""
        if self._writer is not None:
            with suppress(Exception):  # a value that it could not write makes closing fail, too
                self._writer.close()
        if self._content is not None:
            self._content.close()

    def finish(self, group_bytes: int) -> IO[bytes]:
        """Write all that is held and the footer; the file, at its end. It has a row at least.

        Args:
            group_bytes: of a row group, as rows are in memory, where they have to be written again.
        """
        self.flush()
        assert self._writer is not None
        assert self._content is not None
        self._writer.close()
        if self._order:
            self.in_order = True
            if self._groups > 1:
                before, self._content = self._content, self._merged(self._content, group_bytes)
                before.close()
        return self._content

    def _merged(self, content: IO[bytes], group_bytes: int) -> IO[bytes]:
        """A file with sorted row groups as one sequence, anew."""
        found = pq.ParquetFile(content, pre_buffer=False)
        # As they are in memory: text that repeats is nearly nothing in the file.
        row = self._bytes // max(1, self.rows) + 1
        rows = max(1, group_bytes // self._groups // row)
        sources = [
            RowSource(
                partial(batches_of, found, self._schema, rows=rows, groups=[n]),
                found.metadata.row_group(n).num_rows,
            )
            for n in range(self._groups)
        ]
        held: list[pa.RecordBatch] = []
        after: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by who saves it
        with parquet_writer(after, self._schema, self._level) as writer:

            def flush() -> None:
                group = pa.Table.from_batches(held, self._schema)
                writer.write_table(group, row_group_size=max(1, group.num_rows))
                held.clear()

            for batch in merged_rows(sources, self._order):
                held.append(batch)
                if sum(each.nbytes for each in held) >= group_bytes:
                    flush()
            if held:
                flush()
        return after


def _rising(streams: pa.Array | None, offsets: NDArray[np.int64]) -> bool:
    """Whether rows are in the order of stream, then offset."""
    rising = offsets[1:] >= offsets[:-1]
    if streams is None:
        return bool(rising.all())
    same = pc.equal(streams[:-1], streams[1:])
    if not pc.all(pc.or_(same, pc.less(streams[:-1], streams[1:])), min_count=0).as_py():
        return False
    return bool((rising | ~same.to_numpy(zero_copy_only=False)).all())


def parquet_writer(content: IO[bytes], schema: pa.Schema, level: int) -> pq.ParquetWriter:
    """A writer of the kind of files that tables have.

    Args:
        content: takes the file.
        schema: of its rows.
        level: of zstd.
    """
    return pq.ParquetWriter(
        content,
        schema,
        compression="zstd",
        compression_level=level,
        # Bodies hardly ever repeat; trying costs more than it saves.
        use_dictionary=_dictionary_columns(schema),
        write_statistics=True,
    )


def _dictionary_columns(schema: Sequence[pa.Field]) -> list[str]:
    """Leaf columns whose values repeat: everything textual that is not a body."""
    flat: list[str] = []

    def walk(prefix: str, kind: Any) -> None:
        if pa.types.is_struct(kind):
            for each in kind:
                walk(f"{prefix}.{each.name}", each.type)
        elif pa.types.is_map(kind):
            flat.extend((f"{prefix}.key_value.key", f"{prefix}.key_value.value"))
        elif pa.types.is_string(kind):
            flat.append(prefix)

    for each in schema:
        walk(each.name, each.type)
    return flat
