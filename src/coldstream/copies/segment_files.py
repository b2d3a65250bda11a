"""Segment and index files, written as a broker writes them, whole or not at all.

A file has its name only when all of it is on the disk; until then the name ends in `.part`.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from coldstream.errors import CorruptDataError
from coldstream.names import INDEX_SUFFIX, SEGMENT_SUFFIX
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE, ChunkHeader, parse_chunk_header
from coldstream.osiris.index import INDEX_DTYPE, INDEX_HEADER, INDEX_HEADER_SIZE
from coldstream.osiris.segment import (
    SEGMENT_HEADER,
    check_segment_header,
    index_name,
    parse_segment_name,
    segment_name,
)
from coldstream.plans.restore import Run, Segment
from coldstream.soundness.chunks import Checked

PART = ".part"


class SegmentWriter:
    """Writes the segments of one stream into a directory, one after the other.

    Args:
        directory: of nobody else.

    Attributes:
        current: the segment that is being written; None before the first and between two.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files = ExitStack()
        self._segment: BinaryIO | None = None
        self._index: BinaryIO | None = None
        self.current: Segment | None = None

    @property
    def size(self) -> int:
        """Bytes of the current segment."""
        return 0 if self.current is None else self.current.size

    def append(self, run: Run, chunks: Checked) -> Segment | None:
        """Write chunks behind those before, or into the next segment; the one that this ended.

        Args:
            run: where they stood.
            chunks: the same, checked.

        Raises:
            OSError: from the file system.
        """
        ended = None
        if self.current is None or not self.current.joins(run):
            ended = self.finish()
            self._begin(run.first_offset)
            position = len(SEGMENT_HEADER)
            self.current = Segment.begin(run)
        else:
            position = self.current.size
            self.current = self.current.with_run(run)
        assert self._segment is not None
        assert self._index is not None
        first, last = chunks.bounds[0], chunks.bounds[-1]
        self._segment.write(chunks.data[first:last])
        self._index.write(_index_of(chunks, position))
        return ended

    def finish(self) -> Segment | None:
        """Give the current segment its name, once all of it is on the disk; the segment."""
        ended, self.current = self.current, None
        if ended is None:
            return None
        for file in (self._segment, self._index):
            assert file is not None
            file.flush()
            os.fsync(file.fileno())
        self._files.close()
        for name in (index_name(ended.first_offset), segment_name(ended.first_offset)):
            (self._directory / (name + PART)).rename(self._directory / name)
        return ended

    def close(self) -> None:
        """Close what is open, unfinished as it is."""
        self._files.close()

    def _begin(self, first_offset: int) -> None:
        self._segment = self._open(segment_name(first_offset))
        self._index = self._open(index_name(first_offset))
        self._segment.write(SEGMENT_HEADER)
        self._index.write(INDEX_HEADER)

    def _open(self, name: str) -> BinaryIO:
        path = self._directory / (name + PART)
        return self._files.enter_context(path.open("wb", buffering=2**20))


def _index_of(chunks: Checked, position: int) -> bytes:
    """The index records of chunks that begin at a byte position of their segment."""
    headers = chunks.headers
    records = np.empty(len(headers), INDEX_DTYPE)
    records["offset"] = headers["chunk_id"]
    records["timestamp"] = headers["timestamp"]
    records["epoch"] = headers["epoch"]
    starts = np.array(chunks.bounds[: len(headers)], np.int64)
    records["position"] = starts - chunks.bounds[0] + position
    records["type"] = headers["chunk_type"]
    return records.tobytes()


@dataclass(frozen=True, slots=True)
class Written:
    """What a directory has by now.

    Attributes:
        segments: first offsets of the segments that are whole.
        size: bytes of their segment files.
        last: header of the last chunk; None if there is none.
    """

    segments: tuple[int, ...]
    size: int
    last: ChunkHeader | None

    @property
    def next_offset(self) -> int | None:
        """Where to go on; None to begin."""
        return None if self.last is None else self.last.next_offset


def remove_unfinished(directory: Path) -> None:
    """Remove what was being written when its writer was killed.

    Raises:
        CorruptDataError: there is a foreign file.
        OSError: from the file system.
    """
    names = {path.name for path in directory.iterdir()}
    for name in names:
        stem = name.removesuffix(PART)
        if not stem.endswith((SEGMENT_SUFFIX, INDEX_SUFFIX)):
            raise CorruptDataError("a foreign file", key=str(directory / name))
        # An index gets its name right before its segment.
        if name != stem or stem.replace(INDEX_SUFFIX, SEGMENT_SUFFIX) not in names:
            (directory / name).unlink()


def written(directory: Path) -> Written:
    """See what segments are whole.

    Raises:
        CorruptDataError: a file is none that `SegmentWriter` leaves, or two do not join.
        OSError: from the file system.
    """
    names = sorted(path.name for path in directory.glob(f"*{SEGMENT_SUFFIX}"))
    size, last = 0, None
    for name in names:
        first = parse_segment_name(name)
        if last is not None and last.next_offset != first:
            raise CorruptDataError(
                f"the segment before it ends at offset {last.next_offset}",
                key=str(directory / name),
            )
        last = _last_chunk(directory, first)
        size += (directory / name).stat().st_size
    return Written(tuple(map(parse_segment_name, names)), size, last)


def _last_chunk(directory: Path, first_offset: int) -> ChunkHeader:
    """The last chunk of a whole segment, by its index.

    Raises:
        CorruptDataError: segment and index do not end together.
    """
    path, index = directory / segment_name(first_offset), directory / index_name(first_offset)
    try:
        with path.open("rb") as segment, index.open("rb") as records:
            check_segment_header(segment.read(len(SEGMENT_HEADER)))
            size = os.fstat(records.fileno()).st_size
            if size < INDEX_HEADER_SIZE + INDEX_DTYPE.itemsize:
                raise CorruptDataError("an index without a record")
            records.seek(size - INDEX_DTYPE.itemsize)
            record = np.frombuffer(records.read(), INDEX_DTYPE)[0]
            segment.seek(int(record["position"]))
            header = parse_chunk_header(segment.read(CHUNK_HEADER_SIZE))
            end = int(record["position"]) + header.size
            if (
                header.chunk_id != int(record["offset"])
                or end != os.fstat(segment.fileno()).st_size
            ):
                raise CorruptDataError("segment and index do not end together")
    except (CorruptDataError, FileNotFoundError) as exc:
        reason = exc.reason if isinstance(exc, CorruptDataError) else "it has no index"
        raise CorruptDataError(reason, offset=first_offset, key=str(path)) from exc
    return header
