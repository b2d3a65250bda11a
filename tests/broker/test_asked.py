"""What a real broker answers to the questions that an agent asks."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from coldstream.agent.broker.gate import Gate
from coldstream.broker.connection import Connection, StreamUri
from coldstream.broker.frames import OffsetType
from coldstream.broker.management import Management, StreamQueue
from coldstream.broker.node import Node, StreamMembers
from coldstream.errors import NotFoundError, PermissionDeniedError, UnavailableError
from coldstream_devkit.broker import BrokerNode
from coldstream_devkit.stream_client import StreamClient

from .conftest import ANSWER_SECONDS, END_SECONDS, Publisher, earliest_once_known

_METADATA_UPDATE = 16


def test_a_broker_names_its_streams_its_members_and_what_they_have(node: BrokerNode) -> None:
    with Publisher(node, "a.b") as publisher:
        while len(publisher.confirmed) < 200:
            time.sleep(0.1)
    uri, management = StreamUri.parse(node.stream_uri), Management.parse(node.management_uri)
    asked = Node(uri, replace(management, seconds=ANSWER_SECONDS), seconds=ANSWER_SECONDS)

    assert list(asked.streams()) == [StreamQueue("/", "a.b")]
    assert earliest_once_known(asked, "a.b") == 0
    assert StreamMembers(asked).lone("/", "a.b")
    gate = Gate(node.data_dir, asked)
    (directory,) = [path.name for path in node.data_dir.iterdir()]
    end = time.monotonic() + END_SECONDS
    while gate.limit(directory) < 200:  # a chunk that comes late is none
        assert time.monotonic() < end
        gate.refresh(directory, time.monotonic())
        time.sleep(0.1)
    assert gate.names[directory].queue == "a.b"

    with pytest.raises(NotFoundError):
        asked.last_header("/", "other")
    with pytest.raises(NotFoundError):
        asked.last_header("nowhere", "a.b")
    with pytest.raises(PermissionDeniedError):
        Node(replace(uri, password="wrong")).last_header("/", "a.b")
    with pytest.raises(PermissionDeniedError):
        replace(management, password="wrong").streams()
    node.kill()
    with pytest.raises(UnavailableError):
        asked.last_header("/", "a.b")
    with pytest.raises(UnavailableError):
        asked.streams()
    gate.refresh(directory, time.monotonic())
    assert gate.limit(directory) == 0
    asked.close()


def test_a_broker_tells_of_a_deleted_stream_only_who_subscribes_to_it_just_then(
    node: BrokerNode,
) -> None:
    """So the gate does not listen for it, and proves anew what has changed."""
    client, subscriber = (StreamClient(node.ports.stream, seconds=ANSWER_SECONDS) for _ in "ab")
    client.create("a", {})
    client.declare("a")
    client.publish([(1, b"x")])
    assert client.confirmed(30) == [1]
    subscriber.subscribe("a")
    told: list[int] = []

    class Watched(Connection):
        def _take(self, key: int, data: bytes) -> None:
            told.append(key)
            super()._take(key, data)

    asked = Watched(StreamUri.parse(node.stream_uri), "/", seconds=ANSWER_SECONDS)
    assert asked.header("a", OffsetType.LAST, patience=ANSWER_SECONDS) is not None

    client.delete("a")
    while not subscriber.moved:
        subscriber.delivered(1)
    with pytest.raises(NotFoundError):
        asked.header("a", OffsetType.LAST)  # its answer comes behind whatever was told
    asked.poll()

    assert _METADATA_UPDATE not in told
    for each in (client, subscriber, asked):
        each.close()


def test_who_monitors_a_broker_is_not_told_of_queues_where_he_may_not_enter(
    node: BrokerNode,
) -> None:
    """3.10.8 and 4.3.6 say so in different ways; `delete --gone` took such streams for gone."""
    node.control("add_user", "tier", "s3cret")
    node.control("set_user_tags", "tier", "monitoring")
    node.control("set_permissions", "-p", "/", "tier", "", "", ".*")
    node.control("add_vhost", "closed")
    uri = f"http://tier:s3cret@127.0.0.1:{node.ports.management}"
    management = Management.parse(uri)

    assert management.closed_vhosts() == ["closed"]
    assert not management.sees_all()
    assert Management.parse(node.management_uri).sees_all()

    node.control("set_permissions", "-p", "closed", "tier", "", "", ".*")
    assert management.sees_all()
