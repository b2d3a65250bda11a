"""What every `Catalog` must do when an item is adopted after the table was lost or restored."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.ports import Catalog, Landed, NotLanded, Unknown
from coldstream_devkit.suites.catalog_fixtures import CatalogFixtures

STREAM = "__adopted_1745252105682952932"


class AdoptionSuite(CatalogFixtures):
    """The rules of `adopt`, one test a rule."""

    @pytest.fixture
    def adopted(self, catalog: Catalog, claimed: CatalogItem) -> CatalogItem:
        """An item of this table that says what `claimed` says, ahead of it."""
        return replace(claimed, version=claimed.version + 7, uid=99, revision=3, state_token=99)

    def test_an_item_is_adopted_where_there_is_none(
        self, catalog: Catalog, adopted: CatalogItem
    ) -> None:
        item = replace(adopted, stream=STREAM)

        assert catalog.adopt(item, replacing=None) == Landed(item)
        assert catalog.get(STREAM) == item

    def test_an_item_that_appeared_meanwhile_is_never_replaced(
        self, catalog: Catalog, claimed: CatalogItem, adopted: CatalogItem
    ) -> None:
        assert catalog.adopt(adopted, replacing=None) == Unknown(claimed)
        assert catalog.get(claimed.stream) == claimed

    def test_an_item_of_a_restored_table_is_replaced_as_a_whole(
        self, catalog: Catalog, adopted: CatalogItem
    ) -> None:
        restored = replace(
            adopted, stream=STREAM, table_id="another", version=2, state=StreamState.DELETED
        )
        catalog.adopt(restored, replacing=None)
        item = replace(adopted, stream=STREAM)

        assert catalog.adopt(item, replacing=restored) == Landed(item)
        assert catalog.get(STREAM) == item

    @pytest.mark.parametrize("field", ["version", "uid", "revision"])
    def test_an_item_that_moved_since_it_was_read_is_not_replaced(
        self, catalog: Catalog, adopted: CatalogItem, field: str
    ) -> None:
        restored = replace(adopted, stream=STREAM, table_id="another")
        catalog.adopt(restored, replacing=None)
        read = replace(restored, **{field: getattr(restored, field) + 1})

        outcome = catalog.adopt(replace(adopted, stream=STREAM), replacing=read)

        assert outcome == NotLanded(restored)
        assert catalog.get(STREAM) == restored

    def test_an_item_that_was_renamed_since_it_was_read_is_not_replaced(
        self, catalog: Catalog, adopted: CatalogItem
    ) -> None:
        restored = replace(adopted, stream=STREAM, table_id="another")
        catalog.adopt(restored, replacing=None)
        name = replace(restored.name, queue="renamed")
        catalog.set_name(STREAM, name)

        outcome = catalog.adopt(replace(adopted, stream=STREAM), replacing=restored)

        assert outcome == NotLanded(replace(restored, name=name))

    def test_the_same_adoption_twice_landed_once(
        self, catalog: Catalog, adopted: CatalogItem
    ) -> None:
        item = replace(adopted, stream=STREAM)

        assert catalog.adopt(item, replacing=None) == Landed(item)
        assert catalog.adopt(item, replacing=None) == Landed(item)


class AdoptionRaceSuite(AdoptionSuite):
    """For backends that are atomic between threads; moto creates an item in two steps."""

    def test_of_many_who_adopt_at_once_one_wins(
        self, catalog: Catalog, adopted: CatalogItem
    ) -> None:
        items = [
            replace(adopted, stream=STREAM, uid=uid, state_token=uid) for uid in range(100, 108)
        ]
        with ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(lambda item: catalog.adopt(item, replacing=None), items))

        landed = [each for each in outcomes if isinstance(each, Landed)]
        assert len(landed) == 1
        assert catalog.get(STREAM) == landed[0].item
