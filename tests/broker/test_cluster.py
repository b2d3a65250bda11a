"""Three nodes: what only a leader without followers has written is never uploaded."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rstream import ConfirmationStatus, Producer

from coldstream.broker.connection import Connection, StreamUri
from coldstream.errors import ColdstreamError
from coldstream_devkit.broker import BrokerNode, Cluster

from .conftest import Site
from .test_single_node import agent


@pytest.fixture(scope="module")
def cluster(base: Path) -> Iterator[Cluster]:
    """Three nodes, of which any two can elect a leader."""
    made = Cluster.start(base / secrets.token_hex(4))
    try:
        publish(made.nodes[0], "first", [b"."])
        made.wait_for_coordinator()
        yield made
    finally:
        made.stop()


def publish(
    node: BrokerNode, stream: str, bodies: list[bytes], *, confirmed: bool = True
) -> set[bytes]:
    """Publish with a stock client, ten messages a chunk or so; those that were confirmed."""
    return asyncio.run(_publish(node, stream, bodies, confirmed))


async def _publish(
    node: BrokerNode, stream: str, bodies: list[bytes], confirmed: bool
) -> set[bytes]:
    waiting: dict[int, bytes] = {}
    there: set[bytes] = set()

    def done(status: ConfirmationStatus) -> None:
        if status.is_confirmed:
            there.add(waiting.pop(status.message_id))

    producer = Producer(
        "127.0.0.1", port=node.ports.stream, username="guest", password="guest"
    )  # fmt: skip
    await producer.create_stream(
        stream, arguments={"stream-max-segment-size-bytes": 5000}, exists_ok=True
    )
    for at in range(0, len(bodies), 10):
        batch = bodies[at : at + 10]
        ids = await producer.send_batch(stream, batch, on_publish_confirm=done)
        waiting |= dict(zip(ids, batch, strict=True))
        await asyncio.sleep(0.005)
    for _ in range(200 if confirmed else 10):
        if not waiting:
            break
        await asyncio.sleep(0.05)
    assert not (confirmed and waiting), f"{len(waiting)} messages are not confirmed"
    with contextlib.suppress(Exception):
        await asyncio.wait_for(producer.close(), 1)
    return there


def leader_of(nodes: list[BrokerNode], stream: str) -> BrokerNode | None:
    """The node that leads a stream, as any of these says."""
    for node in nodes:
        try:
            with contextlib.closing(
                Connection(StreamUri.parse(node.stream_uri), "/", seconds=2)
            ) as connection:
                (_, port), *_ = connection.members(stream)
        except ColdstreamError:
            continue
        return next((each for each in nodes if each.ports.stream == port), None)
    return None


def test_the_tail_of_a_leader_that_lost_its_followers_is_never_uploaded(
    cluster: Cluster,
    site: Site,
    wait_for: Callable[[Callable[[], Any]], Any],
) -> None:
    stream, nodes = f"stale{secrets.token_hex(3)}", cluster.nodes
    # A leader is where its client is. Without its founder, 3.10 elects none for minutes.
    confirmed = publish(nodes[1], stream, [b"ok %05d" % n for n in range(400)])
    old: BrokerNode = wait_for(lambda: leader_of(nodes, stream))
    assert old is not nodes[0]
    others = [node for node in nodes if node is not old]
    for node in others:
        node.kill()
    bad = [b"bad %05d" % n for n in range(2000)]
    assert not publish(old, stream, bad, confirmed=False) - set(bad[:20])
    old.kill()
    directory = next(old.data_dir.glob(f"__{stream}_*"))
    assert len(list(directory.glob("*.segment"))) > 5
    others[0].control("force_boot")  # 3.10 would wait for the one that was stopped last
    for node in others:
        node.start()
    deadline = time.monotonic() + 400  # the coordinator of 3.10 takes its time
    while leader_of(others, stream) is None:
        assert time.monotonic() < deadline, "no new leader"
        time.sleep(0.5)
    confirmed |= publish(others[0], stream, [b"new %05d" % n for n in range(1500)])

    process = site.start(*agent(site, old))
    try:
        time.sleep(2)
        old.start()  # its stale tail is still there for some seconds
        wait_for(lambda: confirmed <= set(whole(site, stream)))
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)

    assert process.returncode == 0, err.decode()
    bodies = whole(site, stream)
    assert not [each for each in bodies if each.startswith(b"bad")]
    assert len(bodies) == len(set(bodies)) == len(confirmed)
    verified = site.run("verify", f"//{stream}", "--deep")
    assert verified.returncode == 0, verified.stdout.decode()


def whole(site: Site, stream: str) -> list[bytes]:
    """Bodies of all messages of a stream that the tier has; none while it has no such stream."""
    read = site.run("read", f"//{stream}", "--from", "first", "--output", "json")
    rows = map(json.loads, read.stdout.splitlines())
    return [base64.b64decode(row["body_base64"]) for row in rows]
