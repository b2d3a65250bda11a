"""Bodies of Avro become JSON, by their own schema or by what a registry knows."""

from __future__ import annotations

import json
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pytest

from coldstream.adapters.glue_schemas import GlueSchemas
from coldstream.bodies.avro import AvroBodies, parsed
from coldstream.bodies.registry import GlueRegistry, HttpRegistry
from coldstream.errors import CorruptDataError, InvalidInputError

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal",
                                   "precision": 12, "scale": 2}},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "key", "type": "bytes"},
        {"name": "rate", "type": "double"},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}}},
    ],
}  # fmt: skip
VALUE = {
    "id": 7, "price": Decimal("19.99"), "placed": 1_790_000_000_123, "note": None,
    "key": b"\xff\x00", "rate": float("nan"), "lines": [{"sku": "ä"}],
}  # fmt: skip
AS_JSON = {
    "id": 7, "price": "19.99", "placed": 1_790_000_000_123, "note": None, "key": "/wA=",
    "rate": "NaN", "lines": [{"sku": "ä"}],
}  # fmt: skip


def encoded(value: Any, schema: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def test_a_body_is_read_by_its_schema_with_decimals_bytes_and_times_that_json_can_hold() -> None:
    bodies = AvroBodies(json.dumps(ORDER), None, 2**20)

    assert json.loads(bodies(encoded(VALUE, ORDER))) == AS_JSON


@pytest.mark.parametrize("kind", ["bytes", "fixed"])
@pytest.mark.parametrize(
    ("unscaled", "text"),
    [(123456, "1234.56"), (-123456, "-1234.56"), (10**30 + 1, f"{10**28}.01"), (-1, "-0.01")],
)
def test_a_decimal_with_more_digits_than_its_schema_allows_keeps_all_of_them(
    kind: str, unscaled: int, text: str
) -> None:
    # A body of some other writer: those of most languages do not count digits.
    digits: dict[str, Any] = {"logicalType": "decimal", "precision": 4, "scale": 2}
    given: dict[str, Any] = {"type": kind, **digits}
    if kind == "fixed":
        given |= {"name": "Price", "size": 14}
    schema = {"type": "record", "name": "r", "fields": [{"name": "d", "type": given}]}
    data = unscaled.to_bytes(14, "big", signed=True)
    body = data if kind == "fixed" else bytes([2 * len(data)]) + data

    assert json.loads(AvroBodies(json.dumps(schema), None, 2**20)(body)) == {"d": text}


def test_a_decimal_of_very_many_bytes_is_refused_before_its_digits_are_counted() -> None:
    """They cost the square of the bytes: one body of 400 KB took 13 s, one of 16 MB hours."""
    given = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    schema = {"type": "record", "name": "r", "fields": [{"name": "d", "type": given}]}

    def read(size: int) -> Any:
        written = BytesIO()
        fastavro.schemaless_writer(written, "bytes", b"\x7f" * size)
        return AvroBodies(json.dumps(schema), None, 2**20)(written.getvalue())

    assert len(json.loads(read(1024))["d"]) > 2400
    with pytest.raises(CorruptDataError, match="decimal of 1025 bytes"):
        read(1025)
    field = {"name": "e", "type": given, "default": "\u007f" * 1025}
    with pytest.raises(InvalidInputError, match="a default has a decimal of 1025 bytes"):
        AvroBodies(json.dumps(schema | {"fields": [field]}), None, 2**20)


def test_reading_decimals_changes_nothing_of_how_others_read_avro_in_the_process() -> None:
    before = dict(fastavro.read.LOGICAL_READERS)
    AvroBodies(json.dumps(ORDER), None, 2**20)(encoded(VALUE, ORDER))

    found = fastavro.schemaless_reader(BytesIO(encoded(VALUE, ORDER)), ORDER, None)
    assert isinstance(found, dict)
    assert found["price"] == Decimal("19.99")
    assert all(fastavro.read.LOGICAL_READERS[name] is each for name, each in before.items())


@pytest.mark.parametrize("change", ["cut", "longer", "nothing", "hostile"])
def test_a_body_that_is_not_of_its_schema_says_so(change: str) -> None:
    body = encoded(VALUE, ORDER)
    wrong = {
        "cut": body[:-2],
        "longer": body + b"\x00",
        "nothing": b"",
        "hostile": b"\x0e" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" * 9,
    }[change]

    with pytest.raises(CorruptDataError, match="Avro"):
        AvroBodies(json.dumps(ORDER), None, 2**20)(wrong)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("long", b"\xff"),
        ("long", b""),
        ("string", b"\x08a"),
        ("double", b"1234"),
        (["null", "int"], b"\x02"),
        ({"type": "array", "items": "int"}, b"\x02\x01"),
    ],
)
def test_a_body_that_is_cut_is_told_so_in_our_words(kind: Any, body: bytes) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": kind}]}
    with pytest.raises(CorruptDataError, match="no Avro of its schema: it ends too early"):
        AvroBodies(json.dumps(schema), None, 2**20)(body)


def test_a_schema_that_another_one_does_not_resolve_to_is_told_in_its_own_words() -> None:
    with pytest.raises(CorruptDataError, match="Schema mismatch") as told:
        resolved(T_MICROS, {"type": "array", "items": T_MILLIS}, 7)
    assert "coldstream" not in str(told.value)
    assert "'time-micros'" in str(told.value)


def test_a_body_that_is_wrong_and_whole_is_not_told_to_be_cut() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": ["null", "int"]}]}
    with pytest.raises(CorruptDataError, match="IndexError"):
        AvroBodies(json.dumps(schema), None, 2**20)(b"\x08")


NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
EMPTY = {"type": "record", "name": "Empty", "fields": []}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (NODE, "refers to itself"),
        ({"type": "array", "items": "null"}, "any length"),
        ({"type": "array", "items": EMPTY}, "any length"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "any length"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": EMPTY},
                                                    {"name": "b", "type": "Empty"}]}, "any size"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "lung"}]}, "no Avro"),
        ("{", "no Avro"),
    ],
)  # fmt: skip
def test_a_schema_by_which_few_bytes_take_all_memory_or_stack_is_refused(
    schema: Any, words: str
) -> None:
    text = schema if isinstance(schema, str) else json.dumps(schema)

    with pytest.raises(InvalidInputError, match=words):
        parsed(text)


NEWER = {**ORDER, "fields": [*ORDER["fields"], {"name": "country", "type": "string"}]}


class Answers:
    """A registry's answers by path, and what was asked for."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, path: str) -> Any:
        self.asked.append(path)
        return self.answers[path]


def framed(number: int, body: bytes) -> bytes:
    return b"\x00" + number.to_bytes(4, "big") + body


def test_a_body_is_read_by_the_schema_that_it_names_and_becomes_what_the_table_has() -> None:
    answers = Answers(
        {f"/schemas/ids/{n}": {"schema": json.dumps(s)} for n, s in ((1, ORDER), (2, NEWER))}
    )
    bodies = AvroBodies(json.dumps(ORDER), HttpRegistry("http://r", answers), 2**20)

    newer = {**VALUE, "country": "DE"}
    for _ in range(3):
        assert json.loads(bodies(framed(1, encoded(VALUE, ORDER)))) == AS_JSON
        assert json.loads(bodies(framed(2, encoded(newer, NEWER)))) == AS_JSON
    assert answers.asked == ["/schemas/ids/1", "/schemas/ids/2"]


MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
TAX_ID = {"type": "fixed", "name": "Id", "size": 1}
TAX = {"type": "record", "name": "Tax", "fields": [
    {"name": "rate", "type": MONEY}, {"name": "id", "type": TAX_ID}
]}  # fmt: skip

PLACE = {"type": "record", "name": "Place", "fields": [
    {"name": "city", "type": "string", "default": "Ulm"}, {"name": "zip", "type": "string"},
    {"name": "tax", "type": [TAX, "null"], "default": {"rate": "\u0005", "id": "\u00ff"}},
]}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        (MONEY, "\u0000", "0.00"),
        (MONEY, "\u0000\u00c8", "2.00"),
        ([MONEY, "null"], "\u0001", "0.01"),
        (["null", MONEY], None, None),
        ("bytes", "\u00ff", "/w=="),
        ("bytes", "", ""),
        ("string", "\u00ff", "ÿ"),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], ["/w=="]),
        ({"type": "map", "values": MONEY}, {"a": "\u0005"}, {"a": "0.05"}),
        (TAX, {"rate": "\u0007", "id": "\u00ff"}, {"rate": "0.07", "id": "/w=="}),
        ("double", 1, 1),
        (PLACE, {}, {"city": "Ulm", "tax": {"rate": "0.05", "id": "/w=="}}),
        (PLACE, {"zip": "1", "city": "Bonn"},
         {"city": "Bonn", "zip": "1", "tax": {"rate": "0.05", "id": "/w=="}}),
        ({"type": "array", "items": PLACE}, [{"tax": None}], [{"city": "Ulm", "tax": None}]),
    ],
)  # fmt: skip
def test_a_field_that_a_body_was_written_without_has_the_default_of_the_table_s_schema(
    kind: Any, default: Any, expected: Any
) -> None:
    def record(*fields: Any) -> Any:
        return {"type": "record", "name": "r", "fields": list(fields)}

    one = {"name": "n", "type": "int"}
    written = record(one)
    answers = Answers({"/schemas/ids/7": {"schema": json.dumps(written)}})
    registry = HttpRegistry("http://r", answers)
    read = json.dumps(record(one, {"name": "new", "type": kind, "default": default}))
    bodies = AvroBodies(read, registry, 2**20)

    for _ in range(2):
        found = json.loads(bodies(framed(7, encoded({"n": 5}, written))))
        assert found == {"n": 5, "new": expected}


def logical(name: str, kind: str = "long") -> dict[str, Any]:
    return {"type": kind, "logicalType": name}


def in_record(kind: Any) -> Any:
    return {"type": "record", "name": "r", "fields": [{"name": "v", "type": kind}]}


def resolved(written: Any, read: Any, value: Any) -> Any:
    """What a value written by one schema is when it is read by another."""
    writer = in_record(written)
    answers = Answers({"/schemas/ids/7": {"schema": json.dumps(writer)}})
    bodies = AvroBodies(json.dumps(in_record(read)), HttpRegistry("http://r", answers), 2**20)
    raw = value if isinstance(value, bytes) else encoded({"v": value}, writer)
    return json.loads(bodies(framed(7, raw)))["v"]


MILLIS, MICROS = logical("timestamp-millis"), logical("timestamp-micros")
NANOS = logical("timestamp-nanos")
T_MILLIS, T_MICROS = logical("time-millis", "int"), logical("time-micros")
L_MILLIS, L_NANOS = logical("local-timestamp-millis"), logical("local-timestamp-nanos")
DATE = logical("date", "int")


@pytest.mark.parametrize(
    ("written", "read", "value", "expected"),
    [
        (MILLIS, MICROS, 1790000000123, 1790000000123000),
        (MILLIS, MILLIS, 1790000000123, 1790000000123),
        (MICROS, MILLIS, 1790000000123000, 1790000000123),
        (MICROS, MILLIS, -1000, -1),
        (MILLIS, NANOS, 1790000000123, 1790000000123000000),
        (L_MILLIS, L_NANOS, -5, -5000000),
        (T_MILLIS, T_MICROS, 5, 5000),
        (DATE, DATE, 19, 19),
        # Without a unit on one side a number is what the other side says.
        (MILLIS, "long", 1790000000123, 1790000000123),
        ("long", MICROS, 1790000000123, 1790000000123),
        (MILLIS, "double", 3, 3.0),
        # Wherever it stands.
        (["null", MILLIS], ["null", MICROS], 7, 7000),
        (MILLIS, ["null", MICROS], 7, 7000),
        (["null", MILLIS], MICROS, 7, 7000),
        ({"type": "array", "items": MILLIS}, {"type": "array", "items": MICROS}, [7], [7000]),
        ({"type": "map", "values": MILLIS}, {"type": "map", "values": ["null", MICROS]},
         {"a": 7}, {"a": 7000}),
        ({"type": "record", "name": "i", "fields": [{"name": "t", "type": MILLIS}]},
         {"type": "record", "name": "i", "fields": [{"name": "t", "type": MICROS}]},
         {"t": 7}, {"t": 7000}),
        # What does not fit is text, which no column of times or numbers takes; nothing is cut off.
        (MICROS, MILLIS, 1790000000123456, "1790000000123.456"),
        (NANOS, MICROS, -1, "-0.001"),
        (MICROS, L_NANOS, 7, "7 (timestamp-micros)"),
        (T_MILLIS, MICROS, 7, "7 (time-millis)"),
        (DATE, MILLIS, 7, "7 (date)"),
        (DATE, T_MILLIS, 7, "7 (date)"),
        # A decimal read as plain bytes is these bytes, as every other value of the column is.
        (MONEY, "bytes", b"\x04\x07\xcf", "B88="),
        (MONEY, MONEY, b"\x04\x07\xcf", "19.99"),
    ],
)  # fmt: skip
def test_a_time_is_that_of_its_writer_whatever_unit_the_table_s_schema_has(
    written: Any, read: Any, value: Any, expected: Any
) -> None:
    """Milliseconds that the newest schema has as microseconds were times in January 1970."""
    assert resolved(written, read, value) == expected


LINE = {"type": "record", "name": "Line", "fields": [
    {"name": "a_quite_usual_name", "type": ["null", "long"]}]}  # fmt: skip
STATE = {"type": "enum", "name": "State", "symbols": ["A_STATE_WITH_A_RATHER_LONG_NAME"]}


def test_a_body_of_very_few_bytes_for_each_value_is_told_before_it_takes_all_memory() -> None:
    """1 MB of nulls in records took 335 MB, and 16 MB a worker."""
    for item in (LINE, STATE, {"type": "array", "items": "int"}, {"type": "map", "values": "int"}):
        schema = json.dumps(in_record({"type": "array", "items": item}))
        many = 2**17
        body = b"\x80\x80\x10" + bytes(many) + b"\x00"

        with pytest.raises(CorruptDataError, match="more JSON than its limit, 1048576 bytes"):
            AvroBodies(schema, None, 2**20)(body)
        assert len(json.loads(AvroBodies(schema, None, 2**24)(body))["v"]) == many


def test_defaults_within_a_list_count_as_often_as_they_are_filled_in() -> None:
    more = {"name": "new", "type": "string", "default": "x" * 1000}
    newer = {**LINE, "fields": [*LINE["fields"], more]}
    written = {"type": "array", "items": LINE}

    with pytest.raises(CorruptDataError, match="more JSON than its limit"):
        resolved(written, {"type": "array", "items": newer}, b"\x80\x20" + bytes(2049))
    assert len(resolved(written, written, b"\x80\x20" + bytes(2049))) == 2048


def test_defaults_that_a_few_records_make_very_many_are_refused() -> None:
    kind: Any = {"type": "record", "name": "R0", "fields": [
        {"name": "n", "type": "int", "default": 1}]}  # fmt: skip
    for number in range(1, 40):
        twice = [{"name": "a", "type": kind}, {"name": "b", "type": f"R{number - 1}"}]
        fields = [{**each, "default": {}} for each in twice]
        kind = {"type": "record", "name": f"R{number}", "fields": fields}

    with pytest.raises(InvalidInputError, match="a default has more than 100000 values"):
        parsed(json.dumps(kind))


def test_a_schema_is_read_with_what_its_references_refer_to_in_whatever_order() -> None:
    city = {"type": "record", "name": "geo.City", "fields": [{"name": "n", "type": "int"}]}
    place = {"type": "record", "name": "geo.Place", "fields": [{"name": "city", "type": "City"}]}
    order = {"type": "record", "name": "Order", "fields": [
        {"name": "to", "type": "geo.Place"}, {"name": "of", "type": "geo.City"}]}  # fmt: skip

    def answer(schema: Any, *references: str) -> Any:
        named = [{"name": name, "subject": name, "version": 1} for name in references]
        return {"schema": json.dumps(schema), "references": named}

    answers = Answers(
        {
            "/schemas/ids/1": answer(order, "geo.Place", "geo.City"),
            "/subjects/geo.Place/versions/1": answer(place, "geo.City"),
            "/subjects/geo.City/versions/1": answer(city),
        }
    )
    bodies = AvroBodies("", HttpRegistry("http://r", answers), 2**20)

    assert json.loads(bodies(framed(1, b"\x02\x04"))) == {"to": {"city": {"n": 1}}, "of": {"n": 2}}


def test_a_body_without_the_head_or_of_a_schema_that_is_none_is_told() -> None:
    text = {"schemaType": "JSON", "schema": '{"type": "string"}'}  # it could be taken for Avro
    answers = Answers({"/schemas/ids/3": {"schema": json.dumps(NODE)}, "/schemas/ids/4": text})
    bodies = AvroBodies("", HttpRegistry("http://r", answers), 2**20)

    with pytest.raises(CorruptDataError, match="id of a schema"):
        bodies(encoded(VALUE, ORDER))
    for _ in range(2):
        with pytest.raises(CorruptDataError, match=r"schema 3: .* refers to itself"):
            bodies(framed(3, b"\x00"))
        with pytest.raises(CorruptDataError, match="schema 4: it is a schema of JSON"):
            bodies(framed(4, b"\x02a"))
    assert len(answers.asked) == 2


class Glue:
    """What of boto3's client is used."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def get_schema_version(self, **which: Any) -> dict[str, Any]:
        self.asked.append(which)
        return {"DataFormat": "AVRO", "SchemaDefinition": json.dumps(ORDER)}


@pytest.mark.parametrize("packed", [False, True])
def test_a_body_with_the_head_of_glue_is_read_by_the_version_that_it_names(packed: bool) -> None:
    import zlib

    client = Glue()
    bodies = AvroBodies("", GlueRegistry(GlueSchemas(client)), 2**20)
    rest = encoded(VALUE, ORDER)
    head = bytes([3, 5 if packed else 0]) + bytes(15) + b"\x09"

    for _ in range(2):
        assert json.loads(bodies(head + (zlib.compress(rest) if packed else rest))) == AS_JSON
    assert client.asked == [{"SchemaVersionId": "00000000-0000-0000-0000-000000000009"}]
    with pytest.raises(CorruptDataError, match="head of Glue's"):
        bodies(framed(1, rest))
    with pytest.raises(CorruptDataError, match="more than 100 bytes"):
        GlueRegistry(GlueSchemas(client)).split(
            bytes([3, 5]) + bytes(16) + zlib.compress(bytes(101)), 100
        )
