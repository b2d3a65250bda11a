"""A gateway beside one living broker: history from the remote tier, the tail from the broker."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rstream import Consumer, ConsumerOffsetSpecification, OffsetType

from coldstream.broker.connection import StreamUri
from coldstream.broker.frames import Code, Key, string
from coldstream.broker.management import Management
from coldstream.gateway import remote as tiers
from coldstream.gateway.broker_tier import BrokerTier
from coldstream.gateway.broker_users import BrokerUsers
from coldstream.gateway.parcel import Parcel
from coldstream.manifest.catalog import QueueName
from coldstream.manifest.entries import Entries
from coldstream.manifest.root import LastChunk
from coldstream.osiris.chunk import iter_chunks, parse_chunk_header
from coldstream.osiris.segment import SEGMENT_HEADER_SIZE
from coldstream.read_policy import ReadPolicy
from coldstream_devkit.broker import BrokerNode, free_ports
from coldstream_devkit.broker_cluster import Cluster
from coldstream_devkit.broker_release import SYSTEM
from coldstream_devkit.stream_client import Delivered, RefusedError, StreamClient
from tests.support.gateway import Gateway
from tests.support.raw_client import RawClient
from tests.support.tier import Tier

from .conftest import ANSWER_SECONDS, END_SECONDS, Site, agrees, start_again

SMALL_SEGMENTS = {"stream-max-segment-size-bytes": "20000"}


@pytest.fixture
def stream() -> str:
    """A name of its own for each test."""
    return f"orders{secrets.token_hex(3)}"


def published(node: BrokerNode, stream: str, first: int, count: int) -> None:
    """Messages `first` and so on, some in each chunk, all confirmed."""
    end, begin = time.monotonic() + END_SECONDS, first

    def created(client: StreamClient) -> None:
        client.create(stream, SMALL_SEGMENTS)
        client.declare(stream)

    while begin < first + count:
        assert time.monotonic() < end, "a broker refuses messages"
        # One that elects anew, or has just started, refuses for a moment.
        if not agrees(node, created):
            time.sleep(0.1)
            continue
        port = node.ports.stream
        with contextlib.closing(StreamClient(port, seconds=ANSWER_SECONDS)) as client:
            client.declare(stream)
            with contextlib.suppress(RefusedError):
                while begin < first + count:
                    numbers = range(begin, min(begin + 20, first + count))
                    client.publish([(n, b"%09d" % n) for n in numbers])
                    waiting = set(numbers)
                    while waiting:
                        waiting -= set(client.confirmed(10))
                    begin = numbers.stop


def taken(
    node: BrokerNode,
    stream: str,
    first: int,
    most: int,
    above: int,
    after: Callable[[int], object] = lambda _: time.sleep(0.2),
) -> tuple[int, int]:
    """Publish on until local retention has taken all segments up to an offset.

    A policy comes to a stream some time after it was set, and segments are looked at when one has
    rolled, by a process of its own: then all but the newest are no more than the policy keeps.

    Args:
        node: that is published to.
        stream: its name.
        first: of the messages, if any more are needed.
        most: bytes that the policy keeps.
        above: where no segment that is left may begin, or below.
        after: called with the end of what was published, each time.

    Returns:
        Where the messages end, and where the segments begin.
    """
    path, end = directory(node, stream), time.monotonic() + END_SECONDS
    while True:
        with contextlib.suppress(FileNotFoundError):  # taken just now
            files = sorted(path.glob("*.segment"))
            settled = sum(each.stat().st_size for each in files[:-1]) <= most
            if settled and int(files[0].stem) > above:
                return first, int(files[0].stem)
        assert time.monotonic() < end, "local retention takes nothing"
        published(node, stream, first, 100)
        first += 100
        after(first)


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
    tier.add(path.name, chunks, name=QueueName("test", "/", stream))
    last = parse_chunk_header(chunks[-1][-1])
    root = tier.reader(path.name).snapshot().root
    tier.commit(path.name, replace(root, last_chunk=LastChunk(last.chunk_id, last.epoch)))
    return root.next_offset


def read(port: int, stream: str, count: int, offset: int = 0) -> list[Delivered]:
    """Chunks through a client, until they hold so many messages."""
    with contextlib.closing(StreamClient(port, seconds=ANSWER_SECONDS)) as client:
        client.subscribe(stream, offset)
        found: list[Delivered] = []
        while sum(len(each.bodies) for each in found) < count:
            chunks = client.delivered(ANSWER_SECONDS)
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
    with gateway, contextlib.closing(StreamClient(gateway.port, seconds=ANSWER_SECONDS)) as client:
        client.subscribe(stream)
        found: list[int] = []
        while len(found) < 3000:
            found += numbers(client.delivered(ANSWER_SECONDS))
        published(node, stream, 3000, 500)
        while len(found) < 3500:
            chunks = client.delivered(ANSWER_SECONDS)
            assert chunks, gateway.said
            found += numbers(chunks)

    assert found == list(range(3500))
    assert not gateway.said
    chunks = gateway.metrics.chunks
    assert chunks[tiers.Tier.REMOTE]
    assert bool(chunks[tiers.Tier.FILES]) is files
    assert bool(chunks[tiers.Tier.BROKER]) is not files


def test_a_gateway_that_knows_several_nodes_serves_while_the_first_ones_are_down(
    cluster: Cluster, stream: str, wait_for: Callable[[Callable[[], Any]], Any]
) -> None:
    """One is down from the beginning, and the one that answers goes later."""
    _, second, third = cluster.nodes
    (closed,) = free_ports(1)
    uris = [StreamUri.parse(each.stream_uri) for each in (third, second)]
    body = string("app") + string(stream)
    published(second, stream, 0, 500)
    # The one that is asked first serves: its member runs some time after the stream was made.
    wait_for(lambda: agrees(third, lambda client: client.subscribe(stream)))
    with Gateway(Tier(), broker_uri=[replace(uris[0], port=closed), *uris]) as gateway:
        assert list(numbers(read(gateway.port, stream, 500))) == list(range(500))
        with RawClient(gateway.port).log_in() as client:
            client.send(Key.STORE_OFFSET, body + struct.pack(">Q", 7))
        cluster.flush()
        third.kill()
        published(second, stream, 500, 500)
        found = list(numbers(read(gateway.port, stream, 1000)))
        with RawClient(gateway.port).log_in() as client:
            code, fields = client.ask(Key.QUERY_OFFSET, body)

    assert found == list(range(1000))
    assert (code, fields.number("Q")) == (Code.OK, 7)


@pytest.mark.parametrize("policy", list(ReadPolicy))
def test_the_policy_says_which_tier_gives_what_both_have(
    node: BrokerNode, stream: str, policy: ReadPolicy
) -> None:
    published(node, stream, 0, 3000)
    tier, path = Tier(), directory(node, stream)
    end = tiered(tier, path, stream, 1)
    assert 0 < end < 3000
    uri = StreamUri.parse(node.stream_uri)
    with Gateway(tier, broker_uri=uri, policy=policy) as gateway:
        count = end if policy is ReadPolicy.FORCE else 3000
        found = list(numbers(read(gateway.port, stream, count)))
        chunks = gateway.metrics.chunks

    assert found == list(range(count))
    local = policy in (ReadPolicy.DISABLE, ReadPolicy.NOT_IN_DISK)
    assert bool(chunks[tiers.Tier.REMOTE]) is not local
    assert bool(chunks[tiers.Tier.BROKER]) is (policy is not ReadPolicy.FORCE)


@pytest.mark.parametrize("files", [True, False], ids=["files", "port"])
def test_what_retention_of_s3_has_taken_is_read_from_the_broker_that_has_it(
    node: BrokerNode, stream: str, files: bool
) -> None:
    published(node, stream, 0, 3000)
    tier, path = Tier(), directory(node, stream)
    tiered(tier, path, stream, 3)
    root = tier.reader(path.name).snapshot().root
    kept = Entries.of(list(root.entries)[2:])
    first = kept[0].first_offset
    tier.commit(path.name, replace(root, first_offset=first, entries=kept))
    gateway = Gateway(tier, broker_uri=StreamUri.parse(node.stream_uri))
    gateway.data_dir = node.data_dir if files else None
    with gateway:
        found = list(numbers(read(gateway.port, stream, 2900, 100)))
        chunks = gateway.metrics.chunks

    assert found == list(range(found[0], 3000))
    assert found[0] <= 100 < first
    assert not gateway.said
    assert chunks[tiers.Tier.REMOTE]


def test_a_stream_without_a_remote_tier_is_read_from_the_broker(
    node: BrokerNode, stream: str
) -> None:
    published(node, stream, 0, 100)
    with Gateway(Tier(), broker_uri=StreamUri.parse(node.stream_uri)) as gateway:
        found = list(numbers(read(gateway.port, stream, 100)))

    assert found == list(range(100))


@pytest.mark.parametrize(
    "spec",
    [
        struct.pack(">H", OffsetType.FIRST),
        struct.pack(">H", OffsetType.LAST),
        struct.pack(">H", OffsetType.NEXT),
        struct.pack(">HQ", OffsetType.OFFSET, 0),
        struct.pack(">Hq", OffsetType.TIMESTAMP, 0),
    ],
    ids=["first", "last", "next", "offset", "timestamp"],
)
def test_who_is_there_before_the_first_message_gets_it(
    node: BrokerNode, stream: str, spec: bytes
) -> None:
    with contextlib.closing(StreamClient(node.ports.stream)) as maker:
        maker.create(stream, SMALL_SEGMENTS)
    with (
        Gateway(Tier(), broker_uri=StreamUri.parse(node.stream_uri)) as gateway,
        RawClient(gateway.port).log_in() as client,
    ):
        assert client.subscribe(stream, spec) == Code.OK
        published(node, stream, 0, 1)
        assert parse_chunk_header(client.chunk()).chunk_id == 0


def test_what_comes_next_is_not_taken_for_the_chunk_at_an_offset_beyond_the_end(
    node: BrokerNode, stream: str
) -> None:
    """A broker gives it to whoever asks for such an offset."""
    published(node, stream, 0, 50)

    async def run() -> Parcel | None:
        broker = BrokerTier(StreamUri.parse(node.stream_uri))
        try:
            await broker.end("/", stream)  # it is connected
            asking = asyncio.create_task(broker.at("/", stream, 500))
            await asyncio.sleep(0.3)
            await asyncio.to_thread(published, node, stream, 50, 10)
            return await asking
        finally:
            await broker.close()

    assert asyncio.run(run()) is None


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
    published(node, stream, 3000, 3000)
    end, begin = taken(node, stream, 6000, 30_000, int(Path(segments[-1]).stem))
    with (
        Gateway(tier, broker_uri=StreamUri.parse(node.stream_uri)) as gateway,
        contextlib.closing(StreamClient(gateway.port, seconds=ANSWER_SECONDS)) as client,
    ):
        client.subscribe(stream)
        found: list[int] = []
        while not any("neither tier" in each for each in gateway.said):
            found += numbers(client.delivered(1))
            assert found == list(range(len(found)))
        # An agent's upload is published at last; what follows it, every member has lost.
        root = tier.reader(path.name).snapshot().root
        entry = tier.upload(path.name, late, epoch=root.epoch, floor=0)
        lost = tier.hole(entry.next_offset, begin, epoch=root.epoch)
        header = parse_chunk_header(late[-1])
        last = LastChunk(header.chunk_id, header.epoch)
        tier.commit(path.name, root.appended([entry, lost], last))
        while not found or found[-1] < end - 1:
            chunks = client.delivered(ANSWER_SECONDS)
            assert chunks, gateway.said
            found += numbers(chunks)

    assert found == sorted(set(found))
    assert set(range(end)) - set(found) == set(range(lost.first_offset, lost.next_offset))
    assert any("were lost before they could be uploaded" in each for each in gateway.said)


def test_the_offset_of_a_consumer_is_the_brokers(node: BrokerNode, stream: str) -> None:
    published(node, stream, 0, 10)
    with Gateway(Tier(), broker_uri=StreamUri.parse(node.stream_uri)) as gateway:
        with RawClient(gateway.port).log_in() as client:
            body = string("app") + string(stream)
            assert client.ask(Key.QUERY_OFFSET, body)[0] == Code.NO_OFFSET
            client.send(Key.STORE_OFFSET, body + struct.pack(">Q", 7))
            while True:
                code, fields = client.ask(Key.QUERY_OFFSET, body)
                if code == Code.OK:
                    break
            assert fields.number("Q") == 7
        with RawClient(node.ports.stream).log_in() as client:
            code, fields = client.ask(Key.QUERY_OFFSET, body)
            assert (code, fields.number("Q")) == (Code.OK, 7)


def test_an_offset_is_kept_or_it_is_told_that_the_user_may_not_store_it(
    node: BrokerNode, stream: str
) -> None:
    """RabbitMQ 3.10 drops the offsets of who may only read, and says nothing."""
    published(node, stream, 0, 10)
    node.control("add_user", "tier", "geheim")
    node.control("set_permissions", "tier", "^$", "^$", ".*")
    uri = StreamUri.parse(f"rabbitmq-stream://tier:geheim@127.0.0.1:{node.ports.stream}")
    body = string("app") + string(stream)
    with Gateway(Tier(), broker_uri=uri) as gateway, RawClient(gateway.port).log_in() as client:
        client.send(Key.STORE_OFFSET, body + struct.pack(">Q", 7))
        code, fields = client.ask(Key.QUERY_OFFSET, body)
        if code == Code.OK:
            assert fields.number("Q") == 7
            assert not gateway.said
        else:
            assert any("the right `write`" in each for each in gateway.said)
            assert gateway.metrics.lost_offsets == 1


@pytest.mark.parametrize("user", ["guest", "few"])
def test_a_refusal_has_the_bytes_of_the_brokers(node: BrokerNode, stream: str, user: str) -> None:
    """Some clients read what follows the code whatever that is: one broke off where nothing did."""
    published(node, stream, 0, 10)
    node.control("add_user", "few", "few")
    node.control("set_permissions", "few", "^$", "^$", "^another$")
    nobody, none = string("nobody"), string("none")
    asked = [
        (Key.QUERY_OFFSET, nobody + string(stream)),
        (Key.QUERY_OFFSET, nobody + none),
        (Key.SUBSCRIBE, b"\1" + none + struct.pack(">HH", 1, 1)),
        (Key.UNSUBSCRIBE, b"\7"),
        (Key.DELETE_PUBLISHER, b"\1"),
    ]
    if node.release is not SYSTEM:  # 3.10, which hangs up on what it does not know
        asked += [
            (Key.PARTITIONS, none),
            (Key.ROUTE, string("key") + none),
            (Key.STREAM_STATS, none),
            (Key.RESOLVE_OFFSET, none + struct.pack(">Hi", 1, 0)),
        ]
    users = BrokerUsers(Management.parse(node.management_uri))
    with (
        Gateway(Tier(), users=users, broker_uri=StreamUri.parse(node.stream_uri)) as gateway,
        RawClient(gateway.port).log_in(user, user) as ours,
        RawClient(node.ports.stream).log_in(user, user) as theirs,
    ):
        for key, body in asked:
            code, found = ours.ask(key, body)
            expected_code, expected = theirs.ask(key, body)
            assert found.rest() == expected.rest(), key
            # Of a stream that is not there, a broker says to who may not read it that he may not.
            assert code == expected_code or expected_code == Code.ACCESS_REFUSED


def test_a_name_that_no_broker_can_have_hangs_up_on_nobody(node: BrokerNode, stream: str) -> None:
    """RabbitMQ 3.10 hung up on the connection by which the gateway asks for all its clients."""
    published(node, stream, 0, 10)
    with (
        Gateway(Tier(), broker_uri=StreamUri.parse(node.stream_uri)) as gateway,
        RawClient(gateway.port).log_in() as client,
    ):
        assert client.subscribe(stream) == Code.OK
        assert client.chunk()
        broker = gateway.site.streams.broker
        assert broker is not None
        (before,) = broker._asking.values()
        for size in (256, 32_000):
            long = string("n" * size)
            client.send(Key.STORE_OFFSET, long + string(stream) + struct.pack(">Q", 7))
            assert (
                client.ask(Key.QUERY_OFFSET, long + string(stream))[0] == Code.PRECONDITION_FAILED
            )
            assert client.ask(Key.QUERY_OFFSET, string("app") + long)[0] == Code.NO_STREAM
            assert client.ask(Key.PARTITIONS, long)[0] == Code.PRECONDITION_FAILED
            assert client.subscribe("n" * size, number=2) == Code.NO_STREAM
        assert sum("more than 255 bytes" in each for each in gateway.said) == 6
        assert (before,) == tuple(broker._asking.values())
        assert not before.broken


def test_the_broker_says_who_may_log_in_and_read(node: BrokerNode, stream: str) -> None:
    published(node, stream, 0, 10)
    node.control("add_user", "reader", "geheim")
    node.control("set_permissions", "reader", "^$", "^$", f"^{stream}$")
    users = BrokerUsers(Management.parse(node.management_uri))
    with (
        Gateway(Tier(), users=users, broker_uri=StreamUri.parse(node.stream_uri)) as gateway,
        RawClient(gateway.port) as client,
    ):
        assert client.authenticate("reader", "other") == Code.AUTHENTICATION_FAILED
        client.log_in("reader", "geheim")
        assert client.subscribe(stream) == Code.OK
        assert client.chunk()


def test_what_the_broker_permits_no_more_ends_for_who_is_connected_too(
    node: BrokerNode, stream: str
) -> None:
    published(node, stream, 0, 10)
    node.control("add_user", "reader", "geheim")
    node.control("set_permissions", "reader", "^$", "^$", ".*")
    users = BrokerUsers(Management.parse(node.management_uri))
    with (
        Gateway(Tier(), users=users, broker_uri=StreamUri.parse(node.stream_uri)) as gateway,
        RawClient(gateway.port).log_in("reader", "geheim") as client,
    ):
        assert client.subscribe(stream, credit=10) == Code.OK
        assert client.chunk()
        node.control("set_permissions", "reader", "^$", "^$", "^another$")
        assert client.frame()[0] == Key.METADATA_UPDATE
        assert client.subscribe(stream) == Code.ACCESS_REFUSED
        node.control("delete_user", "reader")
        assert client.hung_up()
        assert any("would have to log in anew" in each for each in gateway.said)


def test_a_broker_that_is_killed_and_comes_back_is_followed_on(
    node: BrokerNode, stream: str
) -> None:
    published(node, stream, 0, 100)
    with (
        Gateway(Tier(), broker_uri=StreamUri.parse(node.stream_uri)) as gateway,
        contextlib.closing(StreamClient(gateway.port, seconds=ANSWER_SECONDS)) as client,
    ):
        client.subscribe(stream)
        found: list[int] = []
        while len(found) < 100:
            found += numbers(client.delivered(ANSWER_SECONDS))
        node.flush()
        node.kill()
        start_again(node, stream)
        published(node, stream, 100, 100)
        while len(found) < 200:
            chunks = client.delivered(ANSWER_SECONDS)
            assert chunks, gateway.said
            found += numbers(chunks)

    assert found == list(range(200))


def test_a_stream_of_which_most_is_in_s3_only_is_read_from_the_first_message_to_the_live_tail(
    site: Site, node: BrokerNode, stream: str, tmp_path: Path, wait_for: Callable[..., Any]
) -> None:
    """With the agent, its uploads and the gateway as they are run, and a stock client."""

    def uploaded(end: int) -> bool:
        rows = site.json("streams")
        return any(row["queue"] == stream and row["next"] >= end for row in rows)

    published(node, stream, 0, 6000)
    agent = site.start(
        "agent", "run", "--data-dir", str(node.data_dir), "--committed", "broker",
        "--stream-uri", node.stream_uri, "--management-uri", node.management_uri,
        "--flush-seconds", "1", "--takeover-seconds", "3",
    )  # fmt: skip
    (port,) = free_ports(1)
    users = tmp_path / "users"
    users.write_text("app:secret:.*\n")
    gateway = None
    try:
        wait_for(lambda: uploaded(6000))
        node.control(
            "set_policy", "short", f"^{stream}$", '{"max-length-bytes": 20000}', "--apply-to",
            "queues",
        )  # fmt: skip
        published(node, stream, 6000, 500)
        # What the agent has not uploaded yet must not be taken.
        end, _ = taken(
            node, stream, 6500, 20_000, 4500, lambda end: wait_for(lambda: uploaded(end))
        )
        gateway = site.start(
            "gateway", "run", "--port", str(port), "--users", str(users),
            "--stream-uri", node.stream_uri, "--data-dir", str(node.data_dir),
        )  # fmt: skip
        wait_for(lambda: listens(port))
        found = asyncio.run(consumed(port, stream, end, lambda: published(node, stream, end, 300)))
    finally:
        for process in (agent, gateway):
            if process is not None:
                process.send_signal(signal.SIGTERM)
                _, err = process.communicate(timeout=END_SECONDS)

    assert gateway.returncode == 0, err.decode()
    assert found == list(range(end + 300)), err.decode()


async def consumed(port: int, stream: str, first: int, then: Callable[[], None]) -> list[int]:
    """What rstream gets from the first message on; `then` publishes the last 300 of them."""
    consumer = Consumer("127.0.0.1", port, username="app", password="secret", vhost="/")
    found: list[int] = []
    come = asyncio.Condition()

    async def take(body: Any, _: Any) -> None:
        async with come:
            found.append(int(body))
            come.notify_all()

    await consumer.start()
    spec = ConsumerOffsetSpecification(OffsetType.FIRST, None)
    await consumer.subscribe(stream, take, offset_specification=spec)
    async with asyncio.timeout(END_SECONDS), come:
        await come.wait_for(lambda: len(found) >= first)
    await asyncio.to_thread(then)
    async with asyncio.timeout(END_SECONDS), come:
        await come.wait_for(lambda: len(found) >= first + 300)
    await consumer.close()
    return found


def listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    return False
