"""A queue is deleted, and perhaps declared anew, while somebody waits at the end of its stream."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import replace
from typing import cast

import pytest

from coldstream.broker.frames import Code, Key
from coldstream.errors import DivergedError, NotFoundError, UnavailableError
from coldstream.gateway.broker_tier import BrokerTier
from coldstream.gateway.feed import Fed
from coldstream.gateway.parcel import Parcel, parcel_of
from coldstream.gateway.remote import RemoteStream
from coldstream.gateway.stream import TieredStream, Wanted
from coldstream.gateway.streams import Streams
from coldstream.manifest.catalog import CatalogItem, QueueName, StreamState
from coldstream.manifest.root import LastChunk
from coldstream.osiris.chunk import chunk_at
from coldstream.reader import MemoryBudget
from tests.support.gateway import Gateway
from tests.support.raw_client import RawClient
from tests.support.tier import PREFIX, SMALL, Tier, chunk

STREAM = "__orders_1"


@pytest.fixture
def tier() -> Tier:
    made = Tier()
    made.add(STREAM, [[chunk(0, b"a", b"b")]], name=QueueName("test", "/", "orders"))
    return made


def test_who_waits_for_more_of_a_stream_is_told_when_it_is_deleted(tier: Tier) -> None:
    """He waited for ever, also when a queue of that name was declared anew."""
    with Gateway(tier) as gateway, RawClient(gateway.port).log_in() as client:
        assert client.subscribe("orders", credit=10) == Code.OK
        assert client.chunk()
        assert client.silent()
        items = tier.catalog.items
        items[STREAM] = replace(items[STREAM], state=StreamState.DELETING)

        key, fields = client.frame()
        assert key == Key.METADATA_UPDATE
        assert fields.number("H") == Code.NO_STREAM
        assert fields.string() == "orders"


class Anew:
    """A broker whose queue is deleted, and declared anew with another log once it was missed."""

    def __init__(self) -> None:
        self.missed = 0

    async def at(self, vhost: str, stream: str, offset: int) -> Parcel | None:
        del vhost, offset
        self.missed += 1
        if self.missed <= 3:
            raise NotFoundError("there is no such stream", stream=stream)
        data = memoryview(chunk(0, b"new", timestamp=9000))
        return parcel_of(chunk_at(data, 0, len(data)))

    async def follow(
        self, vhost: str, stream: str, position: int, more: Mapping[str, str]
    ) -> AsyncGenerator[Fed, None]:
        assert not stream, "another log is never read on"
        yield cast(Fed, None)


def test_a_queue_that_is_declared_anew_later_is_found_though_nothing_is_uploaded(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the queue was missed, the broker was asked again only when the manifest had grown."""
    monkeypatch.setattr("coldstream.gateway.stream._ASK_AGAIN_SECONDS", 0.01)
    root = tier.reader(STREAM).snapshot().root
    tier.commit(STREAM, replace(root, last_chunk=LastChunk(0, 1)))

    async def run() -> None:
        with ThreadPoolExecutor(4) as pool:
            remote = RemoteStream(tier.reader(STREAM), pool)
            broker = cast(BrokerTier, Anew())
            stream = TieredStream("/", "orders", remote, broker, None, print, poll_seconds=0.01)
            async with asyncio.timeout(60), aclosing(stream.follow(0, Wanted(None, {}))) as found:
                async for _ in found:
                    pass

    with pytest.raises(DivergedError, match="made anew"):
        asyncio.run(run())


class Shorter:
    """A broker whose queue was declared anew: its log does not come so far as the old one did."""

    def __init__(self, waits: Callable[[], None]) -> None:
        self.waits = waits

    async def at(self, vhost: str, stream: str, offset: int) -> Parcel | None:
        """Nothing has this offset, as in the log of a member that is behind."""

    async def follow(
        self, vhost: str, stream: str, position: int, more: Mapping[str, str]
    ) -> AsyncGenerator[Fed, None]:
        self.waits()
        await asyncio.Event().wait()
        yield cast(Fed, None)


@pytest.mark.parametrize("silent", [0, 3])
def test_who_waits_behind_the_end_of_a_log_that_is_another_one_is_told_when_his_was_deleted(
    tier: Tier, monkeypatch: pytest.MonkeyPatch, silent: int
) -> None:
    """The new queue may never have as many messages as the old one had, and nobody looked again."""
    monkeypatch.setattr("coldstream.gateway.stream._LOOK_SECONDS", 0.01)
    root = tier.reader(STREAM).snapshot().root
    tier.commit(STREAM, replace(root, last_chunk=LastChunk(0, 1)))
    get, lost, waits = tier.catalog.get, list[UnavailableError](), list[int]()

    def answered(stream: str) -> CatalogItem | None:
        if lost:
            raise lost.pop()
        return get(stream)

    def delete() -> None:
        waits.append(1)
        items = tier.catalog.items
        items[STREAM] = replace(items[STREAM], state=StreamState.DELETING)
        lost.extend([UnavailableError("the table does not answer")] * silent)

    async def run() -> None:
        with ThreadPoolExecutor(4) as pool:
            remote = RemoteStream(tier.reader(STREAM), pool)
            broker = cast(BrokerTier, Shorter(delete))
            stream = TieredStream("/", "orders", remote, broker, None, print, poll_seconds=0.001)
            async with asyncio.timeout(20), aclosing(stream.follow(0, Wanted(None, {}))) as found:
                async for batch in found:
                    assert [each.chunk_id for each in batch.parcels] == [0]

    monkeypatch.setattr(tier.catalog, "get", answered)
    with pytest.raises(NotFoundError, match="was deleted"):
        asyncio.run(run())
    assert not lost
    assert len(waits) == 1, "whoever waits at the broker goes on waiting though the table is silent"


def anew(tier: Tier, stream: str = "__orders_2") -> None:
    """An agent tells of another directory of the same queue."""
    tier.add(stream, [[chunk(0, b"new", timestamp=9000)]], name=QueueName("test", "/", "orders"))


def streams_of(tier: Tier, pool: ThreadPoolExecutor, broker: object = None) -> Streams:
    return Streams(
        tier.store, tier.catalog, PREFIX, SMALL, MemoryBudget(), pool,
        cast(BrokerTier, broker), None, lambda *_: None,
    )  # fmt: skip


async def follow(streams: Streams, name: str, given: Callable[[], None]) -> None:
    found = await streams.find("/", name)
    assert found is not None
    stream = found[0]
    stream.poll_seconds = 0.001
    async with asyncio.timeout(20), aclosing(stream.follow(0, Wanted(None, {}))) as batches:
        async for batch in batches:
            assert [each.chunk_id for each in batch.parcels] == [0]
            given()


@pytest.mark.parametrize("has_broker", [False, True])
def test_who_waits_at_the_end_of_a_queue_that_was_declared_anew_is_told_without_a_tombstone(
    tier: Tier, monkeypatch: pytest.MonkeyPatch, has_broker: bool
) -> None:
    """Nobody writes one by himself: he heard nothing though the new queue had new messages."""
    monkeypatch.setattr("coldstream.gateway.stream._LOOK_SECONDS", 0.01)
    monkeypatch.setattr("coldstream.gateway.names._FRESH_SECONDS", 0.01)
    root = tier.reader(STREAM).snapshot().root
    tier.commit(STREAM, replace(root, last_chunk=LastChunk(0, 1)))
    broker = Shorter(lambda: anew(tier)) if has_broker else None

    async def run() -> None:
        with ThreadPoolExecutor(4) as pool:
            given = (lambda: None) if has_broker else (lambda: anew(tier))
            await follow(streams_of(tier, pool, broker), "orders", given)

    with pytest.raises(DivergedError, match="declared anew"):
        asyncio.run(run())


@pytest.mark.parametrize(
    ("asked", "other"), [("orders", "__orders_0"), (STREAM, "__orders_2"), ("orders", "")]
)
def test_nobody_is_ended_for_an_older_directory_nor_who_named_his_nor_for_want_of_an_answer(
    tier: Tier, monkeypatch: pytest.MonkeyPatch, asked: str, other: str
) -> None:
    monkeypatch.setattr("coldstream.gateway.names._FRESH_SECONDS", 0.001)
    looks = list[int]()

    def listed() -> Iterator[CatalogItem]:
        looks.append(1)
        if looks[5:] and not other:
            raise UnavailableError("the table does not answer")
        return iter(list(tier.catalog.items.values()))

    def given() -> None:
        if other:
            anew(tier, other)

    async def run() -> None:
        with ThreadPoolExecutor(4) as pool, contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await follow(streams_of(tier, pool), asked, given)

    monkeypatch.setattr(tier.catalog, "streams", listed)
    asyncio.run(run())
    assert asked == STREAM or len(looks) > 5
