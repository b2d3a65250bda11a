"""A subscription by time, where local retention was quicker than the upload."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from coldstream.gateway.broker_tier import BrokerTier
from coldstream.gateway.remote import RemoteStream
from coldstream.gateway.stream import TieredStream
from coldstream.manifest.root import LastChunk
from coldstream.reader import OffsetSpec, Timestamp
from tests.gateway.test_hand_over import ALL, NAME, Steady, logged
from tests.support.tier import Tier


class Broker(Steady):
    """Begins at 15; answers times as a broker does."""

    async def locate(self, vhost: str, stream: str, spec: OffsetSpec) -> int:
        assert isinstance(spec, Timestamp)
        there = self.log[self.first :]
        return next(
            (c.header.chunk_id for c in there if c.header.timestamp >= spec.value), self.end
        )


def test_what_is_uploaded_a_minute_later_is_not_passed_over_by_who_asks_for_a_time() -> None:
    log = [
        *logged("old", 0, 10, timestamp=1000),
        *logged("gap", 10, 15, timestamp=2000),  # gone from the broker, being uploaded
        *logged("new", 15, 20, timestamp=3000),
    ]
    tier, broker = Tier(), Broker(log, first=15)
    tier.add(NAME, [[bytes(each.buffer)] for each in log[:10]])
    found: list[int] = []
    told: list[str] = []

    async def read() -> None:
        with ThreadPoolExecutor(4) as pool:
            stream = TieredStream(
                "/", "s", RemoteStream(tier.reader(NAME), pool), cast(BrokerTier, broker), None,
                lambda *each: told.append(str(each)), poll_seconds=0.001,
            )  # fmt: skip
            position = await stream.locate(Timestamp(1500))
            # a moment later the agent's upload is published
            root = tier.reader(NAME).snapshot().root
            entry = tier.upload(NAME, [bytes(c.buffer) for c in log[10:15]], epoch=1, floor=0)
            tier.commit(NAME, root.appended([entry], LastChunk(14, 1)))
            async for batch in stream.follow(position, ALL):
                found.extend(each.chunk_id for each in batch.parcels)
                if found and found[-1] == 19:
                    return

    asyncio.run(asyncio.wait_for(read(), 20))
    # 10 to 14 are of 2000, after the time that was asked for
    assert set(range(10, 20)) <= set(found)
