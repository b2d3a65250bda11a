"""What a rule declares about bodies: three ways to say it, and what of a body fits."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.declared.fields import parse_declared
from coldstream.jobs.materialise.json_bodies import bodies as json_body
from coldstream.jobs.materialise.json_bodies.bodies import Misfits, parse_bodies
from coldstream.jobs.materialise.kinds import name_of

LINES = """
# what the shop writes
id: long required
price: decimal(12, 2)
paid: bool
made: timestamp
seen_s: timestamp_s
seen: timestamp_ms
seen_us: timestamp_us
local: timestamp_ntz
day: date
n: int
f: float
"odd name": string
lines: list<struct<sku: string, n: int, at: timestamp>>
labels: map<string, double>
"""
KNOWN = parse_declared(LINES)
#: All but what only the careful way can read.
QUICK = pa.schema([each for each in KNOWN if each.name not in ("labels", "f")])


def test_lines_of_name_and_type_are_a_schema() -> None:
    assert {each.name: name_of(each.type) for each in KNOWN} == {
        "id": "long", "price": "decimal(12,2)", "paid": "boolean", "made": "timestamp",
        "seen_s": "timestamp_s", "seen": "timestamp_ms", "seen_us": "timestamp_us",
        "local": "timestamp_ntz", "day": "date", "n": "int", "f": "float", "odd name": "string",
        "lines": "list<struct<sku:string,n:int,at:timestamp>>", "labels": "map<string,double>",
    }  # fmt: skip
    assert [each.name for each in KNOWN if not each.nullable] == ["id"]


def test_a_json_schema_is_one_too() -> None:
    address = {"type": "object", "properties": {"zip": {"type": "string"}}, "required": ["zip"]}
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "price": {"type": ["number", "null"]},
            "either": {"type": ["integer", "number"]},
            "made": {"type": "string", "format": "date-time"},
            "day": {"type": "string", "format": "date"},
            "mail": {"type": "string", "format": "email", "pattern": "@"},
            "address": {"$ref": "#/$defs/address"},
            "other": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/address"}]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "labels": {"type": "object", "additionalProperties": {"type": "boolean"}},
        },
        "required": ["id", "price"],
        "$defs": {"address": address},
    }
    schema = parse_declared(json.dumps(document))
    assert {each.name: name_of(each.type) for each in schema} == {
        "id": "long", "price": "double", "either": "double", "made": "timestamp", "day": "date",
        "mail": "string", "address": "struct<zip:string>", "other": "struct<zip:string>",
        "tags": "list<string>", "labels": "map<string,boolean>",
    }  # fmt: skip
    assert [each.name for each in schema if not each.nullable] == ["id"]
    assert not schema.field("address").type[0].nullable


def test_an_avro_schema_is_one_too() -> None:
    line = {"type": "record", "name": "line", "fields": [{"name": "sku", "type": "string"}]}
    document = {
        "type": "record",
        "name": "order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "who", "type": ["null", "string"], "default": None},
            {"name": "n", "type": "int", "default": 0},
            {"name": "made", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {
                "name": "price",
                "type": {
                    "type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2,
                },
            },
            {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["A"]}},
            {"name": "first", "type": line},
            {"name": "lines", "type": {"type": "array", "items": "line"}},
            {"name": "again", "type": ["null", "shop.line"]},
            {"name": "labels", "type": {"type": "map", "values": "double"}},
        ],
    }  # fmt: skip
    document["fields"][8]["type"]["namespace"] = "shop"  # type: ignore[index]
    schema = parse_declared(json.dumps(document))
    assert {each.name: name_of(each.type) for each in schema} == {
        "id": "long", "who": "string", "n": "int", "made": "timestamp_ms",
        "seen": "timestamp_us", "day": "int", "price": "decimal(9,2)", "kind": "string",
        "first": "struct<sku:string>", "lines": "list<struct<sku:string>>",
        "again": "struct<sku:string>", "labels": "map<string,double>",
    }  # fmt: skip
    nullable = [each.name for each in schema if each.nullable]
    assert nullable == ["who", "n", "again"]


def _properties(**fields: Any) -> str:
    return json.dumps({"type": "object", "properties": fields})


def _record(*types: Any) -> str:
    fields = [{"name": f"x{n}", "type": kind} for n, kind in enumerate(types)]
    return json.dumps({"type": "record", "name": "r", "fields": fields})


@pytest.mark.parametrize("named", ["Address", "shop.Address"])
@pytest.mark.parametrize("name", ["Address", "shop.Address"])
def test_a_record_of_avro_is_found_by_its_whole_name_and_by_the_last_part_of_it(
    name: str, named: str
) -> None:
    address = {"type": "record", "name": name, "fields": [{"name": "city", "type": "string"}]}
    fields = [{"name": "bill", "type": address}, {"name": "ship", "type": ["null", named]}]
    order = {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}

    found = parse_declared(json.dumps(order))

    assert (
        found.field("bill").type
        == found.field("ship").type
        == pa.struct([pa.field("city", pa.string(), nullable=False)])
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has 0 fields"),
        ("price", "line 1 of the schema is not `name: type`: 'price'"),
        ("a: long\n: int", "line 2"),
        ("price: money", "price: 'money' is no type; there are boolean"),
        ("price: decimal", "is no type"),
        ("price: decimal(39,2)", "1 to 38 digits"),
        ("price: decimal(5,6)", "1 to 38 digits"),
        ("a: list<", "is no type"),
        ("a: list<int>>", "is no type"),
        ("a: map<int,int>", "is no type"),
        ("a: struct<b: int, B: int>", "'a.B' is there twice"),
        ("a: int\nA: int", "'A' is there twice"),
        ("_offset: int", "'_offset' cannot be a column"),
        ("a.b: int", "'a.b' cannot be a column"),
        ("a: " + "list<" * 9 + "int" + ">" * 9, "a is nested more than 8 deep"),
        ("\n".join(f"c{n}: int" for n in range(1001)), "has 1001 fields; there are 1 to 1000"),
        ("{", "no JSON"),
        ('{"type": "array"}', "neither a JSON Schema"),
        (_properties(a={"type": ["string", "integer"]}), "is not one type; text takes any value"),
        (_properties(a={"type": 5}), "a: '5' is no type"),
        (_properties(a={"type": [{"type": "string"}]}), "is no type"),
        (
            _properties(a={"type": "object", "properties": {"b": {}}, "required": True}),
            "a: required is a list of names, not 'True'",
        ),
        (_properties(a={"type": "money"}), "a: 'money' is no type of JSON Schema"),
        (_properties(a={}), "a: None is not one type"),
        (_properties(a={"type": "object"}), "an object without properties"),
        (_properties(a={"type": "array"}), "a has no type"),
        (_properties(a={"$ref": "#/nowhere"}), "there is no '#/nowhere'"),
        (_properties(a={"$ref": "http://elsewhere/x"}), "there is no 'http://elsewhere/x'"),
        ('{"$ref": "#"}', "refers to others"),
        (_properties(a={"anyOf": [{"type": "string"}, {"type": "integer"}]}), "one of several"),
        (_properties(a={"$ref": "#"}), "nested more than 8 deep"),
        (_record("bytes"), "x0: 'bytes' is no type that a body"),
        (_record(["string", "long"]), "x0: a union of several types"),
        (_record({"type": "array", "items": "unknown"}), "x0: 'unknown' is no type"),
        (_record({"type": "record", "name": "q"}), "x0: the record has no fields"),
        (_record({"type": "array", "items": "r"}), "nested more than 8 deep"),
        ("a: int\n" + "#" * 2**20, "more than 1048576 characters"),
    ],
)
def test_a_schema_that_no_table_can_have_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_declared(text)
    assert words in caught.value.reason


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("price", "19.99", Decimal("19.99")),
        ("price", "20", Decimal("20.00")),
        ("price", '"19.990"', Decimal("19.99")),
        ("price", "1e3", Decimal("1000.00")),
        ("made", '"2026-11-24T08:00:00Z"', datetime(2026, 11, 24, 8, tzinfo=UTC)),
        ("made", '"2026-11-24 08:00:00.1234569-02:00"',
         datetime(2026, 11, 24, 10, 0, 0, 123456, tzinfo=UTC)),
        ("seen_s", "-1", datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("seen", "1500", datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)),
        ("seen_us", "253402300799999999", datetime.max.replace(tzinfo=UTC)),
        ("local", '"2026-11-24T08:00:00.5"', datetime(2026, 11, 24, 8, 0, 0, 500_000)),
        ("day", '"2024-02-29"', date(2024, 2, 29)),
        ("n", "-2147483648", -(2**31)),
        ("f", "0.5", 0.5), ("f", "16777216", 2.0**24),
        ("f", "3.4028235E38", (2 - 2**-23) * 2.0**127),  # as Java writes the greatest of all
        ("odd name", "[1.50]", "[1.50]"),
        ("lines", '[{"sku":"a","n":1,"at":"2026-11-24T08:00:00Z"},null]',
         [{"sku": "a", "n": 1, "at": datetime(2026, 11, 24, 8, tzinfo=UTC)}, None]),
        ("labels", '{"a":1,"b":null}', [("a", 1.0), ("b", None)]),
    ],
)  # fmt: skip
def test_a_value_is_read_as_it_is_declared(field: str, text: str, value: Any) -> None:
    body = f'{{"id":1,"{field}":{text}}}'.encode()
    parsed = parse_bodies(pa.array([body]), KNOWN, declared=True)
    assert parsed.columns[KNOWN.get_field_index(field)][0].as_py() == value
    assert (parsed.rescued.null_count, parsed.errors) == (1, {})


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("id", '"1"'), ("id", "1.0"), ("id", "null"),
        ("price", "19.999"), ("price", "10000000000"), ("price", '"EUR 5"'), ("price", "1e400"),
        ("price", "true"), ("price", "[1]"), ("price", '"Infinity"'), ("price", "1e-999999999"),
        ("made", '"2026-11-24T08:00:00"'), ("made", '"2026-02-30T08:00:00Z"'), ("made", "5"),
        ("made", '"0001-01-01T00:00:00+01:00"'), ("made", '"9999-12-31T23:59:59-01:00"'),
        ("made", '"2026-11-24T24:00:00Z"'), ("made", '"2026-11-24T08:00:60Z"'),
        ("made", '"2026-11-24T08:00:00Z "'), ("made", '"２０26-11-24T08:00:00Z"'),
        ("seen_s", "253402300800"), ("seen", "1.5"), ("seen", '"5"'),
        ("seen_us", "9223372036854775808"), ("local", '"2026-11-24T08:00:00Z"'),
        ("day", '"2023-02-29"'), ("day", '"0000-01-01"'), ("day", "20000"),
        ("n", "2147483648"), ("f", "1e39"), ("f", "16777217"), ("f", "3.4028236e38"),
        ("f", "9" * 400), ("paid", "1"), ("paid", '"true"'),
        ("lines", '[{"sku":"a","n":"x"}]'), ("lines", '[{"sku":"a","more":1}]'), ("lines", "{}"),
        ("labels", '{"a":"x"}'), ("labels", "[]"),
    ],
)  # fmt: skip
def test_a_value_that_is_otherwise_is_rescued_or_a_dead_letter(field: str, text: str) -> None:
    body = f'{{"id":1,"{field}":{text}}}' if field != "id" else f'{{"id":{text}}}'
    bodies = pa.array([body.encode(), b'{"id":2}'])
    rescued = parse_bodies(bodies, KNOWN, declared=True)
    assert rescued.errors == {}
    assert dict(rescued.rescued[0].as_py()) == {field: text}
    dead = parse_bodies(bodies, KNOWN, declared=True, misfits=Misfits.DEAD_LETTER)
    assert list(dead.errors) == [0]
    assert dead.errors[0].startswith(f"{field} is no {name_of(KNOWN.field(field).type)}: ")


def test_a_field_that_is_not_declared_is_rescued_also_where_misfits_are_dead_letters() -> None:
    parsed = parse_bodies(
        pa.array([b'{"id":1,"more":[2]}']), KNOWN, declared=True, misfits=Misfits.DEAD_LETTER
    )
    assert parsed.errors == {}
    assert dict(parsed.rescued[0].as_py()) == {"more": "[2]"}
    assert not len(parsed.found)


def test_a_long_value_is_told_in_part() -> None:
    body = b'{"id":"%s"}' % (b"x" * 100_000)
    parsed = parse_bodies(pa.array([body]), KNOWN, declared=True, misfits=Misfits.DEAD_LETTER)
    assert len(parsed.errors[0]) < 200


def test_declared_bodies_go_the_quick_way() -> None:
    bodies = [
        json.dumps({
            "id": n, "price": 19.99, "paid": True, "made": "2026-11-24T08:00:00.5+01:00",
            "seen_s": n, "seen": n, "seen_us": n, "local": "2026-11-24T08:00:00",
            "day": "2026-11-24", "n": n, "odd name": "x",
            "lines": [{"sku": "a", "n": 1, "at": "2026-11-24T08:00:00Z"}] * (n % 3),
        }).encode()
        for n in range(9)
    ]  # fmt: skip
    bodies += [b'{"id":1}', b'{"id":2,"lines":[null,{"sku":null}]}']
    assert json_body._quickly(pa.array(bodies), QUICK) is not None
    assert json_body._quickly(pa.array([b'{"n":1}']), QUICK) is None, "id must be there"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("decimal(38,18)", "500000000000000000000"),
        ("decimal(38,18)", "-500000000000000000000"),
        ("decimal(38,2)", "9" * 38),
        ("decimal(38,38)", "1"),
        ("decimal(38,0)", "1e-39"),
        ("decimal(10,2)", "-345e-41"),
        ("decimal(20,18)", "1E-77"),
        ("decimal(10,2)", "1e+300"),
        ("decimal(10,2)", "0.1e1000"),
    ],
)
def test_a_number_with_more_digits_than_its_column_is_never_another_number(
    kind: str, text: str
) -> None:
    body = pa.array([f'{{"n": {text}}}'.encode()])
    parsed = parse_bodies(body, parse_declared(f"n: {kind}"), declared=True)
    assert parsed.columns[0].to_pylist() == [None]
    assert parsed.rescued.to_pylist() == [[("n", text)]]


@pytest.mark.parametrize(
    "text",
    ['"1e-41"', '"+1e-41"', r'"1e\u002d41"', r'"1\u0065-41"', r'"1e-\u0034\u0031"', '"1e-41" '],
)
@pytest.mark.parametrize(
    ("form", "row"),
    [
        ('{"n": %s}', [None, None, None]),
        ('{"m": [0.5,%s]}', [None, [Decimal("0.50"), None], None]),
        ('{"o": {"p":%s}}', [None, None, {"p": None}]),
    ],
)
def test_a_text_with_a_power_of_ten_is_never_another_number(
    form: str, row: list[object], text: str
) -> None:
    known = parse_declared("n: decimal(10,2)\nm: array<decimal(10,2)>\no: struct<p: decimal(10,2)>")
    parsed = parse_bodies(pa.array([(form % text).encode()]), known, declared=True)
    assert [each.to_pylist() for each in parsed.columns] == [[each] for each in row]


_TIMES = st.sampled_from(
    ["2026-11-24T08:00:00Z", "2026-11-24 08:00:00.123+01:00", "2026-02-30T00:00:00Z", "today",
     "2026-11-24T08:00:00", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59.999999Z",
     "9999-12-31T23:59:59-00:01", "2026-11-24T08:00:00.123456789Z", "1969-12-31T23:59:59.9999999Z",
     "2026-11-24", "0000-01-01", "2024-02-29", "2023-02-29", "1500-02-29", "2026-11-24T23:59:60Z"]
)  # fmt: skip
_NUMBERS = st.sampled_from(
    ["0", "-0", "1", "1.5", "1.50", "1.555", "1e2", "1E400", "9999999999.99", "10000000000",
     "0.005", "-1.5", "2147483648", "253402300799", "253402300800", "253402300799999",
     "253402300799999999", "-62135596800", "-62135596801", "9223372036854775807", "null", "true"]
)  # fmt: skip
_TEXTS = st.sampled_from(["1.5", "+1", "1e2", ".5", "1.", "", " 1", "x", "１"])
_LEAVES = _TIMES.map(json.dumps) | _NUMBERS | _TEXTS.map(json.dumps)


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from([each for each in QUICK.names if each != "lines"]), _LEAVES)
            | st.tuples(
                st.just("lines"),
                st.builds('[{{"at":{},"n":{}}},null]'.format, _LEAVES, _LEAVES) | _LEAVES,
            ),
            max_size=4,
            unique_by=lambda field: field[0],
        ),
        min_size=1,
        max_size=4,
    )
)
def test_the_quick_way_and_the_careful_way_agree_about_declared_fields(
    documents: list[list[tuple[str, str]]],
) -> None:
    known = pa.schema([each.with_nullable(True) for each in QUICK])
    bodies = pa.array(
        ["{%s}" % ",".join(f"{json.dumps(n)}:{v}" for n, v in each) for each in documents]  # noqa: UP031
    ).cast(pa.binary())
    quick = json_body._quickly(bodies, known)
    if quick is None:
        return
    careful = json_body._one_by_one(bodies, known, declared=True)
    assert careful.errors == {}
    assert careful.rescued.null_count == len(bodies)
    for ours, theirs in zip(quick.columns, careful.columns, strict=True):
        assert ours.equals(theirs)
