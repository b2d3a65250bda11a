"""Clients that ask, or subscribe, and do not read: what waits for them is bounded."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from coldstream.broker.frames import Code, Key, OffsetType, subscribe
from coldstream.gateway import connection
from coldstream.gateway.outbox import HIGH_WATER, _ToSocket
from coldstream.gateway.stream import TieredStream
from coldstream.manifest.catalog import QueueName
from coldstream.reader.spec import OffsetSpec
from tests.support.gateway import Gateway
from tests.support.raw_client import RawClient
from tests.support.tier import chunk

SIZE, COUNT, SUBSCRIPTIONS = 400_000, 3, 40


def test_who_asks_on_and_takes_no_answer_is_hung_up_on(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_PATIENCE_SECONDS", 0.001)
    monkeypatch.setattr(connection, "_MAX_UNTAKEN", 2**20)
    messages = [struct.pack(">QI", n, 0) for n in range(2000)]
    body = struct.pack(">Bi", 7, len(messages)) + b"".join(messages)
    with RawClient(gateway.port).log_in() as client, suppress(ConnectionError):
        for _ in range(12_500):
            client.send(Key.PUBLISH, body)
    assert any("takes none of" in each for each in gateway.said)


def test_many_subscriptions_put_no_more_than_one_chunk_behind_a_full_socket(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[int] = []
    write = connection.Connection.write

    def watched(self: Any, parts: Sequence[bytes | memoryview]) -> None:
        write(self, parts)
        waiting.append(self._outbox.size)

    monkeypatch.setattr(connection.Connection, "write", watched)
    chunks = [chunk(n, bytes(SIZE)) for n in range(COUNT)]
    gateway.tier.add("__big_1", [chunks], name=QueueName("test", "/", "big"))
    with RawClient(gateway.port).log_in() as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        answered = delivered = 0
        for number in range(SUBSCRIPTIONS):
            body = subscribe(number, "big", OffsetType.FIRST, credit=COUNT)
            client.send(Key.SUBSCRIBE, struct.pack(">I", number) + body)
        while max(waiting, default=0) <= HIGH_WATER:
            time.sleep(0.001)  # until the socket is full; then it is emptied step by step
        while answered < SUBSCRIPTIONS or delivered < SUBSCRIPTIONS * COUNT:
            key, _ = client.frame()
            answered += key == 0x8000 | Key.SUBSCRIBE
            delivered += key == Key.DELIVER
    assert max(waiting) <= HIGH_WATER + SIZE + 100


def test_what_waits_behind_a_socket_that_takes_nothing_is_copied_after_a_while(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled = threading.Event()
    settle = _ToSocket.settle

    def watched(self: Any) -> None:
        settle(self)
        settled.set()

    monkeypatch.setattr(_ToSocket, "settle", watched)
    chunks = [chunk(n, bytes([n]) * SIZE) for n in range(SUBSCRIPTIONS)]
    gateway.tier.add("__big_1", [chunks], name=QueueName("test", "/", "big"))
    with RawClient(gateway.port).log_in() as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        assert client.subscribe("big", credit=SUBSCRIPTIONS) == 1
        assert settled.wait(60)
        assert [client.chunk() for _ in chunks] == chunks


def test_subscriptions_beyond_the_limit_are_refused(gateway: Gateway) -> None:
    gateway.tier.add("__s_1", [[chunk(0, b"a")]], name=QueueName("test", "/", "s"))
    gateway.site.subscriptions = 1
    with RawClient(gateway.port).log_in() as client, RawClient(gateway.port).log_in() as other:
        assert client.subscribe("s", credit=0) == 1
        assert other.subscribe("s", credit=0) == 6
        assert client.ask(Key.UNSUBSCRIBE, b"\1")[0] == 1
        assert other.subscribe("s", credit=0) == 1


def test_subscriptions_that_begin_at_the_same_time_keep_to_the_limit_too(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each begins takes an answer of S3, in which the others of a crowd come."""
    gateway.tier.add("__s_1", [[chunk(0, b"a")]], name=QueueName("test", "/", "s"))
    gateway.site.subscriptions = 2
    together = threading.Barrier(4)
    locate = TieredStream.locate

    async def late(stream: TieredStream, spec: OffsetSpec) -> int:
        await asyncio.to_thread(together.wait, 60)
        return await locate(stream, spec)

    monkeypatch.setattr(TieredStream, "locate", late)
    with ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        clients = [stack.enter_context(RawClient(gateway.port).log_in()) for _ in range(4)]
        codes = list(pool.map(lambda client: client.subscribe("s", credit=0), clients))
        left = [client.ask(Key.UNSUBSCRIBE, b"\1")[0] for client in clients]

    assert sorted(codes) == [Code.OK, Code.OK, Code.NOT_AVAILABLE, Code.NOT_AVAILABLE]
    assert sorted(left) == [Code.OK, Code.OK, Code.NO_SUBSCRIPTION, Code.NO_SUBSCRIPTION]
