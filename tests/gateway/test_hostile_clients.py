from __future__ import annotations

import random
import struct
from itertools import islice

from coldstream_devkit.fuzz_gateway import inputs
from tests.support.gateway import Gateway
from tests.support.raw_client import RawClient


def test_clients_that_send_anything_stop_nobody(gateway: Gateway) -> None:
    name = gateway.tier.add_fixture("plain-3.10.8")
    rng = random.Random(17)
    frames = inputs(rng)
    for _ in range(100):
        with RawClient(gateway.port) as client:
            if rng.random() < 0.7:
                client.log_in()
            try:
                for _, data in islice(frames, 10):
                    size = len(data) if rng.random() < 0.9 else rng.randrange(2**32)
                    client.socket.sendall(struct.pack(">I", size) + data)
            except ConnectionError:
                pass  # hung up on, as it should be

    with RawClient(gateway.port).log_in() as client:
        assert client.subscribe(name) == 1
        assert client.chunk()
    assert not [each for each in gateway.said if "a bug" in each]
