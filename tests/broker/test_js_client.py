"""The stock JavaScript client goes from the remote tier to the broker's: `make js-client`"""

from __future__ import annotations

import contextlib
import secrets

from coldstream.broker.connection import StreamUri
from coldstream_devkit.broker import BrokerNode
from coldstream_devkit.stream_client import StreamClient
from tests.gateway.test_js_client import data, pytestmark, resumed
from tests.support.gateway import Gateway
from tests.support.tier import Tier

from .test_gateway import SMALL_SEGMENTS, directory, tiered

__all__ = ["pytestmark"]


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
