from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from coldstream.adapters.memory import MemoryCatalog
from coldstream.errors import CorruptDataError
from coldstream.gateway.names import Found, Names
from coldstream.manifest.catalog import CatalogItem, QueueName


class Damaged(MemoryCatalog):
    """A table with one item that cannot be read."""

    def streams(self) -> Iterator[CatalogItem]:
        yield from super().streams()
        raise CorruptDataError("an item cannot be read")


def test_a_damaged_item_hides_no_other_stream_but_nothing_is_said_to_be_not_there() -> None:
    catalog = Damaged()
    name = QueueName("test", "/", "orders")
    catalog.anchor(CatalogItem("__orders_1", catalog.table_id(), name=name))

    async def run() -> None:
        with ThreadPoolExecutor(1) as pool:
            names = Names(catalog, pool)
            await names.refresh()
            assert await names.find("/", "orders") == Found("__orders_1", "/", "orders")
            with pytest.raises(CorruptDataError):
                await names.find("/", "invoices")

    asyncio.run(run())
