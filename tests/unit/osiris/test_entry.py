from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.osiris import (
    Chunk,
    Codec,
    encode_simple,
    encode_sub_batch,
    iter_chunks,
    iter_messages,
    iter_records,
)
from coldstream.osiris.entry import inflate, sub_batch_bodies
from coldstream_devkit.generator import join_chunk

BODIES = [b"a", b"", b"ccc" * 100]
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def chunk_of(entries: list[bytes], records: int, **more: Any) -> Chunk:
    return next(iter_chunks(join_chunk(50, 1, 1_000, entries, records, **more)))


def sub_batch(codec: int, records: int, size: int, payload: bytes, *, low: int = 0) -> bytes:
    """A sub-batch that may lie."""
    return b"".join(
        (
            bytes([0x80 | codec << 4 | low]),
            records.to_bytes(2, "big"),
            size.to_bytes(4, "big"),
            len(payload).to_bytes(4, "big"),
            payload,
        )
    )


def test_simple_entries_and_every_codec_may_be_mixed() -> None:
    entries = [encode_simple(b"first")]
    entries += [encode_sub_batch(BODIES, codec) for codec in Codec]
    entries.append(encode_simple(b"last"))
    expected = [b"first", *BODIES * len(Codec), b"last"]
    chunk = chunk_of(entries, len(expected))

    assert [bytes(body) for body in iter_messages(chunk)] == expected
    assert [(offset, bytes(body)) for offset, body in iter_records(chunk)] == [
        *enumerate(expected, 50)
    ]


@pytest.mark.parametrize(
    ("entries", "records", "why"),
    [
        ([b"\0\0\0"], 1, "an entry is cut"),
        ([b"\0\0\0\2x"], 1, "an entry of 2 bytes is cut"),
        ([b"\x7f\xff\xff\xff"], 1, "an entry of 2147483647 bytes is cut"),
        ([b"\0\0\0\0", b"\0\0\0"], 2, "an entry is cut"),
        ([b"\0\0\0\0x"], 1, "1 bytes follow the last entry"),
        ([encode_simple(b"x")], 2, "1 records, its header says 2"),
        ([encode_sub_batch([b"x"] * 3, 0)], 2, "more than the 2 records"),
        ([encode_sub_batch([b"x"] * 3, 0)], 4, "3 records, its header says 4"),
        ([b"\x80\0\1\0"], 1, "a sub-batch header is cut"),
        ([b"\x80\0\1\0\0\0\4\0\0\0\5\0\0\0\0"], 1, "a sub-batch of 5 bytes is cut"),
        ([sub_batch(0, 1, 4, bytes(4), low=1)], 1, "unknown kind 0x81"),
        ([sub_batch(5, 1, 4, bytes(4))], 1, "codec 5"),
        ([sub_batch(7, 1, 4, bytes(4))], 1, "codec 7"),
        ([sub_batch(0, 1, 5, bytes(4))], 1, "a sub-batch of 4 bytes says it has 5"),
        ([sub_batch(0, 0, 4, bytes(4))], 1, "a sub-batch of 0 records"),
        ([sub_batch(0, 2, 7, bytes(7))], 2, "a sub-batch of 2 records in 7 bytes"),
        ([sub_batch(0, 1, 5, bytes(5))], 1, "1 bytes follow the last record"),
        ([sub_batch(0, 1, 4, b"\0\0\0\1")], 1, "a record of 1 bytes in a sub-batch is cut"),
        ([sub_batch(0, 2, 8, b"\0\0\0\3xyzz")], 2, "a record of a sub-batch is cut"),
        ([sub_batch(0, 2, 8, b"\0\0\0\4xyzz")], 2, "a record of a sub-batch is cut"),
        ([sub_batch(1, 1, 4, b"no gzip")], 1, "a gzip sub-batch does not inflate"),
    ],
)
def test_entries_that_do_not_hold_are_refused(entries: list[bytes], records: int, why: str) -> None:
    with pytest.raises(CorruptDataError, match=why):
        list(iter_messages(chunk_of(entries, records)))


def test_damage_names_the_offset_behind_the_good_messages() -> None:
    chunk = chunk_of([encode_simple(b"x"), encode_sub_batch(BODIES, 2), b"\0\0\0\7"], 5)
    found = []

    with pytest.raises(CorruptDataError) as caught:
        found.extend(iter_messages(chunk))

    assert len(found) == 4
    assert caught.value.offset == 54


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_payload_that_inflates_to_another_size_is_refused(codec: Codec) -> None:
    payload = encode_sub_batch([bytes(1000)], codec)[11:]

    assert len(inflate(payload, codec, 1004)) == 1004
    for size in (0, 1, 1003, 1005, 2000):
        with pytest.raises(CorruptDataError):
            inflate(payload, codec, size)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_payload_that_is_cut_or_goes_on_is_refused(codec: Codec) -> None:
    payload = encode_sub_batch([bytes(range(256)) * 4], codec)[11:]

    for bad in (payload[:-1], payload[: len(payload) // 2], payload + payload, b""):
        with pytest.raises(CorruptDataError):
            inflate(bad, codec, 1028)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_is_refused_without_memory_for_it(codec: Codec) -> None:
    bomb = encode_sub_batch([bytes(50_000_000)], codec)[11:]
    tracemalloc.start()
    try:
        with pytest.raises(CorruptDataError, match="does not inflate"):
            inflate(bomb, codec, 1000)
        with pytest.raises(CorruptDataError, match="more than 1000000"):
            inflate(bomb, codec, 50_000_004, limit=1_000_000)
        with pytest.raises(CorruptDataError, match="cannot inflate"):
            inflate(bomb[:20], codec, 200_000_000)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSED)
def test_the_best_compression_there_is_still_inflates(codec: Codec) -> None:
    chunk = chunk_of([encode_sub_batch([bytes(20_000_000)], codec)], 1)

    assert len(next(iter_messages(chunk))) == 20_000_000


def test_the_callers_limit_counts() -> None:
    chunk = chunk_of([encode_sub_batch([bytes(1000)], Codec.NONE)], 1)

    with pytest.raises(CorruptDataError, match="more than 1003"):
        list(iter_messages(chunk, max_sub_batch_bytes=1003))
    assert len(list(iter_messages(chunk, max_sub_batch_bytes=1004))) == 1


def test_what_does_not_fit_is_not_encoded() -> None:
    with pytest.raises(InvalidInputError):
        encode_sub_batch([], 0)
    with pytest.raises(InvalidInputError):
        encode_sub_batch([b""] * 65_536, 0)
    with pytest.raises(InvalidInputError):
        encode_sub_batch([b""], 5)


def test_what_follows_a_sub_batch_is_no_part_of_it() -> None:
    whole = encode_sub_batch([b"a", b"b"], Codec.NONE)

    assert [bytes(each) for each in sub_batch_bodies(memoryview(whole))[1]] == [b"a", b"b"]
    with pytest.raises(CorruptDataError, match="1 bytes follow a sub-batch"):
        sub_batch_bodies(memoryview(whole + b"\0"))
