"""Rules whose bodies are Avro, Protobuf, CSV or text: tables with the columns of their schema."""

from __future__ import annotations

import base64
import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.rules import parse_rules
from coldstream.jobs.materialise.spark_engine import SplitSource
from coldstream.jobs.materialise.transform import Transformed, first_schema, transform
from coldstream.reader.gap import Gap
from coldstream.spark.plan import decode_split
from tests.support.tier import Tier, chunk
from tests.unit.bodies.test_avro import ORDER, VALUE, encoded
from tests.unit.bodies.test_in_queries import message
from tests.unit.bodies.test_protobuf import NAME, SCHEMA, an_order
from tests.unit.spark.context import query, remote_of


def made(wires: list[bytes], files: dict[str, bytes] | None = None, **rule: Any) -> Transformed:
    """What becomes of messages in a new table by a rule."""
    document = {"version": 1, "tables": [{"streams": "s", "table": "db.t", **rule}]}

    def read(name: str) -> str:
        return (files or {})[name].decode(errors="surrogateescape")

    (parsed,) = parse_rules(json.dumps(document), read)
    tier = Tier()
    tier.add("s", [[chunk(0, *wires)]])
    (work,) = query(tier, stream="s").works
    gaps: list[Gap] = []
    source = SplitSource(
        work.task.streams[0],
        decode_split(work.split),
        remote_of(tier),
        parsed.body_format,
        parsed.steps,
    )
    (batch,) = source.batches([], gaps)
    schema = first_schema(parsed.body, parsed.schema)
    return transform(batch, parsed.body, schema, parsed.schema, parsed.misfits)


def fields(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("_")}


PLACED = datetime(2026, 9, 21, 14, 13, 20, 123000, UTC)


def test_avro_becomes_columns_of_its_types_and_what_is_none_a_dead_letter() -> None:
    value = {**VALUE, "rate": 1.5}
    done = made([message(encoded(value, ORDER)), message(b"no avro")], body="avro", schema=ORDER)

    (row,) = done.rows.to_pylist()
    assert fields(row) == {
        "id": 7, "price": Decimal("19.99"), "placed": PLACED, "note": None, "key": "/wA=",
        "rate": 1.5, "lines": [{"sku": "ä"}],
    }  # fmt: skip
    assert row["_rescued"] is None
    (dead,) = done.dead.to_pylist()
    assert "no Avro" in dead["error"]
    assert dead["raw"] == message(b"no avro")


def test_protobuf_becomes_columns_by_a_descriptor_set_in_a_file() -> None:
    files = {"order.pb": base64.b64decode(SCHEMA)}

    (row,) = made(
        [message(an_order())], files, body="protobuf", schema="order.pb", message=NAME
    ).rows.to_pylist()

    found = fields(row)
    assert (found["id"], found["big"], found["state"]) == (2**62, Decimal(2**64 - 1), "PAID")
    assert (found["placed"], found["lines"]) == (PLACED, [{"sku": "a"}])
    assert found["counts"] == [("x", 3)]
    assert row["_rescued"] == [("rate", '"Infinity"')]


def test_csv_becomes_the_declared_columns_and_text_one() -> None:
    lines = "id: long\nprice: decimal(9,2)\npaid: boolean\nplaced: timestamp_ms\nname: string"
    wires = [message(b'1,19.99,true,1790000000123,"a, b"'), message(b"x,1,2,3,4"), message(b"1,2")]

    done = made(wires, body="csv", schema=lines)

    first, second = done.rows.to_pylist()
    assert fields(first) == {
        "id": 1, "price": Decimal("19.99"), "paid": True, "placed": PLACED, "name": "a, b",
    }  # fmt: skip
    assert [name for name, _ in second["_rescued"]] == ["id", "paid"]
    (dead,) = done.dead.to_pylist()
    assert "2 fields, and 5 are declared" in dead["error"]

    (row,) = made(
        [message(b" 1 , 2.5 , true , 2026-11-24T08:00:00Z, 2026-11-24 , x ")],
        body="csv",
        schema="a: long\nb: decimal(9,2)\nc: boolean\nd: timestamp\ne: date\nf: string",
    ).rows.to_pylist()
    assert row["_rescued"] is None
    assert (row["a"], row["b"], row["c"], row["f"]) == (1, Decimal("2.5"), True, " x ")
    assert (row["d"], row["e"]) == (datetime(2026, 11, 24, 8, tzinfo=UTC), date(2026, 11, 24))

    (row,) = made([message("größe\n".encode())], body="text").rows.to_pylist()
    assert fields(row) == {"text": "größe"}


def test_compressed_bodies_are_inflated_before_they_are_columns_or_bytes() -> None:
    wires = [
        message(gzip.compress(b'{"a": 1}'), b"gzip"),
        message(gzip.compress(bytes(9999)), b"gzip"),
    ]
    more = {"content_encoding": "decode", "max_body_bytes": "1k"}

    done = made(wires, body="json", schema="a: long", **more)
    assert [row["a"] for row in done.rows.to_pylist()] == [1]
    assert "more than 1024 bytes" in done.dead.to_pylist()[0]["error"]
    assert [row["body"] for row in made(wires, **more).rows.to_pylist()] == [b'{"a": 1}']


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"body": "avro"}, "rule 1: a body of avro needs a schema, or a subject"),
        ({"body": "avro", "schema": {"type": "string"}}, "is a record"),
        ({"body": "avro", "schema": {"type": "lung"}}, "no Avro schema"),
        ({"body": "protobuf", "schema": "order.pb", "message": "x.Y"}, "no message 'x.Y'"),
        ({"body": "protobuf", "registry": "glue"}, "needs a schema, or a subject"),
        ({"body": "csv"}, "needs a schema"),
        ({"body": "csv", "schema": "a: list<int>"}, "no list and no object"),
        ({"body": "text", "schema": "a: long"}, "one field, text"),
        ({"body": "json", "subject": "x"}, "a subject is for bodies of avro or protobuf"),
        ({"body": "raw", "registry": "http://x"}, "for bodies of avro, protobuf or json"),
        ({"body": "json", "registry": "file:///x"}, "http://…, https://… or glue"),
        ({"content_encoding": "gzip"}, "content_encoding is keep or decode"),
        ({"body": "avro", "schema": ORDER, "subject": "s"}, "in the place of a schema"),
    ],
)
def test_a_rule_about_bodies_that_cannot_be_meant_is_refused(
    rule: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidInputError, match=words):
        made([b"x"], {"order.pb": base64.b64decode(SCHEMA)}, **rule)
