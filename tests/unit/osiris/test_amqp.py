from __future__ import annotations

import json
import math
import struct
import uuid
from dataclasses import fields

import pytest

from coldstream.errors import CorruptDataError
from coldstream.osiris import AmqpMessage, BodyKind, decode_message, encode_data, to_jsonable
from coldstream.osiris import amqp as module
from coldstream.osiris.amqp import Header, Properties
from coldstream.osiris.amqp_types import (
    CLAIM_FOR_A_BYTE,
    FREE_CLAIM,
    MAX_DEPTH,
    AmqpMap,
    AmqpTimestamp,
    Decimal,
    Described,
    Symbol,
    Value,
    ValueReader,
)

ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


def section(code: int, value: bytes) -> bytes:
    return b"\x00\x53" + bytes([code]) + value


def text(value: str) -> bytes:
    return b"\xa1" + bytes([len(value)]) + value.encode()


def symbol(value: str) -> bytes:
    return b"\xa3" + bytes([len(value.encode())]) + value.encode()


def compound(code: int, count: int, content: bytes) -> bytes:
    return bytes([code, len(content) + 1, count]) + content


def wide(code: int, count: int, content: bytes) -> bytes:
    return struct.pack(">BII", code, len(content) + 4, count) + content


def read(buf: bytes) -> Value:
    reader = ValueReader(buf)
    value = reader.read()
    assert reader.left == 0
    return value


@pytest.mark.parametrize(
    ("wire", "value"),
    [
        ("40", None), ("41", True), ("42", False), ("5601", True), ("5600", False),
        ("50ff", 255), ("60ffff", 65_535), ("70ffffffff", 2**32 - 1), ("52ff", 255), ("43", 0),
        ("80ffffffffffffffff", 2**64 - 1), ("53ff", 255), ("44", 0),
        ("51ff", -1), ("61ffff", -1), ("71ffffffff", -1), ("54ff", -1),
        ("81ffffffffffffffff", -1), ("55ff", -1),
        ("723fc00000", 1.5), ("823ff8000000000000", 1.5), ("730001f600", "\U0001f600"),
        ("7401020304", Decimal(bytes.fromhex("01020304"))),
        ("840102030405060708", Decimal(bytes.fromhex("0102030405060708"))),
        ("94" + "00" * 16, Decimal(bytes(16))),
        ("83ffffffffffffffff", AmqpTimestamp(-1)), ("98" + ID.hex, ID),
        ("a00161", b"a"), ("b00000000161", b"a"), ("a102c3a9", "é"), ("b100000002c3a9", "é"),
        ("a30161", Symbol("a")), ("b30000000161", Symbol("a")),
        ("45", ()), ("c00100", ()), ("c003024041", (None, True)),
        ("d000000006000000024041", (None, True)),
        ("c106025401a10161", AmqpMap(((1, "a"),))), ("c10100", AmqpMap(())),
        ("d10000000900000002" + "5401a10161", AmqpMap(((1, "a"),))),
        ("e00402505152", (0x51, 0x52)), ("e0020040", ()),
        ("f00000000700000002505152", (0x51, 0x52)),
        ("00a30161a10162", Described(Symbol("a"), "b")),
    ],
)  # fmt: skip
def test_every_type_decodes(wire: str, value: Value) -> None:
    found = read(bytes.fromhex(wire))

    assert found == value
    assert type(found) is type(value)


def test_an_array_of_described_values_decodes() -> None:
    wire = compound(0xE0, 2, b"\x00" + symbol("t") + b"\x50\x01\x02")

    assert read(wire) == (Described(Symbol("t"), 1), Described(Symbol("t"), 2))


def test_an_array_of_lists_decodes() -> None:
    wire = compound(0xE0, 2, b"\xc0" + b"\x02\x01\x40" + b"\x03\x02\x41\x42")

    assert read(wire) == ((None,), (True, False))


@pytest.mark.parametrize(
    "wire",
    [
        "", "00", "01", "3f", "ff", "46", "57", "99", "c2", "e1", "5602", "73110000", "7300110000",
        "730000d800", "a102c328", "a301ff", "a0", "a002ff", "b0ffffffff", "c0", "c000", "c00101",
        "c0020040", "c0030140", "c103014040", "c10201", "d000000003000000", "d0ffffffff00000000",
        "e000", "e00100", "e00201", "e002ff50", "f0000000050000ffff50", "e003025051", "53",
        "0040", "004000", "a30180",
    ],
)  # fmt: skip
def test_a_value_that_does_not_hold_is_refused(wire: str) -> None:
    with pytest.raises(CorruptDataError):
        read(bytes.fromhex(wire))


def test_a_value_never_reads_past_the_list_around_it() -> None:
    with pytest.raises(CorruptDataError):
        read(compound(0xC0, 1, b"\x70\x00") + bytes(10))


def test_nesting_is_bounded() -> None:
    deep, too_deep = b"\x40", b"\x40"
    for level in range(MAX_DEPTH + 1):
        too_deep = wide(0xD0, 1, too_deep)
        if level < MAX_DEPTH:
            deep = wide(0xD0, 1, deep)

    read(deep)
    for bad in (too_deep, b"\x00" * 10_000, b"\x00\x40" * 10_000, wide(0xF0, 1, bytes(5000))):
        with pytest.raises(CorruptDataError):
            read(bad)


def test_elements_without_bytes_are_bounded_for_the_whole_message() -> None:
    head = len(wide(0xF0, 0, b"\x41"))
    most = FREE_CLAIM + CLAIM_FOR_A_BYTE * head

    assert read(wide(0xF0, most, b"\x41")) == (True,) * most
    with pytest.raises(CorruptDataError, match="without bytes of their own"):
        read(wide(0xF0, most + 1, b"\x41"))
    with pytest.raises(CorruptDataError):
        read(wide(0xF0, 2**32 - 1, b"\x41"))
    with pytest.raises(CorruptDataError):
        read(wide(0xD0, 3, wide(0xF0, most, b"\x41") * 3))


@pytest.mark.parametrize("element", [b"\x40", b"\x50"])
def test_descriptors_that_are_said_once_do_not_multiply_a_small_message(element: bytes) -> None:
    said = b"\x00\xa1\x28" + b"d" * 40
    content = bytes(2000) if element == b"\x50" else b""
    fair = wide(0xF0, 10, b"\x00\x53\x07" * 2 + b"\x50" + bytes(10))

    assert read(fair) == (Described(7, Described(7, 0)),) * 10
    with pytest.raises(CorruptDataError, match="without bytes of their own"):
        read(wide(0xF0, 2000, said + element + content))


def test_descriptors_of_an_array_count_as_depth() -> None:
    deep = b"\x50\x01"
    for _ in range(MAX_DEPTH - 1):
        deep = b"\xf0" + (len(deep) + 4 + 4).to_bytes(4) + b"\0\0\0\1" + b"\x00\x40" * 2 + deep

    with pytest.raises(CorruptDataError, match="deep in one another"):
        read(deep)
    read(wide(0xF0, 1, b"\x00\x40" * (MAX_DEPTH - 1) + b"\x50\x01"))
    with pytest.raises(CorruptDataError, match="deep in one another"):
        read(wide(0xF0, 1, b"\x00\x40" * MAX_DEPTH + b"\x50\x01"))


def test_a_section_with_a_composed_descriptor_is_told_in_few_words() -> None:
    descriptor = wide(0xD0, 1000, b"\x43" * 1000)

    with pytest.raises(CorruptDataError, match="a tuple is no section"):
        decode_message(b"\x00" + descriptor + b"\x40")


HEADER = section(0x70, compound(0xC0, 2, b"\x41\x50\x04"))
ANNOTATIONS = compound(0xC1, 4, symbol("x-routing") + text("k") + b"\x53\x05" + b"\x40")
PROPERTIES = section(
    0x73,
    compound(
        0xC0, 10,
        b"\x98" + ID.bytes + b"\xa0\x01u" + text("to") + b"\x40" * 2 + b"\x80" + b"\xff" * 8
        + symbol("text/plain") + b"\x40" + b"\x40" + b"\x83" + (1000).to_bytes(8),
    ),
)  # fmt: skip
APPLICATION = section(0x74, compound(0xC1, 2, text("region") + text("emea")))
BODY = section(0x75, b"\xa0\x02hi")
FOOTER = section(0x78, compound(0xC1, 2, symbol("crc") + b"\x52\x07"))
WHOLE = b"".join(
    (HEADER, section(0x71, ANNOTATIONS), section(0x72, ANNOTATIONS), PROPERTIES, APPLICATION, BODY,
     FOOTER)
)  # fmt: skip


def test_every_section_decodes() -> None:
    annotations = {"x-routing": "k", 5: None}

    assert decode_message(WHOLE) == AmqpMessage(
        header=Header(durable=True, priority=4),
        delivery_annotations=annotations,
        message_annotations=annotations,
        properties=Properties(
            message_id=ID,
            user_id=b"u",
            to="to",
            correlation_id=2**64 - 1,
            content_type=Symbol("text/plain"),
            creation_time=AmqpTimestamp(1000),
        ),
        application_properties={"region": "emea"},
        body_kind=BodyKind.DATA,
        body=(b"hi",),
        footer={"crc": 7},
    )


def test_a_symbol_that_a_broker_made_of_text_of_amqp_0_9_1_is_that_text() -> None:
    # It makes symbols of content types and of names of headers, and looks at no letter of them.
    nothing = b"\x40"
    wire = (
        section(0x72, compound(0xC1, 2, symbol("x-größe") + b"\x54\x05"))
        + section(0x73, compound(0xC0, 7, 6 * nothing + symbol("text/größe")))
        + BODY
    )
    message = decode_message(wire)

    assert message.body_kind is BodyKind.DATA
    assert message.message_annotations == {"x-größe": 5}
    assert message.properties is not None
    assert message.properties.content_type == "text/größe"


def test_sections_may_be_named_by_symbol_or_wide_number() -> None:
    by_symbol = b"\x00" + symbol("amqp:data:binary") + b"\xa0\x02hi"
    by_number = b"\x00\x80" + (0x75).to_bytes(8) + b"\xa0\x02hi"

    assert decode_message(by_symbol) == decode_message(by_number) == decode_message(BODY)


def test_bodies_of_every_kind_decode() -> None:
    sequence = section(0x76, compound(0xC0, 1, b"\x40"))

    assert decode_message(BODY + section(0x75, b"\xa0\x00")).body == (b"hi", b"")
    assert decode_message(BODY + BODY).data == b"hihi"
    assert decode_message(sequence + sequence).body == ((None,), (None,))
    assert decode_message(section(0x77, b"\x40")) == AmqpMessage(
        body_kind=BodyKind.VALUE, body=None
    )
    assert decode_message(HEADER).body_kind is BodyKind.NONE
    assert decode_message(section(0x77, b"\x40")).data == b""


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
def test_an_encoded_payload_comes_back(size: int) -> None:
    assert decode_message(encode_data(bytes(size))).data == bytes(size)


@pytest.mark.parametrize(
    ("wire", "why"),
    [
        (b"", "without any section"),
        (b"plain text", "begins with the byte 0"),
        (BODY + b"x", "begins with the byte 0"),
        (section(0x6F, b"\x40"), "no section"),
        (section(0x79, b"\x40"), "no section"),
        (b"\x00" + symbol("amqp:dada:binary") + b"\xa0\x00", "no section"),
        (b"\x00" + text("amqp:data:binary") + b"\xa0\x00", "no section"),
        (BODY + HEADER, "HEADER after DATA"),
        (HEADER + HEADER, "HEADER after HEADER"),
        (section(0x77, b"\x40") * 2, "VALUE after VALUE"),
        (BODY + section(0x77, b"\x40"), "both DATA and VALUE"),
        (section(0x75, b"\xa1\x01x"), "data section that is not binary"),
        (section(0x76, b"\x40"), "sequence section that is not a list"),
        (section(0x70, b"\x40"), "no list"),
        (section(0x70, compound(0xC0, 6, b"\x40" * 6)), "too long"),
        (section(0x70, compound(0xC0, 1, b"\x50\x01")), "field is a int"),
        (section(0x70, compound(0xC0, 2, b"\x40\x41")), "field is a bool"),
        (section(0x73, compound(0xC0, 1, b"\x41")), "field is a bool"),
        (section(0x74, b"\x45"), "no map"),
        (section(0x74, compound(0xC1, 2, symbol("k") + b"\x40")), "key of application"),
        (section(0x74, compound(0xC1, 4, (text("k") + b"\x40") * 2)), "key twice"),
        (section(0x72, compound(0xC1, 2, text("k") + b"\x40")), "key of AMQP annotations"),
        (section(0x72, compound(0xC1, 2, b"\x41\x40")), "annotations is a bool"),
        (section(0x72, compound(0xC1, 4, (symbol("k") + b"\x40") * 2)), "key twice"),
    ],
)
def test_what_is_no_message_is_refused(wire: bytes, why: str) -> None:
    with pytest.raises(CorruptDataError, match=why):
        decode_message(wire)


def test_a_message_that_is_cut_is_refused_or_ends_between_two_sections() -> None:
    ends = {0}
    for part in (HEADER, section(0x71, ANNOTATIONS), section(0x72, ANNOTATIONS), PROPERTIES,
                 APPLICATION, BODY, FOOTER):  # fmt: skip
        ends.add(max(ends) + len(part))

    for size in range(len(WHOLE)):
        if size in ends - {0}:
            decode_message(WHOLE[:size])
        else:
            with pytest.raises(CorruptDataError):
                decode_message(WHOLE[:size])


def test_every_field_has_a_type() -> None:
    assert len(module._HEADER_TYPES) == len(fields(Header))
    on_the_wire = [each for each in fields(Properties) if not each.name.endswith("_id_type")]
    assert len(module._PROPERTY_TYPES) == len(on_the_wire)


def test_json_says_everything_and_nothing_ambiguous() -> None:
    annotations = {"map": [["x-routing", "k"], [5, None]]}

    found = to_jsonable(decode_message(WHOLE))

    assert json.loads(json.dumps(found, allow_nan=False)) == {
        "header": {"durable": True, "priority": 4},
        "delivery_annotations": annotations,
        "message_annotations": annotations,
        "properties": {
            "message_id": str(ID),
            "user_id": "u",
            "to": "to",
            "correlation_id": 2**64 - 1,
            "content_type": "text/plain",
            "creation_time": 1000,
        },
        "application_properties": {"region": "emea"},
        "body_kind": "data",
        "body": "hi",
        "footer": {"crc": 7},
    }


def test_json_marks_what_it_has_no_type_for() -> None:
    body = (
        b"\xff", math.inf, 1.5, Decimal(b"\xb1\x80\x07\xcf"), Described(Symbol("d"), 1),
        AmqpMap((("a", 1),)), AmqpMap(((1, "a"),)), AmqpMap((("a", 1), ("a", 2))), (),
    )  # fmt: skip
    found = to_jsonable(AmqpMessage(body_kind=BodyKind.VALUE, body=body))

    assert json.loads(json.dumps(found, allow_nan=False)) == {
        "body_kind": "value",
        "body": [
            {"base64": "/w=="}, {"float": "inf"}, 1.5, {"decimal": "-19.99"},
            {"descriptor": "d", "value": 1}, {"a": 1}, {"map": [[1, "a"]]},
            {"map": [["a", 1], ["a", 2]]}, [],
        ],
    }  # fmt: skip
    assert to_jsonable(AmqpMessage(header=Header())) == {"header": {}, "body_kind": "none"}
    assert to_jsonable(decode_message(BODY + BODY))["body"] == ["hi", "hi"]
