"""What asyncio reads hold in memory, and which thread blocks."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from coldstream.reader import MemoryBudget, ReaderSettings
from coldstream.reader.aio import AsyncRemoteTier, in_batches
from coldstream.reader.library import RemoteTier
from coldstream.reader.stream import Message
from tests.support.tier import PREFIX, SMALL, Tier, chunk

_SIZE = 2**18


@pytest.mark.parametrize("what", ["messages", "entries", "chunks"])
@pytest.mark.parametrize(
    "bodies", [(bytes(_SIZE),), (b"small", bytes(_SIZE))], ids=["large", "odd"]
)
def test_a_read_holds_no_more_than_its_budget_and_some_ranges(
    what: str, bodies: tuple[bytes, ...]
) -> None:
    """A batch of 1,024 chunks held all ranges that they were of: 388 MiB where 8 were allowed."""
    tier, at = Tier(), 0
    groups = []
    for _ in range(100):
        groups.append([chunk(at + n * len(bodies), *bodies) for n in range(4)])
        at += 4 * len(bodies)
    tier.add("__s_1", groups)
    budget = MemoryBudget(2**21)
    settings = ReaderSettings(in_flight=2)
    opened = RemoteTier(tier.store, tier.catalog, PREFIX, settings=settings, budget=budget)

    async def read() -> int:
        async with AsyncRemoteTier(opened) as there:
            stream = await there.stream("__s_1")
            return sum([1 async for _ in getattr(stream, what)()])

    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    count = asyncio.run(read())
    most = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()

    assert count == (400 if what == "chunks" else at)
    assert most < 12 * 2**20  # of 100


class _Told:
    """A store or a catalog that says who calls it."""

    def __init__(self, inner: Any, called: Callable[[str], None]) -> None:
        self._inner, self._called = inner, called

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)

        def call(*args: Any, **more: Any) -> Any:
            self._called(name)
            return found(*args, **more)

        return call if callable(found) else found


@pytest.mark.parametrize("what", ["messages", "events", "entries", "chunks", "to_arrow", "locate"])
def test_nothing_blocks_the_event_loop(what: str) -> None:
    """`chunks` looked for its first one in the loop's own thread."""
    tier, here = Tier(), threading.get_ident()
    tier.add("__s_1", [[chunk(0, b"a")], [chunk(1, b"b")]])
    blocked: list[str] = []

    def called(name: str) -> None:
        if threading.get_ident() == here:
            blocked.append(name)

    store, catalog = _Told(tier.store, called), _Told(tier.catalog, called)

    async def read() -> None:
        remote: Any = RemoteTier(store, catalog, PREFIX, settings=SMALL)  # type: ignore[arg-type]
        async with AsyncRemoteTier(remote) as opened:
            method = getattr(await opened.stream("__s_1"), what)
            if what in ("to_arrow", "locate"):
                await method("last")
            else:
                assert [each async for each in method("last")]

    asyncio.run(read())
    assert blocked == []


def test_items_of_many_owners_go_together_as_long_as_they_hold_little() -> None:
    """A sub-batch has bytes of its own: each return to the range counted all of it once more."""
    whole = memoryview(bytes(2**22))
    items = [Message(n, 0, whole[n : n + 1] if n % 2 else bytes(10)) for n in range(20_000)]

    batches = list(in_batches(each for each in items))

    assert [each for batch in batches for each in batch] == items
    assert len(batches) < 40
