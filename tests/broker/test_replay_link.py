"""A replay through a node that does not lead, whose link to the leader breaks for moments."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Sequence

import pytest

from coldstream_devkit.broker import BrokerNode
from coldstream_devkit.broker_cluster import Cluster
from coldstream_devkit.stream_client import StreamClient

from .conftest import ANSWER_SECONDS, Site, agrees
from .test_restore import wait_until
from .test_single_node import agent


@pytest.mark.slow  # minutes; at which node: tests/unit/broker/test_leading_publisher.py
def test_no_message_is_lost_where_the_link_between_two_nodes_breaks(
    site: Site, cluster: Cluster
) -> None:
    nodes = cluster.nodes
    stream, copy = f"flood{secrets.token_hex(3)}", f"copy{secrets.token_hex(3)}"
    bodies = [(b"%07d" % n).ljust(200) for n in range(60_000)]
    with contextlib.closing(StreamClient(nodes[0].ports.stream, seconds=ANSWER_SECONDS)) as client:
        client.create(stream, {})
        wait_until(lambda: client.leader(stream))
        source = client.leader(stream)
    with contextlib.closing(StreamClient(source, seconds=ANSWER_SECONDS)) as client:
        client.declare(stream)
        waiting: set[int] = set()
        for at in range(0, len(bodies), 2000):
            client.publish([(at + n + 1, bodies[at + n]) for n in range(2000)])
            waiting |= set(range(at + 1, at + 2001))
            waiting -= set(client.confirmed(0))
        while waiting:
            waiting -= set(client.confirmed(ANSWER_SECONDS))
    (writer,) = [each for each in nodes if each.ports.stream == source]
    assert site.run(*agent(site, writer, "--once")).returncode == 0

    for attempt in range(4):
        replayed(site, nodes, stream, f"{copy}{attempt}", bodies)
        time.sleep(8)


def replayed(
    site: Site, nodes: Sequence[BrokerNode], stream: str, target: str, bodies: list[bytes]
) -> None:
    """Replay through a follower of the target, and read the target."""
    wait_until(lambda: agrees(nodes[0], lambda client: client.create(target, {})))
    with contextlib.closing(StreamClient(nodes[0].ports.stream, seconds=ANSWER_SECONDS)) as client:
        wait_until(lambda: client.leader(target))
        port = client.leader(target)
    (leader,) = [each for each in nodes if each.ports.stream == port]
    other = next(each for each in nodes if each is not leader)
    process = site.start(
        "replay", f"//{stream}", "--to", other.stream_uri, "--queue", target, "--json"
    )
    other.control(  # the node's own timer: rabbitmqctl takes seconds to begin
        "eval",
        "[begin timer:sleep(200 + rand:uniform(500)),"
        f" erlang:disconnect_node('{leader.name}@localhost') end || _ <- lists:seq(1, 15)].",
    )
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, (out, err)
    assert consumed_all(leader, target) == bodies


def consumed_all(node: BrokerNode, stream: str) -> list[bytes]:
    wait_until(lambda: agrees(node, lambda client: client.subscribe(stream, 0)))
    found: list[bytes] = []
    with contextlib.closing(StreamClient(node.ports.stream, seconds=30)) as client:
        client.subscribe(stream, 0)
        while chunks := client.delivered(5):
            found += [body for each in chunks for body in each.bodies]
    return found
