"""Merge small files of a table: what is planned, and what a worker does of it.

The driver says which files become one (`plan_compaction`); a worker merges a group of them into new
files that no table names yet (`compact`); the driver commits (`maintain`). A worker holds a batch
of each file and the row group that it writes, however large the files are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coldstream.errors import ColdstreamError, InternalError
from coldstream.jobs.materialise.files import ReadableFiles
from coldstream.jobs.materialise.merge_rows import RowSource, merged_rows
from coldstream.jobs.materialise.rows import batches_of
from coldstream.jobs.materialise.table import StoredFile, WrittenFile
from coldstream.jobs.materialise.worker_errors import error_from, error_json
from coldstream.jobs.materialise.write import FileLayout, TableWriter
from coldstream.jobs.materialise.written import written_from, written_json

#: Files that one task merges: each is open, and has some pages and rows in memory.
MAX_FILES = 64
#: What the batches of all files of a task may have together, about.
_BATCH_BYTES = 32 * 2**20
#: Bytes in a row that an encoded file does not show: names of streams are there once.
_ROW_BYTES = 256
#: Rows that tell how large those of a file are in memory.
_LOOKED_AT = 64
#: The longest words of a worker that are handed on.
_MAX_REASON = 2000


@dataclass(frozen=True, slots=True)
class CompactPiece:
    """Files of a table that become fewer: work for one task.

    Attributes:
        files: two at least, of one unit of time or bucket.
    """

    files: tuple[StoredFile, ...]

    def __len__(self) -> int:
        return len(self.files)

    @property
    def stream(self) -> str | None:
        """Of all their rows; None where streams share files."""
        streams = {each.stream for each in self.files}
        return streams.pop() if len(streams) == 1 else None

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(each.size for each in self.files)

    @property
    def rows(self) -> int:
        """In the files."""
        return sum(each.rows for each in self.files)

    @property
    def first_offset(self) -> int:
        """The lowest one in them."""
        return min(each.first_offset for each in self.files)

    def told(self) -> str:
        """Which files these are, in words."""
        last = max(each.last_offset for each in self.files)
        whose = self.stream or f"streams from {min(each.low_stream for each in self.files)!r} on"
        return f"{len(self.files)} files of {whose}, offsets {self.first_offset} to {last}"


@dataclass(frozen=True, slots=True)
class CompactResult:
    """What became of a piece.

    Attributes:
        files: with all its rows; none if it failed.
        error: why it failed; None if it did not.
    """

    files: tuple[WrittenFile, ...]
    error: ColdstreamError | None = None


def plan_compaction(
    files: Sequence[StoredFile],
    target_bytes: int,
    *,
    shared: bool = False,
    max_files: int = MAX_FILES,
) -> list[CompactPiece]:
    """Which files become one: neighbours of one unit of time, in the order of stream and offset.

    A file of more than half the target is left alone: rewriting it would save little. So is one of
    which others have deleted rows: their own compaction knows which.

    Args:
        files: of the table.
        target_bytes: what a file should have.
        shared: whether streams share files; otherwise those of two streams stay apart.
        max_files: that become one at once.
    """

    def place(file: StoredFile) -> tuple[str, int]:
        stream = "" if shared else file.stream or ""
        return stream, -1 if file.time_unit is None else file.time_unit

    def order(file: StoredFile) -> tuple[object, ...]:
        return (*place(file), file.low_stream, file.first_offset, file.path)

    groups: list[list[StoredFile]] = []
    for _, members in groupby(sorted(files, key=order), place):
        together: list[StoredFile] = []
        for file in members:
            if file.size > target_bytes // 2 or file.partly:
                continue
            size = sum(each.size for each in together) + file.size
            if together and (size > target_bytes or len(together) >= max_files):
                groups.append(together)
                together = []
            together.append(file)
        groups.append(together)
    return [CompactPiece(tuple(group)) for group in groups if len(group) > 1]


def compact(
    piece: CompactPiece, layout: FileLayout, files: ReadableFiles, new_id: Callable[[], str]
) -> CompactResult:
    """Do one task.

    Args:
        piece: of work.
        layout: of the table.
        files: have the files that there are, and take new ones.
        new_id: gives a name that is used once.

    Raises:
        InternalError: other rows came out than went in; nothing may be committed.
        NotFoundError: a file is gone.
        UnavailableError, PermissionDeniedError: from the store.
    """
    share = _BATCH_BYTES // len(piece.files)
    sources = [
        RowSource(
            partial(_batches, each, layout.schema, files, share),
            each.rows,
            (each.low_stream, each.first_offset if each.stream is not None else 0),
        )
        for each in piece.files
    ]
    written: list[WrittenFile] = []
    with TableWriter(layout, piece.stream, files, new_id) as writer:
        for batch in merged_rows(sources, layout.columns[:2]):
            written += writer.write(batch)
        written += writer.close()
    after = sum(each.rows for each in written)
    if after != piece.rows:
        raise InternalError(f"{piece.rows} rows became {after}")
    return CompactResult(tuple(written))


def attempted(
    piece: CompactPiece, layout: FileLayout, files: ReadableFiles, new_id: Callable[[], str]
) -> CompactResult:
    """Do one task; whatever stops it is its result, so that others are not done in vain."""
    try:
        return compact(piece, layout, files, new_id)
    except ColdstreamError as error:
        return CompactResult((), error)
    except Exception as error:  # noqa: BLE001 - of Parquet, or a full disk
        return CompactResult((), InternalError(f"{type(error).__name__}: {error}"[:_MAX_REASON]))


def _batches(
    file: StoredFile, schema: pa.Schema, files: ReadableFiles, share: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, in batches of `share` bytes, about."""
    with files.open(file.path, file.size) as content:
        # Else all of a row group is read at once, as large as its writer has made it.
        found = pq.ParquetFile(content, pre_buffer=False)
        metadata = found.metadata
        if metadata.num_rows != file.rows:
            raise InternalError(
                f"a file has {metadata.num_rows} rows and the table says {file.rows}",
                key=file.path,
            )
        groups = [metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups)]
        row = sum(groups) // max(1, metadata.num_rows) + _ROW_BYTES
        # Text that repeats is nearly nothing in a file, however long it is.
        for batch in islice(found.iter_batches(_LOOKED_AT), 1):
            row = max(row, batch.nbytes // max(1, batch.num_rows))
        yield from batches_of(found, schema, rows=int(np.clip(share // row, 1, 2**20)))


def encode_compacted(result: CompactResult) -> str:
    """As text, for the way from a worker to the driver."""
    document: dict[str, object] = {"files": [written_json(each) for each in result.files]}
    if result.error is not None:
        document["error"] = error_json(result.error)
    return json.dumps(document)


def parse_compacted(text: str) -> CompactResult:
    """What `encode_compacted` made."""
    document = json.loads(text)
    files = tuple(map(written_from, document["files"]))
    return CompactResult(files, error_from(document["error"]) if "error" in document else None)
