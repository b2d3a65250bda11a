"""What is encoded decodes to itself, and damage is found or shows in the field it hit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import CorruptDataError
from coldstream.osiris import (
    CHUNK_HEADER_SIZE,
    Chunk,
    ChunkType,
    Codec,
    FilterMatcher,
    Tracked,
    TrackingType,
    decode_message,
    encode_bloom,
    encode_data,
    encode_simple,
    encode_sub_batch,
    index_records,
    iter_chunks,
    iter_messages,
    iter_records,
    parse_tracking,
    to_jsonable,
)
from coldstream.osiris.entry import inflate
from coldstream.osiris.tracking import encode_tracked
from coldstream_devkit.generator import build_chunk, join_chunk
from tests.support.examples import examples

bodies = st.lists(st.binary(max_size=200), min_size=1, max_size=20)
batches = st.lists(st.tuples(st.sampled_from([None, *Codec]), bodies), min_size=1, max_size=6)
u64 = st.integers(0, 2**64 - 1)


def entries_of(batches: list[tuple[Codec | None, list[bytes]]]) -> tuple[list[bytes], list[bytes]]:
    entries: list[bytes] = []
    expected: list[bytes] = []
    for codec, messages in batches:
        if codec is None:
            entries += [encode_simple(each) for each in messages]
        else:
            entries.append(encode_sub_batch(messages, codec))
        expected += messages
    return entries, expected


@given(
    batches=batches,
    chunk_id=st.integers(0, 2**64 - 1000),
    epoch=u64,
    timestamp=st.integers(-(2**63), 2**63 - 1),
    filters=st.sets(st.binary(max_size=40), max_size=5),
    filter_size=st.integers(16, 255),
    tracked=st.lists(
        st.builds(Tracked, st.sampled_from(TrackingType), st.binary(max_size=255), u64), max_size=3
    ),
)
def test_chunks_of_every_codec_come_back(
    batches: list[tuple[Codec | None, list[bytes]]],
    chunk_id: int,
    epoch: int,
    timestamp: int,
    filters: set[bytes],
    filter_size: int,
    tracked: list[Tracked],
) -> None:
    entries, expected = entries_of(batches)
    bloom = encode_bloom(filters, filter_size)
    trailer = b"".join(map(encode_tracked, tracked))
    built = join_chunk(
        chunk_id, epoch, timestamp, entries, len(expected), bloom=bloom, trailer=trailer
    )

    chunk, again = iter_chunks(built + built)
    chunk.check_crc()
    header = chunk.header

    assert [(at, bytes(body)) for at, body in iter_records(chunk)] == [
        *enumerate(expected, chunk_id)
    ]
    assert (header.chunk_id, header.epoch, header.timestamp) == (chunk_id, epoch, timestamp)
    assert header.next_offset == chunk_id + len(expected)
    assert header.size == len(built)
    assert parse_tracking(chunk) == tuple(tracked)
    assert bytes(chunk.bloom) == bloom
    assert all(FilterMatcher((each,), match_unfiltered=not each).matches(bloom) for each in filters)
    assert again == chunk


def decoded(chunk: Chunk) -> list[bytes]:
    return [bytes(body) for body in iter_messages(chunk)]


@given(batches=batches, data=st.data())
def test_a_flipped_bit_is_found_or_shows_in_the_field_it_hit(
    batches: list[tuple[Codec | None, list[bytes]]], data: st.DataObject
) -> None:
    entries, expected = entries_of(batches)
    built = join_chunk(9, 2, 1_000, entries, len(expected), bloom=bytes(16), trailer=b"t" * 12)
    bit = data.draw(st.integers(0, len(built) * 8 - 1))
    damaged = bytearray(built)
    damaged[bit >> 3] ^= 1 << (bit & 7)
    (original,) = iter_chunks(built)

    try:
        (chunk,) = iter_chunks(damaged)
        chunk.check_crc()
        found = decoded(chunk) if chunk.header.chunk_type == ChunkType.USER else None
    except CorruptDataError:
        return

    # Only the data has a CRC. What got through has good messages and differs elsewhere.
    where = bit >> 3
    in_data = original.header.data_position <= where
    in_data &= where < original.header.data_position + original.header.data_size
    assert not in_data
    assert found in (expected, None)
    reserved = 45 <= where < CHUNK_HEADER_SIZE
    differs = (
        chunk.header != original.header
        or chunk.bloom != original.bloom
        or chunk.trailer != original.trailer
    )
    assert differs or reserved


@given(batches=batches, data=st.data())
def test_a_flipped_bit_that_no_crc_was_asked_about_never_does_worse_than_an_error(
    batches: list[tuple[Codec | None, list[bytes]]], data: st.DataObject
) -> None:
    entries, expected = entries_of(batches)
    damaged = bytearray(join_chunk(9, 2, 1_000, entries, len(expected)))
    for _ in range(data.draw(st.integers(1, 4))):
        bit = data.draw(st.integers(0, len(damaged) * 8 - 1))
        damaged[bit >> 3] ^= 1 << (bit & 7)

    try:
        for chunk in iter_chunks(damaged):
            parse_tracking(chunk)
            found = decoded(chunk)
            assert len(found) == chunk.header.records
    except CorruptDataError:
        pass


@given(batches=batches, data=st.data())
def test_a_chunk_that_is_cut_anywhere_is_refused(
    batches: list[tuple[Codec | None, list[bytes]]], data: st.DataObject
) -> None:
    entries, expected = entries_of(batches)
    built = join_chunk(9, 2, 1_000, entries, len(expected))
    size = data.draw(st.integers(1, len(built) - 1))

    try:
        list(iter_chunks(built[:size]))
    except CorruptDataError:
        return
    raise AssertionError("a chunk that was cut is no chunk")


@given(content=st.binary(max_size=300), codec=st.integers(1, 4), size=st.integers(0, 2**32 - 1))
def test_any_bytes_inflate_to_the_declared_size_or_are_refused(
    content: bytes, codec: int, size: int
) -> None:
    for declared in (size, size % 1000):
        try:
            found = inflate(content, codec, declared)
        except CorruptDataError:
            continue
        assert len(found) == declared


@given(content=st.binary(max_size=400), entries=st.integers(1, 20), more=st.integers(0, 40))
def test_any_bytes_are_entries_or_are_refused(content: bytes, entries: int, more: int) -> None:
    built = bytearray(build_chunk(0, 1, 1, [content]))
    data = built[52:]
    whole = join_chunk(0, 1, 1, [bytes(data), *[b""] * (entries - 1)], entries + more)

    try:
        (chunk,) = iter_chunks(whole)
        assert len(decoded(chunk)) == entries + more
    except CorruptDataError:
        pass


@given(content=st.binary(max_size=300), kind=st.sampled_from(ChunkType))
def test_any_bytes_are_tracking_or_are_refused(content: bytes, kind: ChunkType) -> None:
    trailer = content if kind is ChunkType.USER else b""
    (chunk,) = iter_chunks(build_chunk(0, 1, 1, [content], chunk_type=kind, trailer=trailer))

    try:
        found = parse_tracking(chunk)
    except CorruptDataError:
        return
    assert b"".join(map(encode_tracked, found)) == content


@given(content=st.binary(max_size=300))
def test_any_bytes_are_chunks_or_are_refused(content: bytes) -> None:
    for start in (b"", b"\x50\x00\x00\x01\x00\x00\x00\x01"):
        try:
            found = list(iter_chunks(start + content))
        except CorruptDataError:
            continue
        assert b"".join(each.buffer for each in found) == start + content


@given(content=st.binary(max_size=300))
def test_any_bytes_behind_its_header_are_an_index(content: bytes) -> None:
    records = index_records(b"OSII\0\0\0\1" + content)

    assert len(records) == len(content) // 29
    assert records.tobytes() == content[: len(records) * 29]


amqp_bytes = st.one_of(
    st.binary(max_size=100),
    # Likely format codes and small sizes, so that more than the first byte is looked at.
    st.lists(
        st.sampled_from(
            [0, 1, 2, 3, 5, 0x40, 0x41, 0x45, 0x50, 0x53, 0x70, 0x74, 0x75, 0x77, 0x83, 0xA0, 0xA1,
             0xA3, 0xB0, 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0, 0xFF]
        ),
        max_size=60,
    ).map(bytes),
)  # fmt: skip


@examples(5)
@given(content=amqp_bytes, section=st.integers(0x70, 0x78))
def test_any_bytes_are_a_message_or_are_refused(content: bytes, section: int) -> None:
    for wire in (content, b"\x00\x53" + bytes([section]) + content):
        try:
            message = decode_message(wire)
        except CorruptDataError:
            continue
        to_jsonable(message)


@given(payload=st.binary(max_size=1000))
def test_payloads_come_back_from_messages(payload: bytes) -> None:
    assert decode_message(encode_data(payload)).data == payload
