"""Steps on bodies in a query: what becomes a row, and what says why it did not."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coldstream.bodies import apply
from coldstream.bodies.steps import BodySteps
from coldstream.errors import InvalidInputError
from coldstream.spark.options import parse_options
from tests.support.tier import Tier, chunk
from tests.unit.bodies.test_avro import AS_JSON, ORDER, VALUE, encoded
from tests.unit.bodies.test_protobuf import AS_JSON as PROTOBUF_JSON
from tests.unit.bodies.test_protobuf import NAME, SCHEMA, an_order
from tests.unit.columns.test_reference import listed, section
from tests.unit.spark.context import WHERE, query


def message(body: bytes, encoding: bytes = b"") -> bytes:
    """With a content encoding, if one is given."""
    data = section(0x75, b"\xb0" + len(body).to_bytes(4, "big") + body)
    if not encoding:
        return data
    fields = [b"\x40"] * 7 + [b"\xa3" + bytes([len(encoding)]) + encoding]
    return section(0x73, listed(*fields)) + data


def rows(wires: list[bytes], **given: str) -> list[dict[str, Any]]:
    tier = Tier()
    tier.add("s", [[chunk(0, *wires)]])
    return query(tier, stream="s", **given).rows()


def test_bodies_are_inflated_only_if_that_is_asked_for_and_a_bomb_is_an_error() -> None:
    packed = gzip.compress(b"hello")
    bomb = message(gzip.compress(bytes(9999)), b"gzip")
    wires = [message(packed, b"gzip"), message(b"plain"), bomb, message(b"text", b"utf-8")]
    columns = "offset,body,error"

    kept = rows(wires, columns=columns)
    assert [row["body"] for row in kept][:2] == [packed, b"plain"]
    found = rows(wires, columns=columns, contentEncoding="decode", maxBodyBytes="1k")
    assert [row["body"] for row in found] == [b"hello", b"plain", None, b"text"]
    assert [row["error"] is None for row in found] == [True, True, False, True]
    assert "gzip of the body inflates to more than 1024 bytes" in found[2]["error"]


@pytest.mark.parametrize(
    "columns", ["body", "properties,body", "body,properties.subject", "properties.subject,body"]
)
def test_what_only_the_steps_need_is_no_column_of_the_query(columns: str) -> None:
    wires = [message(gzip.compress(b"hello"), b"gzip"), message(b"x")]

    (row, other) = rows(wires, columns=columns, contentEncoding="decode")

    assert row["body"] == b"hello"
    if "subject" in columns:
        assert row["properties"] == {"subject": None}
        assert other["properties"] is None
    elif "properties" in columns:
        assert row["properties"]["content_encoding"] == "gzip"
        assert other["properties"] is None


def test_a_query_reads_avro_by_a_schema_in_a_file_or_in_the_option(tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER))
    wires = [message(encoded(VALUE, ORDER)), message(b"no avro"), b"\x00" * 3]

    for schema in (str(file), json.dumps(ORDER)):
        good, bad, bytes_ = rows(
            wires, columns="offset,body,error", bodyType="avro", bodySchema=schema
        )
        assert (json.loads(good["body"]), good["error"]) == (AS_JSON, None)
        assert bad["body"] is None
        assert "no Avro" in bad["error"]
        assert "no Avro" in bytes_["error"]


def test_a_query_reads_protobuf_by_a_descriptor_set(tmp_path: Path) -> None:
    import base64

    file = tmp_path / "order.pb"
    file.write_bytes(base64.b64decode(SCHEMA))

    (row,) = rows(
        [message(an_order())],
        columns="body", bodyType="protobuf", bodySchema=str(file), bodyMessage=NAME,
    )  # fmt: skip

    assert json.loads(row["body"]) == PROTOBUF_JSON


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"bodyType": "avro"}, "need a schema, or a registry"),
        ({"bodyType": "csv"}, "option bodyType: expected avro, protobuf, json"),
        ({"contentEncoding": "gzip"}, "option contentEncoding: expected keep or decode"),
        ({"bodyType": "avro", "schemaRegistry": "ftp://x"}, "http://…, https://… or glue"),
        ({"schemaRegistry": "http://x"}, "for bodies of avro, protobuf or json"),
        ({"bodyType": "protobuf", "schemaRegistry": "glue"}, "descriptor set"),
        ({"bodyMessage": "shop.Order"}, "for bodies of protobuf"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        parse_options({**WHERE, "stream": "s", **given}, {})


def test_a_schema_that_is_none_stops_the_query_before_it_reads() -> None:
    with pytest.raises(InvalidInputError, match="no Avro schema"):
        rows([b"x"], columns="body", bodyType="avro", bodySchema='{"type": "lung"}')
    with pytest.raises(InvalidInputError, match="there is no file"):
        rows([b"x"], columns="body", bodyType="avro", bodySchema="nowhere.avsc")


def test_a_batch_whose_bodies_grow_large_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "_MAX_BATCH", 1000)
    wires = [message(gzip.compress(bytes(600)), b"gzip")] * 5
    tier = Tier()
    tier.add("s", [[chunk(0, *wires)]])

    found = query(tier, stream="s", columns="offset,body", contentEncoding="decode").batches()

    assert [batch.num_rows for batches in found for batch in batches] == [2, 2, 1]
    whole = pa.Table.from_batches([batch for batches in found for batch in batches])
    assert whole.column("offset").to_pylist() == list(range(5))


def test_of_bodies_that_were_handed_on_none_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of a few megabytes may be gigabytes when they are inflated."""
    size = 2**20
    monkeypatch.setattr(apply, "_MAX_BATCH", 2 * size)
    wire = pa.array([gzip.compress(bytes(size))] * 40, pa.binary())
    encoding = pa.StructArray.from_arrays([pa.array(["gzip"] * 40)], ["content_encoding"])
    batch = pa.RecordBatch.from_arrays([wire, encoding], ["body", "properties"])
    schema = pa.schema([("body", pa.binary())])

    tracemalloc.start()
    parts = apply.BodyMaker(BodySteps(inflate=True)).made(batch, schema)
    held = [tracemalloc.get_traced_memory()[0] for _ in parts]
    tracemalloc.stop()

    assert len(held) == 14
    assert max(held) < size
