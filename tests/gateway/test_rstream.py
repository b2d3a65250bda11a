"""rstream, the stock client for Python, reads from a gateway as from a broker."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest
from rstream import (
    AMQPMessage,
    Consumer,
    ConsumerOffsetSpecification,
    FilterConfiguration,
    OffsetType,
)

from coldstream.manifest.catalog import QueueName
from coldstream.osiris.bloom import FilterMatcher
from coldstream.reader import First
from tests.support.gateway import Gateway
from tests.support.tier import FIXTURES, chunk


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


def test_a_consumer_that_comes_back_goes_on_behind_its_last_offset(gateway: Gateway) -> None:
    name = "dedup-3.10.8"
    gateway.tier.add_fixture(name)
    queue, count = FIXTURES[name]["stream"], FIXTURES[name]["messages"]
    whole = asyncio.run(consumed(gateway.port, queue, at(OffsetType.FIRST), count))
    for seen in (1, count // 2, count - 1):
        begin = whole[seen - 1][0] + 1
        rest = asyncio.run(
            consumed(gateway.port, queue, at(OffsetType.OFFSET, begin), count - seen)
        )
        assert rest == whole[seen:]


def test_a_filter_gets_the_chunks_that_a_broker_would_deliver(gateway: Gateway) -> None:
    name = "filter-4.3.6"
    stream = gateway.tier.add_fixture(name)
    matcher = FilterMatcher((b"apac",))
    expected = [
        offset
        for each in gateway.tier.reader(stream).chunks(First())
        if matcher.matches(each.bloom)
        for offset in range(each.header.chunk_id, each.header.next_offset)
    ]
    options = FilterConfiguration(values_to_filter=["apac"], match_unfiltered=False)
    found = asyncio.run(
        consumed(
            gateway.port,
            FIXTURES[name]["stream"],
            at(OffsetType.FIRST),
            len(expected),
            filter_input=options,
        )
    )
    assert [offset for offset, _ in found] == expected


def test_chunks_of_every_size_come_through(gateway: Gateway) -> None:
    small = [chunk(n, b"x" * 100) for n in range(50)]
    large = chunk(50, *(b"y" * 160_000 for _ in range(64)))
    gateway.tier.add("__sizes_1", [[*small, large]], name=QueueName("test", "/", "sizes"))
    found = asyncio.run(consumed(gateway.port, "sizes", at(OffsetType.FIRST), 114))
    assert [offset for offset, _ in found] == list(range(114))
    assert sum(len(body) for _, body in found) == 5000 + 64 * 160_000
