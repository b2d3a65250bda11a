"""A stream's directory on disk, seen through its index files.

A chunk exists only when its index record does (rule R1 of docs/architecture.md), so nothing here
scans segment data. Files are opened by path for every look: a broker truncates and rewrites them in
place after a fail-over, and a file that was kept open could be another history.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coldstream.agent.disk.files import DISK, LogFiles
from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.names import INDEX_SUFFIX, MAX_OFFSET, SEGMENT_SUFFIX
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE, ChunkType, parse_chunk_header
from coldstream.osiris.index import INDEX_DTYPE, INDEX_HEADER_SIZE, check_index, index_records
from coldstream.osiris.segment import (
    SEGMENT_HEADER_SIZE,
    check_segment_header,
    index_name,
    parse_segment_name,
    segment_name,
)
from coldstream.plans.claim import LocalChunk
from coldstream.plans.cut import SegmentView

#: Tracking chunks come one by one between messages.
_FEW_RECORDS = 64
#: A segment rolls after 256,000 chunks; a much longer index is not the broker's.
MAX_INDEX_SIZE = INDEX_HEADER_SIZE + 4_000_000 * INDEX_DTYPE.itemsize


class LoneSegmentError(CorruptDataError):
    """A segment has no index: damage, or a directory that is being removed just now."""


@dataclass(frozen=True, slots=True)
class StreamLog:
    """One stream directory.

    Args:
        directory: that holds NNN.segment and NNN.index files.
        files: where the directory is.
    """

    directory: Path
    files: LogFiles = DISK

    @property
    def stream(self) -> str:
        """The directory's name, which is the stream's."""
        return self.directory.name

    def segments(self) -> list[int]:
        """First offsets of the segments that have an index, in rising order."""
        names = set(self.files.names(self.directory))
        found = []
        for name in names:
            first = name[:20]
            # Anything else is a foreign file.
            if (
                name[20:] == SEGMENT_SUFFIX
                and first + INDEX_SUFFIX in names
                and first.isascii()
                and first.isdecimal()
                and int(first) <= MAX_OFFSET
            ):
                found.append(int(first))
        found.sort()
        return found

    def check_indexes(self, since: int) -> None:
        """Every segment that begins at or above `since` has its index.

        The broker makes an index before its segment. It removes them in that order too, but only
        the oldest; so above what is uploaded a lone segment is damage, and never nothing.

        Raises:
            LoneSegmentError: names the first segment without an index.
        """
        names = set(self.files.names(self.directory))
        for name in sorted(names):
            if not name.endswith(SEGMENT_SUFFIX):
                continue
            if name.removesuffix(SEGMENT_SUFFIX) + INDEX_SUFFIX in names:
                continue
            try:
                first = parse_segment_name(name)
            except (CorruptDataError, InvalidInputError):
                continue  # a foreign file
            if first >= since:
                raise LoneSegmentError(
                    "a segment without its index; what it holds cannot be known",
                    stream=self.stream,
                    offset=first,
                    key=str(self.directory / name),
                )

    def is_there(self, first_offset: int) -> bool:
        """Whether the broker still has a segment; what is only held of it does not count.

        Raises:
            OSError: the directory cannot be read.
        """
        try:
            self.files.stamp(self.directory, index_name(first_offset))
        except FileNotFoundError:
            return False
        return True

    def segment_path(self, first_offset: int) -> Path:
        """Path of a segment file."""
        return self.directory / segment_name(first_offset)

    def index_size(self, first_offset: int) -> int:
        """Bytes of an index file now."""
        with self.files.open(self.directory, index_name(first_offset)) as file:
            return file.size()

    def index_path(self, first_offset: int) -> Path:
        """Path of an index file."""
        return self.directory / index_name(first_offset)

    def view(
        self, first_offset: int, *, since: int, closed: bool, skip: int = 0
    ) -> SegmentView | None:
        """The chunks of one segment from offset `since` on; None if there are none.

        Args:
            first_offset: of the segment.
            since: offset of the first chunk that is wanted.
            closed: whether a newer segment exists.
            skip: records before it, as an earlier view said; they are not read again. If another
                record is there (the broker has truncated the file), the whole index is read.

        Raises:
            CorruptDataError: index and segment contradict each other, or no chunk begins at
                `since` although chunks lie on both sides of it.
        """
        try:
            records = self._records(first_offset, skip)
            if skip and (not len(records) or int(records["offset"][0]) != since):
                skip, records = 0, self._records(first_offset, 0)
            if not len(records):
                return None
            if not skip and int(records["offset"][0]) != first_offset:
                raise CorruptDataError("the first index record is not the file's name")
            check_index(records)
            end_position, next_offset = self._end_of(first_offset, records[-1])
            at = int(np.searchsorted(records["offset"], np.uint64(since)))
            if at == len(records):
                if since < next_offset:
                    raise CorruptDataError("no chunk begins here", offset=since)
                return None
            if at > 0 and int(records["offset"][at]) != since:
                raise CorruptDataError("no chunk begins here", offset=since)
        except CorruptDataError as exc:
            exc.located(stream=self.stream, offset=since, key=str(self.index_path(first_offset)))
            raise
        return SegmentView(
            first_offset=first_offset,
            records=records[at:],
            skipped=skip + at,
            end_position=end_position,
            next_offset=next_offset,
            closed=closed,
        )

    def view_at(
        self, first_offset: int, since: int, *, closed: bool, skip: int = 0
    ) -> SegmentView | None:
        """As `view`, but the first chunk begins exactly at `since`.

        Raises:
            CorruptDataError: as `view`, or the first chunk from `since` on begins above it.
        """
        view = self.view(first_offset, since=since, closed=closed, skip=skip)
        if view is not None and view.chunk(0).chunk_id != since:
            raise CorruptDataError(
                f"the local log has nothing from here up to {view.chunk(0).chunk_id}",
                stream=self.stream,
                offset=since,
                key=str(self.segment_path(first_offset)),
            )
        return view

    def _records(self, first_offset: int, skip: int) -> NDArray[np.void]:
        """The records of an index file after the first `skip`; none while it has no header yet."""
        with self.files.open(self.directory, index_name(first_offset)) as file:
            size = file.size()
            if size > MAX_INDEX_SIZE:
                raise CorruptDataError(f"an index of {size} bytes is not the broker's")
            header = file.read(0, INDEX_HEADER_SIZE)
            if len(header) < INDEX_HEADER_SIZE:
                return np.empty(0, INDEX_DTYPE)  # the broker has only just created it
            start = INDEX_HEADER_SIZE + skip * INDEX_DTYPE.itemsize
            # No more than was bounded above, whatever the broker appends meanwhile.
            return index_records(header + file.read(start, max(0, size - start)))

    def _end_of(self, first_offset: int, record: np.void) -> tuple[int, int]:
        """Byte position and offset after the chunk of the last index record."""
        position, chunk_id = int(record["position"]), int(record["offset"])
        with self.files.open(self.directory, segment_name(first_offset)) as file:
            try:
                check_segment_header(file.read(0, SEGMENT_HEADER_SIZE))
                header = parse_chunk_header(file.read(position, CHUNK_HEADER_SIZE))
            except CorruptDataError as exc:
                raise CorruptDataError(
                    f"the index points to byte {position}, where no whole chunk is: {exc.reason}",
                    stream=self.stream,
                    offset=chunk_id,
                    key=str(self.segment_path(first_offset)),
                ) from exc
            size = file.size()
        if header.chunk_id != chunk_id or position + header.size > size:
            raise CorruptDataError(
                f"the index says chunk {chunk_id} at byte {position}, the segment has chunk"
                f" {header.chunk_id} up to byte {position + header.size} of {size}",
                stream=self.stream,
                offset=chunk_id,
                key=str(self.segment_path(first_offset)),
            )
        return position + header.size, header.next_offset

    def end(self) -> int:
        """The offset after the last chunk of which there is an index record; 0 if there is none.

        Reads one record and one chunk header, however long the index is.

        Raises:
            CorruptDataError: index and segment contradict each other.
            OSError: a file vanished meanwhile.
        """
        for first in reversed(self.segments()):
            count = (self.index_size(first) - INDEX_HEADER_SIZE) // INDEX_DTYPE.itemsize
            if count > 0:
                last = self._records(first, count - 1)[-1:]
                if len(last):  # the broker may have truncated it meanwhile
                    return self._end_of(first, last[0])[1]
        return 0

    def messages_end(self, above: int) -> int:
        """The offset after the last chunk of messages; 0 if that is not above `above`.

        A broker delivers these alone, so what it can prove ends there. Reads a few records.

        Raises:
            CorruptDataError: index and segment contradict each other.
            OSError: a file vanished meanwhile.
        """
        for first in reversed(self.segments()):
            count = (self.index_size(first) - INDEX_HEADER_SIZE) // INDEX_DTYPE.itemsize
            for skip in (max(0, count - _FEW_RECORDS), 0) if count > 0 else ():
                records = self._records(first, skip)
                found = np.flatnonzero(records["type"] == ChunkType.USER)
                if len(found):
                    at = int(found[-1])
                    if at + 1 < len(records):
                        end = int(records["offset"][at + 1])
                    else:
                        end = self._end_of(first, records[at])[1]
                    return end if end > above else 0
            if first <= above:
                break
        return 0

    def timestamp_at(self, offset: int) -> int | None:
        """When the broker wrote the first chunk from `offset` on, ms since the Unix epoch.

        None if there is none in the segment that has this offset.

        Raises:
            CorruptDataError, OSError: as `view`.
        """
        segments = self.segments()
        at = bisect_right(segments, offset) - 1
        if at < 0:
            return None
        records = self._records(segments[at], 0)
        number = int(np.searchsorted(records["offset"], np.uint64(offset)))
        return int(records["timestamp"][number]) if number < len(records) else None

    def bytes_from(self, offset: int) -> int:
        """Bytes of the segment files from the chunk that has `offset` on.

        Raises:
            CorruptDataError, OSError: as `view`.
        """
        segments = self.segments()
        at = max(0, bisect_right(segments, offset) - 1)
        total = 0
        for number, first in enumerate(segments[at:]):
            with self.files.open(self.directory, segment_name(first)) as file:
                size = file.size()
            if not number and first < offset:
                records = self._records(first, 0)
                place = int(np.searchsorted(records["offset"], np.uint64(offset)))
                size -= int(records["position"][place]) if place < len(records) else size
            total += size
        return total

    def header_at(self, chunk_id: int) -> bytes | None:
        """The 48 header bytes of the chunk of this id; None if the indexes have none.

        Raises:
            CorruptDataError: index and segment contradict each other.
            OSError: a file vanished meanwhile.
        """
        segments = self.segments()
        at = bisect_right(segments, chunk_id) - 1
        if at < 0:
            return None
        view = self.view(segments[at], since=segments[at], closed=False)
        if view is None:
            return None
        number = int(np.searchsorted(view.records["offset"], np.uint64(chunk_id)))
        if number == len(view.records) or int(view.records["offset"][number]) != chunk_id:
            return None
        with self.files.open(self.directory, segment_name(segments[at])) as file:
            header = file.read(int(view.records["position"][number]), CHUNK_HEADER_SIZE)
        return header if len(header) == CHUNK_HEADER_SIZE else None

    def chunks_near(self, offset: int, *, committed: int) -> list[LocalChunk]:
        """The last committed chunk that begins below `offset`, and the last committed one."""
        segments = self.segments()
        last = self._last_chunk(segments, below=MAX_OFFSET, committed=committed)
        if last is None or last.chunk_id < offset:
            return [] if last is None else [last]
        near = self._last_chunk(segments, below=offset, committed=committed)
        return [last] if near is None else [near, last]

    def chunks_between(self, first: int, next_offset: int, *, committed: int) -> list[LocalChunk]:
        """Committed chunks that overlap [first, next_offset), in offset order."""
        segments = [each for each in self.segments() if each < next_offset]
        found: list[LocalChunk] = []
        for segment in segments[max(0, bisect_right(segments, first) - 1) :]:
            view = self.view(segment, since=segment, closed=False)
            if view is None:
                continue
            offsets = view.records["offset"]
            end = min(
                int(np.searchsorted(offsets, np.uint64(next_offset))), view.committed(committed)
            )
            # The chunk that contains `first` is the last one that begins there or below.
            begin = int(np.searchsorted(offsets, np.uint64(first), side="right")) - 1
            chunks = [view.chunk(number) for number in range(max(0, begin), end)]
            found += [each for each in chunks if each.next_offset > first]
        return found

    def _last_chunk(
        self, segments: Sequence[int], *, below: int, committed: int
    ) -> LocalChunk | None:
        """The last chunk that begins below `below` and ends at or below `committed`."""
        for first in reversed([each for each in segments if each < below]):
            view = self.view(first, since=first, closed=False)
            if view is None:
                continue
            begin = int(np.searchsorted(view.records["offset"], np.uint64(below)))
            if count := min(begin, view.committed(committed)):
                return view.chunk(count - 1)
        return None
