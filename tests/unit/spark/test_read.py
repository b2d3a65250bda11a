"""Splits read in the worker against the plain decoder over the same chunks."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.adapters.memory import MemoryObjectStore
from coldstream.columns.reference import decode_reference
from coldstream.columns.schema import ALL, select
from coldstream.errors import CorruptDataError, InvalidInputError, LostRangeError, NotFoundError
from coldstream.fragment import Buffer
from coldstream.manifest.catalog import QueueName, StreamState
from coldstream.manifest.entries import Entries, Entry
from coldstream.osiris.chunk import ChunkType, iter_chunks
from coldstream.osiris.tracking import Tracked, TrackingType, encode_tracked
from coldstream.plans.retention import RetentionLimits, plan_retention
from coldstream.reader.by_index import enough
from coldstream.spark.options import parse_options
from coldstream.spark.schema import default_columns
from coldstream.spark.window import Intervals, Window
from coldstream_devkit.messages import any_chunks
from tests.support.examples import examples
from tests.support.tier import FIXTURES, PREFIX, Tier, chunk, segments_of
from tests.unit.spark.context import MESSAGE, WHERE, query, reference

STREAM = "__orders_1"


def small_chunks(count: int, *, first: int = 0, size: int = 300) -> list[bytes]:
    """Chunks of three messages, one every 10 ms, three of ten from a clock that was behind."""
    return [
        chunk(
            first + 3 * number,
            *(b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + bytes([number % 256]) * size,) * 3,
            timestamp=10_000 + 10 * number - (35 if number % 10 in (4, 5, 6) else 0),
        )
        for number in range(count)
    ]


def in_groups(chunks: list[bytes], length: int) -> list[list[bytes]]:
    return [chunks[at : at + length] for at in range(0, len(chunks), length)]


class CountingStore(MemoryObjectStore):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: Counter[str] = Counter()
        self.bytes = 0

    def get(self, key: str, start: int, end: int) -> Buffer:
        self.requests["get"] += 1
        self.bytes += end - start
        return super().get(key, start, end)

    def get_all(self, key: str, *, limit: int) -> bytes:
        self.requests["get_all"] += 1
        return super().get_all(key, limit=limit)

    def get_suffix(self, key: str, length: int) -> bytes:
        self.requests["get_suffix"] += 1
        self.bytes += length
        return super().get_suffix(key, length)


@pytest.mark.parametrize("name", sorted(FIXTURES))
def test_every_fixture_is_read_as_the_plain_decoder_reads_it(name: str) -> None:
    tier = Tier()
    stream = tier.add_fixture(name)
    chunks = [each for segment in segments_of(name) for each in segment]

    found = query(
        tier,
        stream=stream,
        columns="stream,offset,timestamp,chunk_id,epoch,publishers,"
        "body_kind,body,properties,application_properties,message_annotations,raw,error",
    )

    assert len(found.works) > 1 or sum(map(len, chunks)) < 6000
    names = found.schema.names
    assert found.rows() == reference(chunks, names, stream=stream)


@examples(0.25)
@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1000, 20_000))
def test_any_stream_in_any_splits_is_read_as_the_plain_decoder_reads_it(
    seed: int, length: int, partition_bytes: int
) -> None:
    rng = random.Random(seed)
    data = any_chunks(rng, 30, first=rng.randrange(1000))
    # Of one epoch: they are drawn at random, and in a fragment they never fall.
    epoch = (3).to_bytes(8, "big")
    chunks = [bytes(each.buffer) for each in iter_chunks(data)]
    chunks = [each[:16] + epoch + each[24:] for each in chunks]
    tier = Tier()
    tier.add_tree(STREAM, in_groups(chunks, length))

    found = query(tier, stream=STREAM, partitionBytes=str(partition_bytes))

    # Not as Python values: times of any 64 bits have none.
    parsed = [next(iter_chunks(each)) for each in chunks]
    right = pa.Table.from_batches([decode_reference(select(MESSAGE), parsed)])
    assert found.table().equals(right)


spans = st.lists(st.tuples(st.integers(-5, 320), st.integers(-5, 320)), min_size=1, max_size=3)


@examples(0.6)
@given(spans, st.lists(st.tuples(st.integers(9900, 11_100), st.integers(9900, 11_100)), max_size=2))
def test_a_window_lets_through_exactly_the_rows_inside_it(
    offsets: list[tuple[int, int]], times: list[tuple[int, int]]
) -> None:
    chunks = small_chunks(100)
    tier = Tier()
    tier.add_tree(STREAM, in_groups(chunks, 7))
    window = Window(offsets=Intervals.of(*offsets))
    if times:
        window &= Window(times=Intervals.of(*times))

    rows = query(tier, window, stream=STREAM, columns="offset,timestamp,body").rows()

    expected = [
        row
        for row in reference(chunks, ["offset", "timestamp", "body"])
        if window.offsets.overlaps(row["offset"], row["offset"] + 1)
        and window.times.overlaps(milliseconds(row), milliseconds(row) + 1)
    ]
    assert rows == expected


def milliseconds(row: dict[str, Any]) -> int:
    return round(row["timestamp"].timestamp() * 1000)


def test_splits_of_a_fragment_share_its_chunks() -> None:
    chunks = small_chunks(60)
    tier = Tier()
    tier.add(STREAM, [chunks])

    found = query(tier, stream=STREAM, columns="chunk_id", partitionBytes="5000")

    ids = [
        {row["chunk_id"] for batch in batches for row in batch.to_pylist()}
        for batches in found.batches()
    ]
    assert len(ids) > 5
    assert sum(len(each) for each in ids) == len(set().union(*ids)) == 60
    assert all(max(one) < min(other) for one, other in pairwise([i for i in ids if i]))


def test_a_hundredth_of_a_stream_costs_a_hundredth_of_its_bytes_and_its_indexes() -> None:
    chunks = small_chunks(2000, size=2000)
    tier = Tier(store=CountingStore())
    root = tier.add(STREAM, in_groups(chunks, 500))
    window = Window(times=Intervals.of((20_000, 20_200)))

    found = query(tier, window, stream=STREAM, partitionBytes="256m")
    tier.store.bytes = 0
    rows = found.rows()

    assert 17 <= len(rows) / 3 <= 23
    indexes = 2 * 128 * 1024
    assert tier.store.bytes - indexes <= 0.015 * root.total_size


def test_columns_of_chunks_cost_the_indexes_only() -> None:
    chunks = small_chunks(2000, size=2000)
    # One chunk of a single message, and tracking data, which always is a single record.
    chunks[700] = chunk(2100, b"\x00\x53\x77\x40", timestamp=17_000)
    chunks[701] = chunk(2101, b"\x00", timestamp=17_000, kind=ChunkType.TRACKING_DELTA)
    chunks[702] = chunk(2102, *[b"\x00\x53\x77\x40"] * 7, timestamp=17_000)
    tier = Tier(store=CountingStore())
    root = tier.add(STREAM, in_groups(chunks, 500))
    names = ["offset", "timestamp", "chunk_id", "epoch"]

    found = query(tier, stream=STREAM, columns=",".join(names), partitionBytes="3m")
    tier.store.bytes = 0

    assert found.rows() == reference(chunks, names)
    assert tier.store.bytes < 0.15 * root.total_size  # 128 KiB of each fragment of 3 MB
    tier.store.requests.clear()
    query(tier, stream=STREAM, columns="offset").rows()
    assert tier.store.requests["get"] <= 2


def test_damage_is_not_looked_for_where_it_changes_nothing_and_stops_a_strict_query() -> None:
    chunks = small_chunks(30)
    tier = Tier()
    root = tier.add(STREAM, in_groups(chunks, 10))
    tier.flip(tier.key(root, STREAM, 1), 8 + 4 * len(chunks[0]) + 100)

    names = ["offset", "timestamp"]
    assert query(tier, stream=STREAM, columns="offset,timestamp").rows() == reference(chunks, names)
    with pytest.raises(CorruptDataError):
        query(tier, stream=STREAM, columns="offset", onCorrupt="fail").rows()


def test_a_stream_of_single_messages_or_several_epochs_is_read_for_its_headers() -> None:
    singles = [chunk(n, b"\x00\x53\x77\x40") for n in range(40)]
    epochs = [chunk(40 + 3 * n, *[b"x"] * 3, epoch=1 + n // 5) for n in range(10)]
    more = small_chunks(9, first=70)
    tier = Tier()
    groups = [singles, epochs, [each[:16] + (2).to_bytes(8, "big") + each[24:] for each in more]]
    tier.add(STREAM, groups)
    names = ["offset", "epoch"]

    rows = query(tier, stream=STREAM, columns="offset,epoch", partitionBytes="64m").rows()

    assert rows == reference([each for group in groups for each in group], names)


def test_starting_and_ending_offsets_bound_a_query() -> None:
    chunks = small_chunks(40)
    tier = Tier()
    tier.add(STREAM, in_groups(chunks, 7))

    def offsets(**given: str) -> list[int]:
        rows = query(tier, stream=STREAM, columns="offset", **given).rows()
        return [row["offset"] for row in rows]

    assert offsets(startingOffset="10", endingOffset="17") == list(range(10, 17))
    assert offsets(startingOffset="last") == [117, 118, 119]
    assert offsets(startingOffset="next") == []
    assert offsets(startingOffset="1970-01-01T00:00:10.200Z")[0] == 60
    assert offsets(endingOffset="timestamp:10100") == list(range(30))


def test_a_hole_stops_a_query_or_becomes_a_row() -> None:
    first, second = small_chunks(4), small_chunks(4, first=50)
    tier = Tier()
    tier.add(STREAM, [first, tier.hole(12, 50), second])

    with pytest.raises(LostRangeError, match="offsets 12 to 49") as failed:
        query(tier, stream=STREAM).rows()
    rows = query(tier, stream=STREAM, failOnDataLoss="false").rows()

    assert failed.value.stream == STREAM
    (gap,) = [row for row in rows if row["error"]]
    assert gap["offset"] == 12
    assert "lost before they could be uploaded" in gap["error"]
    assert gap["timestamp"] is not None
    assert gap["body"] is gap["chunk_id"] is None
    assert [row for row in rows if not row["error"]] == reference([*first, *second])
    assert query(tier, Window(Intervals.of((0, 12))), stream=STREAM).rows() == reference(first)


@pytest.mark.parametrize("rows", ["messages", "chunks", "tracking"])
@pytest.mark.parametrize(
    "asked",
    [
        Intervals.of((30, 41)),
        Intervals.of((11, 41)),
        Intervals.of((12, 13)),
        Intervals.of((0, 5), (20, 22), (40, 60)),
        Intervals.of((12, 14), (20, 22)),
    ],
)
@pytest.mark.parametrize("start", ["0", "20"])
def test_a_filter_finds_the_row_of_a_hole_where_spark_would_and_as_it_is(
    asked: Intervals, rows: str, start: str
) -> None:
    first, second = small_chunks(4), small_chunks(4, first=50)
    tier = Tier()
    tier.add(STREAM, [first, tier.hole(12, 50), second])
    given = {"stream": STREAM, "rows": rows, "failOnDataLoss": "false", "startingOffset": start}

    unfiltered = query(tier, **given).rows()
    found = query(tier, Window(asked), **given).rows()

    assert sum(row["error"] is not None for row in unfiltered) == 1
    assert found == [r for r in unfiltered if asked.overlaps(r["offset"], r["offset"] + 1)]


def test_a_strict_query_for_offsets_within_a_hole_stops() -> None:
    tier = Tier()
    tier.add(STREAM, [small_chunks(4), tier.hole(12, 50), small_chunks(4, first=50)])

    with pytest.raises(LostRangeError, match="offsets 30 to 40"):
        query(tier, Window(Intervals.of((30, 41))), stream=STREAM).rows()


@pytest.mark.parametrize("rows", ["messages", "chunks", "tracking", "fragments"])
@pytest.mark.parametrize("columns", ["offset", "offset,error"])
@pytest.mark.parametrize("first", [2**63 - 2, 2**63 - 1, 2**63, 2**64 - 50])
def test_offsets_that_no_column_can_hold_stop_a_query_and_are_never_nothing(
    first: int, columns: str, rows: str
) -> None:
    if rows == "fragments":
        columns = "offset"
    tier = Tier()
    data = b"\x00\x53\x75\xa0\x01x"
    tier.add(
        STREAM, [[chunk(first - 5, data), chunk(first - 4, *[data] * 4)], [chunk(first, data)]]
    )
    given = {"stream": STREAM, "columns": columns, "rows": rows}

    if first < 2**63 - 1:
        # The greatest offset of all that fits, next to its own end.
        count = {"messages": 6, "chunks": 3, "tracking": 0, "fragments": 2}[rows]
        assert len(query(tier, **given).rows()) == count
        return
    with pytest.raises(InvalidInputError, match="signed") as failed:
        query(tier, **given).rows()
    assert failed.value.stream == STREAM
    if first == 2**63 - 1:
        assert query(tier, endingOffset=str(first - 4), **given).rows() != [] or rows == "tracking"
        assert query(tier, Window(Intervals.of((0, first))), **given) is not None


def test_a_damaged_chunk_becomes_rows_and_its_neighbours_are_read() -> None:
    chunks = small_chunks(30)
    tier = Tier()
    root = tier.add(STREAM, in_groups(chunks, 10))
    tier.flip(tier.key(root, STREAM, 1), 8 + 4 * len(chunks[0]) + 100)

    for partition_bytes in ("256m", "2500"):
        rows = query(tier, stream=STREAM, partitionBytes=partition_bytes).rows()
        assert [row["offset"] for row in rows] == list(range(90))
        bad = [row for row in rows if row["error"]]
        assert [row["offset"] for row in bad] == [42, 43, 44]
        assert all("CRC" in row["error"] and row["timestamp"] for row in bad)
        good = [row for row in rows if not row["error"]]
        assert good == [r for r in reference(chunks) if r["offset"] not in (42, 43, 44)]
    with pytest.raises(CorruptDataError) as failed:
        query(tier, stream=STREAM, onCorrupt="fail").rows()
    assert (failed.value.stream, failed.value.offset) == (STREAM, 42)


def test_a_fragment_whose_index_is_damaged_becomes_rows_once() -> None:
    chunks = small_chunks(30)
    tier = Tier()
    root = tier.add(STREAM, in_groups(chunks, 10))
    key = tier.key(root, STREAM, 1)
    tier.flip(key, len(tier.store.objects[key]) - 200)

    for partition_bytes in ("256m", "2500"):
        rows = query(tier, stream=STREAM, partitionBytes=partition_bytes).rows()
        assert [row["offset"] for row in rows] == list(range(90))
        assert [row["offset"] for row in rows if row["error"]] == list(range(30, 60))


#: How many bytes before a fragment's end there is a byte that is flipped.
WHERE_DAMAGED = {"index": 200, "trailer": 40, "magic": 1}


@pytest.mark.parametrize("damaged", WHERE_DAMAGED)
@pytest.mark.parametrize(
    ("fragment", "given", "offsets"),
    [
        (1, {"startingOffset": "timestamp:10150"}, range(30, 90)),
        (1, {"endingOffset": "timestamp:10150"}, range(60)),
        (
            1,
            {"startingOffset": "timestamp:10120", "endingOffset": "timestamp:10150"},
            range(30, 60),
        ),
        (1, {"endingOffset": "timestamp:10100"}, range(30)),
        (0, {"startingOffset": "timestamp:10150"}, range(51, 90)),
        (2, {"startingOffset": "last"}, range(60, 90)),
        (2, {"endingOffset": "last"}, range(90)),
    ],
)
def test_a_query_that_begins_or_ends_where_an_index_is_damaged_tells_of_all_that_may_be_meant(
    damaged: str, fragment: int, given: dict[str, str], offsets: range
) -> None:
    tier = Tier()
    root = tier.add(STREAM, in_groups(small_chunks(30), 10))
    key = tier.key(root, STREAM, fragment)
    tier.flip(key, len(tier.store.objects[key]) - WHERE_DAMAGED[damaged])
    bad = range(30 * fragment, 30 * fragment + 30)

    for partition_bytes in ("256m", "2500"):
        rows = query(tier, stream=STREAM, partitionBytes=partition_bytes, **given).rows()
        assert [row["offset"] for row in rows] == list(offsets)
        assert [row["offset"] for row in rows if row["error"]] == [n for n in offsets if n in bad]
    if set(bad) & set(offsets):
        with pytest.raises(CorruptDataError):
            query(tier, stream=STREAM, onCorrupt="fail", **given).rows()


def test_a_query_that_begins_at_the_last_chunk_begins_with_it_where_it_is_damaged() -> None:
    chunks = small_chunks(20)
    tier = Tier()
    root = tier.add(STREAM, in_groups(chunks, 10))
    tier.flip(tier.key(root, STREAM, 1), 8 + 9 * len(chunks[0]))

    rows = query(tier, stream=STREAM, startingOffset="last").rows()

    assert [row["offset"] for row in rows if row["error"]] == [57, 58, 59]
    assert len(rows) == 3


def test_an_end_behind_a_damaged_index_is_sought_behind_what_retention_has_taken() -> None:
    chunks = [chunk(3 * n, *(b"x",) * 3, timestamp=t) for n, t in enumerate((900, 100, 200, 300))]
    tier = Tier()
    root = tier.add(STREAM, [chunks[:2], chunks[2:]])
    tier.commit(STREAM, replace(root, first_offset=3))
    key = tier.key(root, STREAM, 0)
    tier.flip(key, len(tier.store.objects[key]) - 1)

    rows = query(tier, stream=STREAM, endingOffset="timestamp:300").rows()

    assert [(row["offset"], bool(row["error"])) for row in rows] == [
        *((n, True) for n in (3, 4, 5)),
        *((n, False) for n in (6, 7, 8)),
    ]


def test_a_filter_on_time_does_not_hide_damage_within_it() -> None:
    chunks = small_chunks(30)
    tier = Tier()
    root = tier.add(STREAM, in_groups(chunks, 10))
    key = tier.key(root, STREAM, 1)
    tier.flip(key, len(tier.store.objects[key]) - 200)
    window = Window(times=Intervals.of((10_150, 10_160)))

    rows = query(tier, window, stream=STREAM).rows()

    assert {row["offset"] for row in rows if row["error"]} == set(range(30, 60))
    assert {milliseconds(row) for row in rows} <= set(range(10_150, 10_160))


def test_a_query_reads_on_in_the_fragments_that_took_the_place_of_its_own() -> None:
    chunks = small_chunks(60)
    tier = Tier()
    root = tier.add(STREAM, in_groups(chunks, 10))
    before = query(tier, stream=STREAM, partitionBytes="2500").rows()
    found = query(tier, stream=STREAM, partitionBytes="2500")
    merge(tier, root, chunks)

    assert found.rows() == before == reference(chunks)


def merge(tier: Tier, root: Any, chunks: list[bytes]) -> None:
    """Replace all fragments by two and delete the old ones, as consolidate and collect do."""
    old = [tier.key(root, STREAM, number) for number in range(len(root.entries))]
    half = len(chunks) // 2
    entries = [
        tier.upload(STREAM, part, epoch=1, floor=0) for part in (chunks[:half], chunks[half:])
    ]
    from dataclasses import replace

    tier.commit(STREAM, replace(root, entries=Entries.of(entries)))
    tier.store.delete(old)


def test_what_retention_takes_under_a_query_stops_it_or_becomes_rows() -> None:
    chunks = small_chunks(60)
    tier = Tier()
    root = tier.add(STREAM, in_groups(chunks, 10))
    for partition_bytes in ("256m", "9000", "2500"):
        tier = Tier()
        root = tier.add(STREAM, in_groups(chunks, 10))
        strict = query(tier, stream=STREAM, partitionBytes=partition_bytes)
        lax = query(tier, stream=STREAM, partitionBytes=partition_bytes, failOnDataLoss="false")
        retain(tier, root, fragments=2)

        with pytest.raises(LostRangeError, match="retention"):
            strict.rows()
        rows = lax.rows()
        assert [row for row in rows if not row["error"]] == reference(chunks[20:])
        gaps = [row for row in rows if row["error"]]
        assert gaps
        assert all(0 <= row["offset"] < 60 and "retention" in row["error"] for row in gaps)


def retain(tier: Tier, root: Any, *, fragments: int) -> None:
    size = sum(each.size for each in root.entries) - sum(
        root.entries[number].size for number in range(fragments)
    )
    plan = plan_retention(root, RetentionLimits(max_bytes=size), now_ms=0, fetch=tier.fetch(STREAM))
    assert plan.root.first_offset == root.entries[fragments].first_offset
    tier.commit(STREAM, plan.root)
    tier.store.delete([tier.key(root, STREAM, number) for number in range(fragments)])


def test_part_of_a_fragment_that_was_read_in_time_does_not_hide_that_the_rest_is_lost() -> None:
    chunks = small_chunks(60)
    tier = Tier()
    root = tier.add(STREAM, in_groups(chunks, 10))
    found = query(tier, stream=STREAM, partitionBytes="2500")
    retain(tier, root, fragments=2)

    found.works = found.works[1:2]
    with pytest.raises(LostRangeError):
        found.rows()


def test_data_of_a_higher_epoch_is_not_taken_for_what_was_planned() -> None:
    chunks = small_chunks(40)
    tier = Tier()
    root = tier.add(STREAM, in_groups(chunks, 10))
    lax = query(tier, stream=STREAM, failOnDataLoss="false")
    strict = query(tier, stream=STREAM)
    cut(tier, root)

    with pytest.raises(LostRangeError, match="higher epoch"):
        strict.rows()
    rows = lax.rows()
    assert [row for row in rows if not row["error"]] == reference(chunks[:30])
    assert next(row["offset"] for row in rows if row["error"]) == 90


def cut(tier: Tier, root: Any) -> None:
    """Cut the last fragment off under a higher epoch, and write another one in its place."""
    from dataclasses import replace

    from coldstream.manifest.ledger import Ledger

    other = [chunk(90 + 3 * n, *[b"\x00\x53\x75\xa0\x01x"] * 3, epoch=2) for n in range(10)]
    entry = tier.upload(STREAM, other, epoch=2, floor=90)
    kept: list[Entry] = list(root.entries)[:3]
    tier.commit(
        STREAM,
        replace(
            root, epoch=2, entries=Entries.of([*kept, entry]), ledger=Ledger.of([(1, 0), (2, 90)])
        ),
    )
    tier.store.delete([tier.key(root, STREAM, 3)])


def test_an_object_that_is_missing_without_a_reason_stops_a_query() -> None:
    tier = Tier()
    root = tier.add(STREAM, in_groups(small_chunks(20), 10))
    tier.store.delete([tier.key(root, STREAM, 1)])

    with pytest.raises(NotFoundError) as failed:
        query(tier, stream=STREAM, failOnDataLoss="false").rows()
    assert failed.value.key == tier.key(root, STREAM, 1)


def test_several_streams_are_told_apart() -> None:
    tier = Tier()
    names = [tier.add_fixture(name) for name in sorted(FIXTURES)]
    both = query(tier, stream=",".join(names[:2]), columns="stream,offset").rows()
    pattern = query(tier, stream="fx_codecs.*,fx_plain.*", columns="stream").rows()
    everything = query(tier, stream=".*", partitionBytes="64m")

    assert {row["stream"] for row in both} == set(names[:2])
    assert {row["stream"] for row in pattern} <= set(names)
    assert len(everything.works) == 1
    assert "stream" in everything.schema.names
    assert {row["stream"] for row in everything.rows()} == set(names)


def test_any_number_that_is_tracked_is_a_row() -> None:
    wild = Tracked(TrackingType.SEQUENCE, b"p", 2**64 - 1, 2**64 - 1)
    tier = Tier()
    tier.add("s", [[chunk(0, encode_tracked(wild), kind=ChunkType.TRACKING_SNAPSHOT)]])

    (row,) = query(tier, stream="s", rows="tracking").rows()

    assert (row["error"], row["value"], row["chunk_id"]) == (None, 2**63 - 1, 2**63 - 1)


def test_chunks_tracking_and_fragments_are_views_of_the_same_stream() -> None:
    tier = Tier()
    stream = tier.add_fixture("dedup-4.3.6")
    chunks = [each for segment in segments_of("dedup-4.3.6") for each in segment]
    parsed = [next(iter_chunks(each)) for each in chunks]

    seen = query(tier, stream=stream, rows="chunks").rows()
    tracked = query(tier, stream=stream, rows="tracking").rows()
    columns = "size,key"
    fragments = query(tier, stream=stream, rows="fragments", columns=columns).rows()

    assert [row["offset"] for row in seen] == [each.header.chunk_id for each in parsed]
    assert [row["size"] for row in seen] == [len(each) for each in chunks]
    assert {row["kind"] for row in seen} >= {"user"}
    from coldstream.osiris.tracking import parse_tracking

    expected = [(c.header.chunk_id, t.name, t.value) for c in parsed for t in parse_tracking(c)]
    assert expected
    assert [(r["offset"], r["reference"], r["value"]) for r in tracked] == expected
    item = tier.catalog.get(stream)
    assert item is not None
    assert (len(fragments), sum(row["size"] for row in fragments)) == (
        item.fragments,
        item.total_size,
    )
    assert all(row["key"] in tier.store.objects for row in fragments)
    assert fragments[0]["key"].startswith(PREFIX)


def test_plain_bytes_are_bodies_unless_all_must_be_amqp_and_damage_stays_an_error() -> None:
    tier = Tier()
    amqp = b"\x00\x53\x75\xa0\x02hi"
    tier.add("s", [[chunk(0, b"plain", amqp)]])

    def read(body_format: str) -> list[dict[str, Any]]:
        return query(
            tier, stream="s", columns="body_kind,body,error", bodyFormat=body_format
        ).rows()

    plain = {"body_kind": "bytes", "body": b"plain", "error": None}
    assert read("auto") == [plain, {"body_kind": "data", "body": b"hi", "error": None}]
    assert read("bytes") == [plain, {"body_kind": "bytes", "body": amqp, "error": None}]
    first, second = read("AMQP")
    assert (first["body"], second["body"]) == (None, b"hi")
    assert first["error"]
    assert query(tier, stream="s").rows()[0]["error"] is None


@pytest.mark.parametrize("rows", ["messages", "chunks", "fragments"])
def test_rows_say_what_people_call_the_stream(rows: str) -> None:
    tier = Tier()
    tier.add("a", [[chunk(0, b"x")]], name=QueueName("c", "shop", "orders"))
    tier.add("b", [[chunk(0, b"x")]])

    found = query(tier, stream="a,b", rows=rows, columns="stream,vhost,queue").rows()

    assert [(row["stream"], row["vhost"], row["queue"]) for row in found] == [
        ("a", "shop", "orders"), ("b", None, None),
    ]  # fmt: skip
    assert {"vhost", "queue"} <= set(query(tier, stream="a,b", rows=rows).schema.names)


@pytest.mark.parametrize("asked", ["orders", "shop/orders", "ord.*"])
def test_a_stream_is_found_by_its_queue_under_either_option(asked: str) -> None:
    tier = Tier()
    tier.add("a", [[chunk(0, b"x")]], name=QueueName("c", "shop", "orders"))

    for option in ("stream", "queue"):
        assert [r["queue"] for r in query(tier, **{option: asked, "columns": "queue"}).rows()] == [
            "orders"
        ]
    with pytest.raises(InvalidInputError, match="mean the same"):
        query(tier, stream="a", queue="orders")


def test_whoever_names_no_columns_pays_for_no_message() -> None:
    one, several = (parse_options({**WHERE, "stream": name}, {}) for name in ("s", "a,b"))
    everything = parse_options({**WHERE, "stream": "s", "columns": "*"}, {})
    chunks = parse_options({**WHERE, "stream": "s", "columns": "*", "rows": "chunks"}, {})

    assert default_columns(one) == ("offset", "timestamp", "chunk_id", "epoch")
    assert default_columns(several) == ("stream", "vhost", "queue", *default_columns(one))
    assert default_columns(everything) == ALL
    assert default_columns(chunks)[0] == "stream"
    assert enough(default_columns(several))


def test_an_offset_to_start_from_that_lies_beyond_the_end_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tier = Tier()
    tier.add("__a_1", in_groups(small_chunks(10), 3))
    tier.add("__b_1", in_groups(small_chunks(20), 3))

    assert query(tier, stream="__a_1", startingOffset="30").rows() == [], "the next one there is"
    with pytest.raises(
        LostRangeError, match=r"31 lies beyond the end, the next .* is 30"
    ) as caught:
        query(tier, stream="__a_1", startingOffset="31")
    assert (caught.value.stream, caught.value.offset) == ("__a_1", 31)
    assert not caplog.records

    assert query(tier, stream="__a_1", startingOffset="31", failOnDataLoss="false").rows() == []
    several = query(tier, stream="__a_1,__b_1", startingOffset="31", columns="offset").rows()
    assert len(several) == 29
    assert [("31 lies beyond" in each.message) for each in caplog.records] == [True, True]


def test_an_end_before_the_start_is_refused_whatever_they_are_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tier = Tier()
    tier.add("__a_1", in_groups(small_chunks(10), 3))
    tier.add("__b_1", in_groups(small_chunks(20), 3))

    for start, end in (("9", "8"), ("next", "29"), ("timestamp:10050", "first")):
        with pytest.raises(InvalidInputError, match=f"endingOffset: {end} is offset"):
            query(tier, stream="__a_1", startingOffset=start, endingOffset=end)
    assert query(tier, stream="__a_1", startingOffset="9", endingOffset="9").rows() == []
    several = query(tier, stream="__.*", startingOffset="next", endingOffset="30").rows()
    assert several == []
    assert [each.args[1] for each in caplog.records if each.args] == ["__b_1"]


@pytest.mark.parametrize(("start", "end"), [("20", "10"), ("timestamp:200", "timestamp:100")])
def test_an_end_before_the_start_is_refused_where_both_lie_below_the_first_offset(
    start: str, end: str
) -> None:
    tier = Tier()
    tier.add("__a_1", in_groups(small_chunks(10, first=50), 3))

    with pytest.raises(InvalidInputError, match=f"{end} lies before startingOffset {start}"):
        query(tier, stream="__a_1", startingOffset=start, endingOffset=end)
    assert query(tier, stream="__a_1", startingOffset=end, endingOffset=start).rows() == []


def test_a_pattern_that_matches_nothing_is_told(caplog: pytest.LogCaptureFixture) -> None:
    assert query(Tier(), stream="order.*").rows() == []
    assert "no stream matches order.*" in caplog.text


def test_a_batch_whose_objects_are_deleted_says_so_and_not_which_object_is_missing() -> None:
    tier = Tier()
    tier.add("__a_1", in_groups(small_chunks(30), 3))
    asked = query(tier, stream="__a_1")
    item = tier.catalog.items["__a_1"]
    tier.store.objects.clear()

    with pytest.raises(NotFoundError) as lost:
        asked.rows()
    assert "deleted" not in str(lost.value)
    for state in (StreamState.DELETING, StreamState.DELETED):
        tier.catalog.items["__a_1"] = replace(item, state=state)
        with pytest.raises(NotFoundError, match="the stream was deleted") as caught:
            asked.rows()
        assert (caught.value.stream, caught.value.key) == ("__a_1", None)
    with pytest.raises(NotFoundError, match="deleted"):
        query(tier, stream="__a_1")
