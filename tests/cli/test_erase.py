"""`coldstream erase`: it shows its plan, asks, and leaves nothing of what was in the messages."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import pytest
from rstream import AMQPMessage
from rstream import Properties as Standard

from coldstream.bodies.steps import MAX_BODY_BYTES
from coldstream.cli.exit_codes import ExitCode
from coldstream.cli.json_path import JsonCondition, json_bodies
from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.json_bodies.text import MAX_VALUES
from coldstream.manifest.catalog import QueueName
from coldstream.osiris.amqp import Section, encode_data
from coldstream.osiris.blank import blank_message
from coldstream.osiris.body import read_message
from coldstream.osiris.chunk import Buffer
from coldstream.plans.policy import Rule
from coldstream.ports import Execution, ExecutionStatus
from tests.cli.conftest import Machines, Run
from tests.cli.test_read import encode_message
from tests.support.tier import Tier, chunk
from tests.unit.columns.test_reference import mapped, section, text

ALICE, BOB = {"customer": "alice"}, {"customer": "bob"}


def body(customer: str) -> bytes:
    return encode_data(json.dumps({"who": {"emails": [f"{customer}@example.org"]}}).encode())


@pytest.fixture
def orders(tier: Tier) -> Tier:
    tier.add(
        "s",
        [
            [chunk(0, encode_message(ALICE, "order"), encode_message(BOB, "order"))],
            [chunk(2, body("bob")), chunk(3, body("alice"), body("bob"))],
            [chunk(5, b"plain bytes of nobody")],
        ],
        name=QueueName("c", "/", "orders"),
    )
    return tier


@pytest.fixture
def gone(machines: Machines) -> Machines:
    output = {"state": "done", "versions": 3, "bytes": 4096, "kept": {}}
    machines.end = Execution(ExecutionStatus.SUCCEEDED, output)
    return machines


def marked(run: Run) -> list[int]:
    """Offsets of the messages that say that they were erased."""
    lines = run("read", "//orders", "--output", "json").stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    return [row["offset"] for row in rows if "x-erased" in str(row)]


def test_a_dry_run_shows_the_fragments_and_changes_nothing(orders: Tier, run: Run) -> None:
    before = dict(orders.store.objects)

    done = run("erase", "//orders", "--where", "customer=alice", "--dry-run", "--json")

    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["offsets"] == [[0, 1]]
    (row,) = document["fragments"]
    assert (row["first"], row["next"], row["erased"]) == (0, 2, 1)
    assert row["key"] in before
    assert "1 message found" in done.stderr
    assert orders.store.objects == before


def test_messages_go_by_property_by_json_and_by_offset(
    orders: Tier, run: Run, gone: Machines
) -> None:
    for number, condition in enumerate(
        (["--where", "customer=alice"], ["--json-path", "$.who.emails.0=alice@example.org"],
         ["--range", "5..6"])
    ):  # fmt: skip
        done = run("erase", "//orders", *condition, "--yes", "--reason", f"ticket {number}")
        assert done.exit_code == 0, done.stderr
        assert "1 fragment written anew" in done.stderr
        assert "deleted for good: 3 versions" in done.stderr
        gone.executions.clear()
        gone.looks = 2

    assert marked(run) == [0, 3]
    read = run("read", "//orders", "--from", "5").stdout
    assert "nobody" not in read


def test_the_machine_is_started_for_the_stream_and_followed(
    orders: Tier, run: Run, gone: Machines
) -> None:
    done = run("erase", "//orders", "--range", "0..1", "--yes", "--json")

    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["deleted"]["versions"] == 3
    assert document["record"] in orders.store.objects
    ((workflow, name),) = gone.executions
    assert (workflow, name.startswith("erase-s-")) == ("erase", True)


def test_nobody_there_to_confirm_and_nothing_is_changed(
    orders: Tier, run: Run, gone: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dict(orders.store.objects)

    done = run("erase", "//orders", "--range", "0..1")

    assert done.exit_code == ExitCode.USAGE
    assert "give --yes" in done.stderr
    assert orders.store.objects == before
    assert not gone.executions


def test_old_objects_that_nobody_may_delete_yet_are_told_with_75(
    orders: Tier, run: Run, gone: Machines
) -> None:
    output = {"state": "done", "versions": 0, "bytes": 0, "kept": {"k": "about to be committed"}}
    gone.end = Execution(ExecutionStatus.SUCCEEDED, output)

    done = run("erase", "//orders", "--range", "0..1", "--yes")

    assert done.exit_code == ExitCode.TRY_AGAIN
    assert "kept: k: about to be committed" in done.stderr


def test_old_objects_may_be_left_for_a_later_run(orders: Tier, run: Run, gone: Machines) -> None:
    done = run("erase", "//orders", "--range", "0..1", "--yes", "--keep-old")

    assert done.exit_code == 0
    assert not gone.executions
    for more, fate in (((), "goes"), (("--keep-old",), "stays for now")):
        plan = run("erase", "//orders", "--dry-run", "--json", *more)
        (other,) = json.loads(plan.stdout)["others"]
        assert other["object"] == fate


def test_a_stream_under_legal_hold_is_refused(orders: Tier, run: Run, put_rules: Any) -> None:
    put_rules(Rule("court", vhost="/", queue="orders", hold=True))

    done = run("erase", "//orders", "--range", "0..1", "--yes", "--keep-old")

    assert "under legal hold by court" in done.stderr
    assert done.exit_code == ExitCode.FAILED


@pytest.mark.parametrize(
    "arguments",
    [
        ["--range", "7"],
        ["--range", "0..7"],
        ["--where", "customer"],
        ["--json-path", "who.emails"],
        ["--json-path", ".=x"],
        ["--until", "3"],
    ],
)
def test_what_cannot_be_meant_is_refused(
    orders: Tier, run: Run, gone: Machines, arguments: list[str]
) -> None:
    before = dict(orders.store.objects)

    assert run("erase", "//orders", *arguments, "--yes").exit_code == ExitCode.USAGE
    assert orders.store.objects == before


def test_a_damaged_fragment_is_told_with_65(orders: Tier, run: Run, gone: Machines) -> None:
    path = next(each for each in orders.store.objects if "/data/" in each)
    data = bytearray(orders.store.objects[path])
    data[70] ^= 1
    orders.store.objects[path] = bytes(data)

    done = run("erase", "//orders", "--range", "0..1", "--yes")

    assert done.exit_code == ExitCode.DATA
    assert "repair it first" in done.stderr


@pytest.mark.parametrize(
    ("path", "holds"),
    [
        ("a.b=1", True),
        ("$.a.b=1", True),
        ("a.b=2", False),
        ("c.1=x", True),
        ("c.2=x", False),
        ("c.x=x", False),
        ("d=true", True),
        ("a.b.c=1", False),
        ("e=", True),
    ],
)
def test_a_path_goes_through_members_and_items(path: str, holds: bool) -> None:
    text = json.dumps({"a": {"b": 1}, "c": ["w", "x"], "d": True, "e": ""}).encode()

    for message in (read_message(encode_data(text)), read_message(text)):
        (body,) = json_bodies(message)
        assert JsonCondition.parse(path).holds(body) is holds
    assert not json_bodies(read_message(b"no json"))


def json_body(wire: bytes, condition: str) -> bool:
    """Whether a message's body is as wanted, in any reading."""
    return any(map(JsonCondition.parse(condition).holds, json_bodies(read_message(wire))))


def compressed(encoding: str, body: bytes) -> bytes:
    return bytes(AMQPMessage(body=body, properties=Standard(content_encoding=encoding)))


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("zstd", cramjam.zstd.compress),
     ("gzip, zstd", lambda body: cramjam.zstd.compress(gzip.compress(body))),
     ("identity", bytes), ("gzip", bytes)],
)  # fmt: skip
def test_a_person_is_found_in_a_compressed_body_too(
    encoding: str, pack: Callable[[bytes], Buffer]
) -> None:
    assert json_body(compressed(encoding, bytes(pack(b'{"who":"alice"}'))), "who=alice")


def test_a_body_that_would_take_all_memory_is_not_searched() -> None:
    many = b"[" + b"0," * MAX_VALUES + b'{"who":"alice"}]'
    assert not json_bodies(read_message(compressed("gzip", gzip.compress(many, 1))))

    large = gzip.compress(b'"' + bytes(MAX_BODY_BYTES), 1)
    assert not json_bodies(read_message(compressed("gzip", large)))


@pytest.mark.parametrize("value", ["alice", "bob"])
def test_each_of_several_members_with_the_same_name_is_looked_at(value: str) -> None:
    assert json_body(b'{"who":"alice","who":"bob"}', f"who={value}")
    assert json_body(b'{"a":{"who":"alice"},"a":{"who":"bob"}}', f"a.who={value}")


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("1.50", ["1.50", "1.5", "15e-1"]),
        ("1e5", ["1e5", "100000", "100000.0", "1E+5"]),
        ("-0", ["-0", "0", "0.0"]),
        ("10000000000000000000000.5", ["10000000000000000000000.5"]),
        ("1e99999999999999999999", ["1e99999999999999999999"]),
        ("9" * 5000, ["9" * 5000]),
    ],
)
def test_a_number_is_found_by_its_text_and_by_its_value(written: str, values: list[str]) -> None:
    for value in values:
        assert json_body(f'{{"n":{written}}}'.encode(), f"n={value}")
        assert not json_body(f'{{"n":{written}}}'.encode(), f"n={value}1")
    assert not json_body(b'{"n":10000000000000000000000.5}', "n=10000000000000000000000.4")
    assert not json_body(b'{"n":"1.50"}', "n=1.5")


def test_objects_lists_and_words_of_json_are_found_whatever_their_spaces() -> None:
    body = b'\xef\xbb\xbf{"a":{"b":[1,null]},"t":true,"n":null,"e":{}}'
    for condition in ('a={"b": [1, null]}', "t=true", "n=null", "e={}", "a.b=[1,null]"):
        assert json_body(body, condition)
    for condition in ("a={}", "t=True", "e=[]", "e=null", "a.b=1"):
        assert not json_body(body, condition)


def test_a_value_of_amqp_is_searched_as_the_json_that_tables_have_of_it() -> None:
    seven = (text("n"), b"\x54\x07")
    for alice in (text("alice"), b"\xa0\x05alice"):
        wire = section(Section.VALUE, mapped((text("who"), alice), seven))
        assert json_body(wire, "who=alice")
        assert json_body(wire, "n=7.0")
    assert json_body(section(Section.VALUE, text('{"who":"alice"}')), "who=alice")


def test_how_many_bodies_could_not_be_searched_is_told(tier: Tier, run: Run) -> None:
    bodies = [body("alice"), b"\x00\x00\x00\x00\x07avro", b"", encode_data(gzip.compress(b"{}"))]
    tier.add("s", [[chunk(0, *bodies, blank_message(40))]], name=QueueName("c", "/", "orders"))
    condition = ("--json-path", "who.emails.0=alice@example.org", "--dry-run")

    done = run("erase", "//orders", *condition)
    assert "1 message found" in done.stderr
    assert "2 messages not searched: no JSON" in done.stderr

    done = run("erase", "//orders", *condition, "--where", "customer=alice")
    assert "not searched" not in done.stderr  # a body that no property asks for is none to search


def test_a_path_needs_a_value() -> None:
    with pytest.raises(InvalidInputError, match="PATH=VALUE"):
        JsonCondition.parse("a.b")
