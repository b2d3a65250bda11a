"""How often the table is listed: a scan, for which the lookups of all clients wait."""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.broker.frames import Code, Key
from coldstream.manifest.catalog import CatalogItem, QueueName
from tests.support.gateway import Gateway
from tests.support.raw_client import RawClient
from tests.support.tier import Tier, chunk


def test_a_damaged_stream_has_nobody_list_the_table_however_often_its_consumer_comes_back() -> None:
    tier = Tier()
    root = tier.add("__bad_1", [[chunk(0, b"a" * 2000)]], name=QueueName("test", "/", "bad"))
    tier.flip(tier.key(root, "__bad_1", 0), 500)
    listings, streams = 0, tier.catalog.streams

    def counted() -> Iterator[CatalogItem]:
        nonlocal listings
        listings += 1
        return streams()

    tier.catalog.streams = counted  # type: ignore[method-assign]
    with Gateway(tier) as gateway, RawClient(gateway.port).log_in() as client:
        for _ in range(10):
            assert client.subscribe("bad", credit=1) == Code.OK
            assert client.frame()[0] == Key.METADATA_UPDATE

    assert listings == 1
