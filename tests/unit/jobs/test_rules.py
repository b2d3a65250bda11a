"""Which stream goes into which table."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.json_bodies.bodies import Misfits
from coldstream.jobs.materialise.rules import TablePartition, TableRule, parse_rules, rule_for


def _document(*tables: dict[str, Any]) -> str:
    return json.dumps({"version": 1, "tables": list(tables)})


def _json_rule(**more: Any) -> str:
    return _document({"streams": "a", "table": "a.b", "body": "json", **more})


def test_a_stream_goes_into_the_table_of_the_first_rule_that_means_it() -> None:
    rules = parse_rules(
        _document(
            {"streams": "orders\\.eu", "table": "shop.eu", "body": "json", "partition": "hour"},
            {"streams": "orders\\..*", "table": "shop.orders", "keep": "7d"},
        )
    )
    first, second = rules
    assert (first.body, first.partition) == ("json", TablePartition.HOUR)
    assert (second.keep_seconds, second.start) == (7 * 86_400, "first")
    assert rule_for(rules, "orders.eu") is first
    assert rule_for(rules, "orders.us") is second
    assert rule_for(rules, "all.orders.us") is None
    assert second.dead_letters == "shop.orders_dead_letters"


def test_a_rule_for_a_super_stream_means_its_partitions_and_nothing_called_alike() -> None:
    rules = parse_rules(
        _document(
            {"super_streams": "orders", "table": "shop.orders"},
            {"streams": "orders-.*", "table": "shop.others"},
        )
    )
    first, second = rules
    assert rule_for(rules, "orders-0", "orders") is first
    assert rule_for(rules, "anything", "orders") is first
    assert rule_for(rules, "orders-7") is second
    assert rule_for(rules, "orders-7", "all-orders") is second
    assert rule_for(rules, "orders") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no JSON"),
        (_document({"super_streams": "(a", "table": "a.b"}), "rule 1: the pattern"),
        ("[]", "begin with"),
        ('{"version": 2, "tables": []}', "begin with"),
        (_document(), "no tables"),
        (_document({"table": "a.b"}), "'streams' is missing"),
        (_document({"streams": "a", "table": "a.b", "colour": "red"}), "'colour' is not known"),
        (_document({"streams": "a", "table": "ab"}), "is no name of a table"),
        (_document({"streams": "a", "table": "a.b_dead_letters"}), "is no name of a table"),
        (_document({"streams": "(a", "table": "a.b"}), "rule 1: the pattern"),
        (
            _document({"streams": "a", "table": "a.b", "body": "xml"}),
            "raw, json, avro, protobuf, csv, text or module",
        ),
        (_document({"streams": "a", "table": "a.b", "partition": "week"}), "one of hour, day"),
        (_document({"streams": "a", "table": "a.b", "keep": "0d"}), "at least 1d"),
        (_document({"streams": "a", "table": "a.b", "keep": 7}), "is no text"),
        (_document({"streams": "a", "table": "a.b", "start": "last"}), "first, next or an offset"),
        (_document({"streams": "a", "table": "a.b", "schema": "x: long"}), "for a body of json"),
        (_json_rule(misfits="dead-letter"), "needs a schema"),
        (_json_rule(schema="x: long", misfits="drop"), "misfits is one of rescue, dead-letter"),
        (_json_rule(schema="x: lung"), "rule 1: x: 'lung' is no type; there are boolean, int"),
        (_json_rule(schema=5), "schema is no schema"),
        (_json_rule(schema={"type": "array"}), "neither a JSON Schema"),
        (_json_rule(schema="orders.avsc"), "there is no file orders.avsc"),
        (
            _document(
                {"streams": "a", "table": "a.b", "body": "json", "schema": "x: long"},
                {"streams": "b", "table": "a.b", "body": "json", "schema": "x: int"},
            ),
            "differently",
        ),
        (
            _document(
                {"streams": "a", "table": "a.b"}, {"streams": "b", "table": "a.b", "body": "json"}
            ),
            "differently",
        ),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words.replace("(", r"\(")):
        parse_rules(text)


def test_rules_that_share_a_table_agree_on_it() -> None:
    rules = parse_rules(
        _document({"streams": "a", "table": "a.b"}, {"streams": "b", "table": "a.b", "start": "5"})
    )
    assert rules[1] == TableRule("b", "a.b", start="5")


AVRO = {"type": "record", "name": "r", "fields": [{"name": "x", "type": "long"}]}
JSON = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


@pytest.mark.parametrize(
    "schema",
    ["x: long required", AVRO, JSON, json.dumps(AVRO), json.dumps(JSON), "s3://b/x.avsc", "x.txt"],
)
def test_a_schema_is_written_in_the_rule_or_in_a_file_that_it_names(schema: Any) -> None:
    files = {"s3://b/x.avsc": json.dumps(AVRO), "x.txt": "# made by hand\n\nx: long required\n"}
    (rule,) = parse_rules(_json_rule(schema=schema, misfits="dead-letter"), files.__getitem__)
    assert rule.schema == pa.schema([pa.field("x", pa.int64(), nullable=False)])
    assert rule.misfits is Misfits.DEAD_LETTER
    assert rule == parse_rules(_json_rule(schema=AVRO, misfits="dead-letter"))[0]
    assert {rule: 1}[rule] == 1


@pytest.mark.parametrize(
    "rule",
    [
        '{"streams": "a", "streams": "b", "table": "d.t"}',
        '{"streams": "a", "table": "d.t", "latest": {"key": "body.a", "key": "body.b"}}',
    ],
)
def test_a_word_that_is_there_twice_is_refused_and_none_of_the_two_is_lost(rule: str) -> None:
    with pytest.raises(InvalidInputError, match=r"'(streams|key)' is there twice"):
        parse_rules(f'{{"version": 1, "tables": [{rule}]}}')
