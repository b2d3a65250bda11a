"""A client that takes nothing: what was read ahead for it is given back, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from coldstream.errors import ColdstreamError
from coldstream.gateway.delivery import Delivery
from coldstream.gateway.remote import RemoteStream
from coldstream.gateway.stream import TieredStream, Wanted
from coldstream.reader import MemoryBudget, ReaderSettings
from tests.support.tier import Tier, chunk

SIZE, COUNT = 50_000, 60


class Line:
    """A socket that can be stopped."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.settled = 0
        self.open = asyncio.Event()

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        self.sent.append(int.from_bytes(bytes(parts[1][24:32]), "big"))

    async def drained(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.open.wait()
        except TimeoutError:
            return False
        return True

    def settle(self) -> None:
        self.settled += 1


def refuse(_: int, error: ColdstreamError) -> None:
    raise error


async def until(condition: object) -> None:
    async with asyncio.timeout(60):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.001)


def test_who_stands_still_holds_nothing_and_goes_on_at_the_very_chunk() -> None:
    tier, budget = Tier(), MemoryBudget()
    tier.add("s", [[chunk(n, bytes(SIZE)) for n in range(COUNT)]])
    settings = ReaderSettings(range_size=4 * SIZE, first_range_size=SIZE, in_flight=4)

    async def run() -> None:
        with ThreadPoolExecutor(8) as pool:
            remote = RemoteStream(tier.reader("s", settings, budget), pool)
            stream = TieredStream("/", "s", remote, None, None, print)
            line = Line()
            line.open.set()
            delivery = Delivery(
                1, stream, 0, Wanted(None, {}), 1, line, lambda *_: None, refuse, idle=0.02
            )
            task = asyncio.create_task(delivery.run())
            delivery.grant(3)
            await until(lambda: len(line.sent) == 3)
            await until(lambda: line.settled and budget.held == 0)  # no credit
            assert line.settled == 1, "what waits keeps no range either"
            line.open.clear()
            delivery.grant(COUNT)
            await until(lambda: len(line.sent) >= 3)
            await until(lambda: budget.held == 0)  # a socket that takes nothing
            assert len(line.sent) <= 4, "nothing piles up behind it"
            line.open.set()
            await until(lambda: len(line.sent) == COUNT)
            assert line.sent == list(range(COUNT))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await until(lambda: budget.held == 0)

    asyncio.run(run())
    assert budget.peak > SIZE
