from __future__ import annotations

import struct

import pytest

from coldstream.errors import CorruptDataError
from coldstream.osiris import (
    CHUNK_HEADER_SIZE,
    Chunk,
    ChunkHeader,
    chunk_at,
    iter_chunks,
    parse_chunk_header,
)
from coldstream_devkit.generator import build_chunk

FIRST = build_chunk(100, 2, 1_000, [b"one", b"two"], bloom=bytes(16), trailer=b"trailer")
SECOND = build_chunk(102, 2, 1_001, [b"three"])
BOTH = FIRST + SECOND


def changed(position: int, value: bytes) -> bytes:
    return FIRST[:position] + value + FIRST[position + len(value) :]


def test_sections_lie_where_the_header_says() -> None:
    (chunk, _) = iter_chunks(BOTH)

    assert chunk.header.size == len(FIRST)
    assert chunk.header.data_position == 48 + 16
    assert chunk.header.next_offset == 102
    assert bytes(chunk.bloom) == bytes(16)
    assert bytes(chunk.data) == b"\0\0\0\3one\0\0\0\3two"
    assert bytes(chunk.trailer) == b"trailer"
    assert bytes(chunk.buffer) == FIRST


def test_chunks_are_views_without_a_copy() -> None:
    content = bytearray(BOTH)
    chunk = next(iter_chunks(content))

    content[48 + 16 + 4] = ord("O")

    assert bytes(chunk.data[4:7]) == b"One"


@pytest.mark.parametrize("size", range(CHUNK_HEADER_SIZE))
def test_a_header_that_is_cut_is_refused(size: int) -> None:
    with pytest.raises(CorruptDataError, match="too few bytes"):
        parse_chunk_header(FIRST[:size])


@pytest.mark.parametrize("position", [-1, 49, 10**9])
def test_a_position_outside_of_the_bytes_is_refused(position: int) -> None:
    with pytest.raises(CorruptDataError):
        parse_chunk_header(FIRST[:96], position)


@pytest.mark.parametrize(
    ("position", "value", "why"),
    [
        (0, b"\x51", "begins with byte 0x50, not with 0x51"),
        (0, b"\x00", "begins with byte"),
        (1, b"\x03", "type 3"),
        (2, b"\0\0", "0 entries"),
        (4, bytes(4), "0 records"),
        (4, struct.pack(">I", 1), "2 entries and 1 records"),
        (24, struct.pack(">Q", 2**64 - 2), "2 entries and 2 records"),
    ],
)
def test_a_header_that_cannot_be_true_is_refused(position: int, value: bytes, why: str) -> None:
    with pytest.raises(CorruptDataError, match=why):
        parse_chunk_header(changed(position, value))


def test_a_flipped_bit_in_the_data_fails_the_crc_and_names_the_offset() -> None:
    chunk = next(iter_chunks(changed(48 + 16 + 5, b"X")))

    with pytest.raises(CorruptDataError, match="CRC") as caught:
        chunk.check_crc()

    assert caught.value.offset == 100


def test_the_crc_does_not_cover_header_filter_and_trailer() -> None:
    for position in (8, 48, len(FIRST) - 1):
        next(iter_chunks(changed(position, b"\x07"))).check_crc()


@pytest.mark.parametrize("cut", range(1, len(SECOND)))
def test_a_torn_tail_is_found_after_the_whole_chunks_and_names_where_they_end(cut: int) -> None:
    chunks = iter_chunks(BOTH[:-cut])
    assert next(chunks).header.chunk_id == 100

    with pytest.raises(CorruptDataError, match="torn") as caught:
        next(chunks)

    assert caught.value.offset == 102
    assert f"byte {len(FIRST)}" in caught.value.reason


def test_an_end_inside_a_chunk_is_a_torn_tail() -> None:
    with pytest.raises(CorruptDataError, match="torn"):
        list(iter_chunks(BOTH, 0, len(FIRST) + 47))


@pytest.mark.parametrize(("start", "end"), [(1, 0), (-1, None), (10**6, None), (0, 10**6)])
def test_a_range_that_is_not_there_is_refused(start: int, end: int | None) -> None:
    with pytest.raises(CorruptDataError):
        list(iter_chunks(BOTH, start, end))


def test_nothing_holds_no_chunks() -> None:
    assert list(iter_chunks(b"")) == []
    assert list(iter_chunks(BOTH, len(BOTH))) == []


def test_a_chunk_is_found_at_its_position() -> None:
    chunk = chunk_at(memoryview(BOTH), len(FIRST), len(BOTH))

    assert chunk == Chunk(parse_chunk_header(SECOND), memoryview(SECOND))


def test_a_header_at_the_limits_of_every_field_comes_back() -> None:
    header = ChunkHeader(
        2, 0xFFFF, 2**32 - 1, -(2**63), 2**64 - 1, 2**64 - 2**32, 2**32 - 1, 2**32 - 1,
        2**32 - 1, 255,
    )  # fmt: skip

    assert parse_chunk_header(header.encode()) == header
    assert header.next_offset == 2**64 - 1
