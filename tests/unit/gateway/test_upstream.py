"""What the gateway asks a broker, against a peer that answers as a test says."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from coldstream.broker.answers import MOST_FILES
from coldstream.broker.connection import StreamUri
from coldstream.broker.frames import (
    RESPONSE,
    Code,
    Key,
    OffsetType,
    frame,
    properties,
    string,
)
from coldstream.errors import InvalidInputError, UnavailableError
from coldstream.gateway.broker_tier import BrokerTier, SubscriptionEndedError
from coldstream.gateway.upstream import Upstream
from coldstream.reader.spec import First, Last, Next, Offset, Timestamp
from coldstream_devkit.generator import build_chunk
from tests.support.peer import Answer, Peer, deliver, logging_in, reply

CHUNK = build_chunk(60, 3, 1_790_000_000_000, [b"m" * 100] * 50)
OTHER = build_chunk(10, 1, 1_790_000_000_000, [b"old"])


def uri(peer: Peer) -> StreamUri:
    return StreamUri("127.0.0.1", peer.port, "u", "secret")


def members(body: bytes, *ports: int) -> bytes:
    """A Metadata that says that `orders` is on these ports, the first one the writer's."""
    nodes = struct.pack(">i", len(ports)) + b"".join(
        struct.pack(">H", n) + string("127.0.0.1") + struct.pack(">I", port)
        for n, port in enumerate(ports)
    )
    replicas = struct.pack(">i", len(ports) - 1)
    replicas += b"".join(struct.pack(">H", n) for n in range(1, len(ports)))
    row = struct.pack(">i", 1) + string("orders") + struct.pack(">HH", Code.OK, 0) + replicas
    return frame(Key.METADATA, body[:4] + nodes + row, response=True)


@pytest.fixture
def peers() -> Iterator[Callable[[Answer], Peer]]:
    made: list[Peer] = []

    def make(answer: Answer) -> Peer:
        made.append(Peer(answer))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_broker_that_delivers_more_than_its_credit_is_left_and_fills_no_memory(
    peers: Callable[[Answer], Peer],
) -> None:
    def flooding(key: int, body: bytes) -> list[bytes]:
        if key == Key.SUBSCRIBE:
            return [reply(Key.SUBSCRIBE, body), *[deliver(body[4], CHUNK)] * 100]
        return logging_in(key, body)

    async def run() -> None:
        upstream = await Upstream.connect(uri(peers(flooding)), "/", seconds=60)
        feed = await upstream.subscribe("orders", OffsetType.FIRST, credit=2)
        for _ in range(2):
            await feed.next()
        with pytest.raises(UnavailableError, match="more of 'orders' than it was given credit"):
            await feed.next()
        await upstream.close()

    asyncio.run(run())


def test_the_number_of_a_subscription_that_nobody_waits_for_is_not_used_again_too_early(
    peers: Callable[[Answer], Peer],
) -> None:
    active: set[int] = set()
    late: list[bytes] = []

    def broker(key: int, body: bytes) -> list[bytes]:
        if key == Key.SUBSCRIBE and string("slow") in body:
            active.add(body[4])
            late.extend([reply(Key.SUBSCRIBE, body), deliver(body[4], OTHER)])
            return []
        before = late.copy()
        late.clear()
        if key == Key.SUBSCRIBE and body[4] in active:
            return [*before, reply(Key.SUBSCRIBE, body, code=Code.SUBSCRIPTION_EXISTS)]
        if key == Key.SUBSCRIBE:
            active.add(body[4])
            return [*before, reply(Key.SUBSCRIBE, body), deliver(body[4], CHUNK)]
        if key == Key.UNSUBSCRIBE:
            active.discard(body[4])
        return [*before, *logging_in(key, body)]

    async def run() -> None:
        peer = peers(broker)
        upstream = await Upstream.connect(uri(peer), "/", seconds=60)
        given_up = asyncio.create_task(upstream.header("slow", OffsetType.LAST))
        while Key.SUBSCRIBE not in peer.heard:
            await asyncio.sleep(0.001)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        for _ in range(3):
            found = await upstream.header("orders", OffsetType.LAST)
            assert found is not None
            assert found.header == CHUNK[:48]
        await upstream.close()

    asyncio.run(run())


def test_a_chunk_that_comes_late_from_a_broker_under_load_is_not_taken_for_none(
    peers: Callable[[Answer], Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldstream.gateway.upstream._CHUNK_SECONDS", 0.01)

    def busy(key: int, body: bytes) -> list[bytes]:
        if key == Key.SUBSCRIBE:
            return [reply(Key.SUBSCRIBE, body)]
        if key == Key.METADATA:
            return [deliver(0, CHUNK), members(body, 1)]
        return logging_in(key, body)

    async def run() -> bytes | None:
        upstream = await Upstream.connect(uri(peers(busy)), "/", seconds=60)
        found = await upstream.header("orders", OffsetType.LAST)
        await upstream.close()
        return found and found.header

    assert asyncio.run(run()) == CHUNK[:48]


def test_more_who_look_at_once_than_a_connection_has_numbers_wait_for_one(
    peers: Callable[[Answer], Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of clients that come back at once, to a stream that is empty, were refused."""
    monkeypatch.setattr("coldstream.gateway.upstream._CHUNK_SECONDS", 0.01)

    def empty(key: int, body: bytes) -> list[bytes]:
        return [members(body, 1)] if key == Key.METADATA else logging_in(key, body)

    async def run() -> None:
        upstream = await Upstream.connect(uri(peers(empty)), "/", seconds=60)
        looks = [upstream.header("orders", OffsetType.LAST) for _ in range(600)]
        assert await asyncio.gather(*looks) == [None] * 600
        feeds = [await upstream.subscribe("orders", OffsetType.FIRST) for _ in range(256)]
        waits = asyncio.create_task(upstream.header("orders", OffsetType.LAST))
        await feeds[7].close()
        assert await waits is None
        await upstream.subscribe("orders", OffsetType.FIRST)
        waits = asyncio.create_task(upstream.header("orders", OffsetType.LAST))
        await asyncio.sleep(0)
        await upstream.close()
        with pytest.raises(UnavailableError):
            await waits

    asyncio.run(run())


def test_a_stream_that_changes_ends_only_what_is_read_of_it(
    peers: Callable[[Answer], Peer],
) -> None:
    update = frame(Key.METADATA_UPDATE, struct.pack(">H", Code.NOT_AVAILABLE) + string("other"))

    def broker(key: int, body: bytes) -> list[bytes]:
        if key == Key.SUBSCRIBE and string("orders") in body:
            return [update, reply(Key.SUBSCRIBE, body), deliver(body[4], CHUNK)]
        return logging_in(key, body)

    async def run() -> None:
        upstream = await Upstream.connect(uri(peers(broker)), "/", seconds=60)
        other = await upstream.subscribe("other", OffsetType.NEXT)
        found = await upstream.header("orders", OffsetType.LAST)
        assert found is not None
        with pytest.raises(UnavailableError, match="has changed"):
            await other.next()
        await upstream.close()

    asyncio.run(run())


def test_offsets_do_not_pile_up_for_a_broker_that_takes_nothing(
    peers: Callable[[Answer], Peer],
) -> None:
    stopped = threading.Event()

    def deaf(key: int, body: bytes) -> list[bytes]:
        if key == Key.STORE_OFFSET:
            stopped.wait(30)
        return logging_in(key, body)

    async def run() -> None:
        upstream = await Upstream.connect(uri(peers(deaf)), "/", seconds=60)
        upstream._seconds = 0.2  # not before: a slow machine logs in slowly

        async def store_many() -> None:
            for _ in range(2000):
                await upstream.store_offset("r" * 30_000, "orders", 7)

        with pytest.raises(UnavailableError, match="takes nothing"):
            await store_many()
        stopped.set()
        await upstream.close()

    asyncio.run(run())


def test_a_member_that_does_not_answer_is_not_the_last_word(
    peers: Callable[[Answer], Peer],
) -> None:
    def member(key: int, body: bytes) -> list[bytes]:
        if key == Key.SUBSCRIBE:
            return [reply(Key.SUBSCRIBE, body), deliver(body[4], CHUNK)]
        return logging_in(key, body)

    there, dead = peers(member), peers(member)
    dead.close()

    def without(key: int, body: bytes) -> list[bytes]:
        if key == Key.SUBSCRIBE:
            return [reply(Key.SUBSCRIBE, body, code=Code.NOT_AVAILABLE)]
        if key == Key.METADATA:
            return [members(body, dead.port, there.port)]
        return logging_in(key, body)

    async def run() -> None:
        tier = BrokerTier(uri(peers(without)), seconds=60)
        last = await tier.last("/", "orders")
        assert last is not None
        assert last.header == CHUNK[:48]
        chunks = tier.follow("/", "orders", 60, {})
        assert (await anext(chunks)).parcel.header == CHUNK[:48]
        await chunks.aclose()
        await tier.close()

    asyncio.run(run())


def test_a_subscription_that_has_begun_and_breaks_is_told_from_one_that_never_began(
    peers: Callable[[Answer], Peer],
) -> None:
    """Who waits at the end of a quiet stream goes on at once after the one, and not the other."""
    begins = True

    def broker(key: int, body: bytes) -> list[bytes]:
        if key == Key.METADATA:
            return [members(body, peer.port)]
        if key == Key.SUBSCRIBE and not begins:
            return [reply(Key.SUBSCRIBE, body, code=Code.NOT_AVAILABLE)]
        if key == Key.SUBSCRIBE:
            changed = frame(Key.METADATA_UPDATE, struct.pack(">H", 6) + string("orders"))
            return [reply(Key.SUBSCRIBE, body), changed]
        return logging_in(key, body)

    peer = peers(broker)

    async def run() -> None:
        nonlocal begins
        tier = BrokerTier(uri(peer), seconds=60)
        with pytest.raises(SubscriptionEndedError, match="has changed"):
            await anext(tier.follow("/", "orders", 60, {}))
        begins = False
        with pytest.raises(UnavailableError) as found:
            await anext(tier.follow("/", "orders", 60, {}))
        assert not isinstance(found.value, SubscriptionEndedError)
        await tier.close()

    asyncio.run(run())


def test_credit_for_a_subscription_that_is_gone_does_not_end_the_connection(
    peers: Callable[[Answer], Peer],
) -> None:
    """The answer to it is the only one without a correlation id: code, and subscription."""

    def broker(key: int, body: bytes) -> list[bytes]:
        if key == Key.CREDIT:
            refused = struct.pack(">HB", Code.NO_SUBSCRIPTION, body[0])
            return [frame(Key.CREDIT, refused, response=True)]
        if key == Key.METADATA:
            return [members(body, 1)]
        return logging_in(key, body)

    async def run() -> None:
        upstream = await Upstream.connect(uri(peers(broker)), "/", seconds=60)
        upstream.give_credit(9)
        assert await upstream.exists("orders")
        assert not upstream.broken
        await upstream.close()

    asyncio.run(run())


def test_many_who_ask_a_broker_that_does_not_answer_wait_for_one_attempt(
    peers: Callable[[Answer], Peer],
) -> None:
    peer = peers(lambda key, body: [])

    async def run() -> None:
        tier = BrokerTier(uri(peer), seconds=2)
        asked = (tier.exists("/", f"stream{n}") for n in range(20))
        for each in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(each, UnavailableError)
        await tier.close()

    asyncio.run(run())
    assert len(peer.heard) == 1


@pytest.mark.parametrize(("version", "logins"), [("3.10.8", 5), ("4.3.6", 1)])
def test_a_broker_that_keeps_files_of_subscriptions_open_is_not_asked_on_one_connection_for_ever(
    peers: Callable[[Answer], Peer], version: str, logins: int
) -> None:
    """RabbitMQ 3.10.8 runs out of files otherwise: then nobody can read or publish any more."""

    def answer(key: int, body: bytes) -> list[bytes]:
        if key == Key.PEER_PROPERTIES:
            return [reply(Key.PEER_PROPERTIES, body, rest=properties({"version": version}))]
        if key == Key.METADATA:
            return [members(body, peer.port)]
        if key == Key.SUBSCRIBE:
            return [reply(Key.SUBSCRIBE, body), deliver(body[4], CHUNK)]
        return logging_in(key, body)

    peer = peers(answer)

    async def run() -> None:
        tier = BrokerTier(uri(peer), seconds=60)
        for _ in range(4 * MOST_FILES + 1):
            found = await tier.last("/", "orders")
            assert found is not None
            assert found.header == CHUNK[:48]
        assert peer.heard.count(Key.OPEN) == logins
        assert tier.generation("/") == 1, "it is the same broker: what it has proved still holds"
        # Whoever asks the one that is about to be replaced has his answer from it.
        assert None not in await asyncio.gather(*(tier.last("/", "orders") for _ in range(300)))
        await tier.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}, "the end waits for nothing more"

    asyncio.run(run())


def test_a_broker_hears_of_the_group_of_a_single_active_consumer_and_gets_no_credit_or_filter(
    peers: Callable[[Answer], Peer],
) -> None:
    heard: dict[int, bytes] = {}

    def broker(key: int, body: bytes) -> list[bytes]:
        heard[key] = body
        if key == Key.PEER_PROPERTIES:
            return [reply(Key.PEER_PROPERTIES, body, rest=properties({"version": "4.3.6"}))]
        if key == Key.SUBSCRIBE:
            turn = frame(Key.CONSUMER_UPDATE, struct.pack(">IBB", 7, body[4], 1))
            return [reply(Key.SUBSCRIBE, body), turn]
        return [] if key & RESPONSE else logging_in(key, body)

    async def run() -> None:
        upstream = await Upstream.connect(uri(peers(broker)), "/", seconds=60)
        group = {"single-active-consumer": "TRUE", "name": "app", "super-stream": "sales"}
        member = await upstream.join("orders", {**group, "filter.1": "x", "odd": "y"})
        turn = await member.next()
        assert (turn.correlation, turn.active) == (7, True)
        member.take(turn)
        while Key.CONSUMER_UPDATE | RESPONSE not in heard:
            await asyncio.sleep(0.001)
        assert heard[Key.CONSUMER_UPDATE | RESPONSE] == struct.pack(">IHH", 7, Code.OK, 3)
        told = properties({**group, "single-active-consumer": "true"})
        assert heard[Key.SUBSCRIBE].endswith(struct.pack(">HH", OffsetType.NEXT, 0) + told)
        await member.close()
        with pytest.raises(UnavailableError):
            await member.next()

    asyncio.run(run())


@pytest.mark.parametrize("number", [0, 9])
def test_a_broker_that_gives_turns_to_who_takes_none_is_left(
    peers: Callable[[Answer], Peer], number: int
) -> None:
    def broker(key: int, body: bytes) -> list[bytes]:
        if key == Key.SUBSCRIBE:
            turn = frame(Key.CONSUMER_UPDATE, struct.pack(">IBB", 7, number, 1))
            return [reply(Key.SUBSCRIBE, body), turn]
        return logging_in(key, body)

    async def run() -> None:
        upstream = await Upstream.connect(uri(peers(broker)), "/", seconds=60)
        feed = await upstream.subscribe("orders", OffsetType.FIRST)
        with pytest.raises(UnavailableError, match="gives turns that nobody asked for"):
            await feed.next()
        await upstream.close()

    asyncio.run(run())


def test_a_broker_that_knows_no_groups_is_not_asked_for_a_place_in_one(
    peers: Callable[[Answer], Peer],
) -> None:
    def broker(key: int, body: bytes) -> list[bytes]:
        if key == Key.PEER_PROPERTIES:
            return [reply(Key.PEER_PROPERTIES, body, rest=properties({"version": "3.10.25"}))]
        return logging_in(key, body)

    async def run() -> None:
        peer = peers(broker)
        upstream = await Upstream.connect(uri(peer), "/", seconds=60)
        with pytest.raises(InvalidInputError, match="is older than"):
            await upstream.join("orders", {"name": "app"})
        assert Key.SUBSCRIBE not in peer.heard
        await upstream.close()

    asyncio.run(run())


def test_an_empty_log_begins_at_offset_0_though_a_broker_says_that_it_is_minus_1(
    peers: Callable[[Answer], Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consumers are often there before the first message; none can be told to begin at -1."""
    monkeypatch.setattr("coldstream.gateway.upstream._CHUNK_SECONDS", 0.01)
    numbers = ("first_chunk_id", "last_chunk_id", "committed_chunk_id", "committed_offset")

    def empty(key: int, body: bytes) -> list[bytes]:
        if key == Key.PEER_PROPERTIES:
            return [reply(Key.PEER_PROPERTIES, body, rest=properties({"version": "4.3.6"}))]
        if key == Key.COMMAND_VERSIONS:
            rows = struct.pack(">iHHH", 1, Key.STREAM_STATS, 1, 1)
            return [reply(Key.COMMAND_VERSIONS, body, rest=rows)]
        if key == Key.METADATA:
            return [members(body, peer.port)]
        if key == Key.STREAM_STATS:
            rows = b"".join(string(each) + struct.pack(">q", -1) for each in numbers)
            return [reply(Key.STREAM_STATS, body, rest=struct.pack(">i", len(numbers)) + rows)]
        if key in (Key.SUBSCRIBE, Key.UNSUBSCRIBE):
            return [reply(Key(key), body)]
        return logging_in(key, body)

    peer = peers(empty)

    async def run() -> None:
        tier = BrokerTier(uri(peer), seconds=60)
        for spec in (First(), Last(), Next(), Offset(0), Offset(7), Timestamp(0)):
            assert await tier.locate("/", "orders", spec) == 0, spec
        assert await tier.first_offset("/", "orders") is None
        await tier.close()

    asyncio.run(run())
