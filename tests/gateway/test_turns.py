"""Turns of a single active consumer, from a broker that gives them as a test says."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from coldstream.broker.connection import StreamUri
from coldstream.broker.frames import RESPONSE, Code, Key, properties
from coldstream.errors import UnavailableError
from coldstream.gateway.broker_tier import BrokerTier
from coldstream.gateway.membership import Membership
from coldstream.gateway.stream import TieredStream
from coldstream.manifest.catalog import QueueName
from coldstream.read_policy import ReadPolicy
from coldstream.reader.spec import OffsetSpec
from tests.support.gateway import Gateway
from tests.support.raw_client import RawClient
from tests.support.tier import Tier, chunk

GROUP = properties({"name": "app", "single-active-consumer": "true"})


@dataclass
class Broker(BrokerTier):
    """Nothing but one place in a group: what it hears is kept, and it says what a test says."""

    uri: StreamUri = field(default_factory=lambda: StreamUri("127.0.0.1", 1, "u", "p"))
    taken: list[int] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    member: Membership | None = None

    async def join(self, vhost: str, stream: str, group: Mapping[str, str]) -> Membership:
        self.loop = asyncio.get_running_loop()
        self.member = Membership(self, 0, stream)
        return self.member

    def take_turn(self, correlation: int) -> None:
        self.taken.append(correlation)

    async def close(self) -> None:
        self.left.set()

    def give(self, correlation: int, *, active: bool) -> None:
        assert self.member is not None
        self.loop.call_soon_threadsafe(lambda: self.member.turn(correlation, active=active))  # type: ignore[union-attr]

    def lose(self) -> None:
        assert self.member is not None
        self.loop.call_soon_threadsafe(self.member.end, UnavailableError("gone"))


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def tier() -> Tier:
    """Six chunks of ten messages."""
    made = Tier()
    chunks = [chunk(n, *(b"%d" % m for m in range(n, n + 10))) for n in range(0, 60, 10)]
    made.add("__orders_1", [chunks], name=QueueName("test", "/", "orders"))
    return made


@pytest.fixture
def client(broker: Broker, tier: Tier) -> Iterator[RawClient]:
    """In a group that reads them."""
    with Gateway(tier, broker=broker) as gateway, RawClient(gateway.port) as made:
        assert made.log_in().subscribe("orders", credit=3, more=GROUP) == Code.OK
        yield made


def turn(client: RawClient) -> tuple[int, bool]:
    key, fields = client.frame()
    assert key == Key.CONSUMER_UPDATE
    correlation = fields.number("I")
    assert fields.number("B") == 1
    return correlation, bool(fields.number("B"))


def take(client: RawClient, correlation: int, offset: int) -> None:
    body = struct.pack(">IHHQ", correlation, Code.OK, 4, offset)
    client.send(Key.CONSUMER_UPDATE | RESPONSE, body)


def first_id(data: bytes) -> int:
    return int(struct.unpack_from(">Q", data, 24)[0])


def test_credit_is_kept_from_one_turn_to_the_next_and_no_chunk_comes_between(
    client: RawClient, broker: Broker
) -> None:
    assert client.silent()
    client.credit(1)
    broker.give(11, active=True)
    correlation, active = turn(client)
    assert active
    assert client.silent()
    take(client, correlation, 20)
    assert [first_id(client.chunk()) for _ in range(4)] == [20, 30, 40, 50]
    broker.give(12, active=False)
    over, active = turn(client)
    assert not active
    client.credit(2)
    take(client, over, 0)
    assert client.silent()
    broker.give(13, active=True)
    correlation, _ = turn(client)
    take(client, correlation, 0)
    assert [first_id(client.chunk()) for _ in range(2)] == [0, 10]
    assert client.silent()
    assert broker.taken == [11, 12, 13]


def test_a_turn_that_is_taken_away_while_its_begin_is_looked_for_delivers_nothing(
    client: RawClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on, locate = threading.Event(), asyncio.Event(), TieredStream.locate

    async def slowly(stream: TieredStream, spec: OffsetSpec) -> int:
        begun.set()
        await goes_on.wait()
        return await locate(stream, spec)

    monkeypatch.setattr(TieredStream, "locate", slowly)
    broker.give(1, active=True)
    take(client, turn(client)[0], 0)
    assert begun.wait(60)
    broker.give(2, active=False)
    over, active = turn(client)
    assert not active
    broker.loop.call_soon_threadsafe(goes_on.set)
    take(client, over, 0)
    assert client.silent()
    assert broker.taken == [1, 2]


def test_the_broker_hears_of_a_turn_only_when_the_client_has_answered_and_once(
    client: RawClient, broker: Broker
) -> None:
    broker.give(5, active=True)
    correlation, _ = turn(client)
    take(client, correlation + 1, 0)
    assert client.silent()
    assert broker.taken == []
    for _ in range(2):
        take(client, correlation, 50)
    assert first_id(client.chunk()) == 50
    assert client.silent()
    assert broker.taken == [5]


@pytest.mark.parametrize("unsubscribes", [True, False])
def test_who_leaves_in_its_turn_leaves_its_group(
    client: RawClient, broker: Broker, unsubscribes: bool
) -> None:
    broker.give(5, active=True)
    take(client, turn(client)[0], 0)
    client.chunk()
    if unsubscribes:
        client.send(Key.UNSUBSCRIBE, struct.pack(">IB", 9, 1))
    else:
        client.socket.close()
    assert broker.left.wait(60)


def test_who_has_lost_its_place_is_delivered_nothing_more(
    client: RawClient, broker: Broker
) -> None:
    broker.give(5, active=True)
    take(client, turn(client)[0], 0)
    for _ in range(3):
        client.chunk()
    broker.lose()
    key, fields = client.frame()
    assert (key, fields.number("H"), fields.string()) == (
        Key.METADATA_UPDATE, Code.NOT_AVAILABLE, "orders",
    )  # fmt: skip
    client.credit(3)
    key, fields = client.frame()
    assert (key, fields.number("H")) == (Key.CREDIT | RESPONSE, Code.NO_SUBSCRIPTION)
    assert broker.left.wait(60)


def test_a_client_that_answers_none_of_endless_turns_loses_its_place(
    client: RawClient, broker: Broker
) -> None:
    for n in range(1100):
        broker.give(n, active=True)
        if client.frame()[0] == Key.METADATA_UPDATE:
            break
    assert broker.left.wait(60)


@pytest.mark.parametrize("policy", [ReadPolicy.FORCE, ReadPolicy.NOT_IN_DISK])
def test_the_broker_gives_turns_though_none_of_its_messages_are_read(
    broker: Broker, tier: Tier, policy: ReadPolicy
) -> None:
    with Gateway(tier, broker=broker, policy=policy) as gateway, RawClient(gateway.port) as client:
        assert client.log_in().subscribe("orders", credit=3, more=GROUP) == Code.OK
        broker.give(5, active=True)
        take(client, turn(client)[0], 0)
        assert first_id(client.chunk()) == 0
