"""Bodies of Protobuf become JSON, by a descriptor set or by what a registry knows."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from coldstream.adapters.glue_schemas import GlueSchemas
from coldstream.bodies.protobuf import ProtobufBodies, message_indexes
from coldstream.bodies.registry import GlueRegistry, HttpRegistry
from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.jobs.materialise.declared.protobuf_message import protobuf_fields
from coldstream.jobs.materialise.json_bodies.bodies import Misfits, parse_bodies
from coldstream.jobs.materialise.kinds import TIMESTAMP
from tests.unit.bodies.test_avro import Answers, framed

TYPE = descriptor_pb2.FieldDescriptorProto
FIELDS = (
    ("id", 1, TYPE.TYPE_INT64, TYPE.LABEL_OPTIONAL, ""),
    ("big", 2, TYPE.TYPE_UINT64, TYPE.LABEL_OPTIONAL, ""),
    ("name", 3, TYPE.TYPE_STRING, TYPE.LABEL_OPTIONAL, ""),
    ("key", 4, TYPE.TYPE_BYTES, TYPE.LABEL_OPTIONAL, ""),
    ("state", 5, TYPE.TYPE_ENUM, TYPE.LABEL_OPTIONAL, ".shop.State"),
    ("placed", 6, TYPE.TYPE_MESSAGE, TYPE.LABEL_OPTIONAL, ".google.protobuf.Timestamp"),
    ("lines", 7, TYPE.TYPE_MESSAGE, TYPE.LABEL_REPEATED, ".shop.Line"),
    ("counts", 8, TYPE.TYPE_MESSAGE, TYPE.LABEL_REPEATED, ".shop.Order.CountsEntry"),
    ("rate", 9, TYPE.TYPE_DOUBLE, TYPE.LABEL_OPTIONAL, ""),
)


def add_fields(message: Any, fields: Any) -> None:
    for name, number, kind, label, named in fields:
        message.field.add(name=name, number=number, type=kind, label=label, type_name=named or None)


def order_file(*, imports: str = "") -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    if imports:
        file.dependency.append(imports)
    else:
        add_fields(file.message_type.add(name="Line"), LINE)
    order = file.message_type.add(name="Order")
    add_fields(order, FIELDS)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    add_fields(
        entry,
        [
            ("key", 1, TYPE.TYPE_STRING, TYPE.LABEL_OPTIONAL, ""),
            ("value", 2, TYPE.TYPE_INT32, TYPE.LABEL_OPTIONAL, ""),
        ],
    )
    return file


LINE = [("sku", 1, TYPE.TYPE_STRING, TYPE.LABEL_OPTIONAL, "")]
FILE = order_file()
SCHEMA = base64.b64encode(
    descriptor_pb2.FileDescriptorSet(file=[FILE]).SerializeToString()
).decode()
NAME = "shop.Order"


def an_order() -> bytes:
    pool = descriptor_pool.DescriptorPool()
    stamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    pool.Add(stamp)
    pool.Add(FILE)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName(NAME))(
        id=2**62, big=2**64 - 1, name="ä", key=b"\xff\x00", state=1, lines=[{"sku": "a"}],
        counts={"x": 3}, rate=float("inf"),
    )  # fmt: skip
    made.placed.FromMilliseconds(1_790_000_000_123)
    data: bytes = made.SerializeToString()
    return data


AS_JSON = {
    "id": 2**62, "big": 2**64 - 1, "name": "ä", "key": "/wA=", "state": "PAID",
    "placed": "2026-09-21T14:13:20.123Z", "lines": [{"sku": "a"}], "counts": {"x": 3},
    "rate": "Infinity",
}  # fmt: skip


def test_a_body_is_read_by_a_descriptor_set() -> None:
    bodies = ProtobufBodies(SCHEMA, NAME, None, 2**20)

    assert json.loads(bodies(an_order())) == AS_JSON
    empty = json.loads(bodies(b""))
    assert (empty["id"], empty["state"], empty["lines"]) == (0, "NEW", [])
    assert "placed" not in empty
    with pytest.raises(CorruptDataError, match="no Protobuf"):
        bodies(an_order()[:-1])


def lines_file(syntax: str = "proto3") -> str:
    """A message `t.M` of lists, and of what two bytes make much of."""
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package="t", syntax=syntax)
    state = file.enum_type.add(name="State")
    state.value.add(name="A_STATE_WITH_A_RATHER_LONG_NAME", number=0)
    line = file.message_type.add(name="Line")
    add_fields(
        line,
        [(f"quantity_{n}", n, TYPE.TYPE_INT64, TYPE.LABEL_OPTIONAL, "") for n in range(1, 101)],
    )
    message = file.message_type.add(name="M")
    group = message.nested_type.add(name="G")
    add_fields(group, [("n", 1, TYPE.TYPE_INT64, TYPE.LABEL_OPTIONAL, "")])
    many = TYPE.LABEL_REPEATED
    fields = [
        ("lines", 1, TYPE.TYPE_MESSAGE, many, ".t.Line"),
        ("states", 2, TYPE.TYPE_ENUM, many, ".t.State"),
        ("named", 3, TYPE.TYPE_MESSAGE, many, ".t.M.NamedEntry"),
        ("inner", 4, TYPE.TYPE_MESSAGE, TYPE.LABEL_OPTIONAL, ".t.M"),
        ("flags", 6, TYPE.TYPE_BOOL, many, ""),
    ]
    if syntax == "proto2":
        fields.append(("g", 5, TYPE.TYPE_GROUP, many, ".t.M.G"))
    add_fields(message, fields)
    entry = message.nested_type.add(name="NamedEntry")
    entry.options.map_entry = True
    add_fields(
        entry,
        [
            ("key", 1, TYPE.TYPE_INT32, TYPE.LABEL_OPTIONAL, ""),
            ("value", 2, TYPE.TYPE_MESSAGE, TYPE.LABEL_OPTIONAL, ".t.Line"),
        ],
    )
    return serialized_set(file)


def serialized_set(file: descriptor_pb2.FileDescriptorProto) -> str:
    return base64.b64encode(
        descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    ).decode()


def within(number: int, data: bytes) -> bytes:
    """A field of bytes, packed numbers or a message."""
    size, length = len(data), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2]) + bytes(length) + bytes([size]) + data


@pytest.mark.parametrize(
    ("syntax", "body"),
    [
        ("proto3", b"\x0a\x00" * 2000),
        ("proto3", within(4, b"\x0a\x00" * 2000)),
        ("proto2", b"\x0a\x00" * 2000),
        ("proto3", b"\x10\x00" * 100_000),
        ("proto3", within(2, bytes(100_000))),
        ("proto3", b"\x1a\x02\x08\x01" * 2000),
        ("proto3", within(6, bytes(200_000))),
        ("proto3", b"\x78\x01" * 100_000),
        ("proto2", b"\x2b\x2c" * 100_000),
        ("proto3", b"\x7b\x7c" * 100_000),
        ("proto3", b"\x08\x01" * 100_000),
    ],
    ids=[
        "messages", "messages within one", "messages with presence", "enums", "packed enums",
        "entries", "packed truth values", "unknown fields", "groups", "unknown groups",
        "another type on the wire",
    ],
)  # fmt: skip
def test_a_body_of_very_few_bytes_for_each_value_is_told_before_it_takes_all_memory(
    syntax: str, body: bytes
) -> None:
    """200 KB of empty messages were 159 MB of JSON and took 1.4 GB; 2 MB killed each worker."""
    schema = lines_file(syntax)
    few = ProtobufBodies(schema, "t.M", None, 2**20)

    with pytest.raises(CorruptDataError, match="more JSON than its limit, 1048576 bytes"):
        few(body)
    assert json.loads(ProtobufBodies(schema, "t.M", None, 2**26)(body))


def test_a_body_that_is_as_large_as_its_json_is_read_whatever_the_limit() -> None:
    body = within(6, bytes(50)) + within(4, b"") + b"\x0a\x02\x08\x05" * 300
    found = json.loads(ProtobufBodies(lines_file(), "t.M", None, 1)(body))
    assert (len(found["lines"]), len(found["flags"])) == (300, 50)


@pytest.mark.parametrize("end", [b"\x0a\x05", b"\x0f", b"\x0c", b"\x7b", b"\x08", b"\xff" * 11])
def test_a_large_body_that_is_no_message_is_told_by_the_library(end: bytes) -> None:
    body = b"\x0a\x02\x08\x05" * 400 + end
    with pytest.raises(CorruptDataError, match="no Protobuf of its schema"):
        ProtobufBodies(lines_file(), "t.M", None, 2**20)(body)


@pytest.mark.parametrize("body", [b"\x1a\x02\xff\xfe", b"\x42\x06\x0a\x02\xff\xfe\x10\x01"])
def test_text_of_proto2_that_is_no_utf8_is_told_and_not_taken_for_other_text(body: bytes) -> None:
    file = descriptor_pb2.FileDescriptorProto()
    file.CopyFrom(FILE)
    file.syntax = "proto2"
    schema = base64.b64encode(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())

    with pytest.raises(CorruptDataError, match=r"no UTF-8|no Protobuf"):
        ProtobufBodies(schema.decode(), NAME, None, 2**20)(body)


@pytest.mark.parametrize(
    ("body", "number", "text"),
    [
        (b"\x98\x06\x05\x98\x06\x06", "99", "[5,6]"),  # fields that a newer publisher has
        (b"\x9a\x06\x02hi", "99", '"aGk="'),
        (b"\x9b\x06\x08\x01\x9c\x06", "99", '{"1":1}'),
        (b"\x9d\x06\x01\x00\x00\x00", "99", "1"),
        (b"\x0a\x02hi", "1", '"aGk="'),  # text, where the schema says a number
    ],
)
def test_what_the_schema_does_not_have_is_rescued_by_its_number(
    body: bytes, number: str, text: str
) -> None:
    made = ProtobufBodies(SCHEMA, NAME, None, 2**20)(body)

    parsed = parse_bodies(
        pa.array([made]), protobuf_fields(SCHEMA, NAME), declared=True, misfits=Misfits.DEAD_LETTER
    )

    assert parsed.errors == {}
    assert parsed.rescued.to_pylist() == [[(number, text)]]


@pytest.mark.parametrize("declared", [False, True])
def test_an_extension_is_rescued_by_its_number_whether_the_set_declares_it_or_not(
    declared: bool,
) -> None:
    """One that the set declares was known to the parser, and so nowhere."""
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="shop", syntax="proto2")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=TYPE.TYPE_INT32, label=TYPE.LABEL_OPTIONAL)
    order.extension_range.add(start=100, end=200)
    for number, label in ((100, TYPE.LABEL_OPTIONAL), (101, TYPE.LABEL_REPEATED)):
        if declared:
            file.extension.add(
                name=f"x{number}", number=number, type=TYPE.TYPE_INT32, label=label,
                extendee=".shop.Order",
            )  # fmt: skip
    schema = base64.b64encode(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    body = bytes([8, 7, 0xA0, 6, 5, 0xA8, 6, 1, 0xA8, 6, 2])

    made = ProtobufBodies(schema.decode(), "shop.Order", None, 2**20)(body)

    assert json.loads(made) == {"id": 7, "100": 5, "101": [1, 2]}


@pytest.mark.parametrize(
    ("body", "skus", "value"),
    [
        (b"\x3a\x05\x0a\x01a\x50\x07", ["a"], "7"),
        (b"\x3a\x05\x0a\x01a\x50\x07\x3a\x03\x0a\x01b\x3a\x02\x50\x08", ["a", "b", ""], "[7,8]"),
    ],
)
def test_what_the_schema_does_not_have_in_a_message_within_costs_none_of_its_other_fields(
    body: bytes, skus: list[str], value: str
) -> None:
    made = ProtobufBodies(SCHEMA, NAME, None, 2**20)(body)
    fields = protobuf_fields(SCHEMA, NAME)

    parsed = parse_bodies(pa.array([made]), fields, declared=True, misfits=Misfits.DEAD_LETTER)

    (lines,) = parsed.columns[fields.get_field_index("lines")].to_pylist()
    assert [each["sku"] for each in lines] == skus
    assert parsed.errors == {}
    assert parsed.rescued.to_pylist() == [[("lines.10", value)]]


def test_the_table_has_a_column_for_each_field() -> None:
    found = protobuf_fields(SCHEMA, NAME)

    assert {field.name: field.type for field in found} == {
        "id": pa.int64(),
        "big": pa.decimal128(20, 0),
        "name": pa.string(),
        "key": pa.string(),
        "state": pa.string(),
        "placed": TIMESTAMP,
        "lines": pa.list_(pa.struct([("sku", pa.string())])),
        "counts": pa.map_(pa.string(), pa.int32()),
        "rate": pa.float64(),
    }


@pytest.mark.parametrize(
    ("schema", "name", "words"),
    [
        (SCHEMA, "shop.Payment", "no message 'shop.Payment'"),
        ("AAAA", "", "no Protobuf descriptor set"),
        ("", "x", "no Protobuf|no message"),
    ],
)
def test_a_schema_that_is_none_is_refused(schema: str, name: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        protobuf_fields(schema, name)


def serialized(file: descriptor_pb2.FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def test_a_body_is_the_message_that_its_indexes_say_of_the_schema_that_it_names() -> None:
    lines = descriptor_pb2.FileDescriptorProto(name="x", package="shop", syntax="proto3")
    add_fields(lines.message_type.add(name="Line"), LINE)
    answers = Answers(
        {
            "/schemas/ids/5": {"schemaType": "PROTOBUF", "schema": "source text"},
            "/schemas/ids/5?format=serialized": {
                "schema": serialized(order_file(imports="lines.proto")),
                "references": [{"name": "lines.proto", "subject": "a/b", "version": 2}],
            },
            "/subjects/a%2Fb/versions/2": {"schemaType": "PROTOBUF", "schema": "more"},
            "/subjects/a%2Fb/versions/2?format=serialized": {"schema": serialized(lines)},
        }
    )
    bodies = ProtobufBodies("", "", HttpRegistry("http://r", answers), 2**20)

    for _ in range(2):
        assert json.loads(bodies(framed(5, b"\x00" + an_order()))) == AS_JSON
    entry = b"\x04\x00\x00" + b"\x0a\x01k\x10\x07"  # the first message within the first one
    assert json.loads(bodies(framed(5, entry))) == {"key": "k", "value": 7}
    with pytest.raises(CorruptDataError, match=r"schema 5 has no message \[3\]"):
        bodies(framed(5, b"\x02\x06"))
    assert len(answers.asked) == 4


def test_a_body_of_another_message_than_the_table_s_is_told_and_not_read_by_its_numbers() -> None:
    file = order_file(imports="of/nobody.proto")  # the registry keeps it to itself
    add_fields(file.message_type.add(name="Refund"), [FIELDS[0]])
    whole = {"schemaType": "PROTOBUF", "schema": serialized(file)}
    answers = Answers(
        {
            "/schemas/ids/5": whole,
            "/schemas/ids/5?format=serialized": whole,
            "/schemas/ids/6": {"schemaType": "AVRO", "schema": "{}"},
        }
    )
    bodies = ProtobufBodies(SCHEMA, NAME, HttpRegistry("http://r", answers), 2**20)

    for _ in range(2):
        assert json.loads(bodies(framed(5, b"\x00" + an_order()))) == AS_JSON
        with pytest.raises(CorruptDataError, match=r"the body is shop\.Refund, and no shop\.Order"):
            bodies(framed(5, b"\x02\x02" + b"\x08\x07"))
        with pytest.raises(CorruptDataError, match=r"is shop\.Order\.CountsEntry, and no"):
            bodies(framed(5, b"\x04\x00\x00"))
        with pytest.raises(CorruptDataError, match=r"schema 5 has no message \[2\]"):
            bodies(framed(5, b"\x02\x04"))
        with pytest.raises(CorruptDataError, match=r"schema 6: .* a schema of AVRO"):
            bodies(framed(6, b"\x00"))
    assert len(answers.asked) == 3


def test_with_the_head_of_glue_a_body_is_the_message_of_that_number_among_all_by_name() -> None:
    client: Any = None  # it has source text only, so nobody asks it
    bodies = ProtobufBodies(SCHEMA, NAME, GlueRegistry(GlueSchemas(client)), 2**20)
    head = bytes([3, 0]) + bytes(16)

    assert json.loads(bodies(head + b"\x01" + an_order())) == AS_JSON
    packed = bytes([3, 5]) + bytes(16) + zlib.compress(b"\x01" + an_order())
    assert json.loads(bodies(packed)) == AS_JSON
    # shop.Line, shop.Order.CountsEntry, and nobody
    for number, wire in ((0, b"\x00"), (2, b"\x02"), (300, b"\xac\x02")):
        with pytest.raises(CorruptDataError, match=rf"message {number} .* shop\.Order is 1 of"):
            bodies(head + wire + an_order())
    with pytest.raises(CorruptDataError, match="cut"):
        bodies(head)


@pytest.mark.parametrize("head", [b"", b"\x80", b"\xff" * 9, b"\x01", b"\x02\x01", b"\xfe\x01"])
def test_indexes_that_are_cut_or_lead_nowhere_are_told(head: bytes) -> None:
    with pytest.raises(CorruptDataError, match="message index"):
        message_indexes(head)
