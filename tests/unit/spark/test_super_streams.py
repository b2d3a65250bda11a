"""A super stream is read by its name: all its partitions, and nothing that is called alike."""

from __future__ import annotations

import pytest

from coldstream.errors import InvalidInputError, NotFoundError
from coldstream.manifest.catalog import QueueName
from coldstream.spark.options import parse_options
from tests.support.tier import Tier, chunk
from tests.unit.spark.context import WHERE, query, remote_of

COLUMNS = "stream,super_stream,routing_key,offset"


def partitions() -> Tier:
    tier = Tier()
    for vhost, number in (("/", 0), ("/", 1), ("shop", 0)):
        name = QueueName("c", vhost, f"orders-{number}", "orders", str(number))
        tier.add(f"{vhost.strip('/')}_{number}", [[chunk(0, b"x")]], name=name)
    tier.add("alike", [[chunk(0, b"x")]], name=QueueName("c", "/", "orders-7"))
    return tier


def streams(tier: Tier, **given: str) -> list[str]:
    return [row["stream"] for row in query(tier, columns=COLUMNS, **given).rows()]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"superStream": "//orders"}, ["_0", "_1"]),
        ({"superStream": "orders", "vhost": "shop"}, ["shop_0"]),
        ({"superStream": "ord.*"}, ["_0", "_1", "shop_0"]),
        ({"superStream": "shop/orders", "stream": "alike"}, ["alike", "shop_0"]),
    ],
)
def test_all_partitions_of_a_super_stream_are_read(
    given: dict[str, str], expected: list[str]
) -> None:
    assert streams(partitions(), **given) == expected


def test_rows_of_a_partition_say_which_one_and_others_say_nothing() -> None:
    rows = query(partitions(), columns=COLUMNS, stream="_1,alike").rows()

    assert [(row["super_stream"], row["routing_key"]) for row in rows] == [
        ("orders", "1"),
        (None, None),
    ]


@pytest.mark.parametrize("rows", ["chunks", "tracking", "fragments"])
def test_every_view_can_say_the_super_stream(rows: str) -> None:
    found = query(partitions(), stream="_1", rows=rows, columns="super_stream,routing_key").rows()

    assert {(row["super_stream"], row["routing_key"]) for row in found} <= {("orders", "1")}


def test_the_table_of_streams_has_the_partitions_of_a_super_stream() -> None:
    (work,) = query(partitions(), table="streams", superStream="shop/orders").works

    assert [each.name.of_queue for each in work.task.items] == [("shop", "orders-0", "orders", "0")]


def test_one_name_in_two_virtual_hosts_and_a_name_of_none_are_refused() -> None:
    tier = partitions()

    with pytest.raises(InvalidInputError, match="in each of /, shop"):
        streams(tier, superStream="orders")
    with pytest.raises(NotFoundError, match="partition of a super stream 'payments'"):
        streams(tier, superStream="payments")
    with pytest.raises(NotFoundError, match="option superStream"):
        streams(tier, stream="orders")


def test_a_super_stream_counts_as_several_streams() -> None:
    with pytest.raises(InvalidInputError, match="every stream has versions of its own"):
        parse_options({**WHERE, "superStream": "orders", "asOfVersion": "1"}, {})
    assert remote_of(partitions()).catalog.get("_0") is not None
