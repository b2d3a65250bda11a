"""What of a stream a query asks for, by offset and by time; the same test prunes everywhere.

The driver prunes entries of the manifest by it, a worker entries of groups, then chunks by the
index of their fragment, then single rows. All of them ask this one value, so nothing that one of
them lets through can be what another took away.
"""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.manifest.entries import Entry
from coldstream.names import MAX_OFFSET
from coldstream.spark.intervals import Intervals

#: Columns have signed numbers: every offset in them, and what follows it, is at most this.
MOST = 2**63 - 1
ALL_OFFSETS = Intervals.of((0, MAX_OFFSET))
ALL_TIMES = Intervals.of((-(2**63), 2**63))


@dataclass(frozen=True, slots=True)
class Window:
    """Offsets and chunk timestamps (ms) of the rows that are asked for; both must hold."""

    offsets: Intervals = ALL_OFFSETS
    times: Intervals = ALL_TIMES

    def __and__(self, other: Window) -> Window:
        """What both let through."""
        return Window(self.offsets & other.offsets, self.times & other.times)

    @property
    def empty(self) -> bool:
        """Whether nothing can be in it."""
        return not (self.offsets and self.times)

    def between(self, first: int, following: int) -> Window:
        """The part of it that lies in a range of offsets."""
        return Window(self.offsets & Intervals.of((first, following)), self.times)

    def overlaps(self, entry: Entry) -> bool:
        """Whether something below `entry` may be asked for."""
        return self.offsets.overlaps(entry.first_offset, entry.next_offset) and (
            self.times.overlaps(entry.min_timestamp, entry.max_timestamp + 1)
        )

    def contains(self, entry: Entry, *, first_offset: int = 0) -> bool:
        """Whether all below `entry` that is not below `first_offset` is certainly asked for."""
        begin = max(entry.first_offset, first_offset)
        return self.offsets.contains(begin, entry.next_offset) and self.all_times_of(entry)

    def all_times_of(self, entry: Entry) -> bool:
        """Whether no chunk below `entry` has a time that is not asked for."""
        return self.times.contains(entry.min_timestamp, entry.max_timestamp + 1)
