"""Members of one stream that differ: local retention has taken more of one, or one is behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import cast

import pytest

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


class Behind(Steady):
    """One member says where the log ends; the one that is read is `late` messages behind."""

    late = 5

    def follow(
        self, vhost: str, stream: str, position: int, more: Mapping[str, str]
    ) -> AsyncGenerator[Fed, None]:
        return super().follow(vhost, stream, position - self.late, more)


@pytest.mark.parametrize("published", [0, 20], ids=["no history", "history below"])
def test_who_begins_at_the_end_of_a_log_passes_over_what_a_member_behind_has_below_it(
    published: int,
) -> None:
    log = logged("old", 0, 60)
    broker, remote = Behind(log[:40]), None
    found: list[int] = []

    async def read() -> None:
        nonlocal remote
        with ThreadPoolExecutor(4) as pool:
            if published:
                tier = Tier()
                tier.add(NAME, [[bytes(each.buffer)] for each in log[:published]])
                root = replace(
                    tier.reader(NAME).snapshot().root, last_chunk=LastChunk(published - 1, 1)
                )
                tier.commit(NAME, root)
                remote = RemoteStream(tier.reader(NAME), pool)
            stream = TieredStream("/", "s", remote, cast(BrokerTier, broker), None, print)
            broker.log = log
            async for batch in stream.follow(40, ALL):
                found.extend(each.chunk_id for each in batch.parcels)
                if found and found[-1] == 59:
                    return

    asyncio.run(asyncio.wait_for(read(), 60))

    assert found == list(range(40, 60))
