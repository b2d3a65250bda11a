"""Offsets that consumers store where there is no broker: in the table, and never lost backwards."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rstream import AMQPMessage, Consumer, ConsumerOffsetSpecification, OffsetType
from rstream.exceptions import OffsetNotFound

from coldstream.adapters.memory import MemoryOffsets
from coldstream.broker.frames import Code, Key, string
from coldstream.errors import PermissionDeniedError, UnavailableError
from coldstream.gateway.offsets import Bookmarks, Offsets
from coldstream.gateway.stream import TieredStream
from coldstream.manifest.catalog import QueueName
from tests.support.gateway import Gateway
from tests.support.probe_stack import eventually
from tests.support.raw_client import RawClient
from tests.support.tier import Tier, chunk

ORDERS = QueueName("test", "/", "orders")
DIRECTORY = "__orders_1"


class Slow(MemoryOffsets):
    """A table that counts writes, and makes them wait."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[int] = []
        self.go = threading.Event()

    def store(self, stream: str, reference: str, offset: int, **more: Any) -> int:
        assert self.go.wait(30)
        self.writes.append(offset)
        return super().store(stream, reference, offset, **more)


class Forbidden(MemoryOffsets):
    def store(self, *_: object, **__: object) -> int:
        raise PermissionDeniedError("DynamoDB refused the request")


def tier() -> Tier:
    made = Tier()
    made.add(DIRECTORY, [[chunk(n, b"%d" % n) for n in range(100)]], name=ORDERS)
    return made


def stored(client: RawClient, reference: str = "app") -> int | None:
    code, fields = client.ask(Key.QUERY_OFFSET, string(reference) + string("orders"))
    if code == Code.NO_OFFSET:
        return None
    assert code == Code.OK
    return fields.number("Q")


def store(client: RawClient, offset: int, reference: str = "app") -> None:
    body = string(reference) + string("orders") + struct.pack(">Q", offset)
    client.send(Key.STORE_OFFSET, body)


def test_a_consumer_finds_what_it_has_stored_also_through_another_gateway() -> None:
    kept = MemoryOffsets()
    with Gateway(tier(), offsets=kept) as one, RawClient(one.port).log_in() as client:
        assert stored(client) is None
        store(client, 41)
        assert stored(client) == 41
        assert stored(client, "other") is None
    with Gateway(tier(), offsets=kept) as other, RawClient(other.port).log_in() as client:
        assert stored(client) == 41


def test_a_consumer_that_goes_back_on_purpose_may_and_one_that_was_replaced_may_not() -> None:
    with (
        Gateway(tier()) as gateway,
        RawClient(gateway.port).log_in() as old,
        RawClient(gateway.port).log_in() as new,
    ):
        store(old, 50)
        assert stored(old) == 50
        store(new, 80)
        assert stored(new) == 80
        store(old, 51)
        assert stored(old) == 80
        assert any("is not taken back to 51" in each for each in gateway.said)
        assert gateway.metrics.lost_offsets == 1
        store(new, 3)
        assert stored(new) == 3


def test_a_consumer_that_stores_each_offset_costs_no_write_for_each() -> None:
    kept = Slow()
    with Gateway(tier(), offsets=kept) as gateway, RawClient(gateway.port).log_in() as client:
        for offset in range(100):
            store(client, offset)
        client.ask(Key.STREAM_STATS, string("orders"))  # all of them have been taken by now
        kept.go.set()
        assert stored(client) == 99
        assert len(kept.writes) < 10
        assert kept.writes[-1] == 99


def test_what_waits_is_written_when_the_client_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.gateway.connection.LEAVE_SECONDS", 60.0)
    kept = Slow()
    with Gateway(tier(), offsets=kept) as gateway:
        with RawClient(gateway.port).log_in() as client:
            store(client, 7)
            client.ask(Key.STREAM_STATS, string("orders"))
        kept.go.set()
    assert kept.query(DIRECTORY, "app") == 7


class Watched(MemoryOffsets):
    """A table that answers only when something has happened to the gateway.

    Attributes:
        until: what its writes wait for.
        query_until: what its queries wait for.
        asked: set when something waits.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.until: Callable[[], object] = lambda: True
        self.query_until: Callable[[], object] = lambda: True
        self.writes = 0

    def store(self, stream: str, reference: str, offset: int, **more: Any) -> int:
        self.asked.set()
        assert eventually(self.until, seconds=60)
        self.writes += 1
        return super().store(stream, reference, offset, **more)

    def query(self, stream: str, reference: str) -> int | None:
        self.asked.set()
        assert eventually(self.query_until, seconds=60)
        return super().query(stream, reference)


def test_what_waits_is_written_though_the_gateway_ends_while_the_client_leaves() -> None:
    """The end cancelled what was writing: all but the first offset were lost."""
    kept = Watched()
    with Gateway(tier(), offsets=kept) as gateway:
        kept.until = lambda: not gateway.metrics.connections  # the end has come for the client
        with RawClient(gateway.port).log_in() as client:
            store(client, 7, "one")
            store(client, 8, "two")
            client.ask(Key.STREAM_STATS, string("orders"))
            assert kept.asked.wait(60)

    assert (kept.query(DIRECTORY, "one"), kept.query(DIRECTORY, "two")) == (7, 8)
    assert gateway.metrics.lost_offsets == 0


def test_what_a_client_has_sent_before_the_gateway_ends_is_written() -> None:
    """It lay behind a frame that was not answered yet, and nobody looked at it any more."""
    kept = Watched()
    with Gateway(tier(), offsets=kept) as gateway, RawClient(gateway.port).log_in() as client:
        kept.query_until = lambda: not gateway.metrics.connections or kept.writes
        client.send(Key.QUERY_OFFSET, struct.pack(">I", 99) + string("app") + string("orders"))
        assert kept.asked.wait(60)
        store(client, 9)
        gateway.end()

    assert kept.query(DIRECTORY, "app") == 9


def test_an_offset_is_written_at_the_end_though_s3_does_not_answer() -> None:
    """It waited for the manifest, and was forgotten."""
    kept, hangs = MemoryOffsets(), asyncio.Event()

    class Hanging:
        reader = SimpleNamespace(stream=DIRECTORY)

        async def snapshot(self, *, seconds: float) -> None:
            del seconds
            await hangs.wait()

    stream = SimpleNamespace(remote=Hanging(), name="orders", vhost="/")

    async def leave() -> None:
        bookmarks = Bookmarks(Offsets(None, kept), lost=print)
        for reference in ("app", "other"):  # what a client sends next is looked at, too
            await asyncio.wait_for(bookmarks.store(cast(TieredStream, stream), reference, 7), 30)
        await bookmarks.close(asyncio.get_running_loop().time() + 30)

    asyncio.run(leave())

    assert [kept.query(DIRECTORY, each) for each in ("app", "other")] == [7, 7]


def test_an_offset_that_is_not_written_in_time_at_the_end_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coldstream.gateway.connection.LEAVE_SECONDS", 2.0)
    kept = Watched()
    with Gateway(tier(), offsets=kept) as gateway, RawClient(gateway.port).log_in() as client:
        kept.until = lambda: gateway.metrics.lost_offsets == 2
        store(client, 7, "one")
        store(client, 8, "two")
        client.ask(Key.STREAM_STATS, string("orders"))
        gateway.end()

    told = [each for each in gateway.said if "is not stored" in each]
    assert len(told) == 2
    assert "'one'" in told[0]
    assert "7" in told[0]
    assert "'two'" in told[1]
    assert "8" in told[1]


@pytest.mark.parametrize("make", [Forbidden, lambda: None], ids=["no right", "nobody"])
def test_an_offset_that_nobody_keeps_is_told_in_the_log(make: Callable[[], Any]) -> None:
    with Gateway(tier(), offsets=make()) as gateway:
        with RawClient(gateway.port).log_in() as client:
            store(client, 7)
            assert stored(client) is None
        assert gateway.metrics.lost_offsets == 1
        assert any("is not stored" in each for each in gateway.said)


def test_who_may_not_read_a_stream_stores_no_offset_of_it() -> None:
    kept = MemoryOffsets()
    with (
        Gateway(tier(), offsets=kept) as gateway,
        RawClient(gateway.port).log_in("few", "secret") as client,
    ):
        store(client, 7)
        client.ask(Key.STREAM_STATS, string("orders"))
    assert kept.query(DIRECTORY, "app") is None


def test_rstream_comes_back_and_goes_on_behind_what_it_has_stored() -> None:
    """All of the stream is remote, and there is no broker: as the client's own manual has it."""

    async def read(port: int, until: int) -> list[int]:
        consumer = Consumer("127.0.0.1", port, username="guest", password="guest", vhost="/")
        found: list[int] = []
        done = asyncio.Event()

        async def take(message: AMQPMessage | bytes, context: Any) -> None:
            if found and found[-1] >= until:
                return
            found.append(int(bytes(message)))
            if context.offset in (until, until - 20):
                name = context.subscriber_name
                await consumer.store_offset("orders", name, context.offset)
            if context.offset == until:
                done.set()

        await consumer.start()
        try:
            begin = await consumer.query_offset("orders", "app") + 1
        except OffsetNotFound:
            begin = 0
        spec = ConsumerOffsetSpecification(OffsetType.OFFSET, begin)
        await consumer.subscribe("orders", take, offset_specification=spec, subscriber_name="app")
        async with asyncio.timeout(60):
            await done.wait()
        await consumer.close()
        return found

    with Gateway(tier()) as gateway:
        first = asyncio.run(read(gateway.port, 41))
        rest = asyncio.run(read(gateway.port, 99))

    assert first + rest == list(range(100))


class Away(MemoryOffsets):
    """A table that takes nothing for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.away, self.tries = True, 0

    def store(self, stream: str, reference: str, offset: int, **more: Any) -> int:
        self.tries += 1
        if self.away:
            raise UnavailableError("DynamoDB did not answer")
        return super().store(stream, reference, offset, **more)


def test_an_offset_waits_until_the_table_answers_again() -> None:
    """It was dropped, and a consumer that stores one now and then read all behind it again."""
    kept = Away()
    with Gateway(tier(), offsets=kept) as gateway, RawClient(gateway.port).log_in() as client:
        store(client, 7)
        assert eventually(lambda: kept.tries > 2, seconds=60)
        code, _ = client.ask(Key.QUERY_OFFSET, string("app") + string("orders"))
        assert code == Code.NOT_AVAILABLE, "an older one is no answer"
        kept.away = False
        assert eventually(lambda: kept.query(DIRECTORY, "app") == 7, seconds=60)
        assert stored(client) == 7
        assert gateway.metrics.lost_offsets == 0


def test_an_offset_that_the_table_never_took_is_told_when_its_client_leaves() -> None:
    kept = Away()
    with Gateway(tier(), offsets=kept) as gateway:
        with RawClient(gateway.port).log_in() as client:
            store(client, 7)
            client.ask(Key.STREAM_STATS, string("orders"))
        assert eventually(lambda: gateway.metrics.lost_offsets == 1, seconds=60)
        assert any("is not stored" in each for each in gateway.said)


class Keeper:
    """A broker that keeps offsets, or says nothing and drops them, as 3.10 does without `write`."""

    def __init__(self, *, keeps: bool = True, held: int | None = None) -> None:
        self.keeps, self.held, self.queries = keeps, held, 0
        self.asked_for: list[str] = []

    async def exists(self, vhost: str, stream: str) -> bool:
        del vhost, stream
        return True

    async def store_offset(self, vhost: str, reference: str, stream: str, offset: int) -> None:
        del vhost, stream
        self.asked_for.append(reference)
        self.held = offset if self.keeps else self.held

    async def query_offset(self, vhost: str, reference: str, stream: str) -> int | None:
        del vhost, reference, stream
        self.queries += 1
        return self.held

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("held", [None, 3])
def test_an_offset_that_the_broker_drops_is_told_in_the_log(held: int | None) -> None:
    """Without a word from anybody the consumer began anew when it came back."""
    with (
        Gateway(tier(), broker=Keeper(keeps=False, held=held)) as gateway,
        RawClient(gateway.port).log_in() as client,
    ):
        store(client, 7)
        assert stored(client) == held
        assert gateway.metrics.lost_offsets == 1
        assert any("the right `write`" in each for each in gateway.said)


@pytest.mark.parametrize("held", [None, 3, 7, 9])
def test_whether_the_broker_keeps_offsets_is_looked_at_once_for_each_consumer(
    held: int | None,
) -> None:
    broker = Keeper(held=held)
    with (
        Gateway(tier(), broker=broker) as gateway,
        RawClient(gateway.port).log_in() as client,
    ):
        for offset in range(7, 50):
            store(client, offset)
        assert stored(client) == 49
        assert broker.queries == 3
        assert not gateway.said


class Standing(Keeper):
    """A broker that stands still for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def query_offset(self, vhost: str, reference: str, stream: str) -> int | None:
        await asyncio.wait_for(self.go.wait(), 60)
        return await super().query_offset(vhost, reference, stream)


def test_history_is_read_on_while_the_broker_takes_no_offset() -> None:
    """Each one was waited for, and the client's credit behind it not seen until then."""
    broker = Standing()
    with (
        Gateway(tier(), broker=broker) as gateway,
        RawClient(gateway.port).log_in() as client,
    ):
        assert client.subscribe("orders", struct.pack(">HQ", 4, 0), credit=0) == Code.OK
        for offset in range(50):
            store(client, offset)
            store(client, offset, "other")
            client.credit(1)
            assert struct.unpack_from(">Q", client.chunk(), 24)[0] == offset
        assert not broker.asked_for
        gateway.loop.call_soon_threadsafe(broker.go.set)
        assert stored(client) == 49
        assert sorted(set(broker.asked_for)) == ["app", "other"]
        assert len(broker.asked_for) <= 4, "the last offset of each consumer counts"
        assert not gateway.said
