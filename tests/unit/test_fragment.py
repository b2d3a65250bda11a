from __future__ import annotations

import itertools
import struct
import zlib
from dataclasses import replace
from typing import Any

import pytest

from coldstream.errors import CorruptDataError, UnknownVersionError
from coldstream.fragment import (
    HEADER,
    INDEX_HEADER,
    INDEX_RECORD_SIZE,
    TRAILER_SIZE,
    FragmentIndex,
    IndexRecord,
    Placement,
    build_trailer,
    check_against_key,
    encode_index,
    parse_trailer,
)
from coldstream_devkit.fragments import START_MS, build_fragment

#: Chunks of 10 records at 100, 110, .. 190; the clock falls at the third and the last.
FRAGMENT = build_fragment(
    100,
    195,
    epoch=7,
    floor=50,
    chunk_epochs=[5, 5, 6, 7],
    timestamps=[1000, 2000, 500, 3000, 3000, 3000, 3000, 3000, 3000, 900],
)


def test_a_fragment_says_what_it_was_built_from() -> None:
    trailer = FRAGMENT.trailer

    assert (trailer.first_offset, trailer.next_offset, trailer.records) == (100, 195, 95)
    assert (trailer.chunks, trailer.last_chunk_id) == (10, 190)
    assert (trailer.first_timestamp, trailer.last_timestamp) == (1000, 900)
    assert (trailer.min_timestamp, trailer.max_timestamp) == (500, 3000)
    assert (trailer.epoch, trailer.floor) == (7, 50)
    assert (trailer.first_chunk_epoch, trailer.last_chunk_epoch) == (5, 7)
    assert trailer.size == len(FRAGMENT.data)
    assert trailer.data_crc == zlib.crc32(FRAGMENT.chunks)
    assert trailer.encode() == FRAGMENT.data[-TRAILER_SIZE:]


def test_every_byte_of_a_fragment_is_constant_or_under_a_checksum() -> None:
    trailer = FRAGMENT.trailer

    assert FRAGMENT.data == b"".join(
        (HEADER, FRAGMENT.chunks, INDEX_HEADER, FRAGMENT.index_section[8:], trailer.encode())
    )


def test_a_trailer_is_found_at_the_end_of_any_suffix() -> None:
    for suffix in (FRAGMENT.data, FRAGMENT.data[-TRAILER_SIZE:], memoryview(FRAGMENT.data)):
        assert parse_trailer(suffix) == FRAGMENT.trailer


@pytest.mark.parametrize("size", [0, 1, TRAILER_SIZE - 1])
def test_a_suffix_too_short_for_a_trailer_is_refused(size: int) -> None:
    with pytest.raises(CorruptDataError):
        parse_trailer(FRAGMENT.data[len(FRAGMENT.data) - size :])


def test_a_trailer_of_a_later_version_is_refused_by_its_number() -> None:
    tail = bytearray(FRAGMENT.data[-TRAILER_SIZE:])
    tail[-12:-8] = struct.pack(">I", 2)
    tail[-8:-4] = struct.pack(">I", zlib.crc32(tail[:-8]))

    with pytest.raises(UnknownVersionError, match="version 2"):
        parse_trailer(tail)


@pytest.mark.parametrize(
    "lie",
    [
        {"first_offset": 195},
        {"first_offset": 300},
        {"next_offset": 100},
        {"next_offset": 99},
        {"records": 94},
        {"records": 0},
        {"chunks": 0},
        {"chunks": 11},
        {"chunks": 2**32 - 1},
        {"last_chunk_id": 99},
        {"last_chunk_id": 195},
        {"last_chunk_id": 101},
        {"index_size": 0},
        {"index_size": 2**63},
        {"index_position": 0},
        {"index_position": 2**63},
        {"data_size": 0},
        {"data_size": 2**63, "index_position": 2**63 + 8},
        {"data_size": 47, "index_position": 55},
        {"epoch": 0},
        {"epoch": 6},
        {"epoch": 2**32},
        {"first_chunk_epoch": 8},
        {"last_chunk_epoch": 4},
        {"last_chunk_epoch": 8},
        {"floor": 101},
        {"segment_offset": 101},
        {"min_timestamp": 1001},
        {"min_timestamp": 901},
        {"max_timestamp": 999},
        {"first_timestamp": 3001},
        {"last_timestamp": 499},
    ],
)
def test_a_trailer_that_contradicts_itself_is_refused_although_its_checksum_holds(
    lie: dict[str, int],
) -> None:
    with pytest.raises(CorruptDataError):
        parse_trailer(FRAGMENT.lying(**lie).data)


@pytest.mark.parametrize(
    "lie",
    [
        {"first_chunk_epoch": 4},
        {"last_timestamp": START_MS + 1, "max_timestamp": START_MS + 1},
    ],
)
def test_a_single_chunk_cannot_be_two(lie: dict[str, int]) -> None:
    single = build_fragment(0, 5, epoch=5)

    with pytest.raises(CorruptDataError):
        parse_trailer(single.lying(**lie).data)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"first_offset": 101}, "first offset"),
        ({"next_offset": 196}, "next offset"),
        ({"epoch": 8}, "epoch"),
    ],
)
def test_a_trailer_that_says_other_than_its_key_is_refused(
    change: dict[str, Any], words: str
) -> None:
    key = replace(FRAGMENT.key, **change)

    with pytest.raises(CorruptDataError, match=words) as caught:
        check_against_key(FRAGMENT.trailer, key, len(FRAGMENT.data))

    assert (caught.value.stream, caught.value.offset) == (key.stream, key.first_offset)


@pytest.mark.parametrize("size", [0, 1, len(FRAGMENT.data) - 1, len(FRAGMENT.data) + 1])
def test_an_object_of_another_size_than_its_trailer_says_is_refused(size: int) -> None:
    with pytest.raises(CorruptDataError, match="size"):
        check_against_key(FRAGMENT.trailer, FRAGMENT.key, size)


# The index.


def index() -> FragmentIndex:
    return FragmentIndex(FRAGMENT.index_section, FRAGMENT.trailer)


def test_an_index_gives_its_records_back() -> None:
    found = index()

    assert len(found) == 10
    assert found[0] == IndexRecord(100, 1000, 0)
    assert found[9].chunk_id == 190


@pytest.mark.parametrize(
    ("offset", "number"), [(0, 0), (99, 0), (100, 0), (109, 0), (110, 1), (194, 9), (500, 9)]
)
def test_an_offset_is_in_the_last_chunk_that_begins_at_or_below_it(
    offset: int, number: int
) -> None:
    assert index().chunk_of_offset(offset) == number


def test_ranges_of_chunks_tile_the_data() -> None:
    found = index()
    ranges = [found.data_range(number, number) for number in range(len(found))]

    assert ranges[0][0] == len(HEADER)
    assert ranges[-1][1] == FRAGMENT.trailer.index_position
    assert all(a[1] == b[0] for a, b in itertools.pairwise(ranges))
    assert found.data_range(0, 9) == (len(HEADER), FRAGMENT.trailer.index_position)


def test_a_position_is_mapped_to_the_first_chunk_at_or_after_it() -> None:
    found = index()

    assert found.chunk_at_position(0) == 0
    assert found.chunk_at_position(1) == 1
    assert found.chunk_at_position(found[1].position) == 1
    assert found.chunk_at_position(2**40) == 10


def _with_index(records: list[IndexRecord], **lies: int) -> FragmentIndex:
    section = encode_index(records)
    lying = FRAGMENT.lying(index_crc=zlib.crc32(section), **lies)
    return FragmentIndex(INDEX_HEADER + section, lying.trailer)


def _records() -> list[IndexRecord]:
    found = index()
    return [found[number] for number in range(10)]


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (0, {"chunk_id": 99}),
        (0, {"chunk_id": 101}),
        (0, {"position": 1}),
        (3, {"chunk_id": 120}),
        (3, {"chunk_id": 140}),
        (3, {"position": 0}),
        (3, {"position": 2**32 - 1}),
        (9, {"chunk_id": 191}),
        (9, {"position": 2**32 - 1}),
    ],
)
def test_index_records_out_of_order_or_outside_the_data_are_refused_although_the_crc_holds(
    number: int, change: dict[str, int]
) -> None:
    records = _records()
    records[number] = replace(records[number], **change)

    with pytest.raises(CorruptDataError):
        _with_index(records)


@pytest.mark.parametrize(
    ("number", "timestamp"), [(0, 1001), (9, 901), (4, 3001), (4, 499), (4, -(2**63))]
)
def test_index_timestamps_that_the_trailer_denies_are_refused(number: int, timestamp: int) -> None:
    # A reader skips whole fragments by the trailer's minimum and maximum, and trusts both.
    records = _records()
    records[number] = replace(records[number], timestamp=timestamp)

    with pytest.raises(CorruptDataError):
        _with_index(records)


@pytest.mark.parametrize("cut", [1, 8, INDEX_RECORD_SIZE, 208])
def test_an_index_section_of_another_length_is_refused(cut: int) -> None:
    with pytest.raises(CorruptDataError):
        FragmentIndex(FRAGMENT.index_section[:-cut], FRAGMENT.trailer)
    with pytest.raises(CorruptDataError):
        FragmentIndex(FRAGMENT.index_section + bytes(cut), FRAGMENT.trailer)


@pytest.mark.parametrize("length", [0, 1, 19, 21])
def test_a_trailer_is_not_built_over_no_or_half_an_index_record(length: int) -> None:
    with pytest.raises(CorruptDataError):
        build_trailer(
            placement=Placement(1, 0, 0, 0, 8),
            index=bytes(length),
            next_offset=10,
            first_chunk_epoch=1,
            last_chunk_epoch=1,
            data_size=100,
            data_crc=0,
        )
