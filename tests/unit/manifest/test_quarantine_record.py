"""The quarantine record: what it says, and that nobody can make it say something else."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.manifest.quarantine import (
    CLAIMED_TIMELINES,
    MAX_LISTED,
    MAX_RECORD_SIZE,
    MAX_TIMELINES,
    Dropped,
    ListedData,
    QuarantineRecord,
    Timeline,
    parse_record,
)
from coldstream.names import DataKey
from tests.golden.make import record_v1

RECORD = record_v1()


def key(first: int, next_offset: int, epoch: int) -> DataKey:
    return DataKey("s", first, next_offset, epoch, 1)


@pytest.mark.parametrize(
    "record", [QuarantineRecord(), RECORD, QuarantineRecord((Timeline(1, 0, 0),))]
)
def test_a_record_is_read_as_it_was_written(record: QuarantineRecord) -> None:
    assert parse_record(record.encode()) == record


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(version=0),
        lambda d: d.update(version=None),
        lambda d: d.update(more=1),
        lambda d: d.pop("dropped"),
        lambda d: d.update(timelines={}),
        lambda d: d.update(timelines=d["timelines"] * 2),
        lambda d: d.update(timelines=[1]),
        lambda d: d["timelines"][0].update(epoch=0),
        lambda d: d["timelines"][0].update(epoch=2**32),
        lambda d: d["timelines"][0].update(epoch=True),
        lambda d: d["timelines"][0].update(epoch="7"),
        lambda d: d["timelines"][0].update(floor=-1),
        lambda d: d["timelines"][0].update(floor=10**18),
        lambda d: d["timelines"][0].update(next_offset=2**64),
        lambda d: d["timelines"][0].update(root_key=None),
        lambda d: d["timelines"][0].update(root_key="k" * 1025),
        lambda d: d["timelines"][0].update(reason="r" * 2001),
        lambda d: d["timelines"][0].update(complete=1),
        lambda d: d["timelines"][0].update(created_ms=1.5),
        lambda d: d["timelines"][0].update(unknown=0),
        lambda d: d["timelines"][0].update(listed=[{"key": "k"}]),
        lambda d: d["timelines"][0].update(listed=[{"key": "k", "size": 0}] * (MAX_LISTED + 1)),
        lambda d: d["dropped"][0].update(until_ms=-1),
        lambda d: d["dropped"][0].pop("floor"),
        lambda d: d.update(dropped=[d["dropped"][0]] * 2),
    ],
)
def test_a_record_that_says_something_else_is_refused(
    change: Callable[[dict[str, Any]], Any],
) -> None:
    document = json.loads(RECORD.encode())
    change(document)

    with pytest.raises(CorruptDataError):
        parse_record(json.dumps(document).encode())


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b" " * (MAX_RECORD_SIZE + 1)]
)
def test_what_is_no_record_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        parse_record(data)


def test_a_cut_record_is_refused_wherever_it_is_cut() -> None:
    data = RECORD.encode()
    for end in range(0, len(data) - 2, 7):
        with pytest.raises(CorruptDataError):
            parse_record(data[:end])


def test_the_largest_record_that_a_claim_may_write_can_be_read() -> None:
    rows = tuple(ListedData("k" * 150 + f"{n:06d}", 2**40) for n in range(MAX_LISTED))
    record = QuarantineRecord((Timeline(1, 0, 5, listed=rows),))

    assert parse_record(record.encode()) == record


def test_a_record_that_would_grow_too_large_names_fewer_keys_and_says_so() -> None:
    rows = tuple(ListedData("k" * 150 + f"{n:06d}", 2**40) for n in range(MAX_LISTED))
    record = QuarantineRecord()
    for epoch in range(1, 20):
        record = record.with_timeline(Timeline(epoch, 0, 5, listed=rows))

    assert parse_record(record.encode()) == record
    assert [each.complete for each in record.timelines] == [True] * 5 + [False] * 14


def test_too_many_timelines_are_refused_before_anything_is_written() -> None:
    record = QuarantineRecord()
    for epoch in range(1, CLAIMED_TIMELINES + 1):
        record = record.with_timeline(Timeline(epoch, 0, 0))

    with pytest.raises(InvalidInputError, match=r"quarantine drop .*--timeline 1 --yes`"):
        record.with_timeline(Timeline(CLAIMED_TIMELINES + 1, 0, 0))
    assert parse_record(record.encode()) == record


def test_a_full_record_still_lets_a_timeline_be_replaced_and_be_given_up() -> None:
    record = QuarantineRecord(tuple(Timeline(n, 0, 0) for n in range(1, CLAIMED_TIMELINES + 1)))

    assert record.with_timeline(Timeline(5, 0, 9)).timeline(5) == Timeline(5, 0, 9)
    room = record.without(1, 0, until_ms=5)
    assert room.with_timeline(Timeline(CLAIMED_TIMELINES + 1, 0, 0)).timeline(CLAIMED_TIMELINES + 1)


def long_rows(epoch: int, count: int = MAX_LISTED) -> tuple[ListedData, ...]:
    keys = (DataKey("s" * 255, n, n + 1, epoch, n).path("rabbitmq/") for n in range(count))
    return tuple(ListedData(each, 64 << 20) for each in keys)


def test_a_claim_is_never_refused_because_of_the_size_of_the_record() -> None:
    record = QuarantineRecord()
    for epoch in range(1, 7):
        record = record.with_timeline(Timeline(epoch, 0, 1, listed=long_rows(epoch)))

    assert parse_record(record.encode()) == record
    assert [each.complete for each in record.timelines] == [True] * 4 + [False] * 2
    assert all(len(each.listed) == MAX_LISTED for each in record.timelines[:4])
    assert record.timelines[4].listed, "as much as there is room for"
    assert record.timelines[4].listed == long_rows(5)[: len(record.timelines[4].listed)]


def test_a_record_full_of_keys_has_room_for_every_timeline_and_for_giving_them_up() -> None:
    record = QuarantineRecord()
    for epoch in range(1, 6):
        record = record.with_timeline(Timeline(epoch, 0, 1, listed=long_rows(epoch)))
    last = (2**32 - 1, 10**17, "k" * 1024, 10**13, "r" * 2000)
    epoch, offset, key_, at, why = last
    more = (Timeline(epoch - n, offset, offset, key_, at, why) for n in range(995))
    record = QuarantineRecord.of([*record.timelines, *more], record.dropped)
    assert parse_record(record.encode()) == record

    for each in record.timelines[5:]:
        record = record.without(each.epoch, each.floor, until_ms=10**15)
    record = record.without(6, 0, until_ms=5)  # a claim that cut off nothing but strays

    assert parse_record(record.encode()) == record
    assert len(record.timelines) == 5


def test_keys_that_json_spells_longer_than_they_are_are_counted_as_they_are_written() -> None:
    rows = tuple(ListedData('\u20ac"' * 500 + str(n), n) for n in range(MAX_LISTED))

    record = QuarantineRecord().with_timeline(Timeline(1, 0, 1, listed=rows))

    assert parse_record(record.encode()) == record
    (timeline,) = record.timelines
    assert timeline.listed
    assert not timeline.complete


@pytest.mark.parametrize("filler", [b'{"":[]},', b"[],", b"{},", b'"",', b"[[],[]],", b'{"a":{}},'])
def test_a_hostile_record_is_refused_before_it_takes_much_memory(filler: bytes) -> None:
    begin = b'{"version":1,"dropped":[],"timelines":['
    end = b"{}]}"
    data = begin + filler * ((MAX_RECORD_SIZE - 100) // len(filler)) + end
    assert json.loads(begin + filler * 3 + end), "it would be read to its end"

    tracemalloc.start()
    with pytest.raises(CorruptDataError):
        parse_record(data)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert most < 2**20


def test_a_new_record_holds_all_of_the_one_before_it() -> None:
    record = RECORD.with_timeline(Timeline(9, 5, 6))

    assert record.timelines[:-1] == RECORD.timelines
    assert record.dropped == RECORD.dropped


def test_giving_up_moves_one_timeline_and_no_other() -> None:
    record = RECORD.without(7, 960, 99)

    assert record.timeline(7) is None
    assert [each.epoch for each in record.timelines] == [8]
    assert record.dropped == (*RECORD.dropped, Dropped(7, 960, 99))


def test_what_was_given_up_last_is_remembered_however_old_its_claim_is() -> None:
    before = tuple(Dropped(n + 10, 0, n) for n in range(MAX_TIMELINES))
    record = QuarantineRecord((Timeline(3, 0, 9),), before)

    record = record.without(3, 0, until_ms=10**6)

    assert record.dropped == (Dropped(3, 0, 10**6), *before[1:])
    assert parse_record(record.encode()) == record


DROPPED = QuarantineRecord(dropped=(Dropped(5, 60, 1000),))


@pytest.mark.parametrize(
    ("which", "modified_ms", "given_up"),
    [
        (key(60, 100, 1), 1000, True),
        (key(50, 61, 4), 0, True),
        (key(50, 60, 1), 0, False),  # it ends at the floor
        (key(60, 100, 5), 0, False),  # of the claim itself
        (key(60, 100, 1), 1001, False),  # came later
    ],
)
def test_given_up_is_what_the_floor_cut_off_and_what_was_there_then(
    which: DataKey, modified_ms: int, given_up: bool
) -> None:
    assert DROPPED.gives_up(which, modified_ms, iter([(1, 0), (5, 60)])) is given_up
    assert DROPPED.gives_up(which, modified_ms, iter([])) is given_up, "the record remembers"


def test_what_an_earlier_claim_cut_off_is_not_given_up_with_a_later_one() -> None:
    late = key(100, 120, 1)

    assert not DROPPED.gives_up(late, 0, iter([(1, 0), (3, 90), (5, 60)]))
    kept = QuarantineRecord((Timeline(3, 90, 200),), DROPPED.dropped)
    assert not kept.gives_up(late, 0, iter([]))
