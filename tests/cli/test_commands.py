from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import Result

from coldstream.cli.exit_codes import ExitCode
from coldstream.cli.output import plain, size, when
from coldstream.errors import UnavailableError
from coldstream.manifest.catalog import QueueName, StreamState
from coldstream.plans.retention import RetentionLimits, plan_retention
from tests.support.tier import FIXTURES, Tier, chunk

Run = Callable[..., Result]


def test_streams_lists_what_the_catalog_holds(tier: Tier, run: Run) -> None:
    tier.add("b", [[chunk(0, b"0")]], name=QueueName("c", "/", "orders"))
    tier.add("a", [[chunk(7, b"7", timestamp=1500)]], name=QueueName("c", "/", "invoices"))

    table, listed = run("streams"), run("streams", "--json")

    header, *rows = [line.split("\t") for line in table.stdout.splitlines()]
    assert header[:3] == ["stream", "vhost", "queue"]
    assert [row[0] for row in rows] == ["a", "b"]
    first = json.loads(listed.stdout)[0]
    assert (first["first"], first["next"], first["last_time"]) == (7, 8, "1970-01-01T00:00:01.500Z")
    assert json.loads(run("streams", "--match", "order", "--json").stdout)[0]["stream"] == "b"


def test_describe_shows_every_section(tier: Tier, run: Run) -> None:
    tier.add("s", [[chunk(n, b"x")] for n in range(15)], name=QueueName("c", "/", "orders"))

    text, document = run("describe", "//orders"), json.loads(run("describe", "s", "--json").stdout)

    for section in ("SUMMARY", "OFFSETS", "SIZE", "TREE", "LEDGER", "FRAGMENTS (the newest 10)"):
        assert section in text.stdout
    assert "5 older fragments" in text.stderr
    assert (document["offsets"]["count"], document["size"]["fragments"]) == (15, 15)
    assert [row["first"] for row in document["fragments"]] == list(range(5, 15))
    assert document["ledger"] == [{"epoch": 1, "floor": 0}]


def test_an_empty_line_parts_what_describe_and_verify_show(tier: Tier, run: Run) -> None:
    tier.add("s", [[chunk(0, b"0")], tier.hole(1, 5), [chunk(5, b"5")]])

    def titles(command: str) -> list[str]:
        return [part.splitlines()[0] for part in run(command, "s").stdout.split("\n\n") if part]

    assert titles("describe") == [
        "SUMMARY", "OFFSETS", "SIZE", "TREE", "LEDGER", "HOLES", "FRAGMENTS"
    ]  # fmt: skip
    assert titles("verify") == ["CHECKS", "RANGES"]


@pytest.mark.parametrize("name", ["plain-3.10.8", "codecs-4.3.6", "dedup-4.3.6", "subgzip-4.3.6"])
def test_raw_is_the_wire_bytes_and_nothing_else(tier: Tier, run: Run, name: str) -> None:
    stream = tier.add_fixture(name)

    result = run("read", stream, "--output", "raw")

    assert (result.exit_code, result.stderr) == (0, "")
    assert hashlib.sha256(result.stdout_bytes).hexdigest() == FIXTURES[name]["sha256"]


@pytest.mark.parametrize("name", FIXTURES)
def test_json_has_a_line_for_every_message(tier: Tier, run: Run, name: str) -> None:
    stream = tier.add_fixture(name)

    lines = [json.loads(line) for line in run("read", stream, "-o", "json").stdout.splitlines()]

    assert len(lines) == FIXTURES[name]["messages"]
    for line in lines:
        assert {"offset", "timestamp", "time"} < line.keys()
        assert "message" in line
        assert "error" not in line
    plain = {line["message"]["body_kind"] == "bytes" for line in lines}
    if FIXTURES[name].get("raw_bodies") is False:
        assert plain == {False}


def test_text_is_a_line_for_every_message(tier: Tier, run: Run) -> None:
    data = b"\x00\x53\x75\xa0\x05hello"
    tier.add("s", [[chunk(0, data, b"line\n\x1b[2J", b"\xff" * 100, timestamp=1)]])

    lines = [line.split("\t") for line in run("read", "s").stdout.splitlines()]

    assert [line[0] for line in lines] == ["0", "1", "2"]
    assert {line[1] for line in lines} == {"1970-01-01T00:00:00.001Z"}
    assert lines[0][2] == "hello"
    assert "\x1b" not in lines[1][2]
    assert lines[2][2].startswith("0xffff")
    assert lines[2][2].endswith("(100 bytes)")


def test_a_message_that_is_no_amqp_is_plain_bytes_and_no_error(tier: Tier, run: Run) -> None:
    tier.add("s", [[chunk(0, b"\xff\xff", b"hello", b"\x00\x53\x75\xa0\x02hi")]])

    lines = [json.loads(line) for line in run("read", "s", "-o", "json").stdout.splitlines()]

    assert [line["message"] for line in lines] == [
        {"body_kind": "bytes", "body": {"base64": "//8="}},
        {"body_kind": "bytes", "body": "hello"},
        {"body_kind": "data", "body": "hi"},
    ]
    assert not any("error" in line for line in lines)


def test_messages_that_are_never_to_be_parsed_are_bytes_whatever_they_look_like(
    tier: Tier, run: Run
) -> None:
    tier.add("s", [[chunk(0, b"\x00\x53\x75\xa0\x02hi")]])

    result = run("read", "s", "-o", "json", "--body-format", "bytes")

    (line,) = map(json.loads, result.stdout.splitlines())
    assert line["message"] == {"body_kind": "bytes", "body": {"base64": "AFN1oAJoaQ=="}}


def test_a_message_that_must_be_amqp_and_is_none_is_carried_in_base64_with_the_reason(
    tier: Tier, run: Run
) -> None:
    tier.add("s", [[chunk(0, b"\xff\xff", b"\x00\x53\x75\xa0\x02hi")]])

    result = run("read", "s", "-o", "json", "--body-format", "amqp")

    first, second = map(json.loads, result.stdout.splitlines())
    assert first["body_base64"] == "//8="
    assert first["error"]
    assert "message" in second


def test_a_body_format_that_there_is_not_is_refused_with_those_that_there_are(
    tier: Tier, run: Run
) -> None:
    tier.add("s", [[chunk(0, b"x")]])

    result = run("read", "s", "--body-format", "avro")

    assert result.exit_code == ExitCode.USAGE
    assert "auto, amqp, bytes" in result.stderr


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--from", "3"], range(3, 10)),
        (["--from", "3", "--until", "5"], range(3, 5)),
        (["--from", "last"], range(8, 10)),
        (["--from", "next"], range(0)),
        (["--from", "1970-01-01T00:00:00.004Z", "--until", "timestamp:8"], range(4, 8)),
        (["--limit", "3"], range(3)),
        (["--limit", "0"], range(0)),
    ],
)
def test_a_range_of_messages_is_read(
    tier: Tier, run: Run, options: list[str], expected: range
) -> None:
    tier.add("s", [[chunk(n, b"x", b"y", timestamp=n)] for n in range(0, 10, 2)])

    lines = run("read", "s", *options).stdout.splitlines()

    assert [int(line.split("\t")[0]) for line in lines] == list(expected)


def test_a_hole_is_told_on_stderr(tier: Tier, run: Run) -> None:
    tier.add("s", [[chunk(0, b"0")], tier.hole(1, 5), [chunk(5, b"5")]])

    result = run("read", "s", "-o", "raw")

    assert (result.exit_code, result.stdout) == (0, "05")
    assert "offsets 1 to 4 were lost" in result.stderr


def test_a_hole_is_a_line_of_its_own_between_messages_in_json(tier: Tier, run: Run) -> None:
    tier.add("s", [[chunk(0, b"0")], tier.hole(1, 5), [chunk(5, b"5")]])

    result = run("read", "s", "-o", "json")

    first, gap, last = [json.loads(line) for line in result.stdout.splitlines()]
    assert (first["offset"], last["offset"]) == (0, 5)
    assert gap == {"gap": {"first": 1, "next": 5, "reason": "hole"}}
    assert "offsets 1 to 4 were lost" in result.stderr


def test_describe_lists_holes(tier: Tier, run: Run) -> None:
    tier.add("s", [[chunk(0, b"0")], tier.hole(1, 5), [chunk(5, b"5")]])

    text = run("describe", "s").stdout
    document = json.loads(run("describe", "s", "--json").stdout)

    assert "HOLES" in text
    (row,) = document["holes"]
    assert (row["first"], row["next"], row["offsets"]) == (1, 5, 4)
    assert (document["size"]["holes"], document["size"]["fragments"]) == (1, 2)
    assert (document["offsets"]["count"], document["offsets"]["lost"]) == (2, 4)


@pytest.mark.parametrize("name", ["small", "//small", "smal", "__small"])
def test_a_name_that_none_has_is_answered_with_those_that_are_alike(
    tier: Tier, run: Run, name: str
) -> None:
    tier.add("__small_1745252105682952932", [[chunk(0, b"0")]], name=QueueName("c", "", ""))
    tier.add("__smalls_7", [[chunk(0, b"0")]], name=QueueName("c", "/", "smalls"))

    result = run("read", name)

    assert result.exit_code == 66
    assert "did you mean __small" in result.stderr
    assert "did you mean" not in run("read", "zzz").stderr


def test_describe_says_that_it_has_not_looked_below_groups_unless_it_is_told_to(
    tier: Tier, run: Run
) -> None:
    pieces: list[Any] = [[chunk(n, b"x")] for n in range(45)]
    pieces[3] = tier.hole(3, 4)
    tier.add_tree("s", pieces)

    short = run("describe", "s")
    document = json.loads(run("describe", "s", "--json", "--holes").stdout)

    assert "HOLES" not in short.stdout
    assert "--holes" in short.stderr
    assert json.loads(run("describe", "s", "--json").stdout)["size"]["holes"] is None
    assert [row["first"] for row in document["holes"]] == [3]
    assert (document["size"]["holes"], document["size"]["fragments"]) == (1, 44)


def test_verify_counts_holes_and_finds_them_sound(tier: Tier, run: Run) -> None:
    tier.add("s", [[chunk(0, b"0")], tier.hole(1, 5), [chunk(5, b"5")], tier.hole(6, 8)])

    result = run("verify", "s")
    document = json.loads(run("verify", "s", "--json").stdout)

    assert result.exit_code == 0
    assert "sound, 2 holes of 6 offsets" in result.stderr
    assert (document["sound"], document["holes"], document["lost_offsets"]) == (True, 2, 6)


def test_damage_ends_a_read_with_65_after_the_good_messages(tier: Tier, run: Run) -> None:
    root = tier.add("s", [[chunk(0, b"good")], [chunk(1, b"bad")]])
    tier.flip(tier.key(root, "s", 1), 60)

    result = run("read", "s", "-o", "raw")

    assert (result.exit_code, result.stdout) == (65, "good")
    what, why, remedy = result.stderr.splitlines()
    assert what.startswith("coldstream read failed: ")
    assert "offset 1" in what
    assert tier.key(root, "s", 1) in what
    assert why.strip() == "why: corrupt_data"
    assert remedy.strip().startswith("try: ")


def test_verify_exits_with_0_or_65_and_says_which_range(tier: Tier, run: Run) -> None:
    root = tier.add("s", [[chunk(0, b"0")], [chunk(1, b"1")]])
    sound = run("verify", "s", "--deep")
    del tier.store.objects[tier.key(root, "s", 1)]
    damaged, document = run("verify", "s"), run("verify", "s", "--json")

    assert sound.exit_code == 0
    assert "0\t2\tPRESENT" in sound.stdout
    assert "sound, 2 chunks and 2 messages read" in sound.stderr
    assert damaged.exit_code == document.exit_code == 65
    assert "1\t2\tMISSING" in damaged.stdout
    assert re.search(r"durability +FAILED \(1\)", damaged.stdout)
    found = json.loads(document.stdout)
    assert [each["ok"] for each in found["checks"]].count(False) == 1
    assert found["violations"][0]["key"] == tier.key(root, "s", 1)


def test_verify_without_a_root_says_what_it_could_not_check(tier: Tier, run: Run) -> None:
    tier.add("s", [[chunk(0, b"0")]])
    del tier.store.objects[tier.catalog.items["s"].root_key]

    done, document = run("verify", "s"), run("verify", "s", "--json")

    assert done.exit_code == 65
    assert re.search(r"agreement +FAILED", done.stdout)
    assert re.search(r"durability +not checked", done.stdout)
    assert [each["ok"] for each in json.loads(document.stdout)["checks"]] == [False, *[None] * 5]


@pytest.mark.parametrize("command", ["describe", "read", "verify"])
def test_an_unknown_stream_is_66(run: Run, command: str) -> None:
    result = run(command, "nobody")

    assert result.exit_code == 66
    assert "nobody" in result.stderr
    assert len(result.stderr.splitlines()) == 3


def test_a_queue_that_names_several_streams_lists_them(tier: Tier, run: Run) -> None:
    for stream, vhost in (("s1", "/"), ("s2", "/"), ("s3", "other")):
        tier.add(stream, [[chunk(0, stream.encode())]], name=QueueName("c", vhost, "orders"))

    result = run("read", "//orders")

    assert result.exit_code == 2
    assert "s1 (//orders), s2 (//orders)" in result.stderr
    assert run("read", "other/orders", "-o", "raw").stdout == "s3"
    assert run("read", "orders").exit_code == 2


def test_of_a_queue_that_was_declared_anew_the_live_stream_is_meant(tier: Tier, run: Run) -> None:
    for stream in ("s1", "s2"):
        tier.add(stream, [[chunk(0, stream.encode())]], name=QueueName("c", "/", "orders"))
    tier.catalog.items["s1"] = replace(tier.catalog.items["s1"], state=StreamState.DELETING)

    assert run("read", "orders", "-o", "raw").stdout == "s2"
    assert run("read", "s1", "-o", "raw").stdout == "s1"


@pytest.mark.parametrize("spec", ["yesterday", "-1h", "99999999999999999999999"])
def test_a_spec_that_is_none_is_a_usage_error(tier: Tier, run: Run, spec: str) -> None:
    tier.add("s", [[chunk(0, b"0")]])

    assert run("read", "s", f"--from={spec}").exit_code == 2


def test_an_unexpected_exception_is_our_bug_and_says_so(tier: Tier, run: Run) -> None:
    def fail() -> None:
        raise ZeroDivisionError("oh")

    tier.catalog.streams = fail  # type: ignore[method-assign,assignment]

    result = run("streams")

    assert result.exit_code == 70
    assert "ZeroDivisionError" in result.stderr


def test_an_unreachable_service_is_69(tier: Tier, run: Run) -> None:
    def fail(stream: str) -> None:
        raise UnavailableError("DynamoDB did not answer\nproperly")

    tier.catalog.get = fail  # type: ignore[method-assign,assignment]

    result = run("describe", "s")

    assert result.exit_code == 69
    assert len(result.stderr.splitlines()) == 3


def test_cells_never_break_a_table_or_drive_a_terminal() -> None:
    assert plain("a\tb\n\x1b[31m") == "a\\tb\\n\\x1b[31m"
    assert (plain(None), plain(0)) == ("-", "0")


def test_sizes_and_times_are_readable_and_exact() -> None:
    assert size(5) == "5 B"
    assert size(64 * 2**20) == "64.0 MiB (67108864 B)"
    assert when(1795227161842) == "2026-11-21T02:12:41.842Z"
    assert when(-1) == "1969-12-31T23:59:59.999Z"
    assert when(2**62) == str(2**62)


@pytest.mark.parametrize(
    ("offset", "words"), [("0", "offsets 0 to 4 were removed"), ("99", "ends before")]
)
def test_a_read_from_an_offset_that_is_not_there_says_so(
    tier: Tier, run: Run, offset: str, words: str
) -> None:
    tier.add("s", [[chunk(5, b"five")]])

    done = run("read", "s", "--from", offset, "-o", "raw")

    assert done.exit_code == 0
    assert words in done.stderr


def test_a_read_that_ends_before_it_begins_is_a_usage_error(tier: Tier, run: Run) -> None:
    tier.add("s", [[chunk(0, b"0")]])

    assert run("read", "s", "--from", "9", "--until", "3").exit_code == 2


def test_describe_shows_how_the_tree_is_built(tier: Tier, run: Run) -> None:
    root = tier.add_tree("s", [[chunk(n, b"x")] for n in range(45)])

    text = run("describe", "s", "--fragments", "20")
    document = json.loads(run("describe", "s", "--json", "--fragments", "20").stdout)

    for section in ("TREE", "GROUPS", "FRAGMENTS (the newest 20)"):
        assert section in text.stdout
    assert "25 older fragments" in text.stderr
    kinds = [entry.kind.name.lower() for entry in root.entries]
    assert document["tree"] == {
        "levels": 2,
        "root_entries": len(kinds),
        "mega_groups": 0,
        "kilo_groups": kinds.count("kilo_group"),
        "groups": kinds.count("group"),
        "fragments_in_root": kinds.count("fragment"),
        "dead_fragments": 0,
        "dead_bytes": 0,
    }
    assert document["size"]["fragments"] == 45
    # More fragments than the root holds: the rest comes out of the groups.
    assert kinds.count("fragment") < 20
    assert [row["first"] for row in document["fragments"]] == list(range(25, 45))
    assert [row["kind"] for row in document["groups"]] == kinds[: -kinds.count("fragment")]


def test_describe_shows_what_retention_left_dead_in_the_first_group(tier: Tier, run: Run) -> None:
    root = tier.add_tree("s", [[chunk(n, b"x")] for n in range(45)])
    gone = tier.leaves("s", root)[:3]
    size = root.total_size - sum(entry.size for entry in gone)
    plan = plan_retention(root, RetentionLimits(max_bytes=size), now_ms=0, fetch=tier.fetch("s"))
    tier.commit("s", plan.root)

    document = json.loads(run("describe", "s", "--json", "--fragments", "99").stdout)

    assert document["tree"]["dead_fragments"] == 3
    assert document["tree"]["dead_bytes"] == sum(entry.size for entry in gone)
    assert (document["size"]["bytes"], document["size"]["fragments"]) == (size, 42)
    assert [row["first"] for row in document["fragments"]] == list(range(3, 45))


def test_verify_names_the_group_that_is_gone(tier: Tier, run: Run) -> None:
    root = tier.add_tree("s", [[chunk(n, b"x")] for n in range(45)])
    sound = run("verify", "s")
    key = next(key for key in sorted(tier.store.objects) if key.endswith(".group"))
    del tier.store.objects[key]

    damaged = run("verify", "s")

    assert len(root.entries) < 45
    assert sound.exit_code == 0
    assert re.search(r"tree_sums +ok", sound.stdout)
    assert "groups read" in sound.stderr
    assert damaged.exit_code == 65
    assert re.search(r"durability +FAILED \(1\)", damaged.stdout)
    assert re.search(rf"MISSING\t\d+\t\d+\t{re.escape(key)}", damaged.stdout)
