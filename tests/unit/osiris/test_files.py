"""Segment and index files."""

from __future__ import annotations

import numpy as np
import pytest

from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.osiris import (
    INDEX_DTYPE,
    INDEX_HEADER,
    SEGMENT_HEADER,
    SEGMENT_MAGIC,
    check_index,
    check_segment_header,
    index_records,
    parse_segment_name,
    segment_name,
)

GOOD = [(5, 100, 1, 8, 0), (7, 90, 1, 108, 1), (8, 110, 2, 208, 2)]


def index_of(rows: list[tuple[int, ...]]) -> bytes:
    return INDEX_HEADER + np.array(rows, INDEX_DTYPE).tobytes()


def test_headers_are_those_of_the_format() -> None:
    assert SEGMENT_MAGIC == b"OSIL"
    assert SEGMENT_HEADER == b"OSIL\0\0\0\1"
    assert INDEX_HEADER == b"OSII\0\0\0\1"
    assert INDEX_DTYPE.itemsize == 29
    check_segment_header(SEGMENT_HEADER + b"more")


@pytest.mark.parametrize("found", [b"", b"OSIL\0\0\0", b"OSII\0\0\0\1", b"OSIL\0\0\0\2", bytes(8)])
def test_a_file_that_is_no_segment_is_refused(found: bytes) -> None:
    with pytest.raises(CorruptDataError):
        check_segment_header(found)


@pytest.mark.parametrize("found", [b"", b"OSII\0\0\0", b"OSIL\0\0\0\1", b"OSII\0\0\0\2", bytes(8)])
def test_a_file_that_is_no_index_is_refused(found: bytes) -> None:
    with pytest.raises(CorruptDataError):
        index_records(found)


@pytest.mark.parametrize("offset", [0, 1, 2**63, 2**64 - 1])
def test_segment_names_come_back(offset: int) -> None:
    assert parse_segment_name(segment_name(offset)) == offset
    assert len(segment_name(offset)) == 28


@pytest.mark.parametrize(
    "name",
    [
        "", "1.segment", "00000000000000000001.index", "0000000000000000000a.segment",
        "18446744073709551616.segment", "../0000000000000000001.segment",
        "00000000000000000001.segment\n", "٠0000000000000000001.segment",
    ],
)  # fmt: skip
def test_other_names_are_no_segments(name: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_segment_name(name)


@pytest.mark.parametrize("offset", [-1, 2**64])
def test_no_segment_begins_outside_of_all_offsets(offset: int) -> None:
    with pytest.raises(InvalidInputError):
        segment_name(offset)


@pytest.mark.parametrize("extra", range(30))
def test_an_index_record_that_is_being_written_is_left_out(extra: int) -> None:
    content = index_of(GOOD)
    whole = 1 if extra == 29 else 0

    assert len(index_records(content + bytes(extra))) == 3 + whole


def test_records_are_a_view_without_a_copy() -> None:
    content = bytearray(index_of(GOOD))
    records = index_records(content)

    content[15] = 6

    assert records["offset"][0] == 6
    assert records.base is not None


def test_records_that_can_be_true_pass() -> None:
    check_index(index_records(index_of(GOOD)), first_offset=5)
    check_index(index_records(index_of(GOOD))[1:])
    check_index(index_records(INDEX_HEADER))
    # Unsigned: no wrap-around at the limits.
    check_index(index_records(index_of([(0, 0, 0, 8, 0), (2**64 - 1, 0, 2**64 - 1, 2**32 - 1, 0)])))


@pytest.mark.parametrize(
    ("at", "row"),
    [
        (1, (5, 90, 1, 108, 1)),  # offset stays
        (1, (4, 90, 1, 108, 1)),  # offset falls
        (1, (7, 90, 1, 8, 1)),  # position stays
        (1, (7, 90, 1, 55, 1)),  # too near for a chunk between
        (2, (8, 110, 0, 208, 2)),  # epoch falls
        (1, (7, 90, 1, 108, 3)),  # type is not known
        (0, (5, 100, 1, 8, 9)),  # type of the very first
        (0, (5, 100, 1, 7, 0)),  # position in the file's header
    ],
)
def test_records_that_cannot_be_true_are_refused_at_their_offset(
    at: int, row: tuple[int, ...]
) -> None:
    rows: list[tuple[int, ...]] = [*GOOD]
    rows[at] = row

    with pytest.raises(CorruptDataError, match=f"index record {at} ") as caught:
        check_index(index_records(index_of(rows)))

    assert caught.value.offset == row[0]


def test_an_index_of_another_segment_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="has offset 5"):
        check_index(index_records(index_of(GOOD)), first_offset=6)
