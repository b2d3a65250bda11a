"""Which fetched ranges go first when memory is wanted: those that will be needed last. Pure.

Who reads a stream does so in order, so it is known when a range is wanted again: when the nearest
reader behind it gets there. To drop what was used longest ago, as caches do that cannot know, would
be the worst choice here: of a reader that follows another at a distance larger than the cache, it
drops every range just before it is wanted.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence


def distance(first_offset: int, next_offset: int, size: int, positions: Sequence[int]) -> float:
    """Bytes that the nearest reader has to go until it wants a range; infinite if all passed it.

    Args:
        first_offset: of the range.
        next_offset: of the range.
        size: its bytes.
        positions: offsets at which the stream's readers are, ascending.
    """
    behind = bisect_left(positions, next_offset)
    if not behind:
        return math.inf
    offsets = max(0, first_offset - positions[behind - 1])
    return offsets * size / max(1, next_offset - first_offset)
