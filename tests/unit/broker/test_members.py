"""What the members of a stream still have: whoever says nothing may have everything."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from coldstream.broker.answers import MOST_FILES
from coldstream.broker.connection import Connection, StreamUri
from coldstream.broker.frames import Code, Key, frame, properties, string
from coldstream.broker.management import Management
from coldstream.broker.node import Node, StreamMembers
from coldstream.errors import NotFoundError, UnavailableError
from coldstream_devkit.generator import build_chunk
from tests.support.peer import Answer, Peer, deliver, logging_in, reply

CHUNK = build_chunk(60, 3, 1_790_000_000_000, [b"m" * 100] * 50)


API = Management.parse("http://u:secret@127.0.0.1:1")


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the management API says of `orders`."""
    said: dict[str, Any] = {"members": ["a@one"]}
    monkeypatch.setattr(
        Management, "get", lambda _, path: {"/api/queues/%2F/orders?columns=members": said}[path]
    )
    return said


@pytest.fixture
def member() -> Iterator[Callable[[bool], Node]]:
    """A node that is the only member of `orders`, and delivers its first chunk or nothing."""
    made: list[Peer] = []
    nodes: list[Node] = []

    def make(delivers: bool) -> Node:
        def answer(key: int, body: bytes) -> list[bytes]:
            if key == Key.METADATA:
                where = struct.pack(">iH", 1, 0) + string("127.0.0.1")
                where += struct.pack(">I", made[-1].port)
                placed = string("orders") + struct.pack(">HHi", 1, 0, 0)
                told = body[:4] + where + struct.pack(">i", 1) + placed
                return [frame(Key.METADATA | 0x8000, told)]
            if key == Key.SUBSCRIBE:
                chunk = [deliver(body[4], CHUNK)] if delivers else []
                return [reply(Key.SUBSCRIBE, body), *chunk]
            return logging_in(key, body)

        served: Answer = answer
        made.append(Peer(served))
        uri = StreamUri("127.0.0.1", made[-1].port, "u", "secret")
        nodes.append(Node(uri, API, seconds=60))
        return nodes[-1]

    yield make
    for each in (*nodes, *made):
        each.close()


def test_the_lowest_chunk_of_all_members_is_what_is_left(member: Callable[[bool], Node]) -> None:
    assert StreamMembers(member(True)).earliest("/", "orders") == 60


def test_a_connection_that_the_broker_has_left_meanwhile_is_made_anew_and_told_of_to_nobody(
    member: Callable[[bool], Node],
) -> None:
    """It leaves who is silent for minutes: whoever had a second gap was told that it hung up."""
    members = StreamMembers(member(True))
    for _ in range(2):
        assert members.earliest("/", "orders") == 60
        assert members.knows("/", "orders")
        for each in members.node._connections.values():
            each._socket.shutdown(socket.SHUT_RDWR)

    assert members.knows("/", "orders")


@pytest.mark.parametrize("leads", [True, False, None])
def test_the_only_member_is_alone_where_the_writer_is(
    member: Callable[[bool], Node], monkeypatch: pytest.MonkeyPatch, leads: bool | None
) -> None:
    """A directory may stay behind on a node that is no member any more."""
    monkeypatch.setattr(Connection, "leads", lambda *_: leads)

    assert StreamMembers(member(True)).lone("/", "orders") is (leads is True)


def test_a_member_that_delivers_nothing_in_time_is_not_taken_for_one_that_has_nothing(
    member: Callable[[bool], Node],
) -> None:
    """One with a slow disk has perhaps the only copy; a hole would be declared over it."""
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:\d+ has delivered nothing"):
        StreamMembers(member(False), patience=0.2).earliest("/", "orders")


def test_a_member_on_a_node_that_is_down_may_have_the_only_copy(
    member: Callable[[bool], Node], told: dict[str, Any]
) -> None:
    """A broker's Metadata leaves out whoever does not run just now (3.10.8 and 4.3.6)."""
    told["members"] = ["a@one", "b@two"]

    with pytest.raises(UnavailableError, match="only 1 of the 2 members of 'orders'"):
        StreamMembers(member(True)).earliest("/", "orders")


@pytest.mark.parametrize("said", [{}, {"members": []}, {"members": "a@one"}, []])
def test_as_long_as_nobody_says_which_members_there_are_none_is_taken_for_all(
    member: Callable[[bool], Node], monkeypatch: pytest.MonkeyPatch, said: object
) -> None:
    """3.10.8 says it only some seconds after a stream was made, and again of a new writer."""
    monkeypatch.setattr(Management, "get", lambda *_: said)

    with pytest.raises(UnavailableError, match="does not say which members"):
        StreamMembers(member(True)).earliest("/", "orders")


def test_without_a_management_api_nobody_knows_whether_all_members_were_asked(
    member: Callable[[bool], Node],
) -> None:
    node = replace(member(True), management=None)

    with pytest.raises(UnavailableError, match="--management-uri"):
        StreamMembers(node).earliest("/", "orders")


def test_a_management_api_that_does_not_know_a_stream_which_the_broker_has_proves_nothing(
    member: Callable[[bool], Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """4.3.6 answers so to a user without rights in the virtual host, and any other cluster's does.
    A stream that nobody knows counts as deleted: a hole would hide what its members have.
    """

    def unknown(*_: object) -> object:
        raise NotFoundError("nothing at /api/queues/%2F/orders")

    monkeypatch.setattr(Management, "get", unknown)

    with pytest.raises(UnavailableError, match="nothing at"):
        StreamMembers(member(True)).earliest("/", "orders")


def test_a_stream_in_a_virtual_host_that_the_user_may_not_enter_any_more_may_have_members() -> None:
    """A broker answers as if there were no such virtual host."""

    def answer(key: int, body: bytes) -> list[bytes]:
        if key == Key.OPEN:
            return [reply(Key.OPEN, body, code=Code.NO_VHOST)]
        return logging_in(key, body)

    peer = Peer(answer)
    node = Node(StreamUri("127.0.0.1", peer.port, "u", "secret"), API, seconds=60)
    try:
        with pytest.raises(UnavailableError, match="the user has no rights in it"):
            StreamMembers(node).earliest("/", "orders")
    finally:
        node.close()
        peer.close()


def test_nodes_that_advertise_one_address_cannot_be_asked_one_by_one(
    member: Callable[[bool], Node], told: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a load balancer the same member may answer for all."""
    told["members"] = ["a@one", "b@two"]
    asked = Connection.members
    monkeypatch.setattr(Connection, "members", lambda *words: asked(*words) * 2)

    with pytest.raises(UnavailableError, match="only 1 of the 2 members"):
        StreamMembers(member(True)).earliest("/", "orders")


def test_threads_that_ask_for_different_streams_have_the_connection_one_by_one() -> None:
    inside: list[int] = []
    most: list[int] = []

    class Counting(Node):
        def members(self, vhost: str, queue: str) -> list[Any]:
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.02)
            inside.pop()
            return []

    members = StreamMembers(Counting(StreamUri("127.0.0.1", 1, "u", "secret")))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: members.earliest("/", f"s{number}"), range(12)))

    assert found == [None] * 12
    assert set(most) == {1}


def test_a_connection_with_many_files_is_gone_on_with_where_the_broker_takes_no_other() -> None:
    logins: list[int] = []

    def answer(key: int, body: bytes) -> list[bytes]:
        if key == Key.PEER_PROPERTIES:
            return [reply(Key.PEER_PROPERTIES, body, rest=properties({"version": "3.10.8"}))]
        if key == Key.OPEN:
            logins.append(key)
            if len(logins) > 1:
                raise ConnectionResetError
        if key == Key.SUBSCRIBE:
            return [reply(Key.SUBSCRIBE, body), deliver(body[4], CHUNK)]
        return logging_in(key, body)

    peer = Peer(answer)
    node = Node(StreamUri("127.0.0.1", peer.port, "u", "secret"), seconds=60)
    try:
        for _ in range(MOST_FILES + 5):
            assert node.last_header("/", "orders") == CHUNK[:48]
        assert (len(logins), node.generation()) == (6, 0)
    finally:
        node.close()
        peer.close()


@pytest.mark.parametrize(("version", "logins"), [("3.10.8", 5), ("3.11.3", 1), ("4.3.6", 1)])
def test_a_broker_that_keeps_files_of_subscriptions_open_is_not_asked_on_one_connection_for_ever(
    version: str, logins: int
) -> None:
    """RabbitMQ 3.10.8 runs out of files otherwise: then nobody can read or publish any more."""

    def answer(key: int, body: bytes) -> list[bytes]:
        if key == Key.PEER_PROPERTIES:
            return [reply(Key.PEER_PROPERTIES, body, rest=properties({"version": version}))]
        if key == Key.SUBSCRIBE:
            return [reply(Key.SUBSCRIBE, body), deliver(body[4], CHUNK)]
        return logging_in(key, body)

    peer = Peer(answer)
    node = Node(StreamUri("127.0.0.1", peer.port, "u", "secret"), seconds=60)
    try:
        for _ in range(4 * MOST_FILES + 1):
            assert node.last_header("/", "orders") == CHUNK[:48]
        assert peer.heard.count(Key.OPEN) == logins
        assert node.generation() == 0, "it is the same broker: what it has proved still holds"
    finally:
        node.close()
        peer.close()
