"""The in-memory fakes keep the rules of their ports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.manifest.catalog import StreamState
from coldstream.ports import Catalog, ObjectStore
from coldstream.testing.catalog_suite import CatalogRaceSuite, CatalogSuite
from coldstream.testing.object_store_suite import ObjectStoreRaceSuite, ObjectStoreSuite


class TestMemoryObjectStore(ObjectStoreSuite, ObjectStoreRaceSuite):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryObjectStore()


class TestMemoryCatalog(CatalogSuite, CatalogRaceSuite):
    @pytest.fixture
    def catalog(self) -> Catalog:
        return MemoryCatalog()

    def set_state(self, catalog: Catalog, stream: str, state: StreamState) -> None:
        assert isinstance(catalog, MemoryCatalog)
        catalog.items[stream] = replace(catalog.items[stream], state=state)
