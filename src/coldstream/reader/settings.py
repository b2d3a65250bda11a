"""How a reader fetches."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

from coldstream.errors import InvalidInputError
from coldstream.read_policy import ReadPolicy
from coldstream.reader.depth import AT_ONCE


def threads(count: int) -> Executor:
    """This many threads, named after what they do."""
    return ThreadPoolExecutor(count, thread_name_prefix="coldstream-read")


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """Numbers that were found by measuring (bench/); sizes in bytes.

    Attributes:
        range_size: one GET asks for about this much, to the end of its last chunk. A smaller
            fragment is fetched in one GET, with its index.
        first_range_size: the first GET of a read, doubled until `range_size` is reached, so that
            the first message does not wait for a whole range.
        in_flight: GETs under way at once, one thread each, if so many bring more than fewer do; a
            read finds out (`depth`). One S3 connection gives about 40 MB/s, whatever the range.
        index_guess: the first look at the end of a large fragment; an index that is longer costs
            one GET more.
        refresh_seconds: a manifest that is older is read again before the next fragment; must be
            shorter than the grace time, after which objects that it refers to may be gone.
        pool: makes what carries out a number of GETs at once.
        policy: what may answer before the bucket is asked.
    """

    range_size: int = 4 * 2**20
    first_range_size: int = 2**20
    in_flight: int = 64
    index_guess: int = 128 * 2**10
    refresh_seconds: float = 3600
    pool: Callable[[int], Executor] = threads
    policy: ReadPolicy = ReadPolicy.NOT_IN_DISK

    @property
    def at_once(self) -> int:
        """GETs under way at once where nothing is measured."""
        return min(self.in_flight, AT_ONCE)

    def __post_init__(self) -> None:
        if min(self.range_size, self.first_range_size, self.in_flight, self.index_guess) < 1:
            raise InvalidInputError("sizes and counts of a reader are at least 1")
        if not self.refresh_seconds >= 0:
            raise InvalidInputError("a manifest cannot be refreshed before it was read")
