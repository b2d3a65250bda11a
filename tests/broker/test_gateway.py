"""A gateway beside one living broker: history from the remote tier, the tail from the broker."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldstream.broker.connection import StreamUri
from coldstream.manifest.catalog import QueueName
from coldstream.osiris.chunk import iter_chunks
from coldstream.osiris.segment import SEGMENT_HEADER_SIZE
from coldstream_devkit.broker import BrokerNode
from coldstream_devkit.stream_client import Delivered, StreamClient
from tests.support.gateway import Gateway
from tests.support.tier import Tier

SMALL_SEGMENTS = {"stream-max-segment-size-bytes": "20000"}


@pytest.fixture
def stream() -> str:
    """A name of its own for each test."""
    return f"orders{secrets.token_hex(3)}"


def published(node: BrokerNode, stream: str, first: int, count: int) -> None:
    """Messages `first` and so on, some in each chunk, all confirmed."""
    with contextlib.closing(StreamClient(node.ports.stream)) as client:
        client.create(stream, SMALL_SEGMENTS)
        client.declare(stream)
        for begin in range(first, first + count, 20):
            numbers = range(begin, min(begin + 20, first + count))
            client.publish([(n, b"%09d" % n) for n in numbers])
            waiting = set(numbers)
            while waiting:
                waiting -= set(client.confirmed(10))


def directory(node: BrokerNode, stream: str) -> Path:
    (found,) = node.data_dir.glob(f"*_{stream}_*")
    return found


def tiered(tier: Tier, path: Path, stream: str, segments: int) -> int:
    """Upload the first segments of a directory; the next offset of the manifest."""
    files = sorted(path.glob("*.segment"))[:segments]
    chunks = [
        [bytes(each.buffer) for each in iter_chunks(file.read_bytes(), SEGMENT_HEADER_SIZE)]
        for file in files
    ]
    return tier.add(path.name, chunks, name=QueueName("test", "/", stream)).next_offset


def read(port: int, stream: str, count: int, offset: int = 0) -> list[Delivered]:
    """Chunks through a client, until they hold so many messages."""
    with contextlib.closing(StreamClient(port, seconds=30)) as client:
        client.subscribe(stream, offset)
        found: list[Delivered] = []
        while sum(len(each.bodies) for each in found) < count:
            chunks = client.delivered(30)
            assert chunks, "the gateway stands still"
            found += chunks
        return found


def numbers(chunks: list[Delivered]) -> Iterator[int]:
    return (int(body) for each in chunks for body in each.bodies)


@pytest.mark.parametrize("files", [True, False], ids=["files", "port"])
def test_a_client_reads_from_the_first_message_to_the_live_tail_without_noticing(
    node: BrokerNode, stream: str, files: bool
) -> None:
    published(node, stream, 0, 3000)
    tier, path = Tier(), directory(node, stream)
    end = tiered(tier, path, stream, 1)
    assert 0 < end < 3000
    gateway = Gateway(tier, broker_uri=StreamUri.parse(node.stream_uri))
    gateway.data_dir = node.data_dir if files else None
    with gateway, contextlib.closing(StreamClient(gateway.port, seconds=30)) as client:
        client.subscribe(stream)
        found: list[int] = []
        while len(found) < 3000:
            found += numbers(client.delivered(30))
        published(node, stream, 3000, 500)
        while len(found) < 3500:
            chunks = client.delivered(30)
            assert chunks, gateway.said
            found += numbers(chunks)

    assert found == list(range(3500))
    assert not gateway.said


def test_a_stream_without_a_remote_tier_is_read_from_the_broker(
    node: BrokerNode, stream: str
) -> None:
    published(node, stream, 0, 100)
    with Gateway(Tier(), broker_uri=StreamUri.parse(node.stream_uri)) as gateway:
        found = list(numbers(read(gateway.port, stream, 100)))

    assert found == list(range(100))


def test_tracking_data_between_messages_is_no_gap(node: BrokerNode, stream: str) -> None:
    published(node, stream, 0, 100)
    with contextlib.closing(StreamClient(node.ports.stream)) as client:
        for offset in range(20):
            client.store_offset(stream, f"reader{offset}", offset)
    published(node, stream, 100, 100)
    with Gateway(Tier(), broker_uri=StreamUri.parse(node.stream_uri)) as gateway:
        found = list(numbers(read(gateway.port, stream, 200)))

    assert found == list(range(200))
    assert not gateway.said


def test_what_local_retention_has_taken_and_nobody_has_uploaded_yet_is_waited_for(
    node: BrokerNode, stream: str
) -> None:
    published(node, stream, 0, 3000)
    tier, path = Tier(), directory(node, stream)
    files = {each.name: each.read_bytes() for each in path.iterdir()}
    tiered(tier, path, stream, 1)
    segments = sorted(each for each in files if each.endswith(".segment"))
    late = [bytes(each.buffer) for each in iter_chunks(files[segments[1]], SEGMENT_HEADER_SIZE)]
    node.control(
        "set_policy", "short", f"^{stream}$", '{"max-length-bytes": 30000}', "--apply-to", "queues"
    )
    published(node, stream, 3000, 3000)  # retention is looked at when a segment rolls
    left = sorted(path.glob("*.segment"))
    assert left[0].name > segments[1]
    with (
        Gateway(tier, broker_uri=StreamUri.parse(node.stream_uri)) as gateway,
        contextlib.closing(StreamClient(gateway.port, seconds=30)) as client,
    ):
        client.subscribe(stream)
        found: list[int] = []
        while not any("neither tier" in each for each in gateway.said):
            found += numbers(client.delivered(1))
        begun = len(found)
        assert found == list(range(begun))
        # An agent's upload is published: the second segment, and then that the rest is lost.
        item = tier.catalog.get(path.name)
        assert item is not None
        del late, item
