"""Someone reads at a hole of the manifest, and the broker may have what is said to be lost."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from coldstream.manifest.entries import Entry
from coldstream.manifest.root import LastChunk
from coldstream.osiris.chunk import Chunk
from coldstream.reader import Timestamp
from tests.gateway.test_hand_over import NAME, logged
from tests.gateway.test_retention_gap import POLICIES, Read, Timed
from tests.support.tier import Tier

#: Each chunk was written one second after the one before, the first one at 0.
CLOCK = [each for n in range(40) for each in logged("m", n, n + 1, timestamp=n * 1000)]


def with_holes(
    log: list[Chunk], *holes: tuple[int, int], end: int = 30, kept: int = 0, deep: bool = False
) -> Tier:
    """A manifest of `log` [kept, end) with a fragment for each chunk, and these holes."""
    tier, groups, at = Tier(), list[list[bytes] | Entry](), kept
    starts = dict(holes)
    while at < end:
        if at in starts:
            groups.append(tier.hole(at, starts[at]))
            at = starts[at]
        else:
            groups.append([bytes(log[at].buffer)])
            at += 1
    (tier.add_tree if deep else tier.add)(NAME, groups)
    root = tier.reader(NAME).snapshot().root
    last = max(n for n in range(kept, end) if not any(a <= n < b for a, b in holes))
    tier.commit(NAME, replace(root, last_chunk=LastChunk(last, log[last].header.epoch)))
    return tier


@POLICIES
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize(
    ("holes", "time", "begin"),
    [
        ([(10, 15)], 12_000, 12),
        ([(10, 15)], 9_001, 10),
        ([(10, 15)], 14_001, 15),
        ([(10, 12), (12, 15)], 10_500, 11),  # two, one after the other
        ([(25, 30)], 27_000, 27),  # the last entry
        ([(25, 30)], 33_000, 33),
        ([(0, 5)], 3_000, 3),  # the first one
        ([(0, 5)], 0, 0),
        ([(0, 5), (5, 8), (26, 28), (28, 30)], 6_000, 6),
        ([(0, 5), (5, 8), (26, 28), (28, 30)], 26_500, 27),
    ],
)
def test_a_time_in_a_hole_begins_where_the_broker_has_it(
    holes: list[tuple[int, int]], time: int, begin: int, deep: bool, local_first: bool
) -> None:
    """It began behind the hole, without a word, though the broker had all of it."""
    read = Read(with_holes(CLOCK, *holes, deep=deep), Timed(CLOCK), local_first=local_first)

    assert read.locate(Timestamp(time)) == begin
    assert read.follow(begin, 40).ids == list(range(begin, 40))
    assert not read.told


@POLICIES
def test_a_time_before_a_hole_in_which_the_broker_begins_begins_with_the_broker(
    local_first: bool,
) -> None:
    read = Read(with_holes(CLOCK, (10, 15)), Timed(CLOCK, 12), local_first=local_first)

    assert read.locate(Timestamp(9_500)) == 12
    assert read.locate(Timestamp(9_000)) == 9
    assert read.locate(Timestamp(13_500)) == 14


@pytest.mark.parametrize("log", [CLOCK[:40], logged("new", 0, 40, epoch=2, timestamp=90_000)])
@pytest.mark.parametrize("holes", [(10, 15), (25, 30)])
def test_a_time_behind_a_hole_of_which_the_broker_has_nothing_begins_behind_it(
    log: list[Chunk], holes: tuple[int, int]
) -> None:
    """Local retention has taken it, or the log is another one."""
    first = holes[1] if log[0].header.epoch == 1 else 0
    read = Read(with_holes(CLOCK, holes), Timed(log, first))

    assert read.locate(Timestamp(holes[0] * 1000 + 500)) == holes[1]


def test_a_time_that_two_holes_have_since_a_clock_fell_begins_in_the_first() -> None:
    late = [each for n in range(5, 8) for each in logged("m", n, n + 1, timestamp=22_000)]
    read = Read(with_holes(log := [*CLOCK[:5], *late, *CLOCK[8:]], (5, 8), (20, 25)), Timed(log))

    assert read.locate(Timestamp(21_500)) == 5
    assert read.follow(5, 40).ids == list(range(5, 40))


@POLICIES
@pytest.mark.parametrize("seed", range(20))
def test_a_time_begins_where_the_two_tiers_together_have_the_first_chunk_of_it(
    seed: int, local_first: bool
) -> None:
    rng = random.Random(seed)
    edges = sorted(rng.sample(range(31), 6))
    holes = list(zip(edges[::2], edges[1::2], strict=True))
    kept, first = rng.choice([(0, 0), (3, 0), (3, 2), (0, 20), (4, 12)])
    holes = [(max(a, kept), b) for a, b in holes if b > kept]
    tier = with_holes(CLOCK, *holes, kept=kept, deep=rng.random() < 0.5)
    read = Read(tier, Timed(CLOCK, first), local_first=local_first)
    lost = {n for a, b in holes for n in range(a, b)}
    there = [n for n in range(40) if n >= first or (n >= kept and n not in lost)]

    for number in range(40):
        for time in (number * 1000 - 500, number * 1000):
            first_of_it = next(n for n in there if n * 1000 >= time)
            assert read.locate(Timestamp(time)) == first_of_it, time
