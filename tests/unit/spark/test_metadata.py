"""Metadata tables say what manifests and indexes say, and read no data."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import CorruptDataError, InvalidInputError, LostRangeError
from coldstream.manifest.catalog import CatalogItem, QueueName, StreamState
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.tree import head_of
from coldstream.osiris.chunk import iter_chunks
from coldstream.remote.nodes import PROCESS_NODES
from coldstream.spark.metadata import stream_rows
from coldstream.spark.options import Rows, parse_options, refuse_for
from coldstream.spark.plan import Sizes, decode_split
from coldstream.spark.query import plan_query
from coldstream.spark.schema import default_columns
from coldstream.spark.window import Intervals, Window
from tests.support.examples import examples
from tests.support.tier import PREFIX, Tier
from tests.unit.spark.context import WHERE, query, remote_of
from tests.unit.spark.test_read import CountingStore, in_groups, small_chunks

STREAM = "__orders_1"
ALL = "offset,next_offset,min_timestamp,max_timestamp,kind,size,records,epoch,uid,key,stream"
CHUNKS = small_chunks(120)


def tier_with_everything(*, retained: int = 0) -> Tier:
    """A tree of three levels with two holes; its oldest fragments may have been retired."""
    tier = Tier(CountingStore())
    groups: list[Any] = in_groups(CHUNKS, 2)
    for at in (7, 30):
        first = 6 * at
        groups[at] = tier.hole(first, first + 6)
    root = tier.add_tree(STREAM, groups)
    if retained:
        first = tier.leaves(STREAM, root)[retained].first_offset
        head = head_of(root.entries, first, tier.fetch(STREAM))
        tier.commit(STREAM, replace(root, first_offset=first, head=head))
    return tier


@cache
def only_read(retained: int) -> Tier:
    return tier_with_everything(retained=retained)


def leaves(tier: Tier) -> list[Entry]:
    item = tier.catalog.items[STREAM]
    from coldstream.remote.roots import root_at

    return tier.leaves(STREAM, root_at(tier.store, item.root_key, STREAM))


def ms(row: dict[str, Any], name: str) -> int:
    return round(row[name].timestamp() * 1000)


spans = st.lists(st.tuples(st.integers(-5, 400), st.integers(0, 200)), max_size=3)
times = st.lists(st.tuples(st.integers(9_900, 11_300), st.integers(0, 500)), max_size=2)


def intervals(found: list[tuple[int, int]], everything: Intervals) -> Intervals:
    return Intervals.of(*((low, low + size) for low, size in found)) if found else everything


@pytest.mark.parametrize("retained", [0, 9])
@examples(10)
@given(spans, times, st.sampled_from(["3000", "100000"]))
def test_fragments_are_the_leaves_that_are_asked_for_each_in_one_task(
    retained: int, offsets: list[tuple[int, int]], when: list[tuple[int, int]], size: str
) -> None:
    tier = only_read(retained)
    asked = Window(intervals(offsets, Window().offsets), intervals(when, Window().times))

    found = query(tier, asked, table="fragments", columns=ALL, partitionBytes=size).rows()

    expected = [
        each
        for each in leaves(tier)
        if asked.offsets.contains(each.first_offset, each.first_offset + 1)
        and asked.times.overlaps(each.min_timestamp, each.max_timestamp + 1)
    ]
    assert [
        (row["offset"], row["next_offset"], row["size"], row["records"], row["epoch"])
        for row in found
    ] == [(e.first_offset, e.next_offset, e.size, e.records, e.epoch) for e in expected]
    assert [row["kind"] for row in found] == [each.kind.name.lower() for each in expected]
    assert [ms(row, "max_timestamp") for row in found] == [e.max_timestamp for e in expected]
    assert [row["uid"] for row in found] == [f"{each.uid:016x}" for each in expected]
    assert {row["key"] for row in found} <= set(tier.store.objects)


def test_a_table_of_fragments_reads_the_manifest_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PROCESS_NODES, "_nodes", OrderedDict())  # what other tests have read
    tier = tier_with_everything()
    asked = query(tier, table="fragments")
    tier.store.requests.clear()

    rows = asked.rows()

    assert len(rows) == 60
    assert set(tier.store.requests) == {"get_all"}
    assert not {"uid", "key"} & set(asked.schema.names), "dear columns are asked for by name"


@pytest.mark.parametrize("size", ["500", "100000"])
@pytest.mark.parametrize(
    "asked",
    [
        Window(),
        Window(offsets=Intervals.of((10, 31), (100, 101))),
        Window(offsets=Intervals.of((17, 18), (43, 2**64 - 1))),
        Window(times=Intervals.of((10_100, 10_131))),
    ],
)
def test_chunks_are_told_by_the_indexes_of_their_fragments(asked: Window, size: str) -> None:
    tier = tier_with_everything()

    found = query(tier, asked, table="chunks", partitionBytes=size).rows()

    chunks = [next(iter_chunks(each)) for number, each in enumerate(CHUNKS)
              if number not in (14, 15, 60, 61)]  # fmt: skip
    assert [
        (row["offset"], row["next_offset"], ms(row, "timestamp"), row["records"], row["size"])
        for row in found
    ] == [
        (c.header.chunk_id, c.header.next_offset, c.header.timestamp, 3, c.header.size)
        for c in chunks
        if asked.offsets.contains(c.header.chunk_id, c.header.chunk_id + 1)
        and asked.times.contains(c.header.timestamp, c.header.timestamp + 1)
    ]
    assert {row["error"] for row in found} == {None}


def test_a_table_of_chunks_reads_no_data() -> None:
    tier = Tier(CountingStore())
    tier.add(STREAM, in_groups(small_chunks(40, size=30_000), 10))
    asked = query(tier, table="chunks")
    tier.store.requests.clear()

    assert len(asked.rows()) == 40
    assert tier.store.requests == {"get_suffix": 4}, "the end of each fragment"


def test_an_index_that_is_damaged_is_one_row_or_stops_the_query() -> None:
    tier = tier_with_everything()
    bad = leaves(tier)[3]
    key = bad.data_key(STREAM).path(PREFIX)
    data = bytearray(tier.store.objects[key])
    data[-130] ^= 1
    tier.store.objects[key] = bytes(data)

    rows = [row for row in query(tier, table="chunks").rows() if row["error"]]

    assert [(row["offset"], row["next_offset"]) for row in rows] == [
        (bad.first_offset, bad.next_offset)
    ]
    with pytest.raises(CorruptDataError):
        query(tier, table="chunks", onCorrupt="fail").rows()


def test_a_fragment_that_retention_takes_meanwhile_stops_the_query_or_is_a_row() -> None:
    tier = tier_with_everything()
    strict, lax = (query(tier, table="chunks", failOnDataLoss=each) for each in ("true", "false"))
    gone = leaves(tier)[:2]
    root = tier_root(tier)
    first = gone[-1].next_offset
    head = head_of(root.entries, first, tier.fetch(STREAM))
    tier.commit(STREAM, replace(root, first_offset=first, head=head))
    tier.store.delete([each.data_key(STREAM).path(PREFIX) for each in gone])

    with pytest.raises(LostRangeError):
        strict.rows()
    told = [row["offset"] for row in lax.rows() if row["error"]]
    assert told == [each.first_offset for each in gone]


def tier_root(tier: Tier) -> Any:
    from coldstream.remote.roots import root_at

    return root_at(tier.store, tier.catalog.items[STREAM].root_key, STREAM)


def test_streams_are_the_items_that_match_and_need_no_name() -> None:
    tier = Tier()
    tier.add("__orders_1", [small_chunks(2)], name=QueueName("c", "/", "orders"))
    tier.add("__b_1", [small_chunks(1)], name=QueueName("c", "eu", "b"))
    tier.catalog.items["__new_1"] = CatalogItem("__new_1", "")
    tier.catalog.items["__gone_1"] = CatalogItem("__gone_1", "", state=StreamState.DELETED)

    def rows(**given: str) -> list[dict[str, Any]]:
        options = parse_options({**WHERE, "table": "streams", **given}, {})
        columns = default_columns(options)
        (work,) = plan_query(options, columns, Window(), remote_of(tier))
        found: list[dict[str, Any]] = stream_rows(work.task.items, columns).to_pylist()
        return found

    assert [row["stream"] for row in rows()] == ["__b_1", "__new_1", "__orders_1"]
    (orders,) = rows(stream="orders")
    assert (orders["queue"], orders["offsets"], orders["fragments"]) == ("orders", 6, 1)
    assert ms(orders, "last_timestamp") == 10_010
    assert [row["queue"] for row in rows(vhost="eu")] == ["b"]
    assert rows(stream="__new_1")[0]["last_timestamp"] is None


def test_numbers_that_no_column_can_hold_are_its_greatest() -> None:
    item = CatalogItem(STREAM, "t", next_offset=2**64 - 1, total_size=2**100)

    (row,) = stream_rows([item], ("first_offset", "next_offset", "offsets", "size")).to_pylist()

    assert tuple(row.values()) == (0, 2**63 - 1, 2**63 - 1, 2**63 - 1)


def test_a_metadata_table_is_cut_by_what_it_looks_at_and_not_by_bytes_of_data() -> None:
    tier = Tier()
    tier.add(STREAM, in_groups(small_chunks(40), 1))
    item = tier.catalog.items[STREAM]
    tier.catalog.items[STREAM] = replace(item, total_size=2**50)

    def tasks(table: str, fragments: int) -> int:
        tier.catalog.items[STREAM] = replace(tier.catalog.items[STREAM], fragments=fragments)
        options = parse_options({**WHERE, "table": table}, {})
        assert options.sizes == Sizes()
        works = plan_query(options, default_columns(options), Window(), remote_of(tier))
        for each in works:
            decode_split(each.split)
        return len(works)

    assert tasks("fragments", 40) == 1
    assert tasks("fragments", 5 * 65_536) == 5
    assert tasks("chunks", 5 * 512) == 5


@pytest.mark.parametrize("table", ["streams", "Fragments", "chunks"])
def test_the_name_of_a_metadata_table_is_no_name_of_the_catalogs_table(table: str) -> None:
    environment = {"COLDSTREAM_BUCKET": "b", "COLDSTREAM_TABLE": "t"}

    options = parse_options({"table": table}, environment)

    assert options.place.table == "t"
    assert (options.rows is Rows.MESSAGES, options.streams) == (False, (".*",))
    assert parse_options({"table": table, "catalog": "mine"}, environment).place.table == "mine"
    assert parse_options({"table": "other", "stream": "x"}, environment).place.table == "other"
    with pytest.raises(InvalidInputError, match="option rows"):
        parse_options({"table": table, "rows": "chunks"}, environment)
    with pytest.raises(InvalidInputError, match="a streaming read gives messages"):
        refuse_for(options, streaming=True, given={"table": table})


def test_the_table_of_streams_takes_no_offsets() -> None:
    for name in ("startingOffset", "endingOffset", "asOfVersion"):
        given = {"table": "streams", name: "1", "stream": "a", "bucket": "b", "catalog": "c"}
        with pytest.raises(InvalidInputError, match=name):
            refuse_for(parse_options(given, {}), streaming=False, given=given)


def test_kinds_are_called_as_everywhere() -> None:
    assert [EntryKind.FRAGMENT.name.lower(), EntryKind.HOLE.name.lower()] == ["fragment", "hole"]
