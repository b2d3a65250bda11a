"""NOT_IN_DISK, and two members of one stream of which one has lost more to local retention."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import cast

from coldstream.gateway.broker_tier import BrokerTier
from coldstream.gateway.feed import Fed
from coldstream.gateway.remote import RemoteStream
from coldstream.gateway.stream import TieredStream
from coldstream.manifest.root import LastChunk
from tests.gateway.test_hand_over import ALL, NAME, Steady, logged
from tests.support.tier import Tier


class TwoMembers(Steady):
    """The one that is asked begins at 5; the one that takes one more connection begins at 15."""

    follows = 0

    async def extent(self, vhost: str, stream: str) -> tuple[int, int] | None:
        return 5, self.end

    def follow(
        self, vhost: str, stream: str, position: int, more: Mapping[str, str]
    ) -> AsyncGenerator[Fed, None]:
        self.follows += 1
        return super().follow(vhost, stream, position, more)


def test_what_the_member_that_is_read_does_not_have_is_read_in_s3() -> None:
    log = logged("old", 0, 30)
    tier, broker = Tier(), TwoMembers(log, first=15)
    tier.add(NAME, [[bytes(each.buffer)] for each in log[:20]])
    tier.commit(NAME, replace(tier.reader(NAME).snapshot().root, last_chunk=LastChunk(19, 1)))
    found: list[int] = []

    async def read() -> None:
        with ThreadPoolExecutor(4) as pool:
            stream = TieredStream(
                "/", "s", RemoteStream(tier.reader(NAME), pool), cast(BrokerTier, broker), None,
                lambda *_: None, poll_seconds=0.001, local_first=True,
            )  # fmt: skip
            async for batch in stream.follow(0, ALL):
                found.extend(each.chunk_id for each in batch.parcels)
                if found and found[-1] == 29:
                    return

    asyncio.run(asyncio.wait_for(read(), 60))

    assert found == list(range(30))
    assert broker.follows < 5
