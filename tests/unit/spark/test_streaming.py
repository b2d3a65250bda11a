"""A streaming query as Spark 4.1 drives it, without Spark: any batches, crashes, changes."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import CorruptDataError, InvalidInputError, LostRangeError
from coldstream.manifest.catalog import QueueName, StreamState
from coldstream.manifest.entries import Entries
from coldstream.manifest.root import LastChunk
from coldstream.spark.advance import Position, parse_position
from coldstream.spark.options import parse_options
from coldstream.spark.plan import decode_split
from coldstream.spark.read import read_split
from coldstream.spark.streaming import BatchPartition, MicroBatchReader
from tests.support.examples import examples
from tests.support.tier import Tier, chunk
from tests.unit.spark.context import WHERE, remote_of
from tests.unit.spark.test_read import in_groups, small_chunks

A, B = "__a_1", "__b_1"


class Spark:
    """What Spark 4.1 does with a reader: a log of offsets, a log of commits, restarts.

    The order of calls is that which tests/spark/test_streaming.py sees.
    """

    def __init__(self, tier: Tier, **given: str) -> None:
        self.tier = tier
        self.options = parse_options({"partitionBytes": "3000", **WHERE, **given}, {})
        self.offsets: list[Any] = []
        self.commits = 0
        self.rows: list[tuple[str, int, str | None]] = []
        self.batches: list[int] = []
        self.restart()

    def restart(self) -> None:
        """A new process: all that is known is the checkpoint."""
        columns = ("stream", "offset", "error")
        self.reader = MicroBatchReader(self.options, columns, remote_of(self.tier))
        if self.offsets:
            last = self.offsets[-1]
            assert self.reader.partitions(last, last) == []

    def plan(self) -> bool:
        """Begin a batch, unless there is nothing new; it is in the log before it is read."""
        if len(self.offsets) > self.commits:
            return True
        latest = json.loads(json.dumps(self.reader.latestOffset()))
        if self.offsets and latest == self.offsets[-1]:
            return False
        self.offsets.append(latest)
        return True

    def run(self) -> None:
        """Read the batch that was begun, and commit it together with its rows."""
        number = self.commits
        start = self.offsets[number - 1] if number else self.reader.initialOffset()
        found = []
        for partition in self.reader.partitions(start, self.offsets[number]):
            assert isinstance(partition, BatchPartition)
            work = partition.value
            for batch in read_split(work.task, decode_split(work.split), remote_of(self.tier)):
                found += [(r["stream"], r["offset"], r["error"]) for r in batch.to_pylist()]
        self.rows += found
        self.batches.append(len(found))
        self.commits += 1

    def step(self) -> bool:
        if not self.plan():
            return False
        self.run()
        return True

    def all(self) -> list[tuple[str, int, str | None]]:
        for _ in range(1000):
            if not self.step():
                return sorted(self.rows)
        raise AssertionError("it never ends")


def tier_of(**streams: int) -> Tier:
    tier = Tier()
    for name, count in streams.items():
        tier.add_tree(f"__{name}_1", in_groups(small_chunks(count), 6))
    return tier


def grow(tier: Tier, stream: str, chunks: int) -> None:
    item = tier.catalog.get(stream)
    assert item is not None
    root = tier.reader(stream).snapshot().root
    made = small_chunks(chunks, first=root.next_offset)
    entry = tier.upload(stream, made, epoch=1, floor=0)
    tier.commit(stream, root.appended([entry], LastChunk(entry.next_offset - 3, 1)))


@examples(0.4)
@given(
    st.integers(0, 2**32),
    st.one_of(st.none(), st.integers(1, 30_000)),
    st.one_of(st.none(), st.integers(1, 400)),
)
def test_every_message_is_in_exactly_one_batch_whatever_happens_between_any_two_calls(
    seed: int, max_bytes: int | None, max_offsets: int | None
) -> None:
    rng = random.Random(seed)
    tier = tier_of(a=rng.randrange(1, 60))
    limits = {"maxBytesPerTrigger": max_bytes, "maxOffsetsPerTrigger": max_offsets}
    given = {name: str(value) for name, value in limits.items() if value is not None}
    spark = Spark(tier, stream="__[ab].*", **given)
    for _ in range(25):
        match rng.randrange(6):
            case 0:
                grow(tier, A, rng.randrange(1, 20))
            case 1:
                if tier.catalog.get(B) is None:
                    tier.add_tree(B, in_groups(small_chunks(rng.randrange(1, 40)), 6))
                else:
                    grow(tier, B, 3)
            case 2:
                spark.restart()
            case 3:
                spark.plan()
                spark.restart()
            case _:
                spark.step()

    expected = sorted(
        (item.stream, offset, None)
        for item in tier.catalog.streams()
        for offset in range(item.next_offset)
    )
    if max_bytes is None and max_offsets is None:
        assert spark.all() == expected
    else:
        for _ in range(3000):
            if not spark.step():
                break
        assert sorted(spark.rows) == expected
    if max_offsets is not None:
        assert max(spark.batches) <= max_offsets


def test_a_batch_has_at_most_as_many_bytes_as_it_may() -> None:
    tier = tier_of(a=100, b=40)
    spark = Spark(tier, stream=".*", maxBytesPerTrigger="20k")
    spark.all()

    sizes = [rows / 3 * len(small_chunks(1)[0]) for rows in spark.batches]
    assert len(sizes) >= 7
    assert max(sizes) <= 20 * 1024
    assert sorted(sizes)[len(sizes) // 2] >= 15 * 1024


def test_streams_that_are_read_together_stay_together_in_time() -> None:
    tier = tier_of(a=60, b=60)
    spark = Spark(tier, stream=".*", maxOffsetsPerTrigger="60")
    spark.step()
    spark.step()

    streams = [stream for stream, _, _ in spark.rows]
    assert len(streams) == 120
    assert abs(streams.count(A) - streams.count(B)) <= 18  # a fragment


def retained(tier: Tier) -> int:
    """Take the oldest fragment away, as retention does; where the stream begins now."""
    root = tier.reader(A).snapshot().root
    first = root.entries[0].next_offset
    tier.commit(A, replace(root, first_offset=first, entries=root.entries.part(1)))
    return first


def test_a_batch_that_was_begun_is_the_same_after_a_crash_though_retention_has_moved() -> None:
    tier = Tier()
    tier.add(A, in_groups(small_chunks(60), 6))
    spark = Spark(tier, stream=A, failOnDataLoss="false")
    spark.plan()
    first = retained(tier)
    spark.restart()

    rows = spark.all()

    assert [offset for _, offset, error in rows if error is None] == list(range(first, 180))
    (gap,) = [row for row in rows if row[2]]
    assert gap[1] == 0
    assert f"offsets 0 to {first - 1} were removed by retention" in str(gap[2])


@pytest.mark.parametrize("finished", [False, True])
def test_a_run_that_only_finishes_a_batch_says_so_for_it_may_read_nothing_else(
    finished: bool, caplog: pytest.LogCaptureFixture
) -> None:
    tier = Tier()
    tier.add(A, in_groups(small_chunks(60), 6))
    spark = Spark(tier, stream=A, maxOffsetsPerTrigger="10")
    spark.plan()
    if finished:
        spark.run()
    spark.restart()

    spark.all()

    warned = [each for each in caplog.messages if "was not finished is read again" in each]
    assert len(warned) == (not finished)


def test_retention_that_overtakes_a_query_stops_it() -> None:
    tier = Tier()
    tier.add(A, in_groups(small_chunks(60), 6))
    spark = Spark(tier, stream=A, maxOffsetsPerTrigger="10")
    spark.step()
    assert retained(tier) == 18

    with pytest.raises(LostRangeError, match="offsets 10 to 17 were removed by retention"):
        spark.step()
    assert len(spark.rows) == 10


@pytest.mark.parametrize("stream", [A, "__a.*"])
def test_a_query_that_begins_at_a_time_where_an_index_is_damaged_tells_of_it(stream: str) -> None:
    tier = Tier()
    root = tier.add(A, in_groups(small_chunks(30), 10))
    key = tier.key(root, A, 1)
    tier.flip(key, len(tier.store.objects[key]) - 1)
    given = {"stream": stream, "startingOffset": "timestamp:10150"}

    rows = Spark(tier, **given).all()

    assert [offset for _, offset, _ in rows] == list(range(30, 90))
    assert [offset for _, offset, error in rows if error] == list(range(30, 60))
    with pytest.raises(CorruptDataError):
        Spark(tier, **given, onCorrupt="fail").all()


def test_a_stream_that_appears_later_is_read_from_its_first_message() -> None:
    tier = tier_of(a=10)
    spark = Spark(tier, stream="__.*", startingOffset="next")
    assert spark.all() == []
    tier.add(B, in_groups(small_chunks(10), 3))
    grow(tier, A, 2)

    assert [(stream, offset) for stream, offset, _ in spark.all()] == [
        *((A, offset) for offset in range(30, 36)),
        *((B, offset) for offset in range(30)),
    ]


@pytest.mark.parametrize("names", [A, "a", "__a.*"])
def test_a_query_that_is_started_again_without_a_stream_reads_it_no_more_until_it_has_it_again(
    names: str, caplog: pytest.LogCaptureFixture
) -> None:
    tier = Tier()
    for stream, queue in ((A, "a"), (B, "b")):
        groups = in_groups(small_chunks(6), 6)
        tier.add(stream, groups, name=QueueName("c", "/", queue))
    spark = Spark(tier, stream=f"{A},{B}")
    before = spark.all()
    spark.options = parse_options({**WHERE, "stream": names}, {})
    spark.restart()
    for stream in (A, B):
        grow(tier, stream, 2)

    after = spark.all()

    assert [row for row in after if row[0] == B] == [row for row in before if row[0] == B]
    assert len(after) == len(before) + 6
    assert f"{B} any more" in caplog.text
    spark.options = parse_options({**WHERE, "stream": f"{A},{B}"}, {})
    spark.restart()
    assert [row[:2] for row in spark.all()] == [(s, n) for s in (A, B) for n in range(24)]


def test_a_stream_whose_queue_is_recorded_later_is_read_on_by_the_pattern_of_its_directory() -> (
    None
):
    tier = tier_of(a=2)
    spark = Spark(tier, stream="__a.*")
    spark.all()
    item = tier.catalog.items[A]
    tier.catalog.items[A] = replace(item, name=QueueName("c", "/", "orders"))
    grow(tier, A, 2)

    assert [row[:2] for row in spark.all()] == [(A, n) for n in range(12)]


def test_a_stream_that_is_declared_again_is_another_stream_and_told() -> None:
    tier = Tier()
    name = QueueName("test", "/", "orders")
    tier.add("__orders_1", in_groups(small_chunks(10), 3), name=name)
    strict = Spark(tier, stream="orders", maxOffsetsPerTrigger="10")
    lax = Spark(tier, stream="orders", maxOffsetsPerTrigger="10", failOnDataLoss="false")
    strict.step()
    lax.step()
    item = tier.catalog.items["__orders_1"]
    tier.catalog.items["__orders_1"] = replace(item, state=StreamState.DELETED)
    tier.add("__orders_2", in_groups(small_chunks(4), 3), name=name)

    with pytest.raises(LostRangeError, match="declared again as __orders_2") as failed:
        strict.step()
    assert (failed.value.stream, failed.value.offset) == ("__orders_1", 10)
    rows = [(stream, offset) for stream, offset, _ in lax.all()]
    assert rows == [
        *(("__orders_1", offset) for offset in range(11)),  # the last one tells of the rest
        *(("__orders_2", offset) for offset in range(12)),
    ]


def test_what_was_cut_off_after_it_was_read_is_not_read_again() -> None:
    tier = tier_of(a=20)
    spark = Spark(tier, stream=A)
    spark.all()
    root = tier.reader(A).snapshot().root
    short = [each for each in root.entries if each.next_offset <= 36]
    tier.commit(
        A,
        replace(
            root, next_offset=short[-1].next_offset, entries=Entries.of(short), last_chunk=None
        ),
    )

    assert not spark.plan()
    assert len(spark.rows) == 60


def cut_off(tier: Tier, cut: int, chunks: int) -> None:
    """A claim of epoch 2 cuts `A` off, and its writer goes on from there."""
    root = tier.reader(A).snapshot().root
    kept = [each for each in root.entries if each.next_offset <= cut]
    assert kept[-1].next_offset == cut
    made = [
        each[:16] + (2).to_bytes(8, "big") + each[24:] for each in small_chunks(chunks, first=cut)
    ]
    entry = tier.upload(A, made, epoch=2, floor=cut)
    ledger = root.ledger.claimed(2, cut)
    last = LastChunk(entry.next_offset - 3, 2)
    changed = replace(root, epoch=2, ledger=ledger, last_chunk=last, next_offset=entry.next_offset)
    tier.commit(A, replace(changed, entries=Entries.of([*kept, entry])))


def read_and_cut_off(chunks: int, **given: str) -> Spark:
    tier = Tier()
    tier.add(A, in_groups(small_chunks(20), 6))
    spark = Spark(tier, stream=A, **given)
    spark.all()
    cut_off(tier, 36, chunks)
    return spark


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("chunks", [2, 8, 20])
def test_a_query_that_has_read_what_was_cut_off_since_stops(chunks: int, restarted: bool) -> None:
    spark = read_and_cut_off(chunks)
    if restarted:
        spark.restart()

    for _ in range(2):  # and whoever starts it again is told again
        with pytest.raises(LostRangeError, match="failOnDataLoss=false") as failed:
            spark.step()
        assert "offsets 36 to 59 were cut off under a higher epoch" in str(failed.value)
        assert "coldstream quarantine" in str(failed.value)
        assert (failed.value.stream, failed.value.offset) == (A, 36)
        spark.restart()
    assert len(spark.rows) == 60


@pytest.mark.parametrize("chunks", [2, 8, 20])
def test_a_query_that_may_lose_data_tells_once_and_goes_on_where_it_was(chunks: int) -> None:
    spark = read_and_cut_off(chunks, failOnDataLoss="false")
    old = len(spark.rows)

    while spark.step():
        pass
    grow_on(spark.tier, 10)
    while spark.step():
        pass

    end = spark.tier.reader(A).snapshot().root.next_offset
    told = [row for row in spark.rows[old:] if row[2]]
    assert [(offset, str(error)) for _, offset, error in told] == [
        (36, "offsets 36 to 59 were cut off under a higher epoch during the read")
    ]
    assert [offset for _, offset, error in spark.rows[old:] if not error] == list(range(60, end))


def grow_on(tier: Tier, chunks: int) -> None:
    root = tier.reader(A).snapshot().root
    first = root.next_offset
    made = [
        each[:16] + (2).to_bytes(8, "big") + each[24:] for each in small_chunks(chunks, first=first)
    ]
    entry = tier.upload(A, made, epoch=2, floor=36)
    tier.commit(A, root.appended([entry], LastChunk(entry.next_offset - 3, 2)))


def test_a_claim_that_cuts_nothing_off_begins_no_batch() -> None:
    tier = Tier()
    tier.add(A, in_groups(small_chunks(20), 6))
    spark = Spark(tier, stream=A)
    spark.all()
    root = tier.reader(A).snapshot().root
    tier.commit(A, replace(root, epoch=2, ledger=root.ledger.claimed(2, 60)))

    assert not spark.plan()


def test_a_checkpoint_without_epochs_goes_on_and_has_them_from_then_on() -> None:
    tier = Tier()
    tier.add(A, in_groups(small_chunks(20), 6))
    spark = Spark(tier, stream=A)
    spark.all()
    spark.offsets[-1].pop("epochs")
    spark.restart()
    assert not spark.plan()
    grow(tier, A, 2)

    assert len(spark.all()) == 66
    assert spark.offsets[-1]["epochs"] == {A: 1}


def test_offsets_that_no_column_can_hold_stop_a_streaming_query() -> None:
    tier = Tier()
    tier.add(A, [[chunk(first, b"\x00\x53\x75\xa0\x01x") for first in (2**63 - 1, 2**63)]])

    with pytest.raises(InvalidInputError, match="signed"):
        Spark(tier, stream=A, startingOffset="first").step()


def test_a_position_survives_json_and_nothing_else_is_taken_for_one() -> None:
    position = Position({"b": 3, "a": 2**63}, {"b": 1}, {"a": 7})

    assert parse_position(json.loads(json.dumps(position.to_json()))) == position
    assert list(position.to_json()["streams"]) == ["a", "b"]
    for wrong in (
        {},
        None,
        {"streams": {"a": "1"}},
        {"streams": {"a": -1}},
        {"streams": [1]},
        {"streams": {}, "epochs": {"a": "1"}},
    ):
        with pytest.raises(CorruptDataError):
            parse_position(wrong)
