"""One stream across both tiers, whatever happens to either while it is read."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from coldstream.agent.disk.log import StreamLog
from coldstream.broker.connection import StreamUri
from coldstream.broker.frames import Key, frame
from coldstream.errors import DivergedError, UnavailableError
from coldstream.gateway.broker_tier import BrokerTier
from coldstream.gateway.feed import Fed
from coldstream.gateway.local_tier import LocalStream
from coldstream.gateway.parcel import Parcel, parcel_of
from coldstream.gateway.remote import RemoteStream
from coldstream.gateway.stream import TieredStream, Wanted
from coldstream.gateway.streams import Streams
from coldstream.manifest.catalog import QueueName
from coldstream.manifest.root import LastChunk
from coldstream.osiris.bloom import FilterMatcher
from coldstream.osiris.chunk import Chunk, ChunkType, chunk_at, iter_chunks
from coldstream.osiris.segment import SEGMENT_HEADER_SIZE
from coldstream.read_policy import ReadPolicy
from coldstream.reader import First, Last, MemoryBudget, Offset, OffsetSpec
from coldstream_devkit.generator import write_stream
from tests.support.peer import Peer, logging_in
from tests.support.tier import PREFIX, SMALL, Tier, chunk

NAME = "__s_1"
ALL = Wanted(None, {})


class Broker:
    """A log that grows at one end and loses at the other, and hangs up now and then."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.log: list[Chunk] = []
        self.first = 0  # index of the first chunk that retention has left
        self.grow(3)

    @property
    def end(self) -> int:
        return self.log[-1].header.next_offset if self.log else 0

    def grow(self, count: int) -> None:
        for _ in range(count):
            tracking = bool(self.log) and self.rng.random() < 0.3
            bodies = [b"x"] * (1 if tracking else self.rng.randint(1, 5))
            kind = ChunkType.TRACKING_DELTA if tracking else ChunkType.USER
            data = memoryview(chunk(self.end, *bodies, kind=kind))
            self.log.append(chunk_at(data, 0, len(data)))

    def users(self) -> list[Chunk]:
        return [each for each in self.log if each.header.chunk_type == ChunkType.USER]

    async def at(self, vhost: str, stream: str, offset: int) -> Parcel | None:
        del vhost, stream
        later = [each for each in self.users() if each.header.next_offset > offset]
        there = [
            each for each in later if each.header.chunk_id >= self.log[self.first].header.chunk_id
        ]
        return parcel_of(there[0]) if there else None

    async def first_offset(self) -> int | None:
        return self.log[self.first].header.chunk_id

    async def extent(self, vhost: str, stream: str) -> tuple[int, int] | None:
        del vhost, stream
        return self.log[self.first].header.chunk_id, self.end

    async def follow(
        self, vhost: str, stream: str, position: int, more: Mapping[str, str]
    ) -> AsyncGenerator[Fed, None]:
        del vhost, stream, more
        at = next(
            (n for n, each in enumerate(self.log) if each.header.next_offset > position),
            len(self.log),
        )
        while True:
            at = max(at, self.first)
            if self.rng.random() < 0.1:
                raise UnavailableError("hung up")
            if at < len(self.log):
                found = self.log[at]
                at += 1
                if found.header.chunk_type == ChunkType.USER:
                    yield Fed(parcel_of(found), found.header.chunk_id, self.first_offset)
            await asyncio.sleep(0)


class World:
    """What happens while somebody reads, from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.tier, self.broker = Tier(), Broker(self.rng)
        self.uploaded = 2
        self.tier.add(NAME, [[bytes(each.buffer) for each in self.broker.log[:2]]])
        self.lost: list[int] = []

    def step(self) -> None:
        what = self.rng.randrange(4)
        if what == 0:
            self.broker.grow(self.rng.randint(1, 6))
        elif what == 1:
            self.publish()
        elif what == 2:  # local retention, which may be quicker than the upload
            most = len(self.broker.log) - 1
            self.broker.first = min(most, self.broker.first + self.rng.randint(0, 8))

    def publish(self) -> None:
        """What the agent does: data, or a hole where retention was quicker."""
        count = min(self.rng.randint(1, 5), len(self.broker.log) - self.uploaded)
        if not count:
            return
        part = self.broker.log[self.uploaded : self.uploaded + count]
        self.uploaded += count
        root = self.tier.reader(NAME).snapshot().root
        if part[-1].header.next_offset <= self.broker.log[self.broker.first].header.chunk_id:
            entry = self.tier.hole(part[0].header.chunk_id, part[-1].header.next_offset)
            self.lost += [each.header.chunk_id for each in part]
        else:
            entry = self.tier.upload(NAME, [bytes(each.buffer) for each in part], epoch=1, floor=0)
        last = LastChunk(part[-1].header.chunk_id, 1)
        self.tier.commit(NAME, root.appended([entry], last))


@pytest.mark.parametrize(
    ("seed", "local_first"), [*((n, False) for n in range(25)), *((n, True) for n in range(25))]
)
def test_each_chunk_comes_once_and_in_order_whatever_retention_and_uploads_do(
    seed: int, local_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldstream.gateway.stream._AGAIN_SECONDS", 0)
    world = World(seed)

    async def read() -> list[int]:
        found: list[int] = []
        with ThreadPoolExecutor(4) as pool:
            stream = TieredStream(
                "/", "s", RemoteStream(world.tier.reader(NAME), pool),
                cast(BrokerTier, world.broker), None, lambda *_: None, poll_seconds=0.001,
                local_first=local_first,
            )  # fmt: skip
            batches = stream.follow(0, ALL)
            happens = asyncio.create_task(_happens(world))
            async for batch in batches:
                found += [each.chunk_id for each in batch.parcels]
                if happens.done() and batch.next_offset > world.broker.users()[-1].header.chunk_id:
                    break
            await batches.aclose()
            await happens
        return found

    found = asyncio.run(asyncio.wait_for(read(), 60))

    assert found == sorted(set(found)), "once and in order"
    every = [each.header.chunk_id for each in world.broker.users()]
    missing = set(every) - set(found)
    assert missing <= set(world.lost), "only what was declared lost may be missing"


async def _happens(world: World) -> None:
    for _ in range(120):
        world.step()
        await asyncio.sleep(0)
    while world.uploaded < len(world.broker.log):
        world.publish()
    # Something to read at the end, whatever was lost.
    world.broker.grow(1)
    while world.broker.log[-1].header.chunk_type != ChunkType.USER:
        world.broker.grow(1)


def tiers_of(stream: TieredStream, until: int) -> list[tuple[str, int]]:
    """Where each chunk was read, and its id, up to an offset."""

    async def read() -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        batches = stream.follow(0, ALL)
        async with contextlib.aclosing(batches):
            async for batch in batches:
                found += [(str(batch.tier), each.chunk_id) for each in batch.parcels]
                if batch.next_offset >= until:
                    break
        return found

    return asyncio.run(asyncio.wait_for(read(), 60))


@pytest.mark.parametrize("local_first", [False, True])
def test_where_both_tiers_have_a_chunk_the_policy_says_which_is_read(
    local_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldstream.gateway.stream._AGAIN_SECONDS", 0)
    world = World(3)
    world.broker.log.clear()
    for _ in range(30):
        data = memoryview(chunk(world.broker.end, b"x"))
        world.broker.log.append(chunk_at(data, 0, len(data)))
    world.tier = Tier()
    world.tier.add(NAME, [[bytes(e.buffer) for e in world.broker.log[n : n + 2]] for n in (0, 2)])
    world.uploaded = 4
    while world.uploaded < 20:
        world.publish()
    published = world.uploaded
    world.broker.first = 9

    with ThreadPoolExecutor(4) as pool:
        remote = RemoteStream(world.tier.reader(NAME), pool)
        stream = TieredStream(
            "/", "s", remote, cast(BrokerTier, world.broker), None, lambda *_: None,
            poll_seconds=0.001, local_first=local_first,
        )  # fmt: skip
        found = tiers_of(stream, 30)

    assert [number for _, number in found] == list(range(30))
    borders = [tier for tier, _ in found].index("broker")
    assert all(tier == "remote" for tier, number in found if number < borders)
    if local_first:
        assert 9 <= borders < 9 + 5, "from the first fragment on that reaches into the log"
    else:
        assert borders == published


def test_a_log_that_is_empty_hides_no_history() -> None:
    """A queue that was declared anew after its cluster was lost: nothing comes from it."""
    world = World(1)

    class Empty(Broker):
        async def extent(self, vhost: str, stream: str) -> tuple[int, int] | None:
            del vhost, stream
            return 0, 0

    with ThreadPoolExecutor(4) as pool:
        remote = RemoteStream(world.tier.reader(NAME), pool)
        end = asyncio.run(remote.snapshot()).root.next_offset
        stream = TieredStream(
            "/", "s", RemoteStream(world.tier.reader(NAME), pool),
            cast(BrokerTier, Empty(random.Random(4))), None, lambda *_: None, local_first=True,
        )  # fmt: skip
        found = tiers_of(stream, end)

    assert found
    assert {tier for tier, _ in found} == {"remote"}


def logged(words: str, first: int, end: int, epoch: int = 1, timestamp: int = 1000) -> list[Chunk]:
    """Chunks of one message each."""
    made = []
    for number in range(first, end):
        data = memoryview(
            chunk(number, f"{words}{number}".encode(), epoch=epoch, timestamp=timestamp)
        )
        made.append(chunk_at(data, 0, len(data)))
    return made


class Steady(Broker):
    """A log that does not change, and a broker that never hangs up."""

    def __init__(self, log: list[Chunk], first: int = 0) -> None:
        super().__init__(random.Random(1))
        self.rng.random = lambda: 0.9  # type: ignore[method-assign]
        self.log, self.first = log, first

    async def locate(self, vhost: str, stream: str, spec: OffsetSpec) -> int:
        del vhost, stream
        return spec.value if isinstance(spec, Offset) else 0


@pytest.mark.parametrize(
    "broker",
    [
        Steady(logged("new", 0, 8)),  # declared anew
        Steady([*logged("old", 0, 12), *logged("new", 12, 16, 2)], first=9),  # it has lost 12..19
        Steady([*logged("old", 0, 12), *logged("new", 12, 40, 2)], first=9),
    ],
    ids=["declared anew", "cut off", "cut off and gone on"],
)
def test_a_log_without_the_last_chunk_of_the_manifest_is_not_read_below_its_end(
    broker: Steady,
) -> None:
    """Other messages stand at the same offsets there."""
    tier = Tier()
    history = [bytes(each.buffer) for each in logged("old", 0, 20)]
    tier.add(NAME, [history[at : at + 2] for at in range(0, 20, 2)])
    tier.commit(NAME, replace(tier.reader(NAME).snapshot().root, last_chunk=LastChunk(19, 1)))

    with ThreadPoolExecutor(4) as pool:
        stream = TieredStream(
            "/", "s", RemoteStream(tier.reader(NAME), pool), cast(BrokerTier, broker), None,
            lambda *_: None, poll_seconds=0.001, local_first=True,
        )  # fmt: skip
        found = tiers_of(stream, 20)

    assert found == [("remote", number) for number in range(20)]


def test_what_only_the_log_has_below_the_manifest_is_read_where_it_comes_first() -> None:
    tier = Tier()
    history = [bytes(each.buffer) for each in logged("old", 0, 30)]
    tier.add(NAME, [history[at : at + 2] for at in range(10, 30, 2)])
    tier.commit(NAME, replace(tier.reader(NAME).snapshot().root, last_chunk=LastChunk(29, 1)))

    async def begins(local_first: bool) -> list[int]:
        with ThreadPoolExecutor(4) as pool:
            stream = TieredStream(
                "/", "s", RemoteStream(tier.reader(NAME), pool),
                cast(BrokerTier, Steady(logged("old", 0, 40))), None, lambda *_: None,
                local_first=local_first,
            )  # fmt: skip
            return [await stream.locate(spec) for spec in (First(), Offset(5), Offset(20))]

    assert asyncio.run(begins(local_first=True)) == [0, 5, 20]
    assert asyncio.run(begins(local_first=False)) == [10, 5, 20]


@pytest.mark.parametrize("policy", list(ReadPolicy))
def test_a_gateway_reads_the_tiers_that_its_policy_has(policy: ReadPolicy) -> None:
    tier = Tier()
    for name in ("both", "history"):
        tier.add(f"__{name}_1", [[chunk(0, b"a")]], name=QueueName("test", "/", name))

    class Broker:
        async def exists(self, vhost: str, stream: str) -> bool:
            return (vhost, stream) in (("/", "both"), ("/", "new"))

    broker = cast(BrokerTier, Broker())

    async def found(name: str) -> tuple[bool, bool, bool] | None:
        """Whether the stream has a remote tier, a broker, and reads that one first."""
        with ThreadPoolExecutor(1) as pool:
            streams = Streams(
                tier.store, tier.catalog, PREFIX, SMALL, MemoryBudget(), pool, broker, None,
                lambda *_: None, policy,
            )  # fmt: skip
            made = await streams.find("/", name)
        if made is None:
            return None
        return made[0].remote is not None, made[0].broker is not None, made[0].local_first

    expected = {
        ReadPolicy.DISABLE: [(False, True, False), None, (False, True, False)],
        ReadPolicy.NOT_IN_DISK: [(True, True, True), (True, True, True), (False, True, True)],
        ReadPolicy.NOT_IN_MEM: [(True, True, False), (True, True, False), (False, True, False)],
        ReadPolicy.FORCE: [(True, False, False), (True, False, False), None],
    }[policy]
    assert [asyncio.run(found(name)) for name in ("both", "history", "new")] == expected


def test_a_stream_that_is_remote_only_waits_for_what_is_published() -> None:
    tier = Tier()
    tier.add(NAME, [[chunk(0, b"a")]])

    async def read() -> list[int]:
        found: list[int] = []
        with ThreadPoolExecutor(4) as pool:
            remote = RemoteStream(tier.reader(NAME), pool)
            stream = TieredStream("/", "s", remote, None, None, print, poll_seconds=0.001)
            async for batch in stream.follow(0, ALL):
                found += [each.chunk_id for each in batch.parcels]
                if len(found) == 3:
                    break
                root = tier.reader(NAME).snapshot().root
                entry = tier.upload(NAME, [chunk(root.next_offset, b"b")], epoch=1, floor=0)
                tier.commit(NAME, root.appended([entry], LastChunk(root.next_offset, 1)))
        return found

    assert asyncio.run(asyncio.wait_for(read(), 60)) == [0, 1, 2]


def test_a_queue_that_was_made_anew_under_the_same_name_is_not_read_on() -> None:
    """Its offsets begin at 0 again: they are other messages, which nobody asked for."""
    old, new = World(1), Broker(random.Random(2))
    old.broker.grow(10)
    old.publish()
    new.grow(50)
    new.rng = random.Random(4)  # it does not hang up before the first chunk

    async def read() -> None:
        with ThreadPoolExecutor(4) as pool:
            stream = TieredStream(
                "/", "s", RemoteStream(old.tier.reader(NAME), pool), cast(BrokerTier, new), None,
                print, poll_seconds=0.001,
            )  # fmt: skip
            async for _ in stream.follow(0, ALL):
                pass

    with pytest.raises(DivergedError, match="made anew"):
        asyncio.run(asyncio.wait_for(read(), 60))


@pytest.mark.parametrize("local_first", [False, True])
def test_a_queue_that_was_made_anew_with_chunks_of_the_same_numbers_is_not_read_on(
    local_first: bool,
) -> None:
    """One message a chunk, first epoch: only the time says that it is another log."""
    tier = Tier()
    history = [bytes(each.buffer) for each in logged("old", 0, 20)]
    tier.add(NAME, [history[at : at + 2] for at in range(0, 20, 2)])
    tier.commit(NAME, replace(tier.reader(NAME).snapshot().root, last_chunk=LastChunk(19, 1)))
    broker = cast(BrokerTier, Steady(logged("new", 0, 40, timestamp=1001)))

    async def read() -> None:
        with ThreadPoolExecutor(4) as pool:
            stream = TieredStream(
                "/", "s", RemoteStream(tier.reader(NAME), pool), broker, None, print,
                poll_seconds=0.001, local_first=local_first,
            )  # fmt: skip
            async for batch in stream.follow(0, ALL):
                found.extend((batch.tier, each.chunk_id) for each in batch.parcels)
                assert len(found) < 40

    found: list[tuple[str, int]] = []
    with pytest.raises(DivergedError, match="made anew"):
        asyncio.run(asyncio.wait_for(read(), 60))
    assert found == [("remote", number) for number in range(20)]


def test_a_log_that_was_made_anew_under_a_reader_of_the_tail_is_not_read_on() -> None:
    """The manifest does not reach so far, or there is none: what was read last must be there."""
    broker = Steady(logged("old", 0, 20))
    found: list[int] = []

    def hangs_up() -> float:
        """Once."""
        broker.rng.random = lambda: 0.9  # type: ignore[method-assign]
        return 0.0

    async def read(stream: TieredStream) -> None:
        async for batch in stream.follow(0, ALL):
            found.extend(each.chunk_id for each in batch.parcels)
            if len(found) == 20:
                # Deleted and declared anew, before the next try.
                broker.log = logged("new", 0, 40, timestamp=1001)
                broker.rng.random = hangs_up  # type: ignore[method-assign]
            assert len(found) <= 20

    stream = TieredStream("/", "s", None, cast(BrokerTier, broker), None, print)
    with pytest.raises(DivergedError, match="made anew"):
        asyncio.run(asyncio.wait_for(read(stream), 60))
    assert found == list(range(20))


def test_a_log_that_has_lost_a_little_and_goes_on_across_what_was_read_is_not_read_on() -> None:
    """All members lose power: what they had not written yet comes from nobody again.

    Who looks before anything new is there sees nothing wrong. Then one chunk has both the offsets
    that were read, of other messages by now, and those that are due.
    """

    class Powerless(Steady):
        async def follow(
            self, vhost: str, stream: str, position: int, more: Mapping[str, str]
        ) -> AsyncGenerator[Fed, None]:
            found = super().follow(vhost, stream, position, more)
            if self.lost:
                data = memoryview(chunk(18, *[b"new"] * 5, epoch=2, timestamp=1001))
                self.log = [*self.log[:18], chunk_at(data, 0, len(data))]
            async for each in found:
                yield each

        lost = False

    broker = Powerless(logged("old", 0, 20))
    found: list[int] = []

    def hangs_up() -> float:
        """Once."""
        broker.rng.random = lambda: 0.9  # type: ignore[method-assign]
        return 0.0

    async def read(stream: TieredStream) -> None:
        async for batch in stream.follow(0, ALL):
            found.extend(each.chunk_id for each in batch.parcels)
            if len(found) == 20:
                broker.log, broker.lost = broker.log[:18], True
                broker.rng.random = hangs_up  # type: ignore[method-assign]

    stream = TieredStream("/", "s", None, cast(BrokerTier, broker), None, lambda *_: None)
    with pytest.raises(DivergedError, match="has lost"):
        asyncio.run(asyncio.wait_for(read(stream), 10))
    assert found == list(range(20))


def test_a_log_that_is_written_anew_between_two_questions_is_not_read_on() -> None:
    """Who looks has no chunk yet; who subscribes then gets what is due, and not what is below."""

    class Powerless(Steady):
        async def at(self, vhost: str, stream: str, offset: int) -> Parcel | None:
            found = await super().at(vhost, stream, offset)
            if found is None:
                self.log = [*self.log, *logged("new", 18, 25, epoch=2)]
            return found

    broker = Powerless(logged("old", 0, 20))
    found: list[int] = []

    def hangs_up() -> float:
        """Once."""
        broker.rng.random = lambda: 0.9  # type: ignore[method-assign]
        return 0.0

    async def read(stream: TieredStream) -> None:
        async for batch in stream.follow(0, ALL):
            found.extend(each.chunk_id for each in batch.parcels)
            if len(found) == 20:
                broker.log, broker.rng.random = broker.log[:18], hangs_up  # type: ignore[method-assign]
            assert len(found) <= 20, "18 and 19 are others by now"

    stream = TieredStream("/", "s", None, cast(BrokerTier, broker), None, lambda *_: None)
    with pytest.raises(DivergedError, match="has lost"):
        asyncio.run(asyncio.wait_for(read(stream), 10))


@pytest.mark.parametrize("uploaded", [False, True])
def test_a_log_whose_chunks_begin_among_what_was_given_is_not_read_on_behind_it(
    uploaded: bool,
) -> None:
    """Offsets were stored where messages stood, and what is due begins a chunk once more."""

    def made(first: int, count: int, epoch: int, kind: ChunkType = ChunkType.USER) -> Chunk:
        data = memoryview(chunk(first, *[b"x"] * count, epoch=epoch, kind=kind))
        return chunk_at(data, 0, len(data))

    old = [made(0, 10, 1), made(10, 10, 1)]
    stored = made(10, 1, 2, ChunkType.TRACKING_DELTA)
    new = [*old[:1], stored, *[made(n, 1, 2) for n in range(11, 25)]]
    tier, broker = Tier(), Steady(new if uploaded else old)
    tier.add(NAME, [[bytes(each.buffer)] for each in old])
    found: list[int] = []

    def hangs_up() -> float:
        """Once."""
        broker.rng.random = lambda: 0.9  # type: ignore[method-assign]
        return 0.0

    async def read() -> None:
        with ThreadPoolExecutor(4) as pool:
            remote = RemoteStream(tier.reader(NAME), pool) if uploaded else None
            stream = TieredStream("/", "s", remote, cast(BrokerTier, broker), None, lambda *_: None)
            async for batch in stream.follow(0, ALL):
                found.extend(each.chunk_id for each in batch.parcels)
                if len(found) == 2 and not uploaded:
                    broker.log, broker.rng.random = new, hangs_up  # type: ignore[method-assign]
                assert len(found) <= 2, "11 to 19 are others by now"

    with pytest.raises(DivergedError, match="has lost"):
        asyncio.run(asyncio.wait_for(read(), 10))


def test_a_member_that_is_behind_is_read_on_though_nothing_of_it_is_uploaded_yet() -> None:
    """A node that has just come back gives again what another one has given before it died."""

    class Behind(Steady):
        async def at(self, vhost: str, stream: str, offset: int) -> Parcel | None:
            return None if self.behind else await super().at(vhost, stream, offset)

        def follow(
            self, vhost: str, stream: str, position: int, more: Mapping[str, str]
        ) -> AsyncGenerator[Fed, None]:
            return super().follow(vhost, stream, max(position - self.behind, 0), more)

        behind = 0

    broker = Behind(logged("old", 0, 40))
    found: list[int] = []

    def hangs_up() -> float:
        """Once."""
        broker.rng.random = lambda: 0.9  # type: ignore[method-assign]
        return 0.0

    async def read(stream: TieredStream) -> None:
        async for batch in stream.follow(0, ALL):
            found.extend(each.chunk_id for each in batch.parcels)
            if len(found) == 20:
                broker.behind, broker.rng.random = 5, hangs_up  # type: ignore[method-assign]
            if len(found) == 40:
                return

    stream = TieredStream("/", "s", None, cast(BrokerTier, broker), None, lambda *_: None)
    asyncio.run(asyncio.wait_for(read(stream), 60))
    assert found == list(range(40))


def test_who_goes_back_on_purpose_reads_again_what_he_has_read() -> None:
    """A consumer that takes turns says anew where to begin at each."""
    stream = TieredStream(
        "/", "s", None, cast(BrokerTier, Steady(logged("old", 0, 20))), None, print
    )

    async def first(count: int, position: int) -> list[int]:
        found: list[int] = []
        async with contextlib.aclosing(stream.follow(position, ALL)) as batches:
            async for batch in batches:
                found.extend(each.chunk_id for each in batch.parcels)
                if len(found) >= count:
                    break
        return found

    assert asyncio.run(first(20, 0)) == list(range(20))
    assert asyncio.run(first(12, 5)) == list(range(5, 17))
    assert asyncio.run(first(3, 0)) == [0, 1, 2]


def test_history_that_begins_after_the_subscription_is_not_missed() -> None:
    """Retention takes it before it was read, but an agent has uploaded it by then."""
    world = World(1)
    world.broker.rng = random.Random(4)
    world.broker.grow(20)
    while world.uploaded < len(world.broker.log):
        world.publish()
    world.broker.first = 10
    every = [each.header.chunk_id for each in world.broker.users()]

    async def read() -> list[int]:
        found: list[int] = []
        with ThreadPoolExecutor(4) as pool:
            remote = RemoteStream(world.tier.reader(NAME), pool)

            async def find() -> RemoteStream:
                return remote

            stream = TieredStream(
                "/", "s", None, cast(BrokerTier, world.broker), None, lambda *_: None,
                poll_seconds=0.001, find_remote=find,
            )  # fmt: skip
            async for batch in stream.follow(0, ALL):
                found += [each.chunk_id for each in batch.parcels]
                if found and found[-1] == every[-1]:
                    return found
        return found

    assert asyncio.run(asyncio.wait_for(read(), 60)) == every


def test_files_of_another_history_are_not_read_on(tmp_path: Path) -> None:
    """A cluster has lost what was committed, and has written on: its files begin as ours do."""
    old = World(1)
    old.publish()
    path = tmp_path / NAME
    write_stream(path, messages=100, message_size=10, chunk_messages=1, epochs=((9, 0),))
    (file,) = path.glob("*.segment")
    last = list(iter_chunks(file.read_bytes(), SEGMENT_HEADER_SIZE))[-1]

    class Node(Broker):
        async def own_last(self, vhost: str, stream: str) -> Parcel:
            del vhost, stream
            return parcel_of(last)

        def generation(self, vhost: str) -> int:
            del vhost
            return 1

        async def at(self, vhost: str, stream: str, offset: int) -> Parcel | None:
            del vhost, stream
            return parcel_of(list(iter_chunks(file.read_bytes(), SEGMENT_HEADER_SIZE))[offset])

    node = cast(BrokerTier, Node(random.Random(4)))

    async def read() -> None:
        with ThreadPoolExecutor(4) as pool:
            local = LocalStream(StreamLog(path), node, "/", "s", pool)
            stream = TieredStream(
                "/", "s", RemoteStream(old.tier.reader(NAME), pool), node, local, print,
                poll_seconds=0.001,
            )  # fmt: skip
            async for batch in stream.follow(0, ALL):
                assert all(each.epoch == 1 for each in batch.parcels)

    with pytest.raises(DivergedError, match="lost"):
        asyncio.run(asyncio.wait_for(read(), 60))


def test_last_is_of_the_history_where_the_broker_has_no_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coldstream.gateway.upstream._CHUNK_SECONDS", 0.001)
    tier = Tier()
    tier.add(NAME, [[chunk(n, b"a") for n in range(5)]])

    def empty(key: int, body: bytes) -> list[bytes]:
        if key == Key.METADATA:
            return [frame(Key.METADATA, body[:4] + bytes(8), response=True)]
        return logging_in(key, body)

    async def locate(port: int) -> int:
        broker = BrokerTier(StreamUri("127.0.0.1", port, "u", "secret"), seconds=60)
        with ThreadPoolExecutor(4) as pool:
            remote = RemoteStream(tier.reader(NAME), pool)
            found = await TieredStream("/", "s", remote, broker, None, print).locate(Last())
        await broker.close()
        return found

    with closing(Peer(empty)) as peer:
        assert asyncio.run(locate(peer.port)) == 4


@pytest.mark.parametrize("first", [0, 1])
def test_retention_is_told_of_what_it_has_taken_and_of_nothing_that_a_filter_leaves_out(
    first: int,
) -> None:
    """Of a stream of one message, which the filter left out, it was said that retention took it."""
    tier, told = Tier(), list[str]()
    tier.add(NAME, [[chunk(first, b"a")]])
    wanted = Wanted(FilterMatcher((b"other",)), {})

    async def read() -> None:
        with ThreadPoolExecutor(4) as pool:
            stream = TieredStream(
                "/", "s", RemoteStream(tier.reader(NAME), pool), None, None,
                lambda _, words: told.append(words), poll_seconds=0.001,
            )  # fmt: skip
            async for batch in stream.follow(0, wanted):
                if batch.next_offset > first:
                    return

    asyncio.run(asyncio.wait_for(read(), 60))
    assert [words.partition(" were")[0] for words in told] == ["offsets 0 to 0"] * first
