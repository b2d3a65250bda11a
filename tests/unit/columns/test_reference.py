"""What the plain decoder says about messages: this is what every decoder must say."""

from __future__ import annotations

import base64
import hashlib
import struct
import uuid
import zlib
from datetime import UTC, datetime
from typing import Any

import pytest

from coldstream.columns.reference import MAX_MS, MIN_MS, decode_reference
from coldstream.columns.schema import COLUMNS, Origin, select
from coldstream.errors import CorruptDataError
from coldstream.osiris import Chunk, ChunkHeader, ChunkType, decode_message, iter_messages
from coldstream.osiris.amqp_types import MAX_DEPTH
from coldstream.osiris.body import BodyFormat
from coldstream.osiris.entry import encode_simple
from coldstream.osiris.tracking import Tracked, TrackingType, encode_tracked
from tests.unit.osiris.fixtures import FIXTURES, chunks_of

EVERYTHING = select(tuple(COLUMNS))
TIME = 1_795_227_161_842


def a_chunk(
    *wires: bytes, first: int = 10, trailer: bytes = b"", data: bytes = b"", records: int = 0
) -> Chunk:
    """A user chunk of simple entries; `data` follows them, the header counts `records`."""
    data = b"".join(encode_simple(wire) for wire in wires) + data
    header = ChunkHeader(
        ChunkType.USER, len(wires) or 1, records or len(wires), TIME, 3, first, zlib.crc32(data),
        len(data), len(trailer), 0,
    )  # fmt: skip
    return Chunk(header, memoryview(header.encode() + data + trailer))


def text(value: str) -> bytes:
    return b"\xa1" + bytes((len(value.encode()),)) + value.encode()


def section(code: int, value: bytes) -> bytes:
    return b"\x00\x53" + bytes((code,)) + value


def listed(*values: bytes) -> bytes:
    content = b"".join(values)
    return b"\xc0" + bytes((len(content) + 1, len(values))) + content


def mapped(*pairs: tuple[bytes, bytes]) -> bytes:
    content = b"".join(key + value for key, value in pairs)
    return b"\xc1" + bytes((len(content) + 1, 2 * len(pairs))) + content


def row_of(wire: bytes, body_format: BodyFormat = BodyFormat.AUTO) -> dict[str, Any]:
    selection = select(tuple(COLUMNS), body_format)
    (row,) = decode_reference(selection, [a_chunk(wire)], origin=Origin("s", "/", "q")).to_pylist()
    return row


DATA = section(0x75, b"\xa0\x02hi")


@pytest.mark.parametrize("body_format", [BodyFormat.AUTO, BodyFormat.AMQP])
@pytest.mark.parametrize("name", FIXTURES)
def test_every_record_of_a_real_brokers_file_is_a_row(name: str, body_format: BodyFormat) -> None:
    known = FIXTURES[name]
    chunks = list(chunks_of(name))
    table = decode_reference(select(["offset", "raw", "body", "error"], body_format), chunks)
    assert table.num_rows == known["messages"]
    digest = hashlib.sha256()
    wires = []
    for row in table.to_pylist():
        digest.update(row["raw"])
        wires.append(row["raw"])
        try:
            expected, reason = decode_message(row["raw"]).data, None
        except CorruptDataError as exc:
            expected, reason = None, exc.reason
            if body_format is BodyFormat.AUTO:
                expected, reason = row["raw"], None
        assert (row["body"], row["error"]) == (expected, reason)
    assert digest.hexdigest() == known["sha256"]
    first = [c.header.chunk_id for c in chunks if c.header.chunk_type == ChunkType.USER]
    counts = [c.header.records for c in chunks if c.header.chunk_type == ChunkType.USER]
    assert table.column("offset").to_pylist() == [
        begin + n for begin, count in zip(first, counts, strict=True) for n in range(count)
    ]


def test_the_columns_of_the_chunk_are_those_of_its_header_and_trailer() -> None:
    tracked = [
        Tracked(TrackingType.SEQUENCE, b"one", 7),
        Tracked(TrackingType.OFFSET, b"consumer", 9),
        Tracked(TrackingType.SEQUENCE, b"two", 2**64 - 1),
    ]
    chunk = a_chunk(DATA, DATA, trailer=b"".join(map(encode_tracked, tracked)))
    rows = decode_reference(EVERYTHING, [chunk], origin=Origin("s", "/", "q")).to_pylist()
    assert [row["offset"] for row in rows] == [10, 11]
    for row in rows:
        assert (row["stream"], row["vhost"], row["queue"]) == ("s", "/", "q")
        assert row["timestamp"] == datetime.fromtimestamp(TIME / 1000, UTC)
        assert (row["chunk_id"], row["epoch"]) == (10, 3)
        assert row["publishers"] == [("one", 7), ("two", 2**63 - 1)]


def test_a_trailer_that_is_damaged_tells_of_no_publisher_and_hides_no_message() -> None:
    (row,) = decode_reference(EVERYTHING, [a_chunk(DATA, trailer=b"\x00\xffab")]).to_pylist()
    assert (row["publishers"], row["body"], row["error"]) == ([], b"hi", None)


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (b"", "none", b""),
        (DATA, "data", b"hi"),
        (DATA + section(0x75, b"\xb0\x00\x00\x00\x01!"), "data", b"hi!"),
        (section(0x77, text("größe")), "value", "größe".encode()),
        (section(0x77, b"\xa3\x02ok"), "value", b"ok"),
        (section(0x77, b"\xa0\x02\xff\xfe"), "value", b"\xff\xfe"),
        (section(0x77, b"\x40"), "value", b"null"),
        (section(0x77, b"\x54\xff"), "value", b"-1"),
        (section(0x77, mapped((text("k"), b"\x41"))), "value", b'{"k":true}'),
        (section(0x76, listed(b"\x43", text("ä"))), "sequence", '[[0,"ä"]]'.encode()),
    ],
)
def test_a_body_is_its_bytes_or_json(body: bytes, kind: str, expected: bytes) -> None:
    row = row_of(section(0x70, b"\x45") + body)
    assert (row["body_kind"], row["body"], row["error"]) == (kind, expected, None)


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (text("word"), "word"),
        (b"\xa3\x03sym", "sym"),
        (b"\x80" + b"\xff" * 8, "18446744073709551615"),
        (b"\x81" + b"\x80" + bytes(7), "-9223372036854775808"),
        (b"\x55\x80", "-128"),
        (b"\x41", "true"),
        (b"\x56\x00", "false"),
        (b"\x82" + struct.pack(">d", 0.1), "0.1"),
        (b"\x82" + struct.pack(">d", float("-inf")), "-inf"),
        (b"\x82" + struct.pack(">d", float("nan")), "nan"),
        (b"\x83" + struct.pack(">q", -5), "-5"),
        (b"\x98" + bytes(15) + b"\x01", str(uuid.UUID(int=1))),
        (b"\x73\x00\x00\x00\x41", "A"),
        (b"\x40", None),
        (b"\xa0\x02ab", "ab"),
        (b'\xa0\x04"ab"', '"ab"'),
        (b"\xa0\x00", ""),
        (b"\xa0\x01\xff", '{"base64":"/w=="}'),
        (b"\x74\xb1\x80\x07\xcf", "-19.99"),
        (listed(b"\x54\x01", b"\x42"), "[1,false]"),
    ],
)
def test_a_value_of_a_map_is_text(wire: bytes, expected: str | None) -> None:
    message = section(0x72, mapped((b"\xa3\x01x", wire), (b"\x53\x07", b"\x40")))
    row = row_of(message + section(0x74, mapped((text("k"), wire))) + DATA)
    assert row["application_properties"] == [("k", expected)]
    assert row["message_annotations"] == [("x", expected), ("7", None)]


def test_no_section_is_null_and_an_empty_one_is_empty() -> None:
    row = row_of(DATA)
    assert row["properties"] is None
    assert row["application_properties"] is None
    row = row_of(section(0x73, b"\x45") + section(0x74, mapped()) + DATA)
    assert set(row["properties"].values()) == {None}
    assert row["application_properties"] == []


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (b"\x53\x2a", ("42", "ulong")),
        (b"\x98" + bytes(16), (str(uuid.UUID(int=0)), "uuid")),
        (b"\xa0\x03\xff\x00\x01", (base64.b64encode(b"\xff\x00\x01").decode(), "binary")),
        (text("é"), ("é", "string")),
        (b"\x40", (None, None)),
    ],
)
def test_an_identifier_is_text_and_says_of_what_type_it_was(
    wire: bytes, expected: tuple[str | None, str | None]
) -> None:
    nothing = [b"\x40"] * 4
    found = row_of(section(0x73, listed(wire, *nothing, wire)) + DATA)["properties"]
    assert (found["message_id"], found["message_id_type"]) == expected
    assert (found["correlation_id"], found["correlation_id_type"]) == expected


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (b"\x52\x2a", ("42", "uint")),
        (b"\x43", ("0", "uint")),
        (b"\x70\xff\xff\xff\xff", ("4294967295", "uint")),
        (b"\x71\xff\xff\xff\xfe", ("-2", "int")),
        (b"\x55\xff", ("-1", "long")),
        (b"\x60\x00\x07", ("7", "ushort")),
        (b"\x73\x00\x00\x00\x41", ("A", "char")),
    ],
)
def test_an_identifier_of_a_type_that_none_may_have_is_kept_and_says_so(
    wire: bytes, expected: tuple[str, str]
) -> None:
    nothing = [b"\x40"] * 4
    found = row_of(section(0x73, listed(wire, *nothing, wire)) + DATA)
    assert (found["body"], found["error"]) == (b"hi", None)
    for name in ("message_id", "correlation_id"):
        assert (found["properties"][name], found["properties"][f"{name}_type"]) == expected


def test_a_body_nested_more_deeply_than_anybody_means_is_a_row_however_deep_the_caller_is() -> None:
    def nested(levels: int) -> bytes:
        value = b"\x40"
        for level in range(levels):
            code, count = ((0xD0, 1), (0xD1, 2))[level % 2]
            value = b"\x43" * (count - 1) + value
            value = struct.pack(">BII", code, len(value) + 4, count) + value
        return section(0x77, value)

    def deeper(calls: int, wire: bytes) -> dict[str, Any]:
        return deeper(calls - 1, wire) if calls else row_of(wire)

    row = deeper(200, nested(MAX_DEPTH))
    assert (row["body_kind"], row["error"]) == ("value", None)
    assert row["body"].count(b"[") == MAX_DEPTH // 2 * 3  # a map with such a key is a list, too

    beyond = nested(MAX_DEPTH + 1)
    row = deeper(200, beyond)
    assert (row["body_kind"], row["body"], row["error"]) == ("bytes", beyond, None)


def test_a_time_or_sequence_beyond_64_bits_is_the_nearest_that_there_is() -> None:
    times = [b"\x83" + struct.pack(">q", each) for each in (2**63 - 1, -(2**63))]
    wire = section(0x73, listed(*[b"\x40"] * 8, *times, b"\x40", b"\x80" + b"\xff" * 8)) + DATA
    found = decode_reference(EVERYTHING, [a_chunk(wire)]).column("properties")
    assert found.field("absolute_expiry_time").cast("int64").to_pylist() == [MAX_MS * 1000]
    assert found.field("creation_time").cast("int64").to_pylist() == [MIN_MS * 1000]
    assert found.field("group_sequence").to_pylist() == [2**63 - 1]


NO_AMQP = [b"", b"hello", DATA[:-1], DATA + b"\x00", section(0x73, mapped()), DATA + DATA[:3]]


@pytest.mark.parametrize("wire", NO_AMQP)
def test_a_message_that_is_no_amqp_is_its_bytes_and_no_error(wire: bytes) -> None:
    row = row_of(wire)
    assert (row["body_kind"], row["body"], row["raw"], row["error"]) == ("bytes", wire, wire, None)
    for name in ("properties", "application_properties", "message_annotations"):
        assert row[name] is None


@pytest.mark.parametrize("wire", [*NO_AMQP, DATA])
def test_bytes_that_are_never_to_be_parsed_are_the_body_whatever_they_are(wire: bytes) -> None:
    row = row_of(section(0x73, listed(text("id"))) + wire, BodyFormat.BYTES)
    assert (row["body_kind"], row["body"], row["error"]) == ("bytes", row["raw"], None)
    assert row["properties"] is None


@pytest.mark.parametrize("wire", NO_AMQP)
def test_a_message_that_must_be_amqp_and_does_not_hold_is_a_row_with_its_bytes_and_the_reason(
    wire: bytes,
) -> None:
    with pytest.raises(CorruptDataError) as caught:
        decode_message(wire)
    row = row_of(wire, BodyFormat.AMQP)
    assert row["error"] == caught.value.reason
    assert row["raw"] == wire
    for name in ("body_kind", "body", "properties", "application_properties"):
        assert row[name] is None


@pytest.mark.parametrize("body_format", BodyFormat)
def test_damage_between_messages_is_an_error_whatever_messages_are(body_format: BodyFormat) -> None:
    chunk = a_chunk(DATA, b"oops", data=b"\x00\x00", records=4)
    rows = decode_reference(select(tuple(COLUMNS), body_format), [chunk]).to_pylist()
    assert [row["offset"] for row in rows] == [10, 11, 12, 13]
    assert [row["raw"] for row in rows] == [DATA, b"oops", None, None]
    assert all(row["error"] and row["body"] is row["body_kind"] is None for row in rows[2:])


def test_damage_between_messages_makes_rows_of_all_offsets_behind_it() -> None:
    chunk = a_chunk(DATA, b"oops", DATA, data=b"\x00\x00", records=5)
    with pytest.raises(CorruptDataError) as caught:
        list(iter_messages(chunk))
    amqp = select(tuple(COLUMNS), BodyFormat.AMQP)
    rows = decode_reference(amqp, [chunk]).to_pylist()
    assert [row["offset"] for row in rows] == [10, 11, 12, 13, 14]
    assert [row["body"] for row in rows] == [b"hi", None, b"hi", None, None]
    assert [row["raw"] is None for row in rows] == [False, False, False, True, True]
    assert rows[0]["error"] is rows[2]["error"] is None
    assert rows[1]["error"] != rows[3]["error"]
    assert {row["error"] for row in rows[3:]} == {caught.value.reason}
