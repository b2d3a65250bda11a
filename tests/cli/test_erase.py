"""`coldstream erase`: it shows its plan, asks, and leaves nothing of what was in the messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coldstream.cli.exit_codes import ExitCode
from coldstream.cli.match import JsonCondition
from coldstream.errors import InvalidInputError
from coldstream.manifest.catalog import QueueName
from coldstream.osiris.amqp import encode_data
from coldstream.osiris.body import read_message
from coldstream.plans.policy import Rule
from coldstream.ports import Execution, ExecutionStatus
from tests.cli.conftest import Machines, Run
from tests.cli.test_read import encode_message
from tests.support.tier import Tier, chunk

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

    assert JsonCondition.parse(path).holds(read_message(encode_data(text))) is holds
    assert JsonCondition.parse(path).holds(read_message(text)) is holds
    assert not JsonCondition.parse(path).holds(read_message(b"no json"))


def test_a_path_needs_a_value() -> None:
    with pytest.raises(InvalidInputError, match="PATH=VALUE"):
        JsonCondition.parse("a.b")
