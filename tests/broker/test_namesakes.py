"""Two queues whose directories have one name, and whose last chunk has one header."""

from __future__ import annotations

import contextlib
import time

from coldstream.agent.broker.gate import Gate
from coldstream.agent.disk.log import StreamLog
from coldstream.broker.connection import StreamUri
from coldstream.broker.management import Management
from coldstream.broker.node import Node
from coldstream_devkit.broker import BrokerNode
from coldstream_devkit.stream_client import StreamClient

from .conftest import ANSWER_SECONDS

QUEUES = ("or.d", "or_d")


def publish(node: BrokerNode, number: int, *bodies: bytes) -> None:
    """A body for each queue, as nearly at once as a client can."""
    with contextlib.ExitStack() as stack:
        clients = []
        for queue in QUEUES:
            client = StreamClient(node.ports.stream, seconds=ANSWER_SECONDS)
            stack.enter_context(contextlib.closing(client))
            client.create(queue, {})
            client.declare(queue)
            clients.append(client)
        for client, body in zip(clients, bodies, strict=True):
            client.publish([(number, body)])
        for client in clients:
            assert client.confirmed(ANSWER_SECONDS) == [number]


def test_namesakes_are_told_apart_as_soon_as_they_differ_and_never_taken_for_each_other(
    node: BrokerNode,
) -> None:
    publish(node, 1, b"the same", b"the same")
    logs = [StreamLog(path) for path in sorted(node.data_dir.glob("__or_d_*"))]
    number = 1
    while logs[0].header_at(number - 1) != logs[1].header_at(number - 1):
        number += 1
        assert number < 200, "no two chunks were made within a millisecond"
        publish(node, number, b"the same", b"the same")
    management = Management.parse(node.management_uri)
    gate = Gate(node.data_dir, Node(StreamUri.parse(node.stream_uri), management))
    truth = {log.stream: queue for log, queue in zip(logs, QUEUES, strict=True)}

    for log in logs:
        gate.refresh(log.stream, time.monotonic())
    first = {each: gate.name(each) for each in truth}
    limits = {gate.limit(each) for each in truth}
    publish(node, number + 1, b"of dotted", b"of plain")
    with gate.looking(once=True):
        end = time.monotonic() + ANSWER_SECONDS
        while any(gate.limit(each) <= number or not gate.known(each).named for each in truth):
            assert time.monotonic() < end, [gate.known(each) for each in truth]
            for each in truth:
                gate.refresh(each, time.monotonic())
            time.sleep(0.1)
        found = {each: gate.names[each].queue for each in truth}

    assert limits == {number}
    assert all(name is None or name.queue == truth[each] for each, name in first.items())
    assert found == truth


def test_a_stream_whose_name_has_a_mark_of_its_own_is_known_by_it(node: BrokerNode) -> None:
    """4.3.6 makes one "_" of an "e" and its accent, where 3.10.8 keeps the "e"."""
    queue = "caf" + "e\u0301"
    with contextlib.closing(StreamClient(node.ports.stream, seconds=ANSWER_SECONDS)) as client:
        client.create(queue, {})
        client.declare(queue)
        client.publish([(1, b"a message")])
        assert client.confirmed(ANSWER_SECONDS) == [1]
    (directory,) = [path.name for path in node.data_dir.iterdir()]
    management = Management.parse(node.management_uri)
    gate = Gate(node.data_dir, Node(StreamUri.parse(node.stream_uri), management))

    with gate.looking(once=True):
        pass

    assert gate.names[directory].queue == queue
