"""Which key a message has, which one it deletes, and what a rule may say of both."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from coldstream.bodies.apply import BodyMaker
from coldstream.bodies.steps import BodySteps, BodyType
from coldstream.columns.schema import select
from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.iceberg.buckets import Buckets
from coldstream.jobs.materialise.latest.rows import keys_of, last_of, tombstones
from coldstream.jobs.materialise.latest.rule import Keyless, Latest, LatestKey
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rules import parse_rules
from coldstream.jobs.materialise.schema import READ_COLUMNS
from coldstream.jobs.materialise.state import TableState, parse_state
from coldstream.manifest.ledger import Ledger
from coldstream.osiris.amqp import encode_data


def _stock() -> str:
    file = descriptor_pb2.FileDescriptorProto(name="stock.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Stock").field.add(name="count", number=1, label=1, type=5)
    whole = descriptor_pb2.FileDescriptorSet(file=[file])
    return base64.b64encode(whole.SerializeToString()).decode()


STOCK = _stock()
_NULL, _TEXT_NULL = b"\x00Sw@", b"\x00Sw\xa1\x04null"


def _batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    whole = [{name: row.get(name) for name in READ_COLUMNS} for row in rows]
    return pa.RecordBatch.from_pylist(whole, select(READ_COLUMNS).schema)


def _keys(key: str, *rows: dict[str, Any]) -> list[str | None]:
    found: list[str | None] = keys_of(_batch(*rows), LatestKey.parse(key)).values.to_pylist()
    return found


def test_a_key_is_a_property_that_is_neither_empty_nor_too_long() -> None:
    ids = ["a", "", None, "x" * 1024, "x" * 1025, "é" * 513]
    rows = [{"properties": {"message_id": each}} for each in ids]
    assert _keys("properties.message_id", *rows, {}) == ["a", None, None, ids[3], None, None, None]


def test_a_key_is_an_application_property_whose_name_may_have_points() -> None:
    rows = [{"application_properties": each} for each in ([("a.b", "1")], [("a", "2")], [], None)]
    rows.append({"application_properties": [("a.b", None)]})
    assert _keys("application_properties.a.b", *rows) == ["1", None, None, None, None]


def test_a_key_is_a_text_a_number_or_a_truth_value_at_a_path_of_the_body() -> None:
    values = ['"x"', "7", "7.50", "1e3", "true", "null", "{}", "[]", str(2**80), '""']
    rows = [{"body": b'{"a":[{"b":%b}]}' % each.encode()} for each in values]
    found = ["x", "7", "7.50", "1e3", "true", None, None, None, str(2**80), None]
    assert _keys("body.a.0.b", *rows) == found
    others = (b'{"a":[]}', b'{"a":{"0":{"b":1}}}', b'{"a":5}', b"", None)
    assert _keys("body.a.0.b", *({"body": each} for each in others)) == [
        None,
        "1",
        None,
        None,
        None,
    ]


def test_a_body_that_cannot_be_searched_for_a_key_says_why() -> None:
    bodies = (b"no", b"[1]", b"\xff", b'{"id":1,"id":2}', b'{"id":"\\ud800"}')
    keys = keys_of(_batch(*({"body": each} for each in bodies)), LatestKey.parse("body.id"))
    assert keys.values.null_count == len(bodies)
    assert sorted(keys.broken) == list(range(len(bodies)))
    assert "UTF-8" in keys.broken[2]
    assert "twice" in keys.broken[3]


@pytest.mark.parametrize(
    "steps",
    [BodySteps(BodyType.TEXT), BodySteps(inflate=True)],
    ids=["made", "inflated"],
)
def test_what_deletes_a_key_is_no_body_of_which_something_is_made(steps: BodySteps) -> None:
    gzip = {"content_encoding": "gzip"}
    batch = _batch(
        {"body": b"null", "body_kind": "value", "raw": _NULL, "properties": gzip},
        {"body": b"", "body_kind": "data", "raw": encode_data(b""), "properties": gzip},
        {"body": b"null", "body_kind": "data", "raw": encode_data(b"null"), "properties": gzip},
    )
    (made,) = BodyMaker(steps, keep_empty=True).made(batch, select(READ_COLUMNS).schema)
    assert tombstones(made).to_pylist()[:2] == [True, True]
    assert made.column("error").to_pylist()[:2] == [None, None]
    assert made.column("body")[2].as_py() != b"null"
    (made,) = BodyMaker(steps).made(batch, select(READ_COLUMNS).schema)
    assert made.column("body")[0].as_py() != b"null"


@pytest.mark.parametrize("registry", ["", "http://r"], ids=["bare", "behind a head"])
def test_a_protobuf_message_of_defaults_deletes_no_key_although_it_has_no_bytes(
    registry: str,
) -> None:
    """ "None left" was "there is no such article". Behind a registry's head no body is empty."""
    steps = BodySteps(kind=BodyType.PROTOBUF, schema=STOCK, message="shop.Stock", registry=registry)
    batch = _batch(
        {"body": b"", "body_kind": "data", "raw": encode_data(b"")},
        {"body": b"", "body_kind": "bytes", "raw": b""},
        {"body": None, "body_kind": "none", "raw": b""},
        {"body": b"null", "body_kind": "value", "raw": _NULL},
    )

    (made,) = BodyMaker(steps, keep_empty=True).made(batch, select(READ_COLUMNS).schema)

    empty = bool(registry)
    assert tombstones(made).to_pylist() == [empty, empty, True, True]
    assert made.column("error").null_count == 4
    if not registry:
        assert json.loads(made.column("body")[0].as_py()) == {"count": 0}


def test_no_body_an_empty_one_and_the_null_of_amqp_are_tombstones_and_no_text_is() -> None:
    rows = [
        {"body": None, "body_kind": "none", "raw": b""},
        {"body": b"", "body_kind": "data", "raw": encode_data(b"")},
        {"body": b"null", "body_kind": "value", "raw": _NULL},
        {"body": b"null", "body_kind": "value", "raw": _TEXT_NULL},
        {"body": b"null", "body_kind": "data", "raw": encode_data(b"null")},
        {"body": b"\x00", "body_kind": "data", "raw": encode_data(b"\x00")},
        {"body": b"", "body_kind": "bytes", "raw": b""},
    ]
    assert tombstones(_batch(*rows)).to_pylist() == [True, True, True, False, False, False, True]


def test_of_a_batch_the_row_with_the_highest_offset_of_each_key_is_left() -> None:
    rows = pa.RecordBatch.from_pydict({"k": ["a", "b", "a", "c", "a"], "o": [3, 4, 9, 1, 5]})
    assert last_of(rows, "k", "o").to_pydict() == {"k": ["b", "a", "c"], "o": [4, 9, 1]}
    assert last_of(rows.slice(0, 0), "k", "o").num_rows == 0


def test_a_key_is_in_the_bucket_that_iceberg_s_specification_says() -> None:
    # Appendix B of the specification: the hash of "iceberg" is 1210000089.
    assert Buckets("key", 1000).of(pa.array(["iceberg"])).tolist() == [89]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"latest": "message_id"}, "latest is properties.NAME"),
        ({"latest": "properties."}, "latest is properties.NAME"),
        ({"latest": "body.a..b"}, "latest is properties.NAME"),
        ({"latest": "properties.user_id"}, "no key is in properties.user_id"),
        ({"latest": "body.id", "buckets": 0}, "buckets is 1 to 256"),
        ({"latest": "body.id", "buckets": "many"}, "buckets is a number"),
        ({"latest": "body.id", "buckets": True}, "buckets is a number"),
        ({"latest": "body.id", "keyless": "drop"}, "keyless is one of dead-letter, skip"),
        ({"keyless": "skip"}, "keyless belongs to latest"),
        ({"latest": "body.id", "partition": "hour"}, "there is no partition"),
        ({"latest": "body.id", "keep": "7d"}, "no keep"),
        ({"latest": "body.id", "body": "mine:f"}, "not for a function's rows"),
        ({"latest": "body.id", "body": "json", "schema": "_key: int"}, "which is the key's column"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_in_words(words: dict[str, Any], reason: str) -> None:
    rule = {"streams": "a", "table": "a.b", **words}
    with pytest.raises(InvalidInputError, match=reason):
        parse_rules(json.dumps({"version": 1, "tables": [rule]}))


def test_a_rule_says_what_the_key_is() -> None:
    rule = {"streams": "a", "table": "a.b", "latest": "body.id", "buckets": 4, "keyless": "skip"}
    (read,) = parse_rules(json.dumps({"version": 1, "tables": [rule]}))
    assert read.latest == Latest(LatestKey.parse("body.id"), 4, Keyless.SKIP)


def test_a_state_forgets_offsets_with_all_that_it_knows_of_them() -> None:
    spans = {"__a_1": Ranges.of([(0, 50)]), "__b_1": Ranges.of([(0, 9)])}
    lost = {"__a_1": Ranges.of([(30, 40)])}
    state = TableState().with_more(spans, lost, {"__a_1": 3, "__b_1": 1})
    some = {"__a_1": Ranges.of([(20, 60)])}
    left = state.without(some, some)
    assert left.of("__a_1").spans == ((0, 20),)
    assert (dict(left.lost), left.of("__b_1")) == ({}, spans["__b_1"])
    assert left.under["__a_1"] == {3: Ranges.of([(0, 20)])}
    assert parse_state(left.encode()) == left
    assert state.without({"__a_1": Ranges.of([(0, 60)])}, {}).covered.keys() == {"__b_1"}
    assert state.without(some, {}).cut_off("__a_1", Ledger.of([(1, 0), (4, 40)])).spans == (
        (40, 50),
    )
