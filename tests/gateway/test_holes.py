"""Someone reads at a hole of the manifest, and the broker may have what is said to be lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import cast

import pytest

from coldstream.errors import UnavailableError
from coldstream.gateway.broker_tier import BrokerTier
from coldstream.gateway.remote import RemoteStream
from coldstream.gateway.stream import TieredStream
from coldstream.manifest.entries import Entry
from coldstream.manifest.root import LastChunk
from coldstream.osiris.chunk import Chunk
from coldstream.reader import First, Offset, OffsetSpec, Timestamp
from tests.gateway.test_hand_over import ALL, NAME, logged
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


class Away(Timed):
    """Answers nothing before an instant of virtual time."""

    def __init__(self, log: list[Chunk], until: float) -> None:
        super().__init__(log)
        self.now, self.until = 0.0, until

    def ask(self) -> None:
        if self.now < self.until:
            raise UnavailableError("no answer")

    async def extent(self, vhost: str, stream: str) -> tuple[int, int] | None:
        self.ask()
        return await super().extent(vhost, stream)

    async def locate(self, vhost: str, stream: str, spec: OffsetSpec) -> int:
        self.ask()
        return await super().locate(vhost, stream, spec)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


class Waits(Read):
    """A read in the virtual time of its broker."""

    def stream(self, pool: ThreadPoolExecutor) -> TieredStream:
        assert isinstance(self.broker, Away)
        return TieredStream(
            "/", "s", RemoteStream(self.tier.reader(NAME), pool), cast(BrokerTier, self.broker),
            None, lambda _, words: self.told.append(words), poll_seconds=0.001,
            local_first=self.local_first, clock=lambda: self.broker.now, sleep=self.broker.sleep,
        )  # fmt: skip


@POLICIES
def test_no_hole_is_passed_over_while_the_broker_that_may_have_it_is_away_for_a_while(
    local_first: bool,
) -> None:
    """It was told lost, and the client went on without it, after a broker's restart."""
    broker = Away(CLOCK, until=120)
    read = Waits(with_holes(CLOCK, (10, 15)), broker, local_first=local_first)

    assert read.follow(0, 40).ids == list(range(40))
    assert all(words.startswith("the read at offset 10 tries again") for words in read.told)


@POLICIES
def test_a_dead_broker_does_not_stop_history_at_a_hole_for_ever(local_first: bool) -> None:
    broker = Away(CLOCK, until=float("inf"))
    holes = with_holes(CLOCK, (10, 12), (12, 15), (20, 22))
    read = Waits(holes, broker, local_first=local_first)

    assert read.follow(0, 30).ids == [*range(10), *range(15, 20), *range(22, 30)]
    # Two that lie together are waited for once, and one that lies behind data anew.
    assert 600 <= broker.now < 700
    given_up = [words for words in read.told if "tries again" not in words]
    assert [words.partition(" ")[2].split(" are ")[0] for words in given_up] == [
        "10 to 11", "12 to 14", "20 to 21",
    ]  # fmt: skip
    assert all("the broker does not answer, and may have them" in words for words in given_up)
    assert not any("lost" in words for words in read.told)


def test_a_gap_of_retention_is_waited_for_however_long_the_broker_is_away() -> None:
    broker = Away(CLOCK, until=4000)

    assert Waits(with_holes(CLOCK, kept=20), broker).follow(5, 40).ids == list(range(5, 40))


def test_a_store_that_does_not_answer_at_a_hole_is_no_dead_broker() -> None:
    """Nothing is given up because S3 or the catalog was away for long."""
    broker = Away(CLOCK, until=0)
    read = Waits(with_holes(CLOCK, (10, 15)), broker)

    async def run() -> None:
        with ThreadPoolExecutor(4) as pool:
            stream = read.stream(pool)
            assert stream.remote is not None
            snapshot = stream.remote.snapshot

            async def away(**words: float) -> object:
                if broker.now < 1000:
                    raise UnavailableError("no answer of the catalog")
                return await snapshot(**words)

            stream.remote = cast(RemoteStream, _Instead(stream.remote, away))
            async with contextlib.aclosing(stream.follow(0, ALL)) as batches:
                async for batch in batches:
                    read.found += [(str(batch.tier), each.chunk_id) for each in batch.parcels]
                    if batch.next_offset >= 30:
                        return

    asyncio.run(asyncio.wait_for(run(), 20))
    assert read.ids == list(range(30))


class _Instead:
    """A remote stream whose looks are answered by another function."""

    def __init__(self, remote: RemoteStream, snapshot: object) -> None:
        self.remote, self.snapshot = remote, snapshot

    def __getattr__(self, name: str) -> object:
        return getattr(self.remote, name)


def test_a_time_that_may_lie_in_a_hole_begins_with_it_while_the_broker_is_away() -> None:
    """The read waits there: a time in old history is not refused because of a broker."""
    read = Waits(with_holes(CLOCK, (0, 5), (10, 15)), Away(CLOCK, until=60))

    assert read.locate(Timestamp(3_000)) == 0
    assert read.locate(Timestamp(12_000)) == 10
    assert read.locate(Timestamp(17_500)) == 18
    assert read.follow(10, 40).ids == list(range(10, 40))


@pytest.mark.parametrize(("kept", "holes"), [(5, []), (0, [(25, 30)]), (5, [(5, 8)])])
def test_a_time_at_an_end_of_the_manifest_is_refused_while_the_broker_is_away(
    kept: int, holes: list[tuple[int, int]]
) -> None:
    read = Waits(with_holes(CLOCK, *holes, kept=kept), Away(CLOCK, until=60))
    at = 6_500 if (5, 8) in holes else 4_000 if kept else 27_000

    with pytest.raises(UnavailableError):
        read.locate(Timestamp(at))
    assert read.locate(First()) == kept
    assert read.locate(Offset(12)) == 12
