from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from coldstream.adapters.memory import MemoryCatalog
from coldstream.errors import CorruptDataError, UnavailableError
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


class Deaf(MemoryCatalog):
    """A table that gives no answer while it is told to."""

    is_deaf = False

    def streams(self) -> Iterator[CatalogItem]:
        if self.is_deaf:
            raise UnavailableError("no answer")
        yield from super().streams()


def test_a_stream_that_is_not_what_it_was_is_looked_up_anew_though_a_listing_fails() -> None:
    catalog, now = Deaf(), [0.0]
    name = QueueName("test", "/", "orders")
    catalog.anchor(CatalogItem("__orders_1", catalog.table_id(), name=name))

    async def run() -> None:
        with ThreadPoolExecutor(1) as pool:
            names = Names(catalog, pool, lambda: now[0])
            await names.find("/", "orders")
            catalog.anchor(CatalogItem("__orders_2", catalog.table_id(), name=name))
            names.forget()
            now[0], catalog.is_deaf = 2.0, True
            with pytest.raises(UnavailableError):
                await names.find("/", "orders")
            catalog.is_deaf = False
            assert await names.find("/", "orders") == Found("__orders_2", "/", "orders")

    asyncio.run(run())
