"""A catalog item that says what no catalog item can is damaged, whatever it says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from coldstream.adapters.dynamodb_item import name_values, parse_item, state_values, summary_values
from coldstream.errors import CorruptDataError
from coldstream.manifest.catalog import CatalogItem, QueueName, StreamState
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.outline import Outline
from coldstream.names import MAX_EPOCH, MAX_OFFSET, root_path

PREFIX, STREAM = "rabbitmq/", "__orders_1"
LAST_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z


def values(item: CatalogItem) -> dict[str, Any]:
    return {
        "stream": {"S": PREFIX + item.stream},
        "item": {"S": "catalog"},
        "table_id": {"S": item.table_id},
        **summary_values(item),
        **name_values(item.name),
        **state_values(item.state, item.revision, item.undelete_until, item.state_token),
    }


ITEM = CatalogItem(
    STREAM,
    "t",
    uid=5,
    root_key=root_path(PREFIX, STREAM, 1, 1, 5),
    epoch=1,
    version=1,
    next_offset=10,
    ledger=Ledger.of([(1, 0)]),
    name=QueueName("c", "/", "q"),
)
LARGEST = CatalogItem(
    "s" * 255,
    "t" * 36,
    uid=2**64 - 1,
    root_key="r" * 1024,
    epoch=MAX_EPOCH,
    version=10**12 - 1,
    first_offset=MAX_OFFSET,
    next_offset=MAX_OFFSET,
    first_timestamp=-(2**63),
    last_timestamp=2**63 - 1,
    total_size=2**128 - 1,
    fragments=2**64 - 1,
    ledger=Ledger.of([(1, 0), (MAX_EPOCH, MAX_OFFSET)]),
    name=QueueName("é" * 255, "/" * 255, "\n" * 255),
    state=StreamState.DELETING,
    revision=2**63 - 1,
    undelete_until=LAST_MS,
    state_token=2**64 - 1,
)


A_FRAGMENT = Entry(0, 5, 1, 2, EntryKind.FRAGMENT, 100, 5, 1, 9)
A_KILO_GROUP = replace(A_FRAGMENT, kind=EntryKind.KILO_GROUP)
OUTLINED = replace(ITEM, outline=Outline(ITEM.uid, Entries.of([A_KILO_GROUP])))


@pytest.mark.parametrize("item", [ITEM, LARGEST, OUTLINED])
def test_whatever_an_item_can_say_is_read_back(item: CatalogItem) -> None:
    assert parse_item(values(item), PREFIX) == item


@pytest.mark.parametrize(
    "text",
    ["", "no", "AAAA", "\u0661" * 12, "A" * 2**18, Outline(5, Entries.of([A_FRAGMENT])).encode()],
    ids=len,
)
def test_an_outline_that_this_release_cannot_read_tells_nothing_and_stops_nobody(text: str) -> None:
    """The root has it all; another release may repeat more of it."""
    assert parse_item(values(OUTLINED) | {"outline": {"S": text}}, PREFIX) == replace(
        OUTLINED, outline=Outline()
    )


def test_an_item_from_before_there_were_changes_of_state_is_read() -> None:
    old = values(ITEM)
    for attribute in ("revision", "undelete_until", "state_token", "outline"):
        del old[attribute]

    assert parse_item(old, PREFIX) == ITEM


def number(value: int | str) -> dict[str, str]:
    return {"N": str(value)}


IMPOSSIBLE: list[tuple[str, Any]] = [
    ("stream", {"S": STREAM}),  # without the prefix
    ("stream", {"S": f"other/{STREAM}"}),
    ("stream", {"S": "other/" + PREFIX + STREAM}),
    ("epoch", number(MAX_EPOCH + 1)),
    ("version", number(2**70)),
    ("version", number(10**12)),  # no key of a root has room for it
    ("first_offset", number(2**64)),
    ("first_offset", number(11)),  # above the next offset
    ("next_offset", number(2**64)),
    ("first_timestamp", number(2**63)),
    ("last_timestamp", number(-(2**63) - 1)),
    ("total_size", number(2**128)),
    ("fragments", number(2**64)),
    ("revision", number(2**63)),
    ("undelete_until", number(10**18)),
    ("undelete_until", number(LAST_MS + 1)),
    *(
        (attribute, number(text))
        for attribute in ("epoch", "version", "first_offset", "fragments", "undelete_until")
        for text in ("-1", "1_0", " 1", "\u0661", "1.5", "1" * 5000)
    ),
    ("ledger", {"L": [{"L": [number("1_0"), number(0)]}]}),
    *(
        (attribute, {"S": text})
        for attribute in ("uid", "state_token")
        for text in ("1" * 17, "-5", "0x5", "_1", "\u0661", "")
    ),
    *(
        (attribute, {"S": text})
        for attribute in ("cluster", "vhost", "queue")
        for text in ("q" * 256, "\ud800")
    ),
    *(
        (attribute, {"S": 5})
        for attribute in ("table_id", "root_key", "cluster", "vhost", "queue", "stream")
    ),
    ("table_id", {"S": "t" * 256}),
    ("root_key", {"S": "r" * 1025}),
    ("root_key", {"S": "\ud800"}),
    ("outline", {"B": b"AAAAAAAAAAA="}),
]


@pytest.mark.parametrize(("attribute", "value"), IMPOSSIBLE)
def test_what_no_item_can_say_is_damage_before_anybody_counts_with_it(
    attribute: str, value: Any
) -> None:
    with pytest.raises(CorruptDataError, match="cannot read") as caught:
        parse_item({**values(ITEM), attribute: value}, PREFIX)

    assert caught.value.stream == (None if attribute == "stream" else STREAM)
    str(caught.value).encode()
    assert len(str(caught.value)) < 1000


def test_any_undelete_time_that_is_read_has_a_date() -> None:
    item = parse_item(values(LARGEST), PREFIX)

    assert datetime.fromtimestamp(item.undelete_until / 1000, UTC).year >= 9999
