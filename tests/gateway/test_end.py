"""The end of a gateway leaves nothing open, whoever comes at that very moment."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from coldstream.adapters.memory import MemoryOffsets
from coldstream.broker.frames import Key, frame
from coldstream.gateway import server as servers
from coldstream.gateway.metrics import GatewayMetrics
from coldstream.gateway.offsets import Offsets
from coldstream.gateway.server import Server
from coldstream.gateway.site import Site
from coldstream.gateway.streams import Streams
from coldstream.gateway.users import parse_users
from coldstream.reader import MemoryBudget
from tests.support.slow import slow
from tests.support.tier import PREFIX, SMALL, Tier


def site(pool: ThreadPoolExecutor) -> Site:
    tier, budget = Tier(), MemoryBudget()
    streams = Streams(
        tier.store, tier.catalog, PREFIX, SMALL, budget, pool, None, None, lambda *_: None
    )
    offsets, metrics = Offsets(None, MemoryOffsets(), pool), GatewayMetrics(budget)
    return Site(streams, offsets, parse_users("guest:guest:.*\n"), metrics, pool, print, "1")


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the garbage collector finds open."""
    gc.collect()
    found: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda each: found.append(str(each.exc_value)))
    # A slow machine goes a single round where a quick one goes many: the loop ends at once.
    monkeypatch.setattr(servers, "_SOCKETS_SECONDS", 0)
    return found


async def rounds_of_the_loop(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("rounds", [0, 3, *slow([1, 2, 4, 5, 6, 7])])
def test_who_comes_while_the_gateway_ends_leaves_no_socket_open(
    rounds: int, left: list[str]
) -> None:
    async def run() -> socket.socket:
        with ThreadPoolExecutor(1) as pool:
            async with Server(site(pool), 5).listening("127.0.0.1", 0) as port:
                client = socket.create_connection(("127.0.0.1", port), timeout=30)
                await rounds_of_the_loop(rounds)
        return client

    with asyncio.run(run()) as client, suppress(ConnectionError):
        assert client.recv(1) == b"", "it is hung up on"
    gc.collect()
    assert left == []


@pytest.mark.parametrize("rounds", [0, 3, *slow([1, 2, 4, 5, 6, 7])])
@pytest.mark.parametrize("how", ["stays", "leaves", "resets", "one too many"])
def test_whoever_leaves_while_the_gateway_ends_leaves_no_socket_open(
    how: str, rounds: int, left: list[str]
) -> None:
    async def run() -> None:
        with ThreadPoolExecutor(1) as pool:
            async with Server(site(pool), 1).listening("127.0.0.1", 0) as port:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(frame(Key.PEER_PROPERTIES, bytes(8)))
                assert await reader.read(4)
                if how == "one too many":
                    socket.create_connection(("127.0.0.1", port)).close()
                if how == "resets":
                    gone = struct.pack("ii", 1, 0)
                    writer.get_extra_info("socket").setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, gone
                    )
                if how in ("leaves", "resets"):
                    writer.transport.abort()
                await rounds_of_the_loop(rounds)
            writer.transport.abort()
            await rounds_of_the_loop(2)

    asyncio.run(run())
    gc.collect()
    assert left == []
