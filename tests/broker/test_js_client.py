"""The stock JavaScript client goes from the remote tier to the broker's: `make js-client`"""

from __future__ import annotations

import contextlib
import json
import secrets
import subprocess

import pytest

from coldstream.broker.connection import StreamUri
from coldstream_devkit.broker import BrokerNode
from coldstream_devkit.broker_release import SYSTEM
from coldstream_devkit.stream_client import StreamClient
from tests.gateway.test_js_client import HERE, NEEDED, data, resumed
from tests.support.gateway import Gateway
from tests.support.tier import Tier

from .test_gateway import SMALL_SEGMENTS, directory, tiered
from .test_single_active import sent, super_stream

pytestmark = NEEDED


def test_it_goes_on_behind_what_it_has_stored_across_both_tiers_and_many_gateways(
    node: BrokerNode,
) -> None:
    stream = f"orders{secrets.token_hex(3)}"
    with contextlib.closing(StreamClient(node.ports.stream, seconds=60)) as client:
        client.create(stream, SMALL_SEGMENTS)
        client.declare(stream)
        for begin in range(0, 3000, 20):
            client.publish([(n, data(n)) for n in range(begin, begin + 20)])
            waiting = set(range(begin, begin + 20))
            while waiting:
                waiting -= set(client.confirmed(60))
    tier = Tier()
    end = tiered(tier, directory(node, stream), stream, 1)
    assert 100 < end < 2000
    found: list[int] = []
    for until in (end - 50, end + 7, 2999):
        with Gateway(tier, broker_uri=StreamUri.parse(node.stream_uri)) as gateway:
            found += resumed(gateway.port, stream, until)
            assert not gateway.said

    assert found == list(range(3000))


def test_its_super_stream_consumers_read_every_partition_of_both_tiers(node: BrokerNode) -> None:
    if node.release is SYSTEM:
        pytest.skip("a RabbitMQ that knows no single active consumers")
    partitions = [f"sales-{n}" for n in range(3)]
    super_stream(node, "sales", len(partitions), segment=10_000)
    tier = Tier()
    for place, name in enumerate(partitions):
        for first in range(place * 1000, place * 1000 + 1000, 50):
            sent(node, name, range(first, first + 50), data)
    for name in partitions:
        assert 0 < tiered(tier, directory(node, name), name, 1) < 1000
    with Gateway(tier, broker_uri=StreamUri.parse(node.stream_uri)) as gateway:
        done = subprocess.run(
            ["node", HERE / "super.js", str(gateway.port), "sales", "app", "3000"],
            capture_output=True,
            text=True,
            timeout=120,
        )

    assert done.returncode == 0, done.stderr
    found = [int(each) for each in json.loads(done.stdout)["bodies"]]
    assert sorted(found) == list(range(3000))
    for place in range(3):
        own = [each for each in found if each // 1000 == place]
        assert own == sorted(own)
