"""Where a fragment is cut into ranges of whole chunks, each of which is one GET. Pure."""

from __future__ import annotations

from collections.abc import Iterator

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

    The fragment has a grid of its own: a cell is the chunks that begin within the same `unit`
    bytes. A range ends at a multiple of one cell, or of two, four and so on, as its size allows: so
    readers who began anywhere, and have come to their full size, ask for the same ranges. Where it
    begins does not matter: a chunk may reach over the cell that was next. A range is longer than
    asked by less than its last chunk.

    Args:
        index: of the fragment.
        first: number of the first chunk that is wanted.
        last: number of the last one.
        sizes: bytes of each range, never less than `unit`.
        unit: bytes.
    """
    while first <= last:
        size, cell = next(sizes), index[first].position // unit
        cells = 1
        while 2 * cells * unit <= size:
            cells *= 2
        end = min(index.chunk_at_position((cell // cells + 1) * cells * unit) - 1, last)
        yield first, end
        first = end + 1
