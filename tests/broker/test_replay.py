"""History published into a living broker by a process that is killed half-way, and again."""

from __future__ import annotations

import contextlib
import secrets
import signal

from coldstream.broker.connection import Connection, StreamUri
from coldstream.broker.frames import OffsetType
from coldstream.errors import NotFoundError, UnavailableError
from coldstream.osiris.chunk import parse_chunk_header
from coldstream_devkit.broker import BrokerNode
from coldstream_devkit.stream_client import StreamClient

from .conftest import ANSWER_SECONDS, END_SECONDS, Publisher, Site, start_again
from .test_restore import consumed, wait_until
from .test_single_node import agent


def published(node: BrokerNode, stream: str) -> int:
    """Where a stream of messages ends by now."""
    connection = Connection(StreamUri.parse(node.stream_uri), "/", seconds=ANSWER_SECONDS)
    try:
        header = connection.header(stream, OffsetType.LAST, patience=ANSWER_SECONDS)
        return 0 if header is None else parse_chunk_header(header).next_offset
    finally:
        connection.close()


def test_a_replay_that_is_killed_half_way_twice_publishes_every_message_once(
    site: Site, node: BrokerNode
) -> None:
    stream = f"orders{secrets.token_hex(3)}"
    with Publisher(node, stream) as publisher:
        wait_until(lambda: len(publisher.confirmed) > 3000)
    client = StreamClient(node.ports.stream, seconds=ANSWER_SECONDS)
    client.declare(stream)
    client.publish_together(10**9, [b"%09d in a batch" % n for n in range(300)])
    assert client.confirmed(ANSWER_SECONDS) == [10**9]
    client.close()
    done = site.run(*agent(site, node, "--once"))
    assert done.returncode == 0, done.stderr.decode()
    words = ("replay", f"//{stream}", "--to", node.stream_uri, "--queue", "copy", "--create")

    reached = 0
    for _ in range(2):
        process = site.start(*words, "--rate", "150")
        try:
            wait_until(lambda: begun(node) > reached + 50)  # noqa: B023
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=END_SECONDS)
        reached = published(node, "copy")
    node.flush()
    node.kill()  # and the broker, too
    start_again(node, stream, "copy")
    last = site.run(*words)

    assert last.returncode == 0, last.stderr.decode()
    assert b"went on behind publishing id" in last.stderr
    count = published(node, stream)
    assert reached < count == published(node, "copy")
    bodies = [body for _, body in consumed(node, stream, count)]
    assert [body for _, body in consumed(node, "copy", count)] == bodies


def begun(node: BrokerNode) -> int:
    """Where the target ends by now; 0 before it is there, and before its member runs."""
    with contextlib.suppress(NotFoundError, UnavailableError):
        return published(node, "copy")
    return 0
