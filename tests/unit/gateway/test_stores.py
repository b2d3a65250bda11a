"""Offsets on their way: the newest of each consumer, and none lost with whoever waits."""

from __future__ import annotations

import asyncio

import pytest

from coldstream.gateway import stores
from coldstream.gateway.requests import Store
from coldstream.gateway.stores import Stores


class Kept:
    """Stores nothing until it may."""

    def __init__(self) -> None:
        self.may, self.offsets = asyncio.Event(), dict[str, int]()

    async def store(self, request: Store) -> None:
        await self.may.wait()
        self.offsets[request.reference] = request.offset


def test_of_each_consumer_the_last_offset_is_stored_and_nobody_waits_for_it() -> None:
    async def story() -> None:
        kept = Kept()
        those = Stores(kept.store)
        for offset in range(50):
            await those.put(Store(f"c{offset % 3}", "orders", offset))
        assert kept.offsets == {}
        kept.may.set()
        await those.settled()
        assert kept.offsets == {"c0": 48, "c1": 49, "c2": 47}

    asyncio.run(story())


def test_an_offset_that_waits_for_room_is_stored_though_its_client_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stores, "_MOST", 3)

    async def story() -> None:
        kept = Kept()
        those = Stores(kept.store)
        puts = [asyncio.create_task(those.put(Store(f"c{n}", "orders", n))) for n in range(6)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for each in puts:
            each.cancel()
        await asyncio.gather(*puts, return_exceptions=True)
        kept.may.set()
        await those.settled()
        assert kept.offsets == {f"c{n}": n for n in range(6)}

    asyncio.run(story())
