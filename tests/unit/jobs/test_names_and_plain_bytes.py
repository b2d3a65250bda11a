"""What people call a stream is in its table, and plain bytes are messages like all others."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.rules import TableRule, parse_rules
from coldstream.jobs.materialise.schema import NAME_COLUMNS, dead_schema
from coldstream.jobs.materialise.spark_engine import SplitSource
from coldstream.jobs.materialise.transform import Transformed, first_schema, transform
from coldstream.manifest.catalog import QueueName
from coldstream.osiris.body import BodyFormat
from coldstream.reader.gap import Gap
from coldstream.spark.plan import decode_split
from tests.support.tier import Tier, chunk
from tests.unit.jobs.test_materialise_run import Site
from tests.unit.spark.context import query, remote_of

NAME = QueueName("rabbit", "shop", "orders")
AMQP = b'\x00\x53\x75\xa0\x08{"a": 1}'
MESSAGES = [AMQP, b'{"a": 2}', b"no json", b""]


def made(
    body: str, body_format: BodyFormat = BodyFormat.AUTO, name: QueueName = NAME
) -> Transformed:
    """What becomes of the messages in a new table."""
    tier = Tier()
    tier.add("s", [[chunk(0, *MESSAGES)]], name=name)
    (work,) = query(tier, stream="s").works
    gaps: list[Gap] = []
    source = SplitSource(
        work.task.streams[0], decode_split(work.split), remote_of(tier), body_format
    )
    (batch,) = source.batches([], gaps)
    schema = first_schema(body)
    if body == "json":
        schema = schema.append(pa.field("a", pa.int64()))
    return transform(batch, body, schema)


def test_in_a_table_of_bodies_plain_bytes_are_bodies_and_no_dead_letters() -> None:
    found = made("raw")

    rows = [(each["body_kind"], each["body"]) for each in found.rows.to_pylist()]
    assert rows == [("data", b'{"a": 1}'), *(("bytes", each) for each in MESSAGES[1:])]
    assert found.dead.num_rows == 0


def test_in_a_table_of_fields_plain_bytes_that_are_json_are_rows() -> None:
    found = made("json")

    assert [(row["_offset"], row["a"]) for row in found.rows.to_pylist()] == [(0, 1), (1, 2)]
    dead = found.dead.to_pylist()
    assert [each["raw"] for each in dead] == MESSAGES[2:]
    assert all("JSON" in each["error"] for each in dead)


@pytest.mark.parametrize("body", ["raw", "json"])
def test_where_all_must_be_amqp_plain_bytes_are_dead_letters_with_the_reason(body: str) -> None:
    found = made(body, BodyFormat.AMQP)

    assert found.rows.num_rows == 1
    dead = found.dead.to_pylist()
    assert [each["raw"] for each in dead] == MESSAGES[1:]
    assert all(each["error"] for each in dead)


def test_where_nothing_is_amqp_the_whole_message_is_the_body() -> None:
    found = made("raw", BodyFormat.BYTES)

    assert [each["body"] for each in found.rows.to_pylist()] == MESSAGES


@pytest.mark.parametrize(
    ("name", "expected"), [(NAME, ("shop", "orders")), (QueueName(), (None, None))]
)
def test_rows_and_dead_letters_say_the_name_of_the_queue_if_anybody_has(
    name: QueueName, expected: tuple[str | None, str | None]
) -> None:
    raw, fields = made("raw", name=name), made("json", name=name)

    for row in (*raw.rows.to_pylist(), *fields.dead.to_pylist()):
        assert (row["vhost"], row["queue"]) == expected
    for row in fields.rows.to_pylist():
        assert (row["_vhost"], row["_queue"]) == expected


@pytest.mark.parametrize("body", ["raw", "json"])
def test_a_table_of_an_older_release_gets_the_columns_of_names_with_its_next_rows(
    body: str,
) -> None:
    def older(schema: pa.Schema) -> pa.Schema:
        return pa.schema([each for each in schema if each.name not in NAME_COLUMNS])

    bodies: list[bytes | None] = [b'{"n": 1}', b"broken", b'{"n": 2}']
    site = Site({"s": bodies}, TableRule(".*", "db.t", body))
    site.tables.rows.load(older(first_schema(body)))
    site.tables.dead.load(older(dead_schema()))

    report = site.run()

    names = ["vhost", "queue"] if body == "raw" else ["_vhost", "_queue"]
    assert report.columns_added[:2] == names
    assert set(names) < set(site.rows().schema.names)
    assert site.rows(dead=True).schema.names[-2:] == ["vhost", "queue"]
    assert (report.rows, report.dead_letters) == (2, 1)


def test_a_field_of_an_older_table_that_is_called_as_our_column_is_now_stops_nothing() -> None:
    schema = first_schema("json")
    at = schema.get_field_index("_queue")
    old = schema.set(at, pa.field("_queue", pa.int64()))
    tier = Tier()
    tier.add("s", [[chunk(0, b'{"_queue": 7}')]], name=NAME)
    (work,) = query(tier, stream="s").works
    source = SplitSource(work.task.streams[0], decode_split(work.split), remote_of(tier))
    (batch,) = source.batches([], [])

    (row,) = transform(batch, "json", old).rows.to_pylist()

    assert (row["_queue"], row["_vhost"]) == (None, "shop")
    assert row["_rescued"] == [("_queue", "7")]


def rules(**more: Any) -> str:
    return json.dumps({"version": 1, "tables": [{"streams": ".*", "table": "a.b", **more}]})


def test_a_rule_says_how_messages_are_read() -> None:
    assert parse_rules(rules())[0].body_format is BodyFormat.AUTO
    assert parse_rules(rules(body_format="bytes"))[0].body_format is BodyFormat.BYTES
    with pytest.raises(InvalidInputError, match=r"rule 1: .*auto, amqp, bytes"):
        parse_rules(rules(body_format="avro"))
