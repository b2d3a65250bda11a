"""A lost cluster, seeded from the bucket: a broker boots on restored files and goes on."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType

from rstream import Consumer, ConsumerOffsetSpecification, MessageContext, OffsetType
from rstream.exceptions import LeaderNotAvailable, StreamDoesNotExist, StreamNotAvailable

from coldstream.copies.restore import restore, target
from coldstream.osiris.segment import SEGMENT_HEADER_SIZE
from coldstream.reader import First, Offset
from coldstream_devkit.broker import BrokerError, BrokerNode
from coldstream_devkit.broker_cluster import Cluster
from coldstream_devkit.broker_release import Release
from coldstream_devkit.stream_client import StreamClient
from tests.support.tier import Tier

from .conftest import ANSWER_SECONDS, Publisher, Site, start_again, takes_messages
from .test_single_node import agent, remote


def give_to_the_broker(
    node: BrokerNode, stream: str, files: Path, arguments: Mapping[str, str] = MappingProxyType({})
) -> Path:
    """As docs/how-to/restore-a-cluster.md says, step by step; the directory of the stream."""
    client = StreamClient(node.ports.stream, seconds=ANSWER_SECONDS)
    client.create(stream, arguments)
    client.close()
    wait_until(lambda: any(node.data_dir.glob(f"__{stream}_*")))
    (directory,) = node.data_dir.glob(f"__{stream}_*")
    node.control("stop_app")
    owner = directory.stat()
    for path in directory.iterdir():
        path.unlink()
    for path in files.iterdir():
        path.rename(directory / path.name)
        os.chown(directory / path.name, owner.st_uid, owner.st_gid)
    node.control("start_app")
    node.wait()
    # Its writer is elected again until its epoch is as high as that of the last chunk.
    wait_until(lambda: takes_messages(node, stream))
    return directory


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < deadline, "waited five minutes in vain"
        time.sleep(0.1)


def consumed(node: BrokerNode, stream: str, count: int) -> list[tuple[int, bytes]]:
    """Offset and body of so many messages, from the first on, by a stock client."""
    found: list[tuple[int, bytes]] = []

    async def consume() -> None:
        consumer = Consumer("127.0.0.1", node.ports.stream, username="guest", password="guest")

        async def take(body: bytes, context: MessageContext) -> None:
            found.append((context.offset, bytes(body)))
            if len(found) >= count:
                consumer.stop()

        await consumer.start()
        try:
            first = ConsumerOffsetSpecification(OffsetType.FIRST, None)
            await consumer.subscribe(stream, take, offset_specification=first, decoder=bytes)
            before = -1
            while before < len(found) < count:  # something has come since the last look
                before = len(found)
                with suppress(TimeoutError):
                    await asyncio.wait_for(consumer.run(), 30)
        finally:
            await consumer.close()

    def consumes() -> bool:
        # Its writer may be elected once more: then there is none, or who has subscribed to it hears
        # nothing any more, because this client does not subscribe again. Where a member does not
        # run yet, its node knows of no such stream.
        found.clear()
        with suppress(
            LeaderNotAvailable,
            StreamDoesNotExist,
            StreamNotAvailable,
            ConnectionError,
            TimeoutError,
        ):
            asyncio.run(consume())
        return len(found) >= count

    wait_until(consumes)
    return found


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def has_same(one: Path, other: Path) -> bool:
    """Whether two directories have the same chunks, in whatever segments."""
    return one.exists() and chunks_of(one) == chunks_of(other)


def chunks_of(directory: Path) -> bytes:
    paths = sorted(directory.glob("*.segment"))
    return b"".join(path.read_bytes()[SEGMENT_HEADER_SIZE:] for path in paths)


def test_a_broker_boots_on_restored_files_serves_them_and_goes_on_writing(
    site: Site, node: BrokerNode, release: Release, base: Path, tmp_path: Path
) -> None:
    stream = f"orders{secrets.token_hex(3)}"
    with Publisher(node, stream) as publisher:
        for at_least in (500, 1000):
            wait_until(lambda: len(publisher.confirmed) > at_least)  # noqa: B023
            node.flush()
            node.kill()  # so that the history has several epochs, more than the new queue has
            start_again(node, stream)
    (lost,) = node.data_dir.glob(f"__{stream}_*")
    done = site.run(*agent(site, node, "--once"))
    assert done.returncode == 0, done.stderr.decode()
    there = remote(site, stream)
    assert publisher.confirmed <= set(there)
    before = contents(lost)
    node.stop()

    restored = site.run("restore", f"//{stream}", "--to", tmp_path)

    assert restored.returncode == 0, restored.stderr.decode()
    files = tmp_path / lost.name
    assert contents(files) == before
    fresh = BrokerNode(base / secrets.token_hex(4), release=release)
    try:
        fresh.start()
        directory = give_to_the_broker(fresh, stream, files)
        assert [body for _, body in consumed(fresh, stream, len(there))] == there
        with Publisher(fresh, stream) as more:
            wait_until(lambda: len(more.confirmed) > 200)
        everything = consumed(fresh, stream, len(there) + len(more.confirmed))
    finally:
        fresh.stop()
    assert [offset for offset, _ in everything] == list(range(len(everything)))
    assert {body for _, body in everything[len(there) :]} >= more.confirmed
    for name, data in before.items():
        assert (directory / name).read_bytes().startswith(data)


def test_a_stream_of_which_retention_took_the_beginning_is_served_from_where_it_begins(
    node: BrokerNode, tmp_path: Path
) -> None:
    tier = Tier()
    reader = tier.reader(tier.add_fixture("epochs-4.3.6"))
    done = restore(
        reader, {}, lambda: target(reader, reader.begin(Offset(450)))[0], tmp_path, lambda _: None
    )

    give_to_the_broker(node, "older", done.directory)

    found = consumed(node, "older", 100)
    assert found[0][0] == done.first_offset
    assert done.first_offset == 445


def test_the_replicas_of_a_cluster_take_a_restored_stream_from_its_one_member(
    calm_cluster: Cluster, tmp_path: Path
) -> None:
    tier = Tier()
    reader = tier.reader(tier.add_fixture("epochs-4.3.6"))
    done = restore(
        reader, {}, lambda: target(reader, reader.begin(First()))[0], tmp_path, lambda _: None
    )
    stream = f"orders{secrets.token_hex(3)}"
    node, *others = calm_cluster.nodes

    directory = give_to_the_broker(node, stream, done.directory, {"initial-cluster-size": "1"})

    def added(other: BrokerNode) -> bool:
        words = f'<<"/">>, <<"{stream}">>, \'{other.name}@localhost\''
        with suppress(BrokerError):  # one that is busy may not answer in time, and have done it
            if "ok" in node.control("eval", f"rabbit_stream_queue:add_replica({words})."):
                return True
        return (other.data_dir / directory.name).exists()

    for other in others:
        wait_until(partial(added, other))

    # They roll their segments as the queue's limits say, and have the same chunks in them.
    for other in others:
        wait_until(partial(has_same, other.data_dir / directory.name, directory))
    assert consumed(others[0], stream, 900)[-1][0] >= 899
