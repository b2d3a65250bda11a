from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import CorruptDataError, InternalError
from coldstream.manifest.entries import ENTRY_SIZE, MAX_SIZE, Entries, Entry, EntryKind


def entry(first: int, next_offset: int, low: int = 0, high: int = 0, **more: int) -> Entry:
    values = {"size": 1000, "records": next_offset - first, "epoch": 1, "uid": first, **more}
    kind = EntryKind(values.pop("kind", EntryKind.FRAGMENT))
    return Entry(first, next_offset, low, high, kind, **values)


TILES = Entries.of(
    [entry(100, 110, 5, 9), entry(110, 200, 2, 4), entry(200, 201, 6, 20), entry(201, 300, 7, 8)]
)


def test_entries_come_back_as_they_were() -> None:
    greatest = Entry(
        2**64 - 2, 2**64 - 1, -(2**63), 2**63 - 1, EntryKind.HOLE, MAX_SIZE, 2**32 - 1, 2**32 - 1,
        2**64 - 1,
    )  # fmt: skip

    assert list(Entries.of([greatest])) == [greatest]
    assert Entries(bytes(TILES)) == TILES
    assert [each.first_offset for each in TILES] == [100, 110, 200, 201]
    assert TILES[-1] == TILES[3]
    assert len(bytes(TILES)) == 4 * ENTRY_SIZE


@pytest.mark.parametrize("number", [4, -5, 1000])
def test_an_entry_that_is_not_there_is_an_index_error(number: int) -> None:
    with pytest.raises(IndexError):
        TILES[number]


@pytest.mark.parametrize(
    ("offset", "number"),
    [(0, None), (99, None), (100, 0), (109, 0), (110, 1), (199, 1), (200, 2), (201, 3), (299, 3),
     (300, None), (2**64 - 1, None)],
)  # fmt: skip
def test_an_offset_is_in_the_entry_that_contains_it(offset: int, number: int | None) -> None:
    assert TILES.number_of_offset(offset) == number


@pytest.mark.parametrize(("timestamp", "number"), [(-1, 0), (9, 0), (10, 2), (20, 2), (21, None)])
def test_a_time_is_in_the_first_entry_that_reaches_it_although_maxima_fall(
    timestamp: int, number: int | None
) -> None:
    assert TILES.number_of_timestamp(timestamp) == number


def test_no_entries_contain_nothing() -> None:
    assert Entries().number_of_offset(0) is None
    assert Entries().number_of_timestamp(0) is None
    assert list(Entries()) == []


@pytest.mark.parametrize(
    "broken",
    [
        [entry(0, 10), entry(11, 20)],
        [entry(0, 10), entry(9, 20)],
        [entry(0, 10), entry(0, 10)],
        [entry(10, 20), entry(0, 10)],
        [entry(10, 10)],
        [entry(10, 9, records=1)],
        [entry(0, 1, 5, 4)],
    ],
)
def test_entries_that_do_not_tile_are_refused(broken: list[Entry]) -> None:
    with pytest.raises(CorruptDataError):
        Entries.of(broken)


@pytest.mark.parametrize("size", [1, ENTRY_SIZE - 1, ENTRY_SIZE + 1])
def test_a_cut_entry_is_refused(size: int) -> None:
    with pytest.raises(CorruptDataError):
        Entries(bytes(TILES)[:size])


def test_an_entry_of_an_unknown_kind_is_refused() -> None:
    data = bytearray(bytes(TILES))
    data[32] = 5

    with pytest.raises(CorruptDataError, match="kind"):
        Entries(bytes(data))


def test_a_run_that_does_not_join_cannot_be_appended() -> None:
    for wrong in (entry(301, 310), entry(299, 310), entry(0, 1)):
        with pytest.raises(CorruptDataError):
            TILES.appended([wrong])

    assert TILES.appended([]) == TILES
    assert list(TILES.appended([entry(300, 301)]))[-1] == entry(300, 301)


@pytest.mark.parametrize("size", [2**56, -1])
def test_a_size_that_does_not_fit_never_turns_into_another_kind(size: int) -> None:
    with pytest.raises(InternalError):
        replace(entry(0, 1), size=size).encode()


def test_only_fragments_and_holes_are_data_objects() -> None:
    assert entry(0, 1, kind=EntryKind.HOLE).data_key("__s_1").kind == "hole"
    assert entry(0, 1).data_key("__s_1").kind == "fragment"
    for kind in (EntryKind.GROUP, EntryKind.KILO_GROUP, EntryKind.MEGA_GROUP):
        with pytest.raises(InternalError):
            entry(0, 1, kind=kind).data_key("__s_1")


def test_numpy_sees_the_same_entries() -> None:
    array = TILES.array()

    for row, each in zip(array, TILES, strict=True):
        assert int(row["first_offset"]) == each.first_offset
        assert int(row["next_offset"]) == each.next_offset
        assert (int(row["min_timestamp"]), int(row["max_timestamp"])) == (
            each.min_timestamp,
            each.max_timestamp,
        )
        assert int(row["kind_size"]) == each.kind << 56 | each.size
        assert (int(row["records"]), int(row["epoch"]), int(row["uid"])) == (
            each.records,
            each.epoch,
            each.uid,
        )
    assert array.dtype.itemsize == ENTRY_SIZE


def test_a_summary_says_what_a_look_at_each_entry_would() -> None:
    mixed = Entries.of(
        [
            entry(0, 50, 3, 90, kind=EntryKind.MEGA_GROUP, size=MAX_SIZE, records=2**32 - 1),
            entry(50, 60, -7, 2, kind=EntryKind.GROUP, size=MAX_SIZE, records=17, epoch=9),
            entry(60, 70, 5, 5, kind=EntryKind.HOLE, size=0, records=10),
            entry(70, 80, 5, 6, size=12, records=10),
        ]
    )

    summary = mixed.summary()

    assert summary.size == sum(each.size for each in mixed) == 2 * MAX_SIZE + 12
    assert summary.fragments == sum(each.fragments for each in mixed) == 2**32 - 1 + 17 + 2
    assert (summary.min_timestamp, summary.max_timestamp) == (-7, 90)
    assert summary.epoch == 9
    assert summary.levels == {0, 1, 3}


def test_a_summary_of_nothing_is_nothing() -> None:
    summary = Entries().summary()

    assert (summary.size, summary.fragments, summary.epoch, summary.levels) == (0, 0, 0, set())
