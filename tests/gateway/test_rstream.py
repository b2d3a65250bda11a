"""rstream, the stock client for Python, reads from a gateway as from a broker."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest
from rstream import AMQPMessage, Consumer, ConsumerOffsetSpecification, OffsetType

from tests.support.gateway import Gateway
from tests.support.tier import FIXTURES


async def consumed(port: int, stream: str, spec: Any, count: int, **more: Any) -> list[Any]:
    """(offset, body) of the first `count` messages."""
    consumer = Consumer("127.0.0.1", port, username="guest", password="guest", vhost="/")
    found: list[Any] = []
    done = asyncio.Event()

    async def take(body: bytes | AMQPMessage, context: Any) -> None:
        found.append((context.offset, body))
        if len(found) >= count:
            done.set()

    await consumer.start()
    await consumer.subscribe(stream, take, offset_specification=spec, **more)
    async with asyncio.timeout(60):
        await done.wait()
    await consumer.close()
    return found[:count]


def at(kind: OffsetType, value: int | None = None) -> ConsumerOffsetSpecification:
    return ConsumerOffsetSpecification(kind, value)


@pytest.mark.parametrize("name", [each for each in FIXTURES if "codecs" not in each])
def test_a_stream_that_is_all_remote_is_read_from_its_first_to_its_last_message(
    gateway: Gateway, name: str
) -> None:
    gateway.tier.add_fixture(name)
    expected = FIXTURES[name]
    queue = expected.get("stream", "fx.epochs")

    found = asyncio.run(consumed(gateway.port, queue, at(OffsetType.FIRST), expected["messages"]))

    digest = hashlib.sha256(b"".join(bytes(body) for _, body in found)).hexdigest()
    assert digest == expected["sha256"]
