"""An erased message keeps its offset and its length, and nothing of what was in it."""

from __future__ import annotations

import zlib

import pytest

from coldstream.errors import CorruptDataError
from coldstream.osiris.amqp import BodyKind, decode_message, encode_data
from coldstream.osiris.blank import (
    MARKED_FROM,
    Erased,
    blank_chunk,
    blank_message,
    differs_by_erasure_alone,
    is_blank,
)
from coldstream.osiris.chunk import Chunk, ChunkHeader, ChunkType, iter_chunks
from coldstream.osiris.entry import Codec, encode_simple, encode_sub_batch, iter_messages
from tests.support.tier import FIXTURES, segments_of

SECRET = b"alice@example.org"
BODIES = [b"first", SECRET * 3, encode_data(b"third " * 9), b"fourth " * 7]


def of(*offsets: int, epoch: int = 3) -> Erased:
    return Erased.of((each, each + 1, epoch) for each in offsets)


def chunk_of(entries: list[bytes], records: int, *, first: int = 100, bloom: bytes = b"") -> Chunk:
    data = b"".join(entries)
    header = ChunkHeader(
        ChunkType.USER, len(entries), records, 1000, 3, first, zlib.crc32(data), len(data), 5,
        len(bloom),
    )  # fmt: skip
    whole = header.encode()[:-3] + b"xyz" + bloom + data + b"TRAIL"
    return Chunk(header, memoryview(whole))


@pytest.mark.parametrize("size", [*range(30), 255, 256, 277, 278, 279, 300, 65_600])
def test_a_blank_has_every_length_and_is_an_amqp_message_where_one_has_room(size: int) -> None:
    blank = blank_message(size)

    assert len(blank) == size
    assert is_blank(blank)
    if size >= 5:
        message = decode_message(blank)
        assert message.body_kind is BodyKind.DATA
        assert not message.data.strip(b"\0")
        marked = {"x-erased": True} if size >= MARKED_FROM else None
        assert message.message_annotations == marked
    else:
        assert blank == bytes(size)


def test_the_shortest_marked_blank_is_as_the_format_says() -> None:
    assert MARKED_FROM == 22


def test_simple_entries_keep_their_length_and_the_chunk_its_size_and_all_around_the_data() -> None:
    chunk = chunk_of([encode_simple(each) for each in BODIES], 4, bloom=b"\x40" * 16)

    blank = blank_chunk(chunk, of(101, 999))

    (parsed,) = iter_chunks(blank.buffer)
    parsed.check_crc()
    assert len(blank.buffer) == len(chunk.buffer)
    assert parsed.bloom == chunk.bloom
    assert parsed.trailer == chunk.trailer
    assert bytes(blank.buffer[45:48]) == b"xyz"
    assert [bytes(each) for each in iter_messages(parsed)] == [
        BODIES[0], blank_message(len(BODIES[1])), *BODIES[2:],
    ]  # fmt: skip
    assert SECRET not in bytes(blank.buffer)


@pytest.mark.parametrize("codec", Codec)
def test_a_message_in_a_sub_batch_of_any_codec_is_erased_and_the_others_stay(codec: Codec) -> None:
    chunk = chunk_of([encode_sub_batch(BODIES, codec), encode_simple(b"after")], 5)

    blank = blank_chunk(chunk, of(101))

    (parsed,) = iter_chunks(blank.buffer)
    parsed.check_crc()
    assert parsed.header.records == 5
    assert [bytes(each) for each in iter_messages(parsed)] == [
        BODIES[0], blank_message(len(BODIES[1])), *BODIES[2:], b"after",
    ]  # fmt: skip


@pytest.mark.parametrize("codec", Codec)
def test_what_is_blank_is_the_very_same_chunk_so_an_erasure_twice_is_one(codec: Codec) -> None:
    once = blank_chunk(chunk_of([encode_sub_batch(BODIES, codec)], 4), of(101, 103))

    assert blank_chunk(once, of(101, 103)) is once


def test_a_chunk_with_no_erased_offset_and_one_of_tracking_data_stay_as_they_are() -> None:
    chunk = chunk_of([encode_simple(each) for each in BODIES], 4)
    tracking = ChunkHeader(ChunkType.TRACKING_DELTA, 1, 1, 1000, 3, 100, 0, 0, 0, 0)

    assert blank_chunk(chunk, of(99, 104)) is chunk
    kept = Chunk(tracking, memoryview(tracking.encode()))
    assert blank_chunk(kept, of(100)) is kept


def test_another_message_at_the_offset_in_a_chunk_of_another_epoch_is_not_touched() -> None:
    """After a fail-over that lost data: nobody has asked to erase what came in its place."""
    chunk = chunk_of([encode_simple(each) for each in BODIES], 4)

    assert blank_chunk(chunk, of(101, epoch=2)) is chunk
    assert blank_chunk(chunk, of(101, epoch=0)) is chunk


def test_a_damaged_entry_is_an_error_that_names_its_offset() -> None:
    sub_batch = bytearray(encode_sub_batch(BODIES, Codec.ZSTD))
    sub_batch[-3] ^= 0xFF
    chunk = chunk_of([encode_simple(b"sound"), bytes(sub_batch)], 5)

    with pytest.raises(CorruptDataError) as raised:
        blank_chunk(chunk, of(102))

    assert raised.value.offset == 101


def test_a_writers_chunk_and_an_erased_one_differ_by_erasure_alone() -> None:
    own = chunk_of([encode_sub_batch(BODIES, Codec.LZ4), encode_simple(b"0" * 40)], 5)
    blank = blank_chunk(own, of(101, 104))

    assert differs_by_erasure_alone(own, own, of())
    assert differs_by_erasure_alone(own, blank, of(101, 104))
    assert not differs_by_erasure_alone(own, blank, of(101))


def test_another_message_in_the_place_of_an_erased_one_is_a_forgery() -> None:
    own = chunk_of([encode_simple(each) for each in BODIES], 4)
    forged = chunk_of([encode_simple(each) for each in (BODIES[0], b"x" * 51, *BODIES[2:])], 4)

    assert not differs_by_erasure_alone(own, forged, of(101))


@pytest.mark.parametrize("name", [each for each in FIXTURES if "4.3.6" in each])
def test_every_message_of_brokers_files_can_be_erased(name: str) -> None:
    for chunk in (iter_chunks(each) for segment in segments_of(name) for each in segment):
        (own,) = chunk
        if own.header.chunk_type != ChunkType.USER:
            continue
        header = own.header
        everything = Erased.of([(header.chunk_id, header.next_offset, header.epoch)])

        (blank,) = iter_chunks(blank_chunk(own, everything).buffer)

        blank.check_crc()
        assert [len(each) for each in iter_messages(blank)] == [
            len(each) for each in iter_messages(own)
        ]
        assert all(is_blank(each) for each in iter_messages(blank))
        assert differs_by_erasure_alone(own, blank, everything)
