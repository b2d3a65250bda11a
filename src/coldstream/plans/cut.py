"""Where to cut a segment into fragments: at the target size, at its end, when data has waited.

Works on index records only; the data is not looked at. Nothing uncommitted and nothing of an epoch
that has not been claimed is ever cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coldstream.plans.claim import LocalChunk

MAX_RECORDS = 2**32 - 1  # the trailer and the manifest count records in 32 bits


@dataclass(frozen=True, slots=True)
class SegmentView:
    """Index records of one segment, from the first chunk that is not yet uploaded on.

    Attributes:
        first_offset: of the segment, as in its file name.
        records: `osiris.index.INDEX_DTYPE`, shape (chunks,), in file order.
        skipped: how many records the index has before these.
        end_position: byte position in the segment after the last record's chunk.
        next_offset: offset after the last record's chunk.
        closed: whether a newer segment exists, so that this one has ended.
    """

    first_offset: int
    records: NDArray[np.void]
    skipped: int
    end_position: int
    next_offset: int
    closed: bool

    def committed(self, offset: int) -> int:
        """How many of the chunks end at or below `offset`."""
        if self.next_offset <= offset:
            return len(self.records)
        # The last one that begins there or below is the only one that may end above.
        begin = int(np.searchsorted(self.records["offset"], np.uint64(offset), side="right"))
        return max(0, begin - 1)

    def chunk(self, number: int) -> LocalChunk:
        """One of the chunks; `number` may be negative, as in a list."""
        number %= len(self.records)
        last = number + 1 == len(self.records)
        return LocalChunk(
            chunk_id=int(self.records["offset"][number]),
            next_offset=self.next_offset if last else int(self.records["offset"][number + 1]),
            epoch=int(self.records["epoch"][number]),
        )


@dataclass(frozen=True, slots=True)
class Slice:
    """A planned fragment: whole chunks of one segment.

    Attributes:
        segment_offset: first offset of the segment.
        records: index records of its chunks.
        start: byte position of the first chunk in the segment.
        end: byte position after the last chunk.
        next_offset: offset after the last chunk.
        ends_segment: whether a closed segment ends here.
    """

    segment_offset: int
    records: NDArray[np.void]
    start: int
    end: int
    next_offset: int
    ends_segment: bool

    @property
    def first_offset(self) -> int:
        """Offset of the first chunk."""
        return int(self.records["offset"][0])

    @property
    def size(self) -> int:
        """Bytes of chunks."""
        return self.end - self.start


def cut(
    segment: SegmentView, *, target_size: int, committed: int, epoch: int, flush: bool
) -> list[Slice]:
    """The fragments that can be cut from `segment` now, in offset order, without a gap.

    A fragment is as large as whole chunks allow without exceeding `target_size`; a single larger
    chunk is a fragment of its own. What is left over waits, unless its segment has ended or
    `flush` says that it has waited long enough.

    Args:
        segment: what is there.
        target_size: bytes of chunks in a full fragment.
        committed: offsets below this are committed; a chunk counts when all of it is.
        epoch: no chunk of a higher epoch is cut.
        flush: whether to cut the rest although it is not full.
    """
    count = len(segment.records)
    if not count:
        return []
    starts = segment.records["position"].astype(np.int64)
    ends = np.empty_like(starts)
    ends[:-1], ends[-1] = starts[1:], segment.end_position
    offsets = segment.records["offset"].astype(np.uint64)
    nexts = np.empty_like(offsets)
    nexts[:-1], nexts[-1] = offsets[1:], segment.next_offset
    usable = (nexts <= np.uint64(min(committed, 2**64 - 1))) & (
        segment.records["epoch"] <= np.uint64(epoch)
    )
    # Commit offsets and epochs never fall within a log, so the usable chunks are a prefix.
    limit = count if usable.all() else int(np.argmin(usable))
    slices = []
    at = 0
    while at < limit:
        by_size = int(np.searchsorted(ends, starts[at] + target_size, side="right"))
        by_records = int(
            np.searchsorted(nexts, np.uint64(int(offsets[at]) + MAX_RECORDS), side="right")
        )
        full_at = max(at + 1, min(by_size, by_records))
        end = min(full_at, limit)
        ends_segment = segment.closed and end == count
        full = full_at < count and end == full_at
        if not (full or ends_segment or flush):
            break
        slices.append(
            Slice(
                segment_offset=segment.first_offset,
                records=segment.records[at:end],
                start=int(starts[at]),
                end=int(ends[end - 1]),
                next_offset=int(nexts[end - 1]),
                ends_segment=ends_segment,
            )
        )
        at = end
    return slices
