"""A client that asks for short heartbeats hangs up soon where none comes: the first took 32 s."""

from __future__ import annotations

import struct
import time

from coldstream.broker.frames import Key, string
from tests.support.gateway import Gateway
from tests.support.raw_client import RawClient


def test_heartbeats_come_as_often_as_the_client_has_asked_for(gateway: Gateway) -> None:
    with RawClient(gateway.port) as client:
        client.ask(Key.PEER_PROPERTIES, struct.pack(">i", 0))
        client.ask(Key.SASL_HANDSHAKE, b"")
        client.authenticate("guest", "guest")
        assert client.frame()[0] == Key.TUNE
        client.send(Key.TUNE, struct.pack(">II", 2**20, 2))
        client.ask(Key.OPEN, string("/"))
        beats, ends = 0, time.monotonic() + 25
        client.socket.settimeout(1)
        while beats < 3 and time.monotonic() < ends:
            try:
                assert client.frame()[0] == Key.HEARTBEAT
                beats += 1
            except TimeoutError:
                client.send(Key.HEARTBEAT, b"")  # the client keeps its own promise

    assert beats == 3
