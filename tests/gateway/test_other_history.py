"""Another history at the hand-off, of which the read itself has seen nothing."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import cast

import pytest

from coldstream.errors import DivergedError
from coldstream.gateway.broker_tier import BrokerTier
from coldstream.gateway.remote import RemoteStream
from coldstream.gateway.stream import TieredStream
from coldstream.manifest.root import LastChunk
from coldstream.osiris.chunk import ChunkType, chunk_at
from coldstream.reader import ReaderSettings
from tests.gateway.test_cut_off import claimed
from tests.gateway.test_hand_over import ALL, Steady, logged
from tests.support.tier import SMALL, Tier, chunk

NAME = "__s_1"
NEW = [*logged("old", 0, 10), *logged("new" * 300, 10, 40, epoch=2, timestamp=2000)]


def history(upto: int) -> Tier:
    tier = Tier()
    tier.add(NAME, [[bytes(each.buffer)] for each in logged("old", 0, upto)])
    root = tier.reader(NAME).snapshot().root
    tier.commit(NAME, replace(root, last_chunk=LastChunk(upto - 1, 1)))
    return tier


@pytest.mark.parametrize(
    "begins", [0, 20], ids=["the log has all", "retention took what was given"]
)
def test_a_claim_during_the_read_of_s3_is_seen_at_the_hand_off(begins: int) -> None:
    tier, broker = history(20), Steady(logged("old", 0, 20))
    found: list[tuple[int, int]] = []

    async def read() -> None:
        with ThreadPoolExecutor(4) as pool:
            settings = replace(SMALL, in_flight=1, refresh_seconds=3600)
            remote = RemoteStream(tier.reader(NAME, settings), pool)
            stream = TieredStream("/", "s", remote, cast(BrokerTier, broker), None, print)
            async for batch in stream.follow(0, ALL):
                found.extend((each.chunk_id, each.epoch) for each in batch.parcels)
                if len(found) == 5:
                    # 10 to 19 are lost; epoch 2 has written 10 to 39 and published up to 29
                    broker.log, broker.first = NEW, begins
                    claimed(tier, floor=10, upto=30)
                if len(found) >= 30:
                    return

    with pytest.raises(DivergedError):
        asyncio.run(asyncio.wait_for(read(), 20))


def test_a_claim_while_a_client_stands_still_is_seen_where_s3_is_not_read_again() -> None:
    tier, broker = history(12), Steady(logged("old", 0, 20))
    found: list[tuple[int, int]] = []

    async def read() -> None:
        with ThreadPoolExecutor(4) as pool:
            remote = RemoteStream(tier.reader(NAME, ReaderSettings(in_flight=1)), pool)
            stream = TieredStream(
                "/", "s", remote, cast(BrokerTier, broker), None, print, local_first=True
            )
            async with contextlib.aclosing(stream.follow(0, ALL)) as batches:
                async for batch in batches:
                    found.extend((each.chunk_id, each.epoch) for each in batch.parcels)
                    if len(found) == 20:
                        stream.gave(batch.parcels[-1])
                        break  # the client has no credit any more
            broker.log = NEW
            claimed(tier, floor=10, upto=30)
            async for batch in stream.follow(20, ALL):  # and now it has
                found.extend((each.chunk_id, each.epoch) for each in batch.parcels)
                if len(found) >= 30:
                    return

    with pytest.raises(DivergedError):
        asyncio.run(asyncio.wait_for(read(), 20))


def test_a_stored_offset_in_the_place_of_a_message_is_another_log() -> None:
    data = memoryview(chunk(19, b"o", epoch=2, timestamp=2000, kind=ChunkType.TRACKING_DELTA))
    new = [
        *logged("old", 0, 15),
        *logged("new", 15, 19, epoch=2, timestamp=2000),  # 15 to 19 of the old log are lost
        chunk_at(data, 0, len(data)),
        *logged("new", 20, 30, epoch=2, timestamp=2000),
    ]
    broker = Steady(logged("old", 0, 20))
    found: list[tuple[int, int]] = []

    def hangs_up() -> float:
        """Once."""
        broker.rng.random = lambda: 0.9  # type: ignore[method-assign]
        return 0.0

    async def read() -> None:
        stream = TieredStream("/", "s", None, cast(BrokerTier, broker), None, print)
        async for batch in stream.follow(0, ALL):
            found.extend((each.chunk_id, each.epoch) for each in batch.parcels)
            if len(found) == 20:
                broker.log, broker.rng.random = new, hangs_up  # type: ignore[method-assign]
            if len(found) == 30:
                return

    with pytest.raises(DivergedError):
        asyncio.run(asyncio.wait_for(read(), 10))
