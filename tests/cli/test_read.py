"""`coldstream read`: relative times, filters, properties, and following a stream that grows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from rstream import AMQPMessage
from rstream import Properties as Standard
from typer.testing import Result

from coldstream.cli import progress as progress_line
from coldstream.cli import ranges
from coldstream.cli import read as command
from coldstream.cli.exit_codes import ExitCode
from coldstream.cli.match import Condition
from coldstream.cli.progress import ProgressLine
from coldstream.errors import InvalidInputError, UnavailableError
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.entries import Entries
from coldstream.manifest.root import Root
from coldstream.osiris.bloom import encode_bloom
from coldstream.reader import Offset, Timestamp
from coldstream_devkit.generator import build_chunk
from tests.support.interrupts import heeds_ctrl_c
from tests.support.tier import Tier, chunk

Run = Callable[..., Result]


def encode_message(own: dict[str, object], subject: str) -> bytes:
    made = AMQPMessage(body=b"x", properties=Standard(subject=subject), application_properties=own)
    return bytes(made)


ROOT = Path(__file__).parents[2]
HOUR = 3_600_000


def offsets(result: Result) -> list[int]:
    assert result.exit_code == 0, result.stderr
    return [int(line.split("\t")[0]) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1h", Timestamp(9 * HOUR)),
        ("90s", Timestamp(10 * HOUR - 90_000)),
        ("2D", Timestamp(10 * HOUR - 48 * HOUR)),
        ("-3", Offset(97)),
        ("-100", Offset(40)),
        ("5", Offset(5)),
    ],
)
def test_a_place_may_be_said_from_now_or_from_the_end(
    text: str, expected: Offset | Timestamp
) -> None:
    root = Root(first_offset=40, next_offset=100)

    assert ranges.spec_of(text, root, 10 * HOUR) == expected
    assert ranges.bound_of(text, root, 10 * HOUR) == expected


@pytest.mark.parametrize("text", ["1w", "1h30m", "-", "-1h", "1.5h", "--3", "h", "-" + "9" * 30])
def test_a_place_that_is_none_is_refused_with_every_form_that_is_one(text: str) -> None:
    for look in (ranges.spec_of, ranges.bound_of):
        with pytest.raises(InvalidInputError, match=r"an offset, .* 1h for an hour ago, or -10"):
            look(text, Root(first_offset=0, next_offset=9), 0)


def test_the_last_offsets_are_read_by_a_negative_number(tier: Tier, run: Run) -> None:
    tier.add("s", [[chunk(n, b"x", b"y", timestamp=n)] for n in range(0, 10, 2)])

    assert offsets(run("read", "s", "--from", "-3")) == [7, 8, 9]
    assert offsets(run("read", "s", "--from", "-3", "--until", "-1")) == [7, 8]


def test_the_end_in_its_older_spelling_is_still_taken_but_not_twice(tier: Tier, run: Run) -> None:
    tier.add("s", [[chunk(n, b"x")] for n in range(6)])

    assert offsets(run("read", "s", "--from", "1", "--to", "3")) == [1, 2]
    assert run("read", "s", "--follow", "--to", "3").exit_code == ExitCode.USAGE
    twice = run("read", "s", "--until", "3", "--to", "3")
    assert twice.exit_code == ExitCode.USAGE
    assert "--to is the older name of --until" in twice.stderr
    assert "--to " not in run("read", "--help").stdout


def test_what_a_read_has_kept_on_disk_answers_the_next_one_as_the_policy_says(
    tier: Tier, run: Run, tmp_path: Path
) -> None:
    tier.add("s", [[chunk(n, b"x")] for n in range(5)])
    kept = ["--cache-dir", str(tmp_path / "cache"), "--read-policy"]

    refused = run("read", "s", *kept, "disable")
    assert refused.exit_code == ExitCode.UNAVAILABLE
    assert "disable" in refused.stderr
    assert offsets(run("read", "s", *kept, "force")) == [0, 1, 2, 3, 4]
    assert run("read", "s", *kept, "disable").exit_code == ExitCode.UNAVAILABLE, (
        "force has kept nothing"
    )
    assert offsets(run("read", "s", *kept, "not-in-disk")) == [0, 1, 2, 3, 4]
    for key in [key for key in tier.store.objects if key.endswith(".fragment")]:
        del tier.store.objects[key]
    assert offsets(run("read", "s", *kept, "disable")) == [0, 1, 2, 3, 4]
    assert run("read", "s", *kept, "not-in-mem").exit_code == ExitCode.DATA


def test_a_read_that_may_ask_nobody_is_refused_at_once(tier: Tier, run: Run) -> None:
    tier.add("s", [[chunk(0, b"x")]])

    result = run("read", "s", "--read-policy", "disable")

    assert result.exit_code == 2
    assert "needs --cache-dir" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--filter", ""), "--filter is empty"), (("--cache-size", "1GiB"), "without --cache-dir")],
)
def test_an_option_that_would_say_nothing_is_refused(
    tier: Tier, run: Run, words: tuple[str, str], said: str
) -> None:
    """`--filter "$VALUE"` with a variable that is not set, for one."""
    tier.add("s", [[chunk(0, b"x")]])

    result = run("read", "s", *words)

    assert result.exit_code == ExitCode.USAGE
    assert said in result.stderr


def test_chunks_without_the_filter_value_are_passed_over_whole(tier: Tier, run: Run) -> None:
    def filtered(at: int, *values: bytes) -> bytes:
        bodies = [b"x"] * 2
        return build_chunk(at, 1, 1000, bodies, bloom=encode_bloom(values) if values else b"")

    tier.add(
        "s", [[filtered(0, b"eu"), filtered(2, b"us"), filtered(4), filtered(6, b"eu", b"us")]]
    )

    assert offsets(run("read", "s", "--filter", "eu")) == [0, 1, 6, 7]
    assert offsets(run("read", "s", "--filter", "eu", "--filter", "us")) == [0, 1, 2, 3, 6, 7]
    assert offsets(run("read", "s", "--filter", "us", "--match-unfiltered")) == [2, 3, 4, 5, 6, 7]
    assert run("read", "s", "--match-unfiltered").exit_code == 2


def test_messages_are_picked_by_their_properties(tier: Tier, run: Run) -> None:
    bodies = [
        encode_message({"region": "eu", "n": 1}, "order"),
        encode_message({"region": "us", "n": 2}, "order"),
        encode_message({"n": True}, "invoice"),
        b"\xff no AMQP",
    ]
    tier.add("s", [[chunk(0, *bodies)]])

    def found(*conditions: str) -> list[int]:
        return offsets(
            run("read", "s", *(word for each in conditions for word in ("--where", each)))
        )

    assert found("region=eu") == [0]
    assert found("region!=eu") == [1, 2, 3]
    assert found("n=2", "properties.subject=order") == [1]
    assert found("application_properties.n=true") == [2]
    assert found("properties.subject=order", "region!=us") == [0]
    assert found("n=2.0") == [1]
    strict = run("read", "s", "--where", "region!=eu", "--body-format", "amqp")
    assert offsets(strict) == [1, 2]
    assert "1 message left out: no AMQP 1.0" in strict.stderr
    assert run("read", "s", "--where", "nothing").exit_code == 2
    assert run("read", "s", "--where", "properties.nothing=1").exit_code == 2


def test_a_value_may_hold_what_a_condition_is_made_of() -> None:
    assert Condition.parse("a!=b=c") == Condition(False, "a", "b=c", False)
    assert Condition.parse("a=!b") == Condition(False, "a", "!b", True)


def test_following_gives_what_comes_each_offset_once(
    tier: Tier, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tier.add("s", [[chunk(0, b"0", b"1")]])
    looks = 0

    def wait() -> bool:
        nonlocal looks, root
        looks += 1
        if looks == 4:
            raise KeyboardInterrupt
        if looks % 2:
            at = root.next_offset
            entry = tier.upload("s", [chunk(at, b"a", b"b")], epoch=1, floor=0)
            entries = Entries.of([*root.entries, entry])
            root = tier.commit("s", replace(root, next_offset=at + 2, entries=entries))
        return True

    monkeypatch.setattr(command, "_wait", wait)

    assert offsets(run("read", "s", "--follow", "--from", "1")) == [1, 2, 3, 4, 5]
    assert run("read", "s", "--follow", "--until", "5").exit_code == 2


def test_who_follows_waits_for_a_table_that_does_not_answer_and_is_told(
    tier: Tier, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tier.add("s", [[chunk(0, b"0", b"1")]])
    answer, waits, outage = tier.catalog.get, list[float](), iter(list[bool]())

    def wait() -> bool:
        nonlocal outage
        if waits:
            raise KeyboardInterrupt
        entry = tier.upload("s", [chunk(2, b"a", b"b")], epoch=1, floor=0)
        tier.commit("s", replace(root, next_offset=4, entries=Entries.of([*root.entries, entry])))
        outage = iter([True] * 7)
        return True

    def get(stream: str) -> CatalogItem | None:
        if next(outage, False):
            raise UnavailableError("no answer")
        return answer(stream)

    monkeypatch.setattr(tier.catalog, "get", get)
    monkeypatch.setattr(command, "_wait", wait)
    monkeypatch.setattr(command.time, "sleep", waits.append)

    result = run("read", "s", "--follow", "--from", "first")

    assert offsets(result) == [0, 1, 2, 3]
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    assert "no answer" in result.stderr
    assert "tried again in 16 s" in result.stderr


def test_ctrl_c_ends_a_follower_with_0() -> None:
    program = (
        "import sys; sys.argv = ['coldstream', 'read', 's', '--follow']\n"
        "from tests.support.tier import Tier, chunk, PREFIX\n"
        "from coldstream.adapters.memory import MemoryPolicies\n"
        "from coldstream.cli import options\n"
        "from coldstream.adapters.place import Place, Remote\n"
        "from coldstream.cli.main import main\n"
        "tier = Tier(); tier.add('s', [[chunk(0, b'one')]])\n"
        "options.connect = lambda **_: Remote(\n"
        "    tier.store, tier.catalog, MemoryPolicies(), Place('b', 't', PREFIX))\n"
        "main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
        preexec_fn=heeds_ctrl_c,
    )
    assert process.stdout is not None
    line = process.stdout.readline()  # it is given out although nothing follows

    err = b"it never ended"
    for _ in range(6):  # as in test_endings: on a busy machine the first one may come to nothing
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            _, err = process.communicate(timeout=20)
            break

    assert line.startswith(b"0\t")
    assert (process.returncode, err) == (0, b"")


def test_json_lines_of_a_followed_stream_are_whole(
    tier: Tier, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier.add("s", [[chunk(0, b"0", b"1")]])
    monkeypatch.setattr(command, "_wait", lambda: False)

    result = run("read", "s", "--follow", "--progress", "-o", "json")

    assert [json.loads(line)["offset"] for line in result.stdout.splitlines()] == [0, 1]
    assert "offset 2, 2 messages" in result.stderr


def test_what_is_missing_where_a_read_begins_is_told_as_every_gap(tier: Tier, run: Run) -> None:
    tier.add("s", [[chunk(n, b"%d" % n)] for n in range(5, 9)])

    whole = run("read", "s", "--from", "0", "-o", "json")
    nothing = run("read", "s", "--from", "2", "--until", "4", "-o", "json")

    lines = [json.loads(line) for line in whole.stdout.splitlines()]
    assert lines[0] == {"gap": {"first": 0, "next": 5, "reason": "retention"}}
    assert [line["offset"] for line in lines[1:]] == [5, 6, 7, 8]
    assert json.loads(nothing.stdout) == {"gap": {"first": 2, "next": 4, "reason": "retention"}}
    for each, last in ((whole, 4), (nothing, 3)):
        assert each.exit_code == 0
        assert f"to {last} were removed by retention, or never uploaded" in each.stderr
    assert "gap" not in run("read", "s", "-o", "json").stderr


def test_progress_says_where_it_is_and_how_long_it_may_take(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    with ProgressLine(100, 300, "bytes", clock=lambda: now[0]) as line:
        for at in range(100, 201, 10):
            line.tell(at, (at - 100) * 2**20)
            now[0] += 2

    said = capsys.readouterr().err.splitlines()
    assert said[0] == "offset 150 of 300 (25%), 50.0 MiB, 5.0 MiB/s, 30s left"
    assert len(said) == 3
    assert progress_line.ProgressLine(0, 0, "bytes")
