"""Single active consumers: the broker says whose turn it is, the gateway delivers to that one."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import struct
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from rstream import (
    AMQPMessage,
    EventContext,
    MessageContext,
    OffsetSpecification,
    OffsetType,
    SuperStreamConsumer,
)
from rstream.exceptions import OffsetNotFound

from coldstream.broker.connection import StreamUri
from coldstream.broker.frames import RESPONSE, Code, Fields, Key, properties
from coldstream_devkit.broker import BrokerNode
from coldstream_devkit.broker_release import SYSTEM, Release
from coldstream_devkit.stream_client import StreamClient
from tests.support.gateway import Gateway
from tests.support.raw_client import RawClient
from tests.support.tier import Tier

from .conftest import ANSWER_SECONDS, END_SECONDS, start_again
from .test_gateway import directory, published, tiered

GROUP = properties({"name": "app", "single-active-consumer": "true"})


@pytest.fixture(autouse=True)
def _knows_turns(request: pytest.FixtureRequest, release: Release) -> None:
    """Before a node is started: RabbitMQ 3.10 knows no single active consumers."""
    if release is SYSTEM and "refused" not in request.node.name:
        pytest.skip("a RabbitMQ that knows no single active consumers")


@pytest.fixture
def stream(node: BrokerNode) -> str:
    """Of 3000 messages."""
    name = f"orders{secrets.token_hex(3)}"
    published(node, name, 0, 3000)
    return name


@pytest.fixture
def gateways(node: BrokerNode, stream: str) -> Iterator[tuple[Gateway, Gateway]]:
    """Two, over a tier that has the first segments, beside the broker that has all."""
    tier = Tier()
    assert 0 < tiered(tier, directory(node, stream), stream, 1) < 2000
    uri = StreamUri.parse(node.stream_uri)
    with Gateway(tier, broker_uri=uri) as one, Gateway(tier, broker_uri=uri) as other:
        yield one, other


def goes_on(client: Turns, stream: str, offset: int) -> list[int]:
    """What it is delivered in its turn; a broker that has just started may end it once more."""
    end = time.monotonic() + END_SECONDS
    while True:
        assert time.monotonic() < end, "there is no place to be had"
        if client.subscribe(stream, credit=1000, more=GROUP) != Code.OK:
            time.sleep(0.5)
            continue
        with contextlib.suppress(GoneError):
            correlation, active = client.turn()
            assert active
            client.take(correlation, offset)
            return client.bodies(2999)


def super_stream(node: BrokerNode, name: str, partitions: int, segment: int = 500_000_000) -> None:
    """Make one whose segments have at most so many bytes."""
    arguments = ("-q", "-n", f"{node.name}@localhost", "add_super_stream", name)
    options = ("--partitions", str(partitions), "--stream-max-segment-size-bytes", str(segment))
    made = subprocess.run(
        node._command("rabbitmq-streams", *arguments, *options),
        env=node._environment(), cwd=node.base, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr


def numbered(number: int) -> bytes:
    return b"%09d" % number


def sent(node: BrokerNode, stream: str, of: range, body: Callable[[int], bytes] = numbered) -> None:
    """Messages to a stream that is there, all confirmed."""
    with contextlib.closing(StreamClient(node.ports.stream, seconds=ANSWER_SECONDS)) as client:
        client.declare(stream)
        client.publish([(n, body(n)) for n in of])
        waiting = set(of)
        while waiting:
            waiting -= set(client.confirmed(ANSWER_SECONDS))


class GoneError(Exception):
    """The client is told that the stream is gone."""


class Turns(RawClient):
    """A single active consumer, which answers when it is told to."""

    def joined(self, stream: str, credit: int = 1000, group: bytes = GROUP) -> Turns:
        self.log_in()
        assert self.subscribe(stream, credit=credit, more=group) == Code.OK
        return self

    def turn(self) -> tuple[int, bool]:
        """Its correlation, and whether it is this one's; chunks before it are passed over."""
        while True:
            key, fields = self.next()
            if key == Key.CONSUMER_UPDATE:
                correlation, number = fields.number("I"), fields.number("B")
                assert number == 1
                return correlation, bool(fields.number("B"))
            assert key == Key.DELIVER

    def next(self) -> tuple[int, Fields]:
        key, fields = self.frame()
        if key == Key.METADATA_UPDATE:
            raise GoneError
        return key, fields

    def take(self, correlation: int, offset: int | None) -> None:
        spec = struct.pack(">H", 0) if offset is None else struct.pack(">HQ", 4, offset)
        self.send(Key.CONSUMER_UPDATE | RESPONSE, struct.pack(">IH", correlation, Code.OK) + spec)

    def bodies(self, last: int) -> list[int]:
        """Numbers of the messages that come, until one is `last`."""
        found: list[int] = []
        while not found or found[-1] < last:
            key, fields = self.next()
            assert key == Key.DELIVER
            fields.skip(1)
            data = fields.rest()
            at, count = 48, struct.unpack_from(">H", data, 2)[0]
            for _ in range(count):
                size = struct.unpack_from(">I", data, at)[0]
                found.append(int(data[at + 4 : at + 4 + size]))
                at += 4 + size
        return found


def test_of_all_consumers_of_a_name_one_is_delivered_to_and_the_next_goes_on_behind_it(
    node: BrokerNode, stream: str, gateways: tuple[Gateway, Gateway]
) -> None:
    ports = [gateways[0].port, gateways[1].port, node.ports.stream, gateways[0].port]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Turns(port)).joined(stream) for port in ports]
        begin = 0
        for client, last, others in ((0, 999, (1, 2, 3)), (1, 1999, (2, 3)), (2, 2499, (3,))):
            correlation, active = clients[client].turn()
            assert active
            clients[client].take(correlation, begin)
            found = clients[client].bodies(last)
            assert found[found.index(begin) :][: last + 1 - begin] == list(range(begin, last + 1))
            assert all(clients[each].silent() for each in others)
            clients[client].socket.close()
            begin = last + 1
        correlation, active = clients[3].turn()
        assert active
        clients[3].take(correlation, begin)
        published(node, stream, 3000, 10)
        found = clients[3].bodies(3009)
        assert found[found.index(begin) :] == list(range(begin, 3010))


def test_nothing_is_delivered_before_the_client_says_where_or_behind_the_end_of_its_turn(
    node: BrokerNode, gateways: tuple[Gateway, Gateway]
) -> None:
    super_stream(node, "sales", 2)
    sent(node, "sales-1", range(100))
    group = properties({"name": "app", "single-active-consumer": "true", "super-stream": "sales"})
    with Turns(gateways[0].port) as first, Turns(gateways[1].port) as second:
        correlation, active = first.joined("sales-1", group=group).turn()
        assert active
        assert first.silent()
        first.take(correlation, 0)
        assert first.bodies(99)[0] == 0
        # The second partition belongs to the second consumer: the first one is to step down.
        second.joined("sales-1", group=group)
        stepping_down, active = first.turn()
        assert not active
        sent(node, "sales-1", range(100, 110))
        assert first.silent()
        assert second.silent()
        first.take(stepping_down, None)
        correlation, active = second.turn()
        assert active
        second.take(correlation, 100)
        assert second.bodies(109)[-10:] == list(range(100, 110))
        # Whoever leaves gives the turn back, and the credit of before still counts.
        second.socket.close()
        correlation, active = first.turn()
        assert active
        first.take(correlation, 105)
        assert first.bodies(109)[-5:] == list(range(105, 110))


def test_who_loses_its_place_because_the_broker_dies_is_told_and_finds_it_again(
    node: BrokerNode, stream: str, gateways: tuple[Gateway, Gateway]
) -> None:
    with Turns(gateways[0].port) as client:
        correlation, _ = client.joined(stream).turn()
        client.take(correlation, 0)
        client.bodies(2999)
        node.flush()
        node.kill()
        key, fields = client.frame()
        assert (key, fields.number("H")) == (Key.METADATA_UPDATE, Code.NOT_AVAILABLE)
        assert fields.string() == stream
        start_again(node, stream)
        found = goes_on(client, stream, 2000)
        assert found[found.index(2000) :] == list(range(2000, 3000))


def test_without_a_broker_or_on_one_that_knows_none_it_is_refused(node: BrokerNode) -> None:
    name = f"orders{secrets.token_hex(3)}"
    published(node, name, 0, 300)
    tier = Tier()
    tiered(tier, directory(node, name), name, 1)
    for uri in (None, StreamUri.parse(node.stream_uri)):
        with Gateway(tier, broker_uri=uri) as gateway, RawClient(gateway.port) as client:
            code = client.log_in().subscribe(name, more=GROUP)
            assert code == (
                Code.PRECONDITION_FAILED if uri is None or node.release is SYSTEM else Code.OK
            )


def test_who_does_not_fit_into_a_group_is_told_so_as_by_the_broker(
    node: BrokerNode, gateways: tuple[Gateway, Gateway]
) -> None:
    """Of the consumers of a name, some say that it is a partition and some do not."""
    super_stream(node, "sales", 2)
    group = properties({"name": "app", "single-active-consumer": "true", "super-stream": "sales"})
    with Turns(gateways[0].port) as first:
        first.joined("sales-1", group=group)
        for port in (node.ports.stream, gateways[1].port):
            with RawClient(port) as client:
                code = client.log_in().subscribe("sales-1", more=GROUP)
                assert code == Code.PRECONDITION_FAILED


class Worker:
    """A stock client that stores what it has done, and goes on behind what is stored."""

    def __init__(self, port: int, super_stream: str) -> None:
        self.found: list[tuple[str, int]] = []
        self.active: set[str] = set()
        self.consumer = SuperStreamConsumer(
            "127.0.0.1", port, username="guest", password="guest", super_stream=super_stream
        )

    async def start(self) -> None:
        async def turn(active: bool, context: EventContext) -> OffsetSpecification:
            (self.active.add if active else self.active.discard)(context.stream)
            try:
                stored = await context.consumer.query_offset(
                    stream=context.stream, subscriber_name="app"
                )
            except OffsetNotFound:
                return OffsetSpecification(OffsetType.FIRST, 0)
            return OffsetSpecification(OffsetType.OFFSET, stored + 1)

        async def take(message: AMQPMessage | bytes, context: MessageContext) -> None:
            assert isinstance(message, bytes)
            self.found.append((context.stream, int(message)))
            await context.consumer.store_offset(
                stream=context.stream, subscriber_name="app", offset=context.offset
            )

        await self.consumer.start()
        await self.consumer.subscribe(
            take,
            decoder=lambda data: data,
            properties={"single-active-consumer": "true", "name": "app", "super-stream": "sales"},
            subscriber_name="app",
            consumer_update_listener=turn,
        )


def test_workers_share_the_partitions_of_a_super_stream_and_take_over_from_one_that_ends(
    node: BrokerNode, gateways: tuple[Gateway, Gateway]
) -> None:
    partitions = [f"sales-{n}" for n in range(3)]
    super_stream(node, "sales", 3)
    for each in partitions:
        sent(node, each, range(100))

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(END_SECONDS):
            while not holds():
                await asyncio.sleep(0.05)

    async def run() -> tuple[Worker, Worker]:
        # The second one goes by the broker's own port: it is one group.
        one, other = Worker(gateways[0].port, "sales"), Worker(node.ports.stream, "sales")
        await one.start()
        await until(lambda: one.active == set(partitions) and len(one.found) == 300)
        await other.start()
        await until(lambda: bool(other.active) and len(one.active) + len(other.active) == 3)
        for each in partitions:
            await asyncio.to_thread(sent, node, each, range(100, 200))
        await until(lambda: len({*one.found, *other.found}) == 600)
        await other.consumer.close()
        await until(lambda: one.active == set(partitions))
        for each in partitions:
            await asyncio.to_thread(sent, node, each, range(200, 300))
        await until(lambda: len({*one.found, *other.found}) == 900)
        await one.consumer.close()
        return one, other

    one, other = asyncio.run(run())
    assert {each for each, number in other.found if number >= 100}
    assert not {*one.found} & {each for each in other.found if each[1] >= 100}
    for worker in (one, other):
        for each in partitions:
            own = [number for stream, number in worker.found if stream == each]
            assert own == sorted(set(own))
