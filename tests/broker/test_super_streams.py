"""A super stream, made as its users make it, is seen as one of streams."""

from __future__ import annotations

import contextlib
import subprocess

from coldstream.agent.broker.gate import Gate
from coldstream.broker.connection import StreamUri
from coldstream.broker.management import Management
from coldstream.broker.node import Node
from coldstream_devkit.broker import BrokerNode
from coldstream_devkit.stream_client import StreamClient


def test_the_partitions_of_a_super_stream_are_known_as_such_and_its_namesake_is_not(
    node: BrokerNode,
) -> None:
    arguments = ("-q", "-n", f"{node.name}@localhost", "add_super_stream", "orders")
    made = subprocess.run(
        node._command("rabbitmq-streams", *arguments, "--partitions", "2"),
        env=node._environment(), cwd=node.base, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    for name in ("orders-0", "orders-1", "orders-7"):
        with contextlib.closing(StreamClient(node.ports.stream, seconds=60)) as client:
            if name == "orders-7":
                client.create(name, {})  # called like a partition
            client.declare(name)
            client.publish([(1, b"message")])
            assert client.confirmed(60) == [1]
    management = Management.parse(node.management_uri)
    assert management.sees_all()
    gate = Gate(node.data_dir, Node(StreamUri.parse(node.stream_uri), management))

    with gate.looking(once=True):
        found = {
            gate.names[each].queue: (gate.known(each).super_stream, *gate.names[each].of_queue[2:])
            for each in gate.asked()
            if each in gate.names
        }

    assert found == {
        "orders-0": ("orders", "orders", "0"),
        "orders-1": ("orders", "orders", "1"),
        "orders-7": ("", "", ""),
    }
