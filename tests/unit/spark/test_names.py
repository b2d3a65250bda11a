"""What a query says of a name that no stream has, or several have: as every command does."""

from __future__ import annotations

import pytest

from coldstream.adapters.memory import MemoryCatalog
from coldstream.errors import ColdstreamError
from coldstream.manifest.catalog import CatalogItem, QueueName
from coldstream.remote.resolve import resolve
from coldstream.spark.streams import meant


@pytest.mark.parametrize("name", ["order", "orders", "nobody"])
def test_a_query_says_of_a_name_that_is_not_one_stream_s_what_a_command_says(name: str) -> None:
    catalog = MemoryCatalog()
    for stream in ("__orders_1", "__orders_2"):
        catalog.anchor(CatalogItem(stream, catalog.table_id(), name=QueueName("", "/", "orders")))

    with pytest.raises(ColdstreamError) as by_command:
        resolve(catalog, name)
    with pytest.raises(ColdstreamError) as by_query:
        meant(catalog, [name])

    assert (type(by_query.value), str(by_query.value)) == (
        type(by_command.value),
        str(by_command.value),
    )
