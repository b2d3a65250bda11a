"""A streaming query whose stream is deleted: stopped or told, once, whatever happens in between."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import LostRangeError, NotFoundError
from coldstream.manifest.catalog import QueueName, StreamState
from tests.support.examples import examples
from tests.support.tier import Tier
from tests.unit.spark.test_read import in_groups, small_chunks
from tests.unit.spark.test_streaming import A, B, Spark, grow, tier_of

NAMES = ["__.*", f"{A},{B}"]


def delete(tier: Tier, stream: str, *, sweep: bool = True) -> None:
    """The undelete time is over: a tombstone for ever, and no object is left, or all still are."""
    item = tier.catalog.items[stream]
    tier.catalog.items[stream] = replace(item, state=StreamState.DELETED)
    if sweep:
        tier.store.delete([key for key in tier.store.objects if f"/{stream}/" in key])


def forget(tier: Tier, stream: str) -> None:
    """Nobody knows the stream any more: another table, or somebody has removed its item."""
    delete(tier, stream)
    del tier.catalog.items[stream]


def told(spark: Spark) -> list[tuple[str, int, str]]:
    return [(stream, offset, error) for stream, offset, error in spark.rows if error]


def read(spark: Spark, stream: str) -> list[int]:
    return sorted(offset for name, offset, error in spark.rows if name == stream and not error)


@pytest.mark.parametrize("sweep", [True, False])
@pytest.mark.parametrize("names", NAMES)
def test_a_batch_that_was_begun_is_told_as_lost_if_its_stream_is_gone_after_a_crash(
    names: str, sweep: bool
) -> None:
    tier = tier_of(a=20, b=20)
    spark = Spark(tier, stream=names, failOnDataLoss="false")
    spark.plan()
    delete(tier, B, sweep=sweep)
    spark.restart()
    grow(tier, A, 2)

    spark.all()
    spark.restart()
    spark.all()

    assert (read(spark, A), read(spark, B)) == ([*range(66)], [])
    ((stream, offset, error),) = told(spark)
    assert (stream, offset) == (B, 0)
    assert error == f"offsets 0 to 59 are gone: the stream {B} was deleted before they were read"


@pytest.mark.parametrize("names", NAMES)
def test_a_strict_query_names_what_a_deletion_took_from_a_batch_that_was_begun(names: str) -> None:
    tier = tier_of(a=20, b=20)
    spark = Spark(tier, stream=names)
    spark.plan()
    delete(tier, B)

    for _ in range(2):  # and whoever starts it again is told again
        spark.restart()
        with pytest.raises(LostRangeError, match="offsets 0 to 59 are gone") as failed:
            spark.step()
        assert (failed.value.stream, failed.value.offset) == (B, 0)
        assert "failOnDataLoss=false" in str(failed.value)
    assert spark.rows == []


@pytest.mark.parametrize("lax", ["true", "false"])
@pytest.mark.parametrize("names", NAMES)
def test_a_stream_that_was_read_to_its_end_may_be_deleted(names: str, lax: str) -> None:
    tier = tier_of(a=20, b=20)
    spark = Spark(tier, stream=names, failOnDataLoss=lax)
    spark.all()
    delete(tier, B)
    grow(tier, A, 2)

    spark.all()
    spark.restart()

    assert len(spark.all()) == 126
    assert told(spark) == []


def test_a_queue_that_was_read_to_its_end_may_be_deleted_and_declared_again() -> None:
    tier = Tier()
    name = QueueName("test", "/", "orders")
    tier.add("__orders_1", in_groups(small_chunks(10), 3), name=name)
    spark = Spark(tier, stream="orders")
    spark.all()
    for number in (2, 3):
        delete(tier, f"__orders_{number - 1}")
        assert not spark.plan()
        tier.add(f"__orders_{number}", in_groups(small_chunks(4), 3), name=name)
        spark.all()

    assert [len(read(spark, f"__orders_{number}")) for number in (1, 2, 3)] == [30, 12, 12]


@pytest.mark.parametrize("names", NAMES)
def test_what_a_deletion_took_is_a_row_once_and_the_query_goes_on(names: str) -> None:
    tier = tier_of(a=20, b=20)
    given = {"maxOffsetsPerTrigger": "30", "failOnDataLoss": "false"}
    spark = Spark(tier, stream=names, **given)
    spark.step()
    end = len(read(spark, B))
    assert 0 < end < 60
    delete(tier, B)

    while spark.plan():
        spark.restart()  # in every batch, before it is done
        spark.run()
        spark.restart()

    assert (read(spark, A), read(spark, B)) == ([*range(60)], [*range(end)])
    ((stream, offset, error),) = told(spark)
    assert (stream, offset) == (B, end)
    assert f"offsets {end} to 59 are gone: the stream {B} was deleted" in error


def test_a_stream_that_nobody_knows_any_more_is_told_once_without_an_end() -> None:
    tier = tier_of(a=20, b=20)
    spark = Spark(tier, stream="__.*", failOnDataLoss="false")
    strict = Spark(tier, stream="__.*")
    spark.all()
    strict.all()
    forget(tier, B)

    while spark.plan():
        spark.restart()
        spark.run()
        spark.restart()

    assert told(spark) == [(B, 60, f"from offset 60 on nobody knows the stream {B} any more")]
    assert len(spark.rows) == 121
    with pytest.raises(LostRangeError, match="from offset 60 on nobody knows the stream"):
        strict.step()


def test_a_name_that_was_never_read_and_stands_for_nothing_is_refused() -> None:
    tier = tier_of(a=20, b=20)
    delete(tier, B)

    with pytest.raises(NotFoundError, match="deleted for good"):
        Spark(tier, stream=f"{A},{B}").plan()
    assert len(Spark(tier, stream="__.*").all()) == 60


def test_another_stream_without_a_name_is_not_the_same_queue_declared_again() -> None:
    tier = tier_of(a=20, b=20)
    spark = Spark(tier, stream="__.*", maxOffsetsPerTrigger="30")
    spark.step()
    delete(tier, B)

    with pytest.raises(LostRangeError, match="was deleted before") as failed:
        spark.all()
    assert "declared again" not in str(failed.value)


@examples(0.3)
@given(st.integers(0, 2**32), st.sampled_from(NAMES), st.one_of(st.none(), st.integers(1, 90)))
def test_every_offset_is_read_or_told_exactly_once_whenever_a_stream_is_deleted(
    seed: int, names: str, max_offsets: int | None
) -> None:
    rng = random.Random(seed)
    tier = tier_of(a=rng.randrange(1, 30), b=rng.randrange(1, 30))
    limit = {} if max_offsets is None else {"maxOffsetsPerTrigger": str(max_offsets)}
    spark = Spark(tier, stream=names, failOnDataLoss="false", **limit)
    spark.plan()  # now the query knows both
    alive = {A, B}
    for _ in range(15):
        match rng.randrange(6):
            case 0 if len(alive) == 2 or (alive and rng.random() < 0.3):
                delete(tier, gone := rng.choice(sorted(alive)), sweep=rng.random() < 0.7)
                alive.remove(gone)
            case 1 if alive:
                grow(tier, rng.choice(sorted(alive)), rng.randrange(1, 8))
            case 2:
                spark.restart()
            case 3:
                spark.plan()
                spark.restart()
            case _:
                spark.step()
    spark.all()

    found: list[tuple[str, int]] = []
    for stream, offset, error in spark.rows:
        if error is None:
            found.append((stream, offset))
            continue
        match = re.match(r"offsets (\d+) to (\d+) are gone", error)
        assert match is not None
        assert int(match[1]) == offset
        found += [(stream, each) for each in range(offset, int(match[2]) + 1)]
    assert sorted(found) == [
        (stream, offset)
        for stream in (A, B)
        for offset in range(tier.catalog.items[stream].next_offset)
    ]


@pytest.mark.parametrize("strict", [True, False])
def test_a_stream_whose_objects_go_before_its_tombstone_is_final_was_deleted(strict: bool) -> None:
    tier = tier_of(a=20, b=20)
    given = {"maxOffsetsPerTrigger": "30", "failOnDataLoss": "true" if strict else "false"}
    spark = Spark(tier, stream=f"{A},{B}", **given)
    spark.step()
    end = len(read(spark, B))
    delete(tier, B)
    tier.catalog.items[B] = replace(tier.catalog.items[B], state=StreamState.DELETING)
    spark.restart()

    if strict:
        with pytest.raises(LostRangeError, match=f"the stream {B} was deleted"):
            spark.plan()
        return
    spark.all()
    ((stream, offset, error),) = told(spark)
    assert (stream, offset) == (B, end)
    assert f"the stream {B} was deleted" in error
    assert read(spark, A) == [*range(60)]


def test_a_query_that_begins_beyond_the_end_of_a_stream_is_told() -> None:
    tier = tier_of(a=20)

    with pytest.raises(LostRangeError, match="99 lies beyond the end, the next offset"):
        Spark(tier, stream=A, startingOffset="99").plan()
    spark = Spark(tier, stream=A, startingOffset="99", failOnDataLoss="false")
    spark.plan()
    grow(tier, A, 2)
    spark.all()
    assert read(spark, A) == [*range(60, 66)]
