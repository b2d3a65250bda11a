"""Values keep their AMQP types: as tagged JSON, and as VARIANT that Spark itself reads."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql.types import VariantVal

from coldstream.columns import variant as variants
from coldstream.columns.schema import ALL, COLUMNS, DEAR, select
from coldstream.osiris.amqp_types import AmqpMap, Typed
from tests.unit.columns.test_reference import DATA, listed, mapped, row_of, section, text

NOON = 1_790_000_000_123

#: A value as it is sent, as tagged JSON, and as Python reads it from the VARIANT.
VALUES: list[tuple[bytes, Any, Any]] = [
    (b"\x40", None, None),
    (b"\x41", True, True),
    (b"\x56\x00", False, False),
    (b"\x50\xff", {"ubyte": 255}, 255),
    (b"\x51\x80", {"byte": -128}, -128),
    (b"\x60\xff\xff", {"ushort": 65535}, 65535),
    (b"\x61\x80\x00", {"short": -32768}, -32768),
    (b"\x43", {"uint": 0}, 0),
    (b"\x52\x07", {"uint": 7}, 7),
    (b"\x70\xff\xff\xff\xff", {"uint": 2**32 - 1}, 2**32 - 1),
    (b"\x54\xff", {"int": -1}, -1),
    (b"\x71\x80\x00\x00\x00", {"int": -(2**31)}, -(2**31)),
    (b"\x44", {"ulong": 0}, 0),
    (b"\x53\x2a", {"ulong": 42}, 42),
    (b"\x80" + b"\xff" * 8, {"ulong": 2**64 - 1}, Decimal(2**64 - 1)),
    (b"\x55\x80", {"long": -128}, -128),
    (b"\x81\x80" + bytes(7), {"long": -(2**63)}, -(2**63)),
    (b"\x72" + struct.pack(">f", 0.5), {"float": 0.5}, 0.5),
    (b"\x82" + struct.pack(">d", 0.1), {"double": 0.1}, 0.1),
    (b"\x82" + struct.pack(">d", float("-inf")), {"double": "-Infinity"}, float("-inf")),
    (b"\xa1\x05gr\xc3\xb6\x21", "grö!", "grö!"),
    (b"\xb1\x00\x00\x00\x64" + b"x" * 100, "x" * 100, "x" * 100),
    (b"\xa3\x02ok", {"symbol": "ok"}, "ok"),
    (b"\x73\x00\x01\xf6\x00", {"char": "😀"}, "😀"),
    (b"\xa0\x03\xff\x00\x01", {"binary": "/wAB"}, b"\xff\x00\x01"),
    (
        b"\x83" + struct.pack(">q", NOON),
        {"timestamp": NOON},
        datetime.fromtimestamp(NOON / 1000, UTC),
    ),
    (
        b"\x98" + bytes(15) + b"\x01",
        {"uuid": "00000000-0000-0000-0000-000000000001"},
        "00000000-0000-0000-0000-000000000001",
    ),
    (b"\x74\xb1\x80\x07\xcf", {"decimal32": "-19.99"}, Decimal("-19.99")),
    (b"\x84\x31\xc0" + bytes(5) + b"\x01", {"decimal64": "1"}, Decimal(1)),
    (b"\x74\x77\xf8\x96\x7f", {"decimal32": "9.999999E+96"}, "9.999999E+96"),
    (listed(b"\x54\x01", text("a")), [{"int": 1}, "a"], [1, "a"]),
    (b"\x45", [], []),
    (b"\xe0\x04\x02\x54\x01\x02", [{"int": 1}, {"int": 2}], [1, 2]),
    (
        mapped((text("b"), b"\x41"), (text("a"), b"\x52\x01")),
        {"map": [["b", True], ["a", {"uint": 1}]]},
        {"a": 1, "b": True},
    ),
    (mapped((b"\x54\x01", text("x"))), {"map": [[{"int": 1}, "x"]]}, [[1, "x"]]),
    (
        b"\x00\xa3\x01d" + text("x"),
        {"described": [{"symbol": "d"}, "x"]},
        {"descriptor": "d", "value": "x"},
    ),
]


def python_of(found: dict[str, bytes]) -> Any:
    """What PySpark reads."""
    return VariantVal(found["value"], found["metadata"]).toPython()


@pytest.mark.parametrize(("wire", "tagged", "python"), VALUES)
def test_a_value_keeps_its_type_wherever_it_stands(wire: bytes, tagged: Any, python: Any) -> None:
    row = row_of(
        section(0x72, mapped((b"\xa3\x03x-a", wire), (b"\x53\x07", b"\x41")))
        + section(0x74, mapped((text("k"), wire)))
        + section(0x77, wire)
    )

    assert row["error"] is None
    assert json.loads(row["application_properties_json"]) == {"k": tagged}
    assert json.loads(row["message_annotations_json"]) == {"x-a": tagged, "7": True}
    assert python_of(row["application_properties_variant"]) == {"k": python}
    assert python_of(row["message_annotations_variant"]) == {"x-a": python, "7": True}
    if wire == b"\x40":
        assert json.loads(row["body_json"]) is None
    else:
        assert json.loads(row["body_json"]) == tagged
    assert python_of(row["body_variant"]) == python


def test_not_a_number_is_one_that_is_not_equal_to_itself() -> None:
    row = row_of(section(0x77, b"\x82" + struct.pack(">d", float("nan"))))

    assert json.loads(row["body_json"]) == {"double": "NaN"}
    found = python_of(row["body_variant"])
    assert found != found


def test_a_body_of_lists_is_a_list_of_them_and_one_of_bytes_has_no_types() -> None:
    row = row_of(section(0x76, listed(b"\x54\x01")) + section(0x76, listed(text("a"))))

    assert json.loads(row["body_json"]) == [[{"int": 1}], ["a"]]
    assert python_of(row["body_variant"]) == [[1], ["a"]]
    for wire in (DATA, section(0x70, b"\x45"), b"no AMQP"):
        row = row_of(wire)
        assert {name: row[name] for name in DEAR} == dict.fromkeys(DEAR)


def test_an_object_with_many_fields_and_long_ones_is_read_by_spark() -> None:
    pairs = [(f"k{n:03d}", "v" * n) for n in range(300)]
    wires = [
        (text(key), b"\xb1" + len(value).to_bytes(4, "big") + value.encode())
        for key, value in reversed(pairs)
    ]
    content = b"".join(key + value for key, value in wires)
    size = (len(content) + 4).to_bytes(4, "big")
    wire = b"\xd1" + size + (2 * len(wires)).to_bytes(4, "big") + content

    assert python_of(row_of(section(0x77, wire))["body_variant"]) == dict(pairs)


def test_fields_of_an_object_are_in_the_order_in_which_java_has_strings() -> None:
    names = ["a", "z", "\uff76", "\ue000", "\U0001f600", "\U0010ffff", "\ud7ff"]
    made = variants.variant(
        AmqpMap(tuple((Typed(0xA1, each), Typed(0x40, None)) for each in names))
    )

    assert made is not None
    metadata, count = made["metadata"], made["value"][1]
    begin = 2 + metadata[1] + 1
    ends = [begin + each for each in metadata[2:begin]]
    known = [metadata[at:end].decode() for at, end in pairwise(ends)]
    found = [known[number] for number in made["value"][2 : 2 + count]]
    assert found == ["a", "z", "\ud7ff", "\U0001f600", "\U0010ffff", "\ue000", "\uff76"]


def test_a_value_that_is_too_large_for_a_variant_is_null(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "MAX_BYTES", 20)

    assert variants.variant(Typed(0xA1, "x" * 19)) is not None
    assert variants.variant(Typed(0xA1, "x" * 20)) is None


def test_an_empty_map_is_an_object_without_fields() -> None:
    row = row_of(section(0x74, mapped()) + DATA)

    assert row["application_properties_json"] == "{}"
    assert python_of(row["application_properties_variant"]) == {}


def test_columns_that_are_made_value_by_value_are_had_by_name_only() -> None:
    assert set(COLUMNS) - set(ALL) == set(DEAR)
    assert select(["body_json"]).dear == ("body_json",)


def test_what_a_sender_says_of_delivery_is_in_the_header() -> None:
    header = section(0x70, listed(b"\x41", b"\x50\x04", b"\x70\x00\x01\x00\x00", b"\x42", b"\x43"))

    assert row_of(header + DATA)["header"] == {
        "durable": True,
        "priority": 4,
        "ttl": 65536,
        "first_acquirer": False,
        "delivery_count": 0,
    }
    some = row_of(section(0x70, listed(b"\x40", b"\x80" + b"\xff" * 8)) + DATA)["header"]
    assert (some["durable"], some["priority"], some["ttl"]) == (None, 2**63 - 1, None)
    assert row_of(DATA)["header"] is None


def test_annotations_of_delivery_and_the_footer_are_maps_of_text() -> None:
    row = row_of(
        section(0x71, mapped((b"\xa3\x01d", b"\x54\x05")))
        + DATA
        + section(0x78, mapped((b"\xa3\x03crc", text("9f"))))
    )

    assert row["delivery_annotations"] == [("d", "5")]
    assert row["footer"] == [("crc", "9f")]
