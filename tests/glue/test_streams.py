"""Which streams a job is about, and that one damaged item hides no other."""

from __future__ import annotations

from coldstream.errors import CorruptDataError
from coldstream.jobs.streams import all_items, named
from coldstream.manifest.catalog import CatalogItem, QueueName
from coldstream.ports import CatalogPage


class Pages:
    """A catalog of two pages, with an item that cannot be read on the first."""

    def page(self, cursor: str | None, limit: int) -> CatalogPage:
        if cursor is None:
            return CatalogPage((CatalogItem("__a_1", "t"),), "on", (CorruptDataError("bad"),))
        assert cursor == "on"
        return CatalogPage((CatalogItem("__b_1", "t"),), None)


def test_an_item_that_cannot_be_read_is_told_beside_all_others() -> None:
    items, damaged = all_items(Pages())  # type: ignore[arg-type]

    assert [each.stream for each in items] == ["__a_1", "__b_1"]
    assert [str(each) for each in damaged] == ["bad"]


def test_a_pattern_must_match_directory_or_queue_as_a_whole() -> None:
    item = CatalogItem("__orders_1", "t", name=QueueName("c", "/", "orders"))

    assert named(item, "orders")
    assert named(item, "__orders_[0-9]+")
    assert not named(item, "order")
    assert named(item, "")
