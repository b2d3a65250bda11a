"""Metadata of many streams at once."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress

from coldstream.broker.frames import Key, string
from coldstream.errors import UnavailableError
from tests.support.gateway import Gateway
from tests.support.raw_client import RawClient
from tests.support.tier import Tier

COUNT = 40


class Frozen:
    """A broker that says of no stream whether it is there."""

    def __init__(self) -> None:
        self.asked = 0
        self.all_asked = asyncio.Event()

    async def exists(self, vhost: str, stream: str) -> bool:
        del vhost
        self.asked += 1
        if self.asked == COUNT:
            self.all_asked.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.all_asked.wait(), 5)
        raise UnavailableError("does not answer", stream=stream)

    async def close(self) -> None: ...


def test_a_broker_that_stands_still_is_waited_for_once_and_not_for_each_stream() -> None:
    """Whoever asked for forty was waited for on his behalf long after he had left."""
    broker = Frozen()
    names = [f"s{n}" for n in range(COUNT)]
    with Gateway(Tier(), broker=broker) as gateway, RawClient(gateway.port).log_in() as client:
        client.request(Key.METADATA, struct.pack(">i", COUNT) + b"".join(map(string, names)))
        assert broker.all_asked.is_set()


class Slow:
    """A broker that takes a while for each stream; counts who asks at the same time."""

    def __init__(self) -> None:
        self.now = self.most = self.all = 0

    async def exists(self, vhost: str, stream: str) -> bool:
        del vhost, stream
        self.now, self.all = self.now + 1, self.all + 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.001)
        self.now -= 1
        return False

    async def close(self) -> None: ...


def test_a_client_that_asks_for_hundreds_of_streams_takes_no_more_than_its_share() -> None:
    """All clients of a gateway have the same threads, and one connection to the broker."""
    broker, names = Slow(), [f"s{n}" for n in range(300)]
    with Gateway(Tier(), broker=broker) as gateway, RawClient(gateway.port).log_in() as client:
        client.request(Key.METADATA, struct.pack(">i", len(names)) + b"".join(map(string, names)))
    assert (broker.all, broker.most) == (300, 64)
