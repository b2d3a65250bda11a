"""Which streams a job is about, and that one damaged item hides no other."""

from __future__ import annotations

import pytest

from coldstream.errors import CorruptDataError, NotFoundError
from coldstream.jobs.report import JobReport
from coldstream.jobs.streams import all_items, check_named, lost, named
from coldstream.manifest.catalog import CatalogItem, QueueName
from coldstream.ports import CatalogPage
from coldstream.usecases.scan import complete_path
from tests.support.tier import PREFIX, Tier
from tests.unit.spark.context import remote_of
from tests.unit.spark.test_read import small_chunks


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


def test_a_pattern_that_matches_nothing_is_refused_and_names_what_there_is() -> None:
    items = [
        CatalogItem("__orders_1", "t"),
        CatalogItem("__b_1", "t", name=QueueName("c", "/", "basket")),
    ]

    with pytest.raises(NotFoundError) as caught:
        check_named("orders", [], items)

    for words in (
        "'orders' matches none of 2",
        "basket",
        "of 1 nobody has recorded",
        "__orders_.*",
    ):
        assert words in str(caught.value)
    check_named("orders", items[:1], items)
    check_named("orders", [], [])
    check_named(".*", [], items)


def test_streams_that_the_table_lacks_are_told_and_counted() -> None:
    tier = Tier()
    for stream in ("__a_1", "__b_1", "__c_1"):
        tier.add(stream, [small_chunks(2)])
    for key in (
        complete_path(PREFIX, "t"),
        f"{PREFIX}stream/odd name/x",
        f"{PREFIX}stream/__d_1/x",
    ):
        tier.store.put(key, b"", write_id="x")
    items = [tier.catalog.items.pop(stream) for stream in ("__a_1", "__b_1")]
    damaged = CorruptDataError("bad", stream="__c_1")
    del tier.catalog.items["__c_1"]
    report = JobReport("scrub")

    found = lost(remote_of(tier), items[:1], [damaged], report)

    assert found == report.facts["streams_without_item"] == ["__b_1"]
    assert {each.value for each in report.metrics} == {1}
    assert lost(remote_of(tier), items[:1], [damaged], JobReport("scrub"), "__a.*") == []
