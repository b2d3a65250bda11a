"""JSON bodies as columns: the quick way and the careful way must agree, whatever the bytes."""

from __future__ import annotations

import json
from functools import reduce
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.jobs.materialise.json_bodies import bodies as json_body
from coldstream.jobs.materialise.json_bodies.bodies import Parsed, parse_bodies
from coldstream.jobs.materialise.json_bodies.text import MAX_VALUES, parse_object
from coldstream.jobs.materialise.schema import grown, merged

KNOWN = pa.schema(
    [
        pa.field("a", pa.int64()),
        pa.field("s", pa.string()),
        pa.field("f", pa.float64()),
        pa.field("o", pa.struct([pa.field("x", pa.int64())])),
        pa.field("l", pa.list_(pa.int64())),
    ]
)


def _rows(parsed: Parsed, known: pa.Schema = KNOWN) -> list[dict[str, Any]]:
    columns = [column.to_pylist() for column in parsed.columns]
    return [dict(zip(known.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _parse(*bodies: bytes | None) -> Parsed:
    return parse_bodies(pa.array(list(bodies), pa.binary()), KNOWN)


def test_plain_objects_go_the_quick_way() -> None:
    bodies = pa.array([b'{"a":1,"f":2}', b'{\n"s":"x","o":{"x":4},"l":[1,2]}\n'], pa.binary())
    quick = json_body._quickly(bodies, KNOWN)
    assert quick is not None
    assert _rows(quick)[1] == {"a": None, "s": "x", "f": None, "o": {"x": 4}, "l": [1, 2]}
    assert quick.errors == {}


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1}}\n{"i":1,"b":{"a":5}',
        b'{"a":1},"b":{"a":2}',
        b'{"a":1},"i":0',
        b'{"a":1},"x":0',
        b'{"a":1} {"a":2}',
        b"null",
        b"[1]",
        b"7",
        b"",
        b"\xff",
        None,
        b'{"a":NaN}',
        b'{"a":1',
        b"[" * 100_000,
        b'{"a":1,"a":2}',
        b'{"a":1,"\\u0061":1}',
        b'{"a":null,"a":1}',
        b'{"a":1,"a":null}',
        b'{"n":1,"n":1}',
        b'{"o":{"x":1,"x":2}}',
        b'{"o":{"x":null,"x":null}}',
        b'{"n":[{"z":[{"q":1,"q":1}]}]}',
    ],
)
def test_a_body_that_is_not_one_object_is_an_error_and_harms_no_other(body: bytes | None) -> None:
    parsed = _parse(b'{"a":1}', body, b'{"a":3}')
    assert list(parsed.errors) == [1]
    assert [row["a"] for row in _rows(parsed)] == [1, None, 3]


def test_a_field_without_a_column_is_rescued_and_told() -> None:
    parsed = _parse(b'{"a":1,"new":[1,2.5],"o":{"x":1,"y":"z"}}')
    assert _rows(parsed)[0]["o"] == {"x": 1}
    assert dict(parsed.rescued.to_pylist()[0]) == {"new": "[1,2.5]", "o": '{"x":1,"y":"z"}'}
    assert parsed.found.field("new").type == pa.list_(pa.float64())
    assert parsed.found.field("o").type == pa.struct([("x", pa.int64()), ("y", pa.string())])


@pytest.mark.parametrize(
    ("body", "field", "text"),
    [
        (b'{"a":1.5}', "a", "1.5"),
        (b'{"a":12345678901234567890}', "a", "12345678901234567890"),
        (b'{"a":true}', "a", "true"),
        (b'{"f":1%s}' % (b"0" * 400), "f", "1" + "0" * 400),
        (b'{"f":9007199254740993}', "f", "9007199254740993"),
        (b'{"s":"\\ud800"}', "s", '"\\ud800"'),
        (b'{"l":[1,"x"]}', "l", '[1,"x"]'),
        (b'{"o":[1]}', "o", "[1]"),
        (b'{"f":1e400}', "f", "1e400"),
        (b'{"f":-1E+400}', "f", "-1E+400"),
        (b'{"a":1e2}', "a", "1e2"),
        (b'{"a":1.50}', "a", "1.50"),
        (b'{"a":%s}' % (b"7" * 5000), "a", "7" * 5000),
        (b'{"new":1e400}', "new", "1e400"),
        (b'{ "f" : { "x" :\n[1 , 2.50]} , "a":1 }', "f", '{ "x" :\n[1 , 2.50]}'),
    ],
)
def test_a_value_that_does_not_fit_its_column_is_rescued_exactly(
    body: bytes, field: str, text: str
) -> None:
    parsed = _parse(body)
    assert parsed.errors == {}
    assert dict(parsed.rescued.to_pylist()[0]) == {field: text}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("5", "5"),
        ("1.50", "1.50"),
        ("true", "true"),
        ("1e400", "1e400"),
        ("7" * 5000, "7" * 5000),
        ('[1.50, {"x": "é"}]', '[1.50,{"x":"é"}]'),
    ],
)
def test_a_column_of_text_takes_any_value_as_its_json(value: str, text: str) -> None:
    parsed = _parse(f'{{"s":{value}}}'.encode(), b'{"s":"plain"}')
    assert [row["s"] for row in _rows(parsed)] == [text, "plain"]
    assert parsed.rescued.null_count == 2


@pytest.mark.parametrize("text", ["9007199254740993", "1" + "0" * 400])
def test_a_number_inside_a_list_or_an_object_is_as_exact(text: str) -> None:
    known = pa.schema(
        [
            pa.field("l", pa.list_(pa.float64())),
            pa.field("o", pa.struct([pa.field("f", pa.float64())])),
        ]
    )
    body = f'{{"l":[0.5,{text}],"o":{{"f":{text}}}}}'.encode()

    parsed = parse_bodies(pa.array([body], pa.binary()), known)

    assert dict(parsed.rescued.to_pylist()[0]) == {"l": f"[0.5,{text}]", "o": f'{{"f":{text}}}'}


def test_a_name_that_is_there_twice_is_named_in_the_dead_letter() -> None:
    reason = "the name 'x' is there twice in one object of the body"
    assert _parse(b'{"a":1,"o":{"y":1,"x":2,"x":3}}').errors == {0: reason}


@pytest.mark.parametrize("neighbour", [b'{"f":1.5}', b'{"f":"x"}', b'{"f":1e400}', b'{"g":1}'])
@pytest.mark.parametrize("text", ["1.7e308", "-1.7976931348623157e308", "9007199254740994"])
def test_a_number_that_a_double_holds_is_one_whatever_stands_beside_it(
    text: str, neighbour: bytes
) -> None:
    body = f'{{"f":{text}}}'.encode()
    for bodies in ([body], [body, neighbour], [neighbour, body]):
        parsed = _parse(*bodies)
        at = bodies.index(body)
        assert _rows(parsed)[at]["f"] == float(text)
        assert parsed.rescued.to_pylist()[at] is None


def test_an_object_after_a_value_of_another_type_still_brings_its_new_fields() -> None:
    found = _parse(b'{"o":[1]}', b'{"o":{"x":1,"y":"z"}}').found
    assert found.field("o").type == pa.struct([("x", pa.int64()), ("y", pa.string())])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (("20", "19.99"), pa.float64()),
        (("19.99", "20"), pa.float64()),
        (("7", '"A7"'), pa.string()),
        (("true", "1"), pa.string()),
        (("null", "[]", "3"), pa.int64()),
        (("[1]", "[2.5]"), pa.list_(pa.float64())),
        (("[1]", "1"), pa.string()),
        (('{"n":1}', '{"n":1.5,"m":"x"}'), pa.struct([("n", pa.float64()), ("m", pa.string())])),
        (('{"n":1}', '{"n":"x"}', '{"n":2}'), pa.struct([("n", pa.string())])),
        (('[{"n":1}]', '[{"n":2.5}]'), pa.list_(pa.struct([("n", pa.float64())]))),
    ],
)
def test_a_new_column_takes_all_that_the_sample_has_whatever_comes_first(
    values: tuple[str, ...], kind: pa.DataType
) -> None:
    bodies = [f'{{"new":{value}}}'.encode() for value in values]
    apart = [_parse(body).found for body in bodies]
    for found in (_parse(*bodies).found, reduce(merged, apart)):
        assert found.field("new").type == kind
        known = grown(KNOWN, found)
        assert parse_bodies(pa.array(bodies, pa.binary()), known).rescued.null_count == len(
            [each for each in values if each != "[]" or pa.types.is_list(kind)]
        )


def test_a_field_inside_of_a_known_object_takes_all_that_the_sample_has() -> None:
    found = _parse(b'{"o":{"x":1,"p":20}}', b'{"o":{"x":"odd","p":19.99}}').found
    assert found.field("o").type == pa.struct([("x", pa.int64()), ("p", pa.float64())])


def test_a_value_of_another_type_does_not_change_a_column() -> None:
    assert not len(_parse(b'{"a":"text"}').found)


@pytest.mark.parametrize("neighbour", [b'{"f":1.5}', b'{"f":null}', b'{"f":1.7e308}'])
@pytest.mark.parametrize("text", [b"NaN", b"-NaN", b"nan", b"Infinity", b"-Inf"])
def test_what_is_no_number_in_json_is_an_error_whatever_stands_beside_it(
    text: bytes, neighbour: bytes
) -> None:
    body = b'{"f":%b}' % text
    for bodies in ([body], [body, neighbour], [neighbour, body]):
        assert list(_parse(*bodies).errors) == [bodies.index(body)]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["x", "y", "s", "X", "x.y", "_x", ""]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
_NAMES = ["a", "s", "f", "o", "l", "n", "i", "b", "A", "N", "_id", "_offset", "a.b", "", "n\0"]
_OBJECTS = st.dictionaries(st.sampled_from(_NAMES), _VALUES)
_NUMBERS = st.sampled_from(
    ["0", "-0", "1.0", "1e2", "1E400", "-1e400", "1e-400", "1.7e308", "9007199254740993", "0.1",
     "9223372036854775808", "0.1000000000000000055511151231257827", "123456789012345678",
     "NaN", "-Infinity"]
)  # fmt: skip
_WRITTEN = st.lists(
    st.tuples(st.sampled_from(["a", "f", "n"]), _NUMBERS | st.just("null")), max_size=3
).map(lambda fields: "{%s}" % ", ".join(f'"{n}" : {v}' for n, v in fields))  # noqa: UP031


@given(
    st.lists(
        _OBJECTS.map(lambda o: json.dumps(o).encode())
        | _WRITTEN.map(str.encode)
        | st.binary(max_size=12),
        max_size=8,
    )
)
def test_what_the_quick_way_says_the_careful_way_says_too(bodies: list[bytes]) -> None:
    array = pa.array(bodies, pa.binary())
    quick = json_body._quickly(array, KNOWN)
    careful = json_body._one_by_one(array, KNOWN)
    if quick is None:
        return
    assert careful.errors == {}
    assert _rows(quick) == _rows(careful)
    assert careful.rescued.null_count == len(bodies)


@pytest.mark.parametrize("written", ["-0", "-0.0", "-0e1", "0"])
def test_a_zero_has_the_sign_that_the_careful_way_gives_it_also_within_lists(written: str) -> None:
    double = pa.float64()
    known = pa.schema({"f": double, "l": pa.list_(double), "s": pa.struct([pa.field("f", double)])})
    plain = b'{"f": 1.5, "l": [1.5], "s": {"f": 1.5}}'
    for name, value in (("f", "%s"), ("l", "[1, %s]"), ("s", '{"f": %s}')):
        body = f'{{"{name}": {value % written}}}'.encode()
        made = parse_bodies(pa.array([plain, body], pa.binary()), known)
        careful = json_body._one_by_one(pa.array([plain, body], pa.binary()), known)
        # As text, for both zeros are equal.
        assert [str(each.to_pylist()) for each in made.columns] == [
            str(each.to_pylist()) for each in careful.columns
        ]


@given(st.lists(_OBJECTS, min_size=1, max_size=6))
def test_nothing_of_an_object_is_lost(objects: list[dict[str, Any]]) -> None:
    array = pa.array([json.dumps(each).encode() for each in objects], pa.binary())
    parsed = parse_bodies(array, KNOWN)
    saved = parsed.rescued.to_pylist()
    for row, rescued, original in zip(_rows(parsed), saved, objects, strict=True):
        texts = dict(rescued or [])
        for name, value in original.items():
            if name in texts:
                assert json.loads(texts[name]) == value
            elif name == "o" and value is not None:
                assert row["o"] == {"x": value.get("x")}
            elif name == "s" and value is not None and not isinstance(value, str):
                assert json.loads(row["s"]) == value
            else:
                assert row[name] == value


@given(st.lists(_OBJECTS, min_size=1, max_size=6))
def test_a_table_that_has_grown_by_what_was_found_needs_no_second_growth(
    objects: list[dict[str, Any]],
) -> None:
    array = pa.array([json.dumps(each).encode() for each in objects], pa.binary())
    schema = grown(KNOWN, parse_bodies(array, KNOWN).found)
    assert not len(parse_bodies(array, schema).found)


def _many(count: int) -> bytes:
    """An object of so many values and names, in as few bytes as there can be."""
    return b'{"l":[' + b",".join([b"0"] * (count - 3)) + b"]}"


@pytest.mark.parametrize("neighbour", [b'{"a":1}', b"no object"])
def test_a_body_of_more_values_than_a_worker_has_memory_for_is_told_whatever_stands_beside_it(
    neighbour: bytes,
) -> None:
    parsed = _parse(neighbour, _many(MAX_VALUES + 1))
    assert parsed.errors[1] == "the body has more than 4,194,304 JSON values"


def test_a_body_of_as_many_values_as_there_may_be_is_read() -> None:
    assert len(parse_object(_many(MAX_VALUES).decode())["l"]) == MAX_VALUES - 3


def test_commas_in_a_text_are_no_values() -> None:
    text = ',:"[{\\' * MAX_VALUES
    parsed = _parse(json.dumps({"s": text}).encode())
    assert parsed.columns[1].to_pylist() == [text]
