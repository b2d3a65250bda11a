"""rbfly, a stock client for Python in Cython, reads from a gateway as from a broker.

Its release 0.10 passes over sub-batches, and over what follows in their chunks, from a broker as
from here, so it is tried on streams without any.
"""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import aclosing
from typing import Any

import pytest
import rbfly.streams as rbs

from tests.support.gateway import Gateway
from tests.support.tier import FIXTURES


async def consumed(port: int, stream: str, offset: rbs.Offset, count: int) -> list[bytes]:
    """The first `count` bodies."""
    client = rbs.streams_client(f"rabbitmq-stream://guest:guest@127.0.0.1:{port}")
    found = []
    # A generator; left to itself, it would unsubscribe while the client says goodbye.
    messages: Any = client.subscribe(stream, offset=offset, amqp=False)
    try:
        async with asyncio.timeout(60), aclosing(messages):
            async for message in messages:
                found.append(bytes(message))
                if len(found) == count:
                    break
    finally:
        await client.disconnect()
    return found


@pytest.mark.parametrize("name", ["plain-3.10.8", "dedup-4.3.6", "epochs-4.3.6"])
def test_a_stream_that_is_all_remote_is_read_whole(gateway: Gateway, name: str) -> None:
    gateway.tier.add_fixture(name)
    expected = FIXTURES[name]

    found = asyncio.run(
        consumed(
            gateway.port,
            expected.get("stream", "fx.epochs"),
            rbs.Offset.FIRST,
            expected["messages"],
        )
    )

    assert hashlib.sha256(b"".join(found)).hexdigest() == expected["sha256"]
