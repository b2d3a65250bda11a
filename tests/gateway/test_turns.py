"""Turns of a single active consumer, from a broker that gives them as a test says."""

from __future__ import annotations

import asyncio
import gc
import struct
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from coldstream.broker.connection import StreamUri
from coldstream.broker.frames import RESPONSE, Code, Key, OffsetType, properties, string
from coldstream.errors import UnavailableError
from coldstream.gateway.broker_tier import BrokerTier
from coldstream.gateway.connection import Connection
from coldstream.gateway.delivery import Delivery
from coldstream.gateway.membership import Membership
from coldstream.gateway.stream import TieredStream
from coldstream.gateway.users import parse_users
from coldstream.manifest.catalog import QueueName
from coldstream.read_policy import ReadPolicy
from coldstream.reader.spec import OffsetSpec
from tests.support.gateway import Gateway
from tests.support.raw_client import RawClient
from tests.support.tier import Tier, chunk

GROUP = properties({"name": "app", "single-active-consumer": "true"})
CHUNKS = [chunk(n, *(b"%d" % m for m in range(n, n + 10))) for n in range(0, 60, 10)]


@dataclass
class Broker(BrokerTier):
    """Nothing but one place in a group: what it hears is kept, and it says what a test says."""

    uri: StreamUri = field(default_factory=lambda: StreamUri("127.0.0.1", 1, "u", "p"))
    taken: list[int] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    member: Membership | None = None

    async def join(self, vhost: str, stream: str, group: Mapping[str, str]) -> Membership:
        self.loop = asyncio.get_running_loop()
        self.member = Membership(self, 0, stream)
        return self.member

    def take_turn(self, correlation: int) -> None:
        self.taken.append(correlation)
        self.heard.append("taken")

    async def exists(self, vhost: str, stream: str) -> bool:
        return stream == "orders"

    async def first_offset(self, vhost: str, stream: str) -> int | None:
        return 50

    async def query_offset(self, vhost: str, reference: str, stream: str) -> int | None:
        await asyncio.sleep(0.1)
        return self.heard.count("stored")

    async def store_offset(self, vhost: str, reference: str, stream: str, offset: int) -> None:
        self.heard.append("stored")

    async def close(self) -> None:
        self.heard.append("left")
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
    """One stream of six chunks of ten messages."""
    made = Tier()
    made.add("__orders_1", [CHUNKS], name=QueueName("test", "/", "orders"))
    return made


@pytest.fixture
def gateway(tier: Tier, broker: Broker) -> Iterator[Gateway]:
    with Gateway(tier, broker=broker) as made:
        yield made


@pytest.fixture
def client(gateway: Gateway) -> Iterator[RawClient]:
    """In a group that reads the stream."""
    with RawClient(gateway.port) as made:
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


def store(client: RawClient, offset: int) -> None:
    client.send(Key.STORE_OFFSET, string("app") + string("orders") + struct.pack(">Q", offset))


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


@pytest.mark.parametrize("fails", [2, 100])
def test_a_turn_that_comes_while_nobody_can_say_where_it_begins_is_tried_again(
    client: RawClient, broker: Broker, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    locate, tries = TieredStream.locate, iter(range(fails))

    async def elects(stream: TieredStream, spec: OffsetSpec) -> int:
        if next(tries, None) is not None:
            raise UnavailableError("a leader is elected")
        return await locate(stream, spec)

    monkeypatch.setattr(TieredStream, "locate", elects)
    monkeypatch.setattr("coldstream.gateway.subscriptions._TURN_TRIES", (0.01, 0.01, 0.01))
    broker.give(1, active=True)
    take(client, turn(client)[0], 20)
    if fails == 2:
        assert first_id(client.chunk()) == 20
        assert broker.taken == [1]
    else:
        assert client.frame()[0] == Key.METADATA_UPDATE
        assert next(tries) == 4
        assert broker.left.wait(60)


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


def test_a_turn_begins_in_history_that_is_younger_than_the_subscription(broker: Broker) -> None:
    """Who waits for its turn for days has subscribed before there was anything in S3."""
    tier = Tier()
    with Gateway(tier, broker=broker) as gateway, RawClient(gateway.port) as client:
        assert client.log_in().subscribe("orders", credit=3, more=GROUP) == Code.OK
        tier.add("__orders_1", [CHUNKS], name=QueueName("test", "/", "orders"))
        gateway.site.streams.names._listing.found_at = float("-inf")  # a minute has passed
        broker.give(1, active=True)
        body = struct.pack(">IHH", turn(client)[0], Code.OK, OffsetType.FIRST)
        client.send(Key.CONSUMER_UPDATE | RESPONSE, body)
        client.socket.settimeout(5)
        assert first_id(client.chunk()) == 0


def test_what_a_client_has_stored_in_its_turn_is_stored_before_the_next_one_has_its_own(
    client: RawClient, broker: Broker
) -> None:
    broker.give(1, active=True)
    take(client, turn(client)[0], 50)
    client.chunk()
    broker.give(2, active=False)
    over, _ = turn(client)
    store(client, 1)
    take(client, over, 0)
    broker.give(3, active=True)
    take(client, turn(client)[0], 50)
    client.chunk()
    assert broker.heard == ["taken", "stored", "taken", "taken"]


@pytest.mark.parametrize("how", ["it unsubscribes", "it hangs up", "the gateway ends"])
def test_what_a_client_has_stored_is_stored_before_it_leaves_its_group(
    gateway: Gateway, client: RawClient, broker: Broker, how: str
) -> None:
    broker.give(1, active=True)
    take(client, turn(client)[0], 50)
    client.chunk()
    store(client, 1)
    if how == "it unsubscribes":
        client.send(Key.UNSUBSCRIBE, struct.pack(">IB", 9, 1))
    elif how == "it hangs up":
        client.socket.close()
    else:
        gateway.end()
    assert broker.left.wait(60)
    assert broker.heard[:3] == ["taken", "stored", "left"]


def test_who_is_hung_up_on_leaves_its_group_at_once_and_nothing_begins_to_be_delivered(
    gateway: Gateway, client: RawClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on, locate = threading.Event(), asyncio.Event(), TieredStream.locate
    delivered: list[int] = []

    async def slowly(stream: TieredStream, spec: OffsetSpec) -> int:
        begun.set()
        await goes_on.wait()
        return await locate(stream, spec)

    async def run(delivery: Delivery) -> None:
        delivered.append(delivery.position)

    monkeypatch.setattr(TieredStream, "locate", slowly)
    monkeypatch.setattr(Delivery, "run", run)
    broker.give(1, active=True)
    take(client, turn(client)[0], 0)
    assert begun.wait(60)

    others = parse_users("guest:another:.*\n")
    gateway.loop.call_soon_threadsafe(gateway.site.replace_users, others)
    assert broker.left.wait(5)
    gateway.loop.call_soon_threadsafe(goes_on.set)
    assert client.hung_up()
    assert delivered == []


def test_a_bug_that_ends_a_subscription_is_told_with_its_traceback(
    gateway: Gateway, client: RawClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[BaseException | None] = []

    def follow(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(TieredStream, "follow", follow)
    gateway.loop.set_exception_handler(lambda _, each: told.append(each.get("exception")))
    broker.give(1, active=True)
    take(client, turn(client)[0], 0)
    assert client.frame()[0] == Key.METADATA_UPDATE
    assert broker.left.wait(60)
    gateway.end()
    gc.collect()
    assert [type(each) for each in told] == [ZeroDivisionError]


def test_who_stops_waiting_for_subscriptions_to_end_stops_none_of_them(
    gateway: Gateway, client: RawClient, broker: Broker
) -> None:
    """The gateway ends at the very moment at which the client leaves by itself."""

    async def close() -> int:
        (guest,) = gateway.site.guests
        assert isinstance(guest, Connection)
        closing = asyncio.create_task(guest._subscriptions.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait({closing})
        return gateway.metrics.subscriptions

    assert asyncio.run_coroutine_threadsafe(close(), gateway.loop).result(60) == 0
    assert broker.left.wait(5)
