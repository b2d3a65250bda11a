"""What the job profile counts of chunks, and how two counts become one. No I/O, no Spark.

Counts of neighbouring fragments are merged in the order of their offsets, so that the time between
the last chunk of one and the first of the next is a gap like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Bins of a histogram for each doubling: a quantile out of it is at most 9 % off.
BINS = 4


class Histogram:
    """How often which sizes occur, in bins whose width grows with the size.

    Attributes:
        counts: occurrences by the number of the bin; sizes of 0 and 1 are in bin 0.
    """

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self.counts: Counter[int] = Counter(counts or {})

    def add(self, values: NDArray[Any], weights: NDArray[Any] | None = None) -> None:
        """Count values, each once or as often as its weight says."""
        if not len(values):
            return
        bins = np.floor(BINS * np.log2(np.maximum(values, 1))).astype(np.int64)
        found, inverse = np.unique(bins, return_inverse=True)
        sums = np.bincount(inverse, weights=weights)
        self.counts.update(
            dict(zip(found.tolist(), np.rint(sums).astype(int).tolist(), strict=True))
        )

    def merge(self, other: Histogram) -> None:
        """Count what another one has counted, too."""
        self.counts.update(other.counts)

    @property
    def total(self) -> int:
        """How many values were counted."""
        return sum(self.counts.values())

    def quantile(self, part: float) -> int | None:
        """A size that about `part` of all values do not exceed; None if there are no values."""
        left = part * self.total
        for number in sorted(self.counts):
            left -= self.counts[number]
            if left <= 0:
                return middle(number)
        return None

    def bars(self) -> list[tuple[int, int]]:
        """(upper end, count) by whole doublings, without gaps between the first and the last."""
        if not self.counts:
            return []
        octaves: Counter[int] = Counter()
        for number, count in self.counts.items():
            octaves[number // BINS] += count
        return [(2 ** (n + 1), octaves[n]) for n in range(min(octaves), max(octaves) + 1)]


def middle(number: int) -> int:
    """A size in the middle of a bin."""
    return round(2 ** ((number + 0.5) / BINS)) if number else 1


@dataclass(slots=True)
class Bucket:
    """The chunks whose time lies in one span.

    Attributes:
        chunks: how many, tracking chunks included.
        offsets: that they take; tracking chunks take one each.
        bytes: of the chunks.
        longest_gap_ms: between two chunks, the later of which is in this bucket; 0 for none.
        sizes: bytes of each chunk.
        lengths: offsets of each chunk: how well producers' messages are batched.
    """

    chunks: int = 0
    offsets: int = 0
    bytes: int = 0
    longest_gap_ms: int = 0
    sizes: Histogram = field(default_factory=Histogram)
    lengths: Histogram = field(default_factory=Histogram)

    def merge(self, other: Bucket) -> None:
        """Count what another one has counted, too."""
        self.chunks += other.chunks
        self.offsets += other.offsets
        self.bytes += other.bytes
        self.longest_gap_ms = max(self.longest_gap_ms, other.longest_gap_ms)
        self.sizes.merge(other.sizes)
        self.lengths.merge(other.lengths)


@dataclass(slots=True)
class Counted:
    """Some fragments of one stream that follow each other.

    Attributes:
        buckets: by the number of the span since the Unix epoch.
        first_ms: time of the first chunk; None if there is none.
        last_ms: time of the last chunk.
        fragments: how many.
        back: how often a chunk is older than the one before it: clocks that jumped.
    """

    buckets: dict[int, Bucket] = field(default_factory=dict)
    first_ms: int | None = None
    last_ms: int | None = None
    fragments: int = 0
    back: int = 0

    def merge(self, later: Counted, bucket_ms: int) -> None:
        """Count what the fragments behind these have counted, and the gap between."""
        if self.last_ms is not None and later.first_ms is not None:
            gap = later.first_ms - self.last_ms
            into = later.buckets[later.first_ms // bucket_ms]
            into.longest_gap_ms = max(into.longest_gap_ms, gap)
            self.back += gap < 0
        for number, bucket in later.buckets.items():
            if number in self.buckets:
                self.buckets[number].merge(bucket)
            else:
                self.buckets[number] = bucket
        self.first_ms = later.first_ms if self.first_ms is None else self.first_ms
        self.last_ms = later.last_ms if later.last_ms is not None else self.last_ms
        self.fragments += later.fragments
        self.back += later.back

    def all(self) -> Bucket:
        """All buckets as one."""
        total = Bucket()
        for bucket in self.buckets.values():
            total.merge(bucket)
        return total


def count_chunks(
    chunk_ids: NDArray[np.uint64],
    timestamps: NDArray[np.int64],
    positions: NDArray[np.int64],
    *,
    bucket_ms: int,
    since_ms: int,
) -> Counted:
    """Count the chunks of one fragment by its index alone, no byte of its data.

    Args:
        chunk_ids: of the chunks, and the next offset behind the last.
        timestamps: of the chunks, ms.
        positions: of the chunks in bytes, and where the last ends.
        bucket_ms: length of a span.
        since_ms: chunks before this time do not count.
    """
    lengths, sizes = np.diff(chunk_ids).astype(np.int64), np.diff(positions)
    gaps = np.diff(timestamps, prepend=timestamps[:1])
    wanted = timestamps >= since_ms
    lengths, sizes, gaps, times = (each[wanted] for each in (lengths, sizes, gaps, timestamps))
    counted = Counted(fragments=1)
    if not len(times):
        return counted
    counted.first_ms, counted.last_ms = int(times[0]), int(times[-1])
    counted.back = int((gaps < 0).sum())
    numbers, inverse = np.unique(times // bucket_ms, return_inverse=True)
    for number, bucket in enumerate(numbers.tolist()):
        mine = inverse == number
        made = Bucket(
            chunks=int(mine.sum()),
            offsets=int(lengths[mine].sum()),
            bytes=int(sizes[mine].sum()),
            longest_gap_ms=max(0, int(gaps[mine].max())),
        )
        made.sizes.add(sizes[mine])
        made.lengths.add(lengths[mine])
        counted.buckets[bucket] = made
    return counted
