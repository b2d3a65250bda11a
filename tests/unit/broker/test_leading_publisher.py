"""On which node a replay publishes: on that of the stream's writer, or on none."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

import pytest

from coldstream.broker.connection import StreamUri
from coldstream.broker.frames import Code, Key, frame, properties, string
from coldstream.broker.publishing import leading_publisher
from coldstream.errors import UnavailableError
from tests.support.peer import Peer, logging_in, reply

DEAD = 1  # a port that nobody listens at


@dataclass
class Nodes:
    """Two nodes of a cluster, each of which says where it is and where the writer is.

    Attributes:
        stack: closes them.
        leader: port of the node that leads; 0 where nobody does.
    """

    stack: ExitStack
    leader: int = 0
    peers: list[Peer] = field(default_factory=list)

    def __post_init__(self) -> None:
        for _ in range(2):
            self.peers.append(self.stack.enter_context(closing(Peer(self._answers()))))

    def _answers(self) -> Callable[[int, bytes], list[bytes]]:
        number = len(self.peers)

        def answer(key: int, body: bytes) -> list[bytes]:
            if key == Key.OPEN:
                mine = {"advertised_host": "127.0.0.1", "advertised_port": str(self.port(number))}
                return [reply(Key.OPEN, body, rest=properties(mine))]
            if key == Key.METADATA:
                return [self._metadata(body)]
            return logging_in(key, body)

        return answer

    def port(self, number: int) -> int:
        return self.peers[number].port

    def _metadata(self, body: bytes) -> bytes:
        nodes = struct.pack(">iH", 1, 0) + string("127.0.0.1") + struct.pack(">I", self.leader)
        code = Code.OK if self.leader else Code.NOT_AVAILABLE
        row = struct.pack(">i", 1) + string("orders") + struct.pack(">HHi", code, 0, 0)
        return frame(Key.METADATA, body[:4] + nodes + row, response=True)

    def publishes_at(self) -> int:
        uri = StreamUri("127.0.0.1", self.port(0), "u", "secret")
        with closing(leading_publisher(uri, "/", "orders", "me")) as publisher:
            assert publisher.advertised is not None
            return publisher.advertised[1]


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    with ExitStack() as stack:
        yield Nodes(stack)


@pytest.mark.parametrize("number", [0, 1])
def test_it_is_the_node_that_leads_whichever_was_named(nodes: Nodes, number: int) -> None:
    nodes.leader = nodes.port(number)

    assert nodes.publishes_at() == nodes.port(number)


def test_where_that_node_is_not_reached_nothing_is_published_through_another(nodes: Nodes) -> None:
    """What goes through another node may be lost on its way, and what comes behind it arrives."""
    nodes.leader = DEAD

    with pytest.raises(UnavailableError, match=f"127.0.0.1:{DEAD}, is not reached from here"):
        nodes.publishes_at()


def test_a_balancer_that_gives_the_node_at_last_is_as_good_as_its_address(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.leader = DEAD
    asked = 0

    def port(number: int) -> int:
        nonlocal asked
        asked += 1
        return DEAD if asked > 4 else nodes.peers[number].port  # by then it is the one that leads

    monkeypatch.setattr(nodes, "port", port)

    assert nodes.publishes_at() == DEAD


def test_where_nobody_leads_it_is_to_be_tried_again(nodes: Nodes) -> None:
    with pytest.raises(UnavailableError, match="no node is known to lead"):
        nodes.publishes_at()
