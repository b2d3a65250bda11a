"""Every way of publishing, to one node and to three: what a broker has comes back by offset."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import random
import secrets
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from rstream import (
    CompressionType,
    ConfirmationStatus,
    Consumer,
    ConsumerOffsetSpecification,
    MessageContext,
    OffsetType,
    Producer,
    RawMessage,
)
from rstream.exceptions import StreamDoesNotExist

from coldstream.osiris.chunk import ChunkHeader, ChunkType, parse_chunk_header
from coldstream.osiris.index import index_records
from coldstream_devkit.broker import BrokerNode
from coldstream_devkit.broker_cluster import Cluster
from coldstream_devkit.broker_release import SYSTEM, Release

from .conftest import END_SECONDS, Site
from .test_single_node import agent

LARGE = 10_000_000  # bytes of a chunk
ARGUMENTS = {"stream-max-segment-size-bytes": 200_000}


@dataclass
class Sender:
    """A stock producer of one stream that waits until all is confirmed."""

    node: BrokerNode
    stream: str
    arguments: dict[str, Any] = field(default_factory=lambda: dict(ARGUMENTS))
    by_filter: bool = False
    sent: int = 0
    confirmed: int = 0
    refused: int = 0

    @contextlib.asynccontextmanager
    async def producing(self) -> Any:
        """A producer; leaves when every message is confirmed."""
        producer = Producer(
            "127.0.0.1",
            port=self.node.ports.stream,
            username="guest",
            password="guest",
            filter_value_extractor=_first_letter if self.by_filter else None,
        )
        await producer.start()
        await producer.create_stream(self.stream, arguments=self.arguments, exists_ok=True)
        yield producer
        for _ in range(3600):
            if self.confirmed + self.refused >= self.sent:
                break
            await asyncio.sleep(0.05)
        assert (self.confirmed, self.refused) == (self.sent, 0)
        await producer.close()

    def done(self, status: ConfirmationStatus) -> None:
        """Told of each message, or of each entry of several."""
        self.confirmed += status.is_confirmed
        self.refused += not status.is_confirmed


async def _first_letter(message: RawMessage) -> str:
    return chr(message.data[0])


def _bodies(count: int, size: int) -> list[bytes]:
    rng = random.Random(count)
    return [b"%07d " % n + rng.randbytes(rng.randrange(size)) for n in range(count)]


async def plain(node: BrokerNode, stream: str) -> list[bytes]:
    """Without a name, in batches of all sizes."""
    sender, bodies = Sender(node, stream), _bodies(4000, 600)
    async with sender.producing() as producer:
        at = 0
        while at < len(bodies):
            batch = bodies[at : at + 1 + at % 97]
            sender.sent += len(batch)
            await producer.send_batch(stream, batch, on_publish_confirm=sender.done)
            at += len(batch)
            await asyncio.sleep(0.01)
    return bodies


async def named(node: BrokerNode, stream: str) -> list[bytes]:
    """With a name; half of it is sent twice, and the broker drops it."""
    bodies = _bodies(3000, 300)
    for ids in (range(2000), range(1000, 3000)):
        sender = Sender(node, stream)
        async with sender.producing() as producer:
            for at in range(0, len(ids), 50):
                batch = [RawMessage(bodies[n], publishing_id=n + 1) for n in ids[at : at + 50]]
                sender.sent += len(batch)
                await producer.send_batch(
                    stream, batch, publisher_name="p1", on_publish_confirm=sender.done
                )
                await asyncio.sleep(0.005)
    return bodies


async def together(node: BrokerNode, stream: str) -> list[bytes]:
    """Many messages in each entry, with gzip and without, among single ones."""
    sender, bodies = Sender(node, stream), _bodies(4000, 200)
    async with sender.producing() as producer:
        for at in range(0, len(bodies), 80):
            batch, last = bodies[at : at + 79], bodies[at + 79 : at + 80]
            kind = CompressionType.Gzip if at % 160 else CompressionType.No
            sender.sent += 2
            await producer.send_sub_entry(
                stream, batch, compression_type=kind, on_publish_confirm=sender.done
            )
            await producer.send(stream, last[0], on_publish_confirm=sender.done)
            await asyncio.sleep(0.02)
    return bodies


async def filtered(node: BrokerNode, stream: str) -> list[bytes]:
    """With filter values, so that chunks have bloom filters; Publish of version 2."""
    sender = Sender(node, stream, by_filter=True)
    bodies = [b"%c" % (97 + n % 5) + each for n, each in enumerate(_bodies(2000, 200))]
    async with sender.producing() as producer:
        for at in range(0, len(bodies), 40):
            batch = bodies[at : at + 40]
            sender.sent += len(batch)
            await producer.send_batch(stream, batch, on_publish_confirm=sender.done)
            await asyncio.sleep(0.005)
    return bodies


async def tracked(node: BrokerNode, stream: str) -> list[bytes]:
    """While consumers store offsets; the last chunk of the stream is one of these."""
    sender, bodies = Sender(node, stream), _bodies(3000, 400)
    consumer = Consumer("127.0.0.1", port=node.ports.stream, username="guest", password="guest")
    await consumer.start()
    async with sender.producing() as producer:
        for at in range(0, len(bodies), 30):
            batch = bodies[at : at + 30]
            sender.sent += len(batch)
            await producer.send_batch(stream, batch, on_publish_confirm=sender.done)
            await asyncio.sleep(0.01)
            await consumer.store_offset(stream, f"reader{at % 4}", at)
    for offset in (2000, 2001):
        await asyncio.sleep(0.5)
        await consumer.store_offset(stream, "reader0", offset)
    await consumer.close()
    return bodies


async def large(node: BrokerNode, stream: str) -> list[bytes]:
    """As much as goes into a frame, until there is a chunk of 10 MB.

    How much is in a chunk depends on how much waits for the writer. So the broker is frozen while
    the sockets fill.
    """
    sender = Sender(node, stream, {"stream-max-segment-size-bytes": 20_000_000})
    rng = random.Random(1)
    bodies: list[bytes] = []

    async def send(count: int) -> None:
        for _ in range(count):
            bodies.append(b"%07d " % len(bodies) + rng.randbytes(1_040_000))
            sender.sent += 1
            await producer.send_batch(stream, [bodies[-1]], on_publish_confirm=sender.done)

    async with sender.producing() as producer:
        await send(10)
        for _ in range(10):
            node.pause()
            try:
                sending = asyncio.create_task(send(30))
                await asyncio.sleep(1)
            finally:
                node.resume()
            await sending
            while sender.confirmed + sender.refused < sender.sent:
                await asyncio.sleep(0.05)
            if max(each.size for each in chunks(node, stream)) > LARGE:
                break
    return bodies


def chunks(node: BrokerNode, stream: str) -> list[ChunkHeader]:
    """Headers of all chunks of a stream, as the node's files have them."""
    (directory,) = node.data_dir.glob(f"__{stream}_*")
    found = []
    for path in sorted(directory.glob("*.index")):
        data = path.with_suffix(".segment").read_bytes()
        positions = index_records(path.read_bytes())["position"]
        found += [parse_chunk_header(data, int(position)) for position in positions]
    return found


async def subscribed(
    node: BrokerNode, stream: str, take: Callable[[bytes, MessageContext], None]
) -> Consumer:
    """A stock consumer that begins with the first message.

    It reads from any member. Where one does not run yet, its node knows of no such stream.
    """
    first = ConsumerOffsetSpecification(OffsetType.FIRST, None)
    end = time.monotonic() + END_SECONDS
    while True:
        consumer = Consumer("127.0.0.1", port=node.ports.stream, username="guest", password="guest")
        await consumer.start()
        try:
            await consumer.subscribe(stream, take, offset_specification=first)
        except StreamDoesNotExist:
            await consumer.close()
            assert time.monotonic() < end
            await asyncio.sleep(0.5)
        else:
            return consumer


async def delivered(node: BrokerNode, stream: str, count: int) -> dict[int, str]:
    """SHA-256 by offset of what a stock consumer gets."""
    rows: dict[int, str] = {}
    full = asyncio.Event()

    def take(body: bytes, context: MessageContext) -> None:
        rows[context.offset] = hashlib.sha256(body).hexdigest()
        if len(rows) >= count:
            full.set()

    consumer = await subscribed(node, stream, take)
    running = asyncio.create_task(consumer.run())
    await asyncio.wait_for(full.wait(), 180)
    await asyncio.sleep(0.5)  # for more than there should be
    running.cancel()
    await consumer.close()
    return rows


def tiered(site: Site, stream: str) -> dict[int, str]:
    """SHA-256 by offset of what the tier has; nothing while it has no such stream."""
    read = site.run(
        "read", f"//{stream}", "--from", "first", "--output", "json", "--body-format", "amqp"
    )
    rows = [json.loads(line) for line in read.stdout.splitlines()]
    return {
        row["offset"]: hashlib.sha256(base64.b64decode(row["body_base64"])).hexdigest()
        for row in rows
    }


@pytest.fixture(params=["one node", "three nodes"])
def beside(request: pytest.FixtureRequest, release: Release) -> Iterator[BrokerNode]:
    """The node beside which the agent runs; of three it is the one that leads."""
    del release  # what both have in common, named here so that pytest sees it
    if request.param == "one node":
        yield request.getfixturevalue("node")
        return
    cluster: Cluster = request.getfixturevalue("calm_cluster")
    yield cluster.nodes[1]


@pytest.mark.parametrize("publish", [plain, named, together, filtered, tracked, large])
def test_what_a_broker_delivers_is_in_the_tier_by_offset(
    publish: Callable[[BrokerNode, str], Awaitable[list[bytes]]],
    beside: BrokerNode,
    release: Release,
    site: Site,
    wait_for: Callable[[Callable[[], Any]], Any],
) -> None:
    if publish is filtered and release is SYSTEM:
        pytest.skip("3.10 has no filters")
    stream = f"{publish.__name__}{secrets.token_hex(3)}"
    process = site.start(*agent(site, beside))
    try:
        bodies = asyncio.run(publish(beside, stream))
        there = asyncio.run(delivered(beside, stream, len(bodies)))
        wait_for(lambda: len(tiered(site, stream)) >= len(bodies))
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=END_SECONDS)

    assert process.returncode == 0, err.decode()
    assert sorted(there.values()) == sorted(hashlib.sha256(each).hexdigest() for each in bodies)
    assert tiered(site, stream) == there
    verified = site.run("verify", f"//{stream}", "--deep")
    assert verified.returncode == 0, verified.stdout.decode()
    written = chunks(beside, stream)
    if publish is tracked:
        assert {each.chunk_type for each in written} == set(ChunkType)
        assert written[-1].chunk_type != ChunkType.USER
    if publish is filtered:
        assert all(each.bloom_size for each in written)
    if publish is large:
        assert max(each.size for each in written) > LARGE
