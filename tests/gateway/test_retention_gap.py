"""S3 retention has taken what the broker still has, and someone reads there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import cast

import pytest

from coldstream.errors import DivergedError, NotFoundError, UnavailableError
from coldstream.gateway.broker_tier import BrokerTier
from coldstream.gateway.feed import Fed
from coldstream.gateway.parcel import Parcel
from coldstream.gateway.remote import RemoteStream
from coldstream.gateway.stream import TieredStream
from coldstream.manifest.entries import Entries
from coldstream.manifest.root import LastChunk
from coldstream.osiris.chunk import Chunk, ChunkType, chunk_at
from coldstream.reader import First, Offset, OffsetSpec, Timestamp
from tests.gateway.test_hand_over import ALL, NAME, Steady, World, _happens, logged
from tests.support.tier import Tier, chunk

LOG = logged("old", 0, 40)
POLICIES = pytest.mark.parametrize("local_first", [False, True])


class Timed(Steady):
    """Answers times as a broker does."""

    async def locate(self, vhost: str, stream: str, spec: OffsetSpec) -> int:
        if isinstance(spec, Timestamp):
            there = self.log[self.first :]
            later = [c.header for c in there if c.header.timestamp >= spec.value]
            return later[0].chunk_id if later else self.end
        return await super().locate(vhost, stream, spec)


def published(log: list[Chunk], first: int = 0, end: int = 30) -> Tier:
    """A fragment for each chunk of a range."""
    tier = Tier()
    tier.add(NAME, [[bytes(each.buffer)] for each in log[:end]])
    root = tier.reader(NAME).snapshot().root
    tier.commit(NAME, replace(root, last_chunk=LastChunk(end - 1, log[end - 1].header.epoch)))
    retain(tier, first)
    return tier


def retain(tier: Tier, first: int) -> None:
    """What retention of S3 does; each fragment has one message."""
    root = tier.reader(NAME).snapshot().root
    kept = [each for each in root.entries if each.first_offset >= first]
    tier.commit(NAME, replace(root, first_offset=first, entries=Entries.of(kept)))


class Read:
    """A read across both tiers; what came, and what was told.

    Attributes:
        found: tier and id of each chunk.
        told: sentences.
    """

    def __init__(self, tier: Tier, broker: object, *, local_first: bool = False) -> None:
        self.tier, self.broker, self.local_first = tier, broker, local_first
        self.found: list[tuple[str, int]] = []
        self.told: list[str] = []

    @property
    def ids(self) -> list[int]:
        return [number for _, number in self.found]

    def stream(self, pool: ThreadPoolExecutor) -> TieredStream:
        return TieredStream(
            "/", "s", RemoteStream(self.tier.reader(NAME), pool), cast(BrokerTier, self.broker),
            None, lambda _, words: self.told.append(words), poll_seconds=0.001,
            local_first=self.local_first,
        )  # fmt: skip

    def follow(self, position: int, until: int) -> Read:
        """Read up to an offset."""

        async def read() -> None:
            with ThreadPoolExecutor(4) as pool:
                batches = self.stream(pool).follow(position, ALL)
                async with contextlib.aclosing(batches):
                    async for batch in batches:
                        self.found += [(str(batch.tier), each.chunk_id) for each in batch.parcels]
                        if batch.next_offset >= until:
                            return

        asyncio.run(asyncio.wait_for(read(), 20))
        return self

    def locate(self, spec: OffsetSpec) -> int:
        async def locate() -> int:
            with ThreadPoolExecutor(4) as pool:
                return await self.stream(pool).locate(spec)

        return asyncio.run(asyncio.wait_for(locate(), 20))


@POLICIES
@pytest.mark.parametrize("log_first", [0, 12])
def test_what_retention_of_s3_took_and_the_broker_has_is_read_there(
    local_first: bool, log_first: int
) -> None:
    """17,800 messages were passed over, though the broker had all of them."""
    read = Read(published(LOG, first=20), Steady(LOG, log_first), local_first=local_first)

    read.follow(5, 40)

    begin = max(5, log_first)
    assert read.ids == list(range(begin, 40))
    gap = ["offsets 5 to 11 were removed by retention"] if log_first else []
    assert [words.partition(",")[0] for words in read.told] == gap
    if not local_first:
        assert {tier for tier, number in read.found if number < 20} == {"broker"}
        assert {tier for tier, number in read.found if 20 <= number < 30} == {"remote"}


@POLICIES
def test_a_hole_that_the_broker_can_fill_is_read_there(local_first: bool) -> None:
    tier = Tier()
    chunks = [[bytes(each.buffer)] for each in LOG]
    tier.add(NAME, [*chunks[:10], tier.hole(10, 15), *chunks[15:30]])
    root = tier.reader(NAME).snapshot().root
    tier.commit(NAME, replace(root, last_chunk=LastChunk(29, 1)))

    for begin in (0, 12):
        read = Read(tier, Steady(LOG), local_first=local_first)
        assert read.follow(begin, 40).ids == list(range(begin, 40))


def test_a_read_that_retention_of_s3_overtakes_goes_on_at_the_broker() -> None:
    tier, broker = published(LOG), Steady(LOG)
    read = Read(tier, broker)

    async def run() -> None:
        with ThreadPoolExecutor(4) as pool:
            stream = read.stream(pool)
            async with contextlib.aclosing(stream.follow(0, ALL)) as batches:
                async for batch in batches:
                    read.found += [(str(batch.tier), each.chunk_id) for each in batch.parcels]
                    if batch.next_offset >= 8:
                        stream.gave(batch.parcels[-1])
                        break  # the client has no credit any more
            retain(tier, 25)
            position = read.ids[-1] + 1
            async with contextlib.aclosing(stream.follow(position, ALL)) as batches:
                async for batch in batches:
                    read.found += [(str(batch.tier), each.chunk_id) for each in batch.parcels]
                    if batch.next_offset >= 40:
                        return

    asyncio.run(asyncio.wait_for(run(), 20))
    assert read.ids == list(range(40))


@POLICIES
def test_an_offset_and_a_time_below_s3_begin_where_the_broker_has_them(local_first: bool) -> None:
    log = [*logged("a", 0, 10), *logged("b", 10, 20, timestamp=2000)]
    log += logged("c", 20, 40, timestamp=3000)
    read = Read(published(log, first=20), Timed(log, 5), local_first=local_first)

    assert read.locate(Offset(12)) == 12
    assert read.locate(Offset(3)) == 5
    assert read.locate(Offset(22)) == 22
    assert read.locate(Timestamp(1500)) == 10
    assert read.locate(Timestamp(2500)) == 20
    assert read.locate(First()) == (5 if local_first else 20)


@POLICIES
@pytest.mark.parametrize(
    "log",
    [
        logged("new", 0, 40, timestamp=9000),
        logged("new", 0, 8),
        [*LOG[:12], *logged("new", 12, 40, epoch=2, timestamp=9000)],
    ],
    ids=["declared anew", "declared anew, short", "has lost the end"],
)
def test_the_log_of_another_history_fills_no_gap(log: list[Chunk], local_first: bool) -> None:
    read = Read(published(LOG, first=20), Steady(log), local_first=local_first)

    assert read.follow(5, 30).found == [("remote", number) for number in range(20, 30)]
    assert read.told[0].startswith("offsets 5 to 19 were removed by retention")
    assert read.locate(Offset(5)) == 20


def test_what_was_cut_off_is_not_gone_on_with_in_a_log_that_has_other_messages_there() -> None:
    """The claim that cut it off is forgotten, once retention has taken what lies there."""
    log = [*LOG[:4], *logged("new", 4, 40, epoch=2, timestamp=2000)]
    read = Read(published(log, first=20), Steady(log))

    async def run() -> None:
        with ThreadPoolExecutor(4) as pool:
            stream = read.stream(pool)
            given = Steady(LOG)
            stream.gave(cast(Parcel, await given.at("/", "s", 7)))
            async for batch in stream.follow(8, ALL):
                assert not batch.parcels

    with pytest.raises(DivergedError):
        asyncio.run(asyncio.wait_for(run(), 20))


@POLICIES
def test_a_manifest_that_ends_with_tracking_data_hides_no_log_that_fills_its_gap(
    local_first: bool,
) -> None:
    """A broker delivers no such chunk, so it is asked for the last one of messages."""
    data = memoryview(chunk(29, b"o", kind=ChunkType.TRACKING_DELTA))
    log = [*LOG[:29], chunk_at(data, 0, len(data))]
    read = Read(published(log, first=20), Steady(log), local_first=local_first)

    assert read.follow(5, 29).ids == list(range(5, 29))


class Gone(Steady):
    """Its queue was deleted."""

    async def extent(self, vhost: str, stream: str) -> tuple[int, int] | None:
        raise NotFoundError("there is no such stream", stream=stream)

    async def at(self, vhost: str, stream: str, offset: int) -> Parcel | None:
        raise NotFoundError("there is no such stream", stream=stream)


def test_where_the_queue_is_gone_the_gap_is_told_and_history_goes_on() -> None:
    read = Read(published(LOG, first=20), Gone(LOG))

    assert read.follow(5, 30).ids == list(range(20, 30))
    assert read.told[0].startswith("offsets 5 to 19 were removed by retention")


class Silent(Steady):
    """Gives no answer for a while."""

    silent = 3

    async def extent(self, vhost: str, stream: str) -> tuple[int, int] | None:
        self.silent -= 1
        if self.silent >= 0:
            raise UnavailableError("no answer")
        return await super().extent(vhost, stream)


def test_nothing_is_passed_over_while_the_broker_that_may_have_it_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coldstream.gateway.stream._AGAIN_SECONDS", 0)
    read = Read(published(LOG, first=20), Silent(LOG))

    assert read.follow(5, 40).ids == list(range(5, 40))


class TwoMembers(Steady):
    """The one that is asked begins at 5; the one that is read at 12."""

    async def extent(self, vhost: str, stream: str) -> tuple[int, int] | None:
        return 5, self.end

    def follow(
        self, vhost: str, stream: str, position: int, more: Mapping[str, str]
    ) -> AsyncGenerator[Fed, None]:
        return super().follow(vhost, stream, position, more)


@POLICIES
def test_a_member_that_has_less_than_the_one_that_was_asked_stops_nobody(local_first: bool) -> None:
    read = Read(published(LOG, first=20), TwoMembers(LOG, 12), local_first=local_first)

    assert read.follow(5, 40).ids == list(range(12, 40))
    assert any(words.startswith("offsets 5 to 11 were removed") for words in read.told)


class Retaining(World):
    """A world in which retention of S3 is at work as well."""

    def step(self) -> None:
        super().step()
        root = self.tier.reader(NAME).snapshot().root
        firsts = [each.first_offset for each in root.entries]
        if self.rng.random() < 0.2 and len(firsts) > 1:
            retain(self.tier, self.rng.choice(firsts[1:]))

    def kept(self) -> list[int]:
        """The chunks of messages that the broker still has."""
        first = self.broker.log[self.broker.first].header.chunk_id
        users = [each.header.chunk_id for each in self.broker.users()]
        return [each for each in users if each >= first]


@POLICIES
@pytest.mark.parametrize("seed", range(25))
def test_each_chunk_comes_once_and_in_order_whatever_retention_of_both_tiers_does(
    seed: int, local_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldstream.gateway.stream._AGAIN_SECONDS", 0)
    world = Retaining(seed)
    root = world.tier.reader(NAME).snapshot().root
    last = world.broker.log[1].header.chunk_id
    world.tier.commit(NAME, replace(root, last_chunk=LastChunk(last, 1)))
    read = Read(world.tier, world.broker, local_first=local_first)
    passed: set[int] = set()

    async def run() -> None:
        with ThreadPoolExecutor(4) as pool:
            happens = asyncio.create_task(_happens(world))
            async with contextlib.aclosing(read.stream(pool).follow(0, ALL)) as batches:
                async for batch in batches:
                    read.found += [(str(batch.tier), each.chunk_id) for each in batch.parcels]
                    if batch.gap is not None:
                        passed.update(range(batch.gap.first_offset, batch.next_offset))
                        still = [
                            each
                            for each in world.kept()
                            if batch.gap.first_offset <= each < batch.next_offset
                        ]
                        assert not still, "the broker still has some of it"
                    ends = world.broker.users()[-1].header.chunk_id
                    if happens.done() and batch.next_offset > ends:
                        break
            await happens

    asyncio.run(asyncio.wait_for(run(), 60))

    assert read.ids == sorted(set(read.ids)), "once and in order"
    every = {each.header.chunk_id for each in world.broker.users()}
    assert every - set(read.ids) <= passed, "what does not come is told"
