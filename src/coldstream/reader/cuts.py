"""Where a fragment is cut into ranges of whole chunks, each of which is one GET. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import repeat

from coldstream.fragment import HEADER, FragmentIndex


def ranges(
    index: FragmentIndex, first: int, last: int, sizes: Iterator[int]
) -> Iterator[tuple[int, int]]:
    """Cut the chunks `first` to `last` (included) into ranges of about the given sizes in bytes.

    Every range has whole chunks and at least one; it is longer than asked only if it has just one.
    """
    while first <= last:
        begin = index[first].position
        size = next(sizes)
        end = last
        if index.data_range(first, last)[1] - len(HEADER) - begin > size:
            # The last chunk that begins at or below the limit is the first that may end beyond it.
            end = max(first, min(index.chunk_at_position(begin + size + 1) - 2, last))
        yield first, end
        first = end + 1


def shared_ranges(
    index: FragmentIndex, first: int, last: int, sizes: Iterator[int], unit: int
) -> Iterator[tuple[int, int]]:
    """As `ranges`, but cut where every other reader of the fragment cuts it, too.

    The fragment has a grid of its own, of ranges of about `unit` bytes from its first chunk on. A
    larger range is some of them together, and begins where its size, doubled from the unit, may
    begin: so readers who began anywhere, and have come to their full size, ask for the same ranges.

    Args:
        index: of the fragment.
        first: number of the first chunk that is wanted.
        last: number of the last one.
        sizes: bytes of each range, never less than `unit`.
        unit: bytes.
    """
    grid = [begin for begin, _ in ranges(index, 0, len(index) - 1, repeat(unit))]
    at = bisect_right(grid, first) - 1
    grid.append(len(index))
    while first <= last:
        size, begin = next(sizes), grid[at]
        most = 1
        while at % (2 * most) == 0 and 2 * most * unit <= size:
            most *= 2
        until = at + 1
        while until < min(at + most, len(grid) - 1):
            start, end = index.data_range(begin, grid[until + 1] - 1)
            if end - start > size:
                break
            until += 1
        at = until
        yield first, min(grid[at] - 1, last)
        first = grid[at]
