"""Three nodes: what only a leader without followers has written is never uploaded."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from coldstream.broker.connection import Connection, StreamUri
from coldstream.broker.management import Management, StreamQueue
from coldstream.broker.node import Node, StreamMembers
from coldstream.errors import NotFoundError, UnavailableError
from coldstream_devkit.broker import BrokerNode
from coldstream_devkit.broker_cluster import Cluster
from coldstream_devkit.campaign.life import leader_of
from coldstream_devkit.stream_client import StreamClient

from .conftest import ANSWER_SECONDS, END_SECONDS, Site, agrees, takes_messages
from .test_single_node import agent

CONFIRM_SECONDS = 120.0


def publish(client: StreamClient, bodies: list[bytes], seconds: float) -> set[bytes]:
    """Publish ten messages a chunk or so; those that were confirmed after so long."""
    there: set[bytes] = set()
    for at in range(0, len(bodies), 10):
        client.publish(list(enumerate(bodies[at : at + 10], at)))
        there.update(bodies[number] for number in client.confirmed(0.005))
    deadline = time.monotonic() + seconds
    while len(there) < len(bodies) and time.monotonic() < deadline:
        there.update(bodies[number] for number in client.confirmed(0.5))
    return there


def publisher(node: BrokerNode, stream: str) -> StreamClient:
    """A publisher of a stream, which it creates; its leader is then this node."""
    client = StreamClient(node.ports.stream, seconds=ANSWER_SECONDS)
    client.create(stream, {"stream-max-segment-size-bytes": "5000"})
    client.declare(stream)
    return client


def test_the_streams_of_a_node_that_has_frozen_stay_on_the_list_of_the_others(
    cluster: Cluster, wait_for: Callable[[Callable[[], Any]], Any]
) -> None:
    """Otherwise `delete --gone` would take them for deleted."""
    stream, nodes = f"frozen{secrets.token_hex(3)}", cluster.nodes
    publisher(nodes[1], stream).close()
    management, answers = Management.parse(nodes[0].management_uri), 0
    wait_for(lambda: leader_of(nodes, stream) is nodes[1])
    nodes[1].pause()
    deadline = time.monotonic() + END_SECONDS
    while answers < 3 and time.monotonic() < deadline:
        with contextlib.suppress(UnavailableError):  # 4.3.6 waits for the node for 10 s
            assert StreamQueue("/", stream) in management.streams()
            answers += 1
    assert answers == 3


def test_no_range_is_given_up_while_a_member_is_on_a_node_of_which_nothing_is_heard(
    cluster: Cluster, wait_for: Callable[[Callable[[], Any]], Any]
) -> None:
    """The others name only those members that run; the one that is left out has an older log."""
    stream, (first, second, third) = f"silent{secrets.token_hex(3)}", cluster.nodes
    publisher(first, stream).close()
    uri, management = StreamUri.parse(second.stream_uri), Management.parse(second.management_uri)
    wait_for(lambda: together(cluster.nodes, stream))

    third.pause()
    deadline = time.monotonic() + 2 * END_SECONDS
    while members(second, stream) in (None, 3):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    with pytest.raises(UnavailableError):
        StreamMembers(Node(uri, management)).earliest("/", stream)


def members(node: BrokerNode, stream: str) -> int | None:
    """How many a node names; 3.10.8 may say nothing for 30 s once another node has frozen."""
    with contextlib.suppress(UnavailableError, NotFoundError), contextlib.ExitStack() as stack:
        connection = Connection(StreamUri.parse(node.stream_uri), "/", seconds=10)
        stack.callback(connection.close)
        return len(connection.members(stream))
    return None


def together(nodes: Sequence[BrokerNode], stream: str) -> bool:
    """Whether each node serves a stream and names three members: nothing is under way any more.

    Who kills nodes of 3.10.8 before that may leave a cluster that never elects again.
    """
    return all(
        members(node, stream) == 3 and agrees(node, lambda client: client.subscribe(stream))
        for node in nodes
    )


def test_the_tail_of_a_leader_that_lost_its_followers_is_never_uploaded(
    cluster: Cluster,
    site: Site,
    wait_for: Callable[[Callable[[], Any]], Any],
) -> None:
    stream, nodes = f"stale{secrets.token_hex(3)}", cluster.nodes
    # A leader is where its client is. Without its founder, 3.10 elects none for minutes.
    client = publisher(nodes[1], stream)
    wait_for(lambda: together(nodes, stream))
    cluster.flush()
    confirmed = publish(client, [b"ok %05d" % n for n in range(400)], CONFIRM_SECONDS)
    old: BrokerNode = wait_for(lambda: leader_of(nodes, stream))
    assert len(confirmed) == 400
    assert old is not nodes[0]
    others = [node for node in nodes if node is not old]
    for node in others:
        node.kill()
    bad = [b"bad %05d" % n for n in range(4000)]
    assert not publish(client, bad, 0.5) - set(bad[:20])
    directory = next(old.data_dir.glob(f"__{stream}_*"))
    wait_for(lambda: len(list(directory.glob("*.segment"))) > 5)  # it writes them in its own time
    client.close()
    old.kill()
    if not old.release.suite:
        others[0].control("force_boot")  # 3.10 would wait for the one that was stopped last
    for node in others:
        node.start(wait=not old.release.suite)  # 3.10: one after the other; 4.x: only together
    for node in others:
        node.wait()
    deadline = time.monotonic() + 400  # the coordinator of 3.10 takes its time
    while leader_of(others, stream) is None:
        assert time.monotonic() < deadline, "no new leader"
        time.sleep(0.5)
    leader: BrokerNode = wait_for(lambda: leader_of(others, stream))
    wait_for(lambda: takes_messages(leader, stream))  # some time after it is said to lead
    client = StreamClient(leader.ports.stream, seconds=ANSWER_SECONDS)
    client.declare(stream)
    new = publish(client, [b"new %05d" % n for n in range(1500)], CONFIRM_SECONDS)
    client.close()
    assert len(new) == 1500
    confirmed |= new

    process = site.start(*agent(site, old))
    try:
        time.sleep(2)
        old.start()  # its stale tail is still there for some seconds
        wait_for(lambda: confirmed <= set(whole(site, stream)))
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=END_SECONDS)

    assert process.returncode == 0, err.decode()
    bodies = whole(site, stream)
    assert not [each for each in bodies if each.startswith(b"bad")]
    assert len(bodies) == len(set(bodies)) == len(confirmed)
    verified = site.run("verify", f"//{stream}", "--deep")
    assert verified.returncode == 0, verified.stdout.decode()


def whole(site: Site, stream: str) -> list[bytes]:
    """Bodies of all messages of a stream that the tier has; none while it has no such stream."""
    read = site.run(
        "read", f"//{stream}", "--from", "first", "--output", "json", "--body-format", "amqp"
    )
    rows = map(json.loads, read.stdout.splitlines())
    return [base64.b64decode(row["body_base64"]) for row in rows]
