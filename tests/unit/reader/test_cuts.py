"""Ranges of a fragment with large chunks are as long as asked, and readers agree on them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

import pytest

from coldstream.reader.cuts import shared_ranges
from tests.unit.reader.test_shared import index_of

UNIT, FULL = 1000, 4000


def sizes() -> Iterator[int]:
    yield from (UNIT, 2 * UNIT)
    yield from repeat(FULL)


@pytest.mark.parametrize("length", [1100, 1300, 1500, 1600, 1700, 1800, 1900, 1950, 2100, 2400])
def test_ranges_of_large_chunks_are_on_average_as_long_as_asked(length: int) -> None:
    index = index_of([length] * (64_000 // length))

    cut = list(shared_ranges(index, 0, len(index) - 1, sizes(), UNIT))

    assert len(cut) <= index.trailer.data_size / FULL + 4


@pytest.mark.parametrize("start", [0, 1, 7, 13, 20])
@pytest.mark.parametrize("length", [300, 1300, 1700, 1900, 2500, 4100])
def test_whoever_began_anywhere_soon_cuts_large_chunks_as_others_do(
    length: int, start: int
) -> None:
    index = index_of([length] * 60)
    full = list(shared_ranges(index, 0, 59, repeat(FULL), UNIT))

    cut = list(shared_ranges(index, start, 59, sizes(), UNIT))

    assert [n for first, last in cut for n in range(first, last + 1)] == [*range(start, 60)]
    assert set(cut[4:]) <= set(full)
