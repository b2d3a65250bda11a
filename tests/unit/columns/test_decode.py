"""The fast decoder: the same rows as the plain one, in bounded memory. Properties fuzz it, too."""

from __future__ import annotations

import struct
import weakref
import zlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from coldstream.columns.decode import MAX_BATCH_BYTES, Decoder
from coldstream.columns.reference import decode_reference
from coldstream.columns.schema import COLUMNS, select
from coldstream.errors import InvalidInputError
from coldstream.osiris.body import BodyFormat
from coldstream.osiris.chunk import ChunkHeader, ChunkType, iter_chunks
from coldstream.osiris.entry import Codec, encode_simple, encode_sub_batch
from coldstream_devkit.messages import headers_and_bounds
from tests.unit.osiris.fixtures import FIXTURES, segment_paths

EVERYTHING = tuple(COLUMNS)


def a_chunk(first: int, entries: list[bytes], records: int, trailer: bytes = b"") -> bytes:
    data = b"".join(entries)
    header = ChunkHeader(
        ChunkType.USER, len(entries), records, 1000, 1, first, zlib.crc32(data), len(data),
        len(trailer), 0,
    )  # fmt: skip
    return header.encode() + data + trailer


def a_message(body: bytes) -> bytes:
    return b"\x00\x53\x75\xb0" + struct.pack(">I", len(body)) + body


def simple(first: int, *bodies: bytes) -> bytes:
    return a_chunk(first, [encode_simple(a_message(body)) for body in bodies], len(bodies))


def batches(decoder: Decoder, data: bytes) -> Iterator[pa.RecordBatch]:
    yield from decoder.decode(data, *headers_and_bounds(data))
    yield from decoder.flush()


def assert_as_plain(found: list[pa.RecordBatch], data: bytes, names: tuple[str, ...]) -> None:
    expected = decode_reference(select(names), iter_chunks(data))
    table = pa.Table.from_batches(found, expected.schema).combine_chunks()
    table.validate(full=True)
    assert table.equals(pa.Table.from_batches([expected]).combine_chunks())


@pytest.mark.parametrize("name", FIXTURES)
@pytest.mark.parametrize(
    "names", [EVERYTHING, ("offset",), ("publishers",), ("raw",), ("body", "error")]
)
def test_a_real_brokers_files_give_the_plain_decoders_rows(
    name: str, names: tuple[str, ...]
) -> None:
    data = b"".join(path.read_bytes()[8:] for path in segment_paths(name))
    decoder = Decoder(select(names), batch_rows=100, reuse=False)
    found = list(batches(decoder, data))
    assert len(found) == -(-FIXTURES[name]["messages"] // 100)
    assert_as_plain(found, data, names)


@pytest.mark.parametrize("codec", Codec)
def test_the_messages_of_a_sub_batch_may_be_in_several_batches(codec: Codec) -> None:
    wires = [a_message(b"%d" % number) for number in range(100)]
    data = a_chunk(
        5,
        [encode_sub_batch(wires, codec), encode_simple(wires[0]), encode_sub_batch(wires, 0)],
        201,
    )
    found = list(batches(Decoder(select(EVERYTHING), batch_rows=7, reuse=False), data))
    assert [batch.num_rows for batch in found] == [7] * 28 + [5]
    assert_as_plain(found, data, EVERYTHING)


def test_a_batch_ends_before_the_message_that_would_make_it_too_large() -> None:
    data = simple(0, *[b"x" * 90] * 10)  # 98 bytes on the wire
    found = list(batches(Decoder(select(["body"]), batch_bytes=300, reuse=False), data))
    assert [batch.num_rows for batch in found] == [3, 3, 3, 1]


def test_a_message_larger_than_a_batch_is_a_batch_of_its_own_and_its_memory_is_given_back() -> None:
    decoder = Decoder(select(EVERYTHING), batch_bytes=1000, batch_rows=100)
    data = simple(0, b"a", b"b" * 5_000_000, b"c")
    sizes = [
        [len(each) for each in batch.column("body").to_pylist()] for batch in batches(decoder, data)
    ]
    assert sizes == [[1], [5_000_000], [1]]
    kept = sum(each.nbytes for kept in decoder._assembler._pool._arrays.values() for each in kept)
    assert kept < 3_000_000


def test_properties_larger_than_any_batch_are_told_by_the_plain_decoder() -> None:
    subject = b"s" * 300_000
    listed = b"\x40" * 3 + b"\xb1" + struct.pack(">I", len(subject)) + subject
    wire = b"\x00\x53\x73\xd0" + struct.pack(">II", len(listed) + 4, 4) + listed + a_message(b"!")
    data = a_chunk(0, [encode_simple(wire), encode_simple(wire)], 2)
    found = list(batches(Decoder(select(EVERYTHING), batch_bytes=1000, reuse=False), data))
    assert_as_plain(found, data, EVERYTHING)
    assert found[0].column("properties")[0]["subject"].as_py() == subject.decode()


def test_rows_that_wait_for_a_batch_hold_on_to_no_bytes_that_they_do_not_need() -> None:
    class Bytes(bytearray):
        """Bytes whose end can be seen."""

    damaged = a_chunk(1, [b"\x00\x00\x00\xff"], 1)
    for names, data in ((["offset", "publishers"], simple(0, b"x" * 1000)), (["body"], damaged)):
        decoder = Decoder(select(names))
        piece = Bytes(data)
        ends = weakref.ref(piece)
        assert list(decoder.decode(piece, *headers_and_bounds(bytes(piece)))) == []
        del piece
        assert ends() is None
        assert sum(batch.num_rows for batch in decoder.flush()) == 1


def test_rows_do_not_wait_while_they_hold_on_to_much_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coldstream.columns.decode._MAX_KEPT", 10_000)
    decoder = Decoder(select(["body"]))
    data = b"".join(simple(number, b"x" * 100) for number in range(200))
    headers, bounds = headers_and_bounds(data)
    # One row is wanted, and the bytes of 200 chunks stay for it.
    assert [b.num_rows for b in decoder.decode(data, headers, bounds, start=199)] == [1]
    assert list(decoder.flush()) == []


def test_a_batch_stays_as_it_is_unless_its_memory_is_to_be_used_again() -> None:
    data = simple(0, b"first", b"other")
    kept = list(batches(Decoder(select(["body"]), batch_rows=1, reuse=False), data))
    assert [batch.column(0).to_pylist() for batch in kept] == [[b"first"], [b"other"]]
    reused = list(batches(Decoder(select(["body"]), batch_rows=1, reuse=True), data))
    assert [batch.column(0).to_pylist() for batch in reused] == [[b"other"], [b"other"]]


def test_memory_of_batches_that_nobody_holds_any_more_is_used_again_and_no_other() -> None:
    data = b"".join(simple(n, b"%05d" % n) for n in range(300))
    decoder = Decoder(select(["body", "application_properties"]), batch_rows=1, reuse=False)
    held, places = [], set()
    for number, batch in enumerate(batches(decoder, data)):
        places.add(batch.column("body").buffers()[2].address)
        if number % 100 == 0:
            held.append(batch.slice(0, 1))  # a part of it is enough
    assert [each.column("body").to_pylist() for each in held] == [
        [b"00000"],
        [b"00100"],
        [b"00200"],
    ]
    assert len(places) <= len(held) + 2


def test_a_reader_that_stops_half_way_can_be_followed_by_another_piece() -> None:
    decoder = Decoder(select(["offset"]), batch_rows=2)
    decoding = decoder.decode(
        simple(0, b"a", b"b", b"c", b"d", b"e"),
        *headers_and_bounds(simple(0, b"a", b"b", b"c", b"d", b"e")),
    )
    assert next(decoding).column(0).to_pylist() == [0, 1]
    decoding.close()
    assert [b.column(0).to_pylist() for b in batches(decoder, simple(9, b"z"))] == [[9]]


def test_chunks_of_which_nothing_is_wanted_give_no_batch() -> None:
    data = simple(0, b"a", b"b")
    for names in (["offset"], ["body"], ["raw"]):
        decoder = Decoder(select(names))
        assert list(decoder.decode(data, *headers_and_bounds(data), start=2)) == []
        assert list(decoder.decode(b"", *headers_and_bounds(b""))) == []
        assert list(decoder.flush()) == []


@pytest.mark.parametrize("change", ["beyond", "short", "overlap", "trailer", "negative", "count"])
def test_chunks_that_do_not_lie_where_they_are_said_to_lie_are_never_touched(change: str) -> None:
    data = simple(0, b"a") + simple(1, b"b")
    headers, bounds = headers_and_bounds(data)
    headers = headers.copy()
    if change == "beyond":
        bounds[-1] += 1
    elif change == "short":
        headers["data_size"][1] += 1
    elif change == "overlap":
        bounds[1] -= 1
    elif change == "trailer":
        headers["trailer_size"][0] = 2**32 - 1
    elif change == "negative":
        bounds[0] -= 1
    else:
        bounds.pop()
    with pytest.raises(InvalidInputError, match="bounds"):
        list(Decoder(select(["body"])).decode(data, headers, bounds))


@pytest.mark.parametrize(
    ("size", "rows"), [(0, 1), (MAX_BATCH_BYTES + 1, 1), (1, 0), (1, -(2**40))]
)
def test_batches_of_no_size_or_too_large_for_arrow_are_refused(size: int, rows: int) -> None:
    with pytest.raises(InvalidInputError):
        Decoder(select(["body"]), batch_bytes=size, batch_rows=rows)


def test_a_map_of_more_keys_than_the_kernel_remembers_is_still_a_row() -> None:
    for count in (63, 64, 65, 200):
        pairs = b"".join(b"\xa1\x04%04d\x54\x07" % number for number in range(count))
        wire = b"\x00\x53\x74\xd1" + struct.pack(">II", len(pairs) + 4, 2 * count) + pairs
        data = a_chunk(0, [encode_simple(wire + a_message(b""))], 1)
        found = list(batches(Decoder(select(EVERYTHING), reuse=False), data))
        assert_as_plain(found, data, EVERYTHING)
        assert found[0].column("error").null_count == 1
        assert len(found[0].column("application_properties")[0].as_py()) == count


def test_text_that_grows_the_most_finds_room() -> None:
    numbers = b"".join(
        b"\x80" + struct.pack(">Q", 2**64 - 1 - n) + b"\x98" + bytes([n]) * 16 for n in range(60)
    )
    falses = b"".join(b"\xa1\x01" + bytes((65 + n,)) + b"\x42" for n in range(60))
    wire = b"".join(
        (
            b"\x00\x53\x72\xd1", struct.pack(">II", len(numbers) + 4, 120), numbers,
            b"\x00\x53\x73\xc0\x0f\x06", b"\x80" + b"\xff" * 8, b"\x40" * 4, b"\x44",
            b"\x00\x53\x74\xd1", struct.pack(">II", len(falses) + 4, 120), falses,
        )
    )  # fmt: skip
    data = a_chunk(0, [encode_simple(wire)] * 50, 50)
    decoder = Decoder(select(EVERYTHING), reuse=False)
    left = watched(decoder)
    assert_as_plain(list(batches(decoder, data)), data, EVERYTHING)
    assert left == []


@pytest.mark.parametrize("body_format", [BodyFormat.AUTO, BodyFormat.BYTES])
def test_plain_bytes_are_as_quick_as_messages(body_format: BodyFormat) -> None:
    avro = b"\x00\x00\x00\x00\x07"  # what registries put in front
    wires = [b'{"a": 1}', b"x", avro + b"abc", b"\x00\x53\x69!", bytes(40), b"\xff" * 300]
    data = a_chunk(0, [encode_simple(wire) for wire in wires], len(wires))
    decoder = Decoder(select(EVERYTHING, body_format), reuse=False)
    left = watched(decoder)
    found = list(batches(decoder, data))
    assert left == []
    assert found[0].column("body").to_pylist() == wires
    assert found[0].column("body_kind").to_pylist() == ["bytes"] * len(wires)


def watched(decoder: Decoder) -> list[int]:
    """Numbers of the rows that the kernel leaves to the plain decoder, from now on."""
    left: list[int] = []
    decode = decoder._assembler._decode

    def watching(*args: object) -> np.ndarray:
        rows = decode(*args)  # type: ignore[arg-type]
        left.extend(rows.tolist())
        return rows

    decoder._assembler._decode = watching  # type: ignore[method-assign, assignment]
    return left
