"""`restore`, `export` and `replay` as a person types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import Result

from coldstream.broker.frames import Code, Key
from coldstream.cli import replay
from coldstream.cli.exit_codes import ExitCode
from coldstream.copies.replay import Replay, Replayed
from coldstream.manifest.catalog import QueueName
from coldstream.manifest.entries import Entries
from coldstream.manifest.root import LastChunk
from tests.support.peer import Peer, deliver, logging_in, reply
from tests.support.tier import DATA, Tier, chunk

Run = Callable[..., Result]


def test_a_plan_of_a_restore_writes_nothing_and_says_what_it_would(
    tier: Tier, run: Run, tmp_path: Path
) -> None:
    stream = tier.add_fixture("plain-3.10.8")
    words = ("restore", stream, "--to", str(tmp_path), "--from", "700", "--dry-run")

    table, document = run(*words), json.loads(run(*words, "--json").stdout)

    assert table.exit_code == 0
    rows = [line.split("\t") for line in table.stdout.splitlines()]
    assert rows[0] == ["segment", "next", "bytes", "chunks", "as_written"]
    assert [row[4] for row in rows[1:]] == ["anew", "yes"]
    assert "2 segments of" in table.stderr
    assert (document["first"], document["next"], len(document["segments"])) == (700, 2000, 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("restore",), ("export", "--format", "segments")])
def test_a_restore_says_what_it_wrote_and_refuses_to_do_it_again(
    tier: Tier, run: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    stream = tier.add_fixture("epochs-4.3.6")
    command, *more = words

    done = run(command, stream, "--to", str(tmp_path), *more)
    again = run(command, stream, "--to", str(tmp_path), *more)

    assert done.exit_code == 0, done.stderr
    assert "offsets 0 to 909 are in 10 segments" in done.stderr
    assert "the last chunk is of epoch 3" in done.stderr
    assert again.exit_code == 2
    assert "writes into nothing that is there" in again.stderr
    for path in (DATA / "epochs-4.3.6").iterdir():
        assert (tmp_path / stream / path.name).read_bytes() == path.read_bytes()


def test_holes_are_refused_with_what_to_do_about_them(tier: Tier, run: Run, tmp_path: Path) -> None:
    tier.add("s", [[chunk(0, b"0")], tier.hole(1, 5), [chunk(5, b"5")]])
    words = ("restore", "s", "--to", str(tmp_path))

    refused, done = run(*words), run(*words, "--after-holes", "--json")

    assert refused.exit_code == 65
    assert "offsets 1 to 4 are lost" in refused.stderr
    assert "--after-holes" in refused.stderr
    assert json.loads(done.stdout)["first"] == 5
    assert "a hole: offsets 1 to 4" in done.stderr


def test_an_export_goes_on_and_says_so(tier: Tier, run: Run, tmp_path: Path) -> None:
    stream = tier.add_fixture("plain-3.10.8")
    words = ("export", stream, "--to", str(tmp_path), "--format", "jsonl")

    first = run(*words, "--until", "500", "--json")
    second = run(*words)

    assert json.loads(first.stdout)["messages"] == 500
    assert second.exit_code == 0, second.stderr
    assert "went on at offset 500" in second.stderr
    assert "1500 messages up to offset 1999 in 1 file" in second.stderr
    assert run("export", stream, "--to", str(tmp_path)).exit_code == 2


@pytest.mark.parametrize("until", ["", "4"])
def test_what_is_missing_where_an_export_begins_is_told_as_a_hole_is(
    tier: Tier, run: Run, tmp_path: Path, until: str
) -> None:
    """`--from 0` wrote files that began elsewhere, and said nothing."""
    tier.add("s", [[chunk(n, b"%d" % n)] for n in range(5, 9)])
    end = 4 if until else 9
    words = ["export", "s", "--to", str(tmp_path), "--format", "jsonl", "--from", "2"]
    words += ["--until", until] if until else []

    done, again = run(*words), run(*words)

    last = min(4, end - 1)
    assert (done.exit_code, again.exit_code) == (0, 0), done.stderr + again.stderr
    assert f"gap: offsets 2 to {last} were removed by retention, or never uploaded" in done.stderr
    assert "gap" not in again.stderr
    (path,) = (tmp_path / "s").glob("*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert path.name == f"{2:020d}-{end:020d}.jsonl"
    assert lines[0] == {"gap": {"first": 2, "next": last + 1, "reason": "retention"}}
    assert [line["offset"] for line in lines[1:]] == list(range(5, end))


def retain(tier: Tier, stream: str, first: int) -> None:
    root = tier.reader(stream).snapshot().root
    entries = Entries.of(each for each in root.entries if each.next_offset > first)
    tier.commit(stream, replace(root, first_offset=first, entries=entries))


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize("start", ["first", "1"])
def test_an_export_that_has_all_up_to_its_end_misses_nothing_of_what_retention_takes(
    tier: Tier, run: Run, tmp_path: Path, form: str, start: str
) -> None:
    """Its end moved with the stream's first offset, and what lay between was called lost."""
    tier.add("s", [[chunk(n, b"%d" % n)] for n in range(10)])
    words = ("export", "s", "--to", str(tmp_path), "--format", form, "--from", start)
    assert run(*words, "--until", "4").exit_code == 0
    retain(tier, "s", 7)

    again, more = run(*words, "--until", "4"), run(*words, "--until", "6")

    assert again.exit_code == 0, again.stderr
    assert "0 messages up to offset 3" in again.stderr
    assert more.exit_code == 65
    assert "offsets 4 to 5 are not in the remote tier any more" in more.stderr


@pytest.mark.parametrize("start", ["first", "1", "0"])
def test_an_export_that_was_killed_before_its_first_file_is_what_it_would_be_anew(
    tier: Tier, run: Run, tmp_path: Path, start: str
) -> None:
    """But where it began at the first offset of that day: that is not what is there today."""
    tier.add("s", [[chunk(n, b"%d" % n)] for n in range(1, 10)])
    words = ("export", "s", "--to", str(tmp_path), "--format", "jsonl", "--from", start)
    run(*words, "--until", start if start != "first" else "1")
    assert not list((tmp_path / "s").glob("*.jsonl"))
    retain(tier, "s", 7)

    done = run(*words)

    if start == "first":
        assert done.exit_code == 65
        assert "offsets 1 to 6 are not" in done.stderr
    else:
        assert done.exit_code == 0, done.stderr
        assert f"gap: offsets {start} to 6 were removed" in done.stderr


@pytest.mark.parametrize("start", ["150", "2100-01-01"])
def test_an_export_from_what_is_not_there_yet_begins_with_it_when_it_is(
    tier: Tier, run: Run, tmp_path: Path, start: str
) -> None:
    def chunks(first: int, timestamp: int) -> list[bytes]:
        found = range(first, first + 100, 10)
        return [
            chunk(n, *(b"%d" % m for m in range(n, n + 10)), timestamp=timestamp) for n in found
        ]

    root = tier.add("s", [chunks(0, 1_790_000_000_000)])
    words = ("export", "s", "--to", str(tmp_path), "--format", "jsonl", "--from", start)

    assert "0 messages up to offset 99 in 0 files" in run(*words).stderr
    assert not list((tmp_path / "s").iterdir())
    for first in (100, 200):
        entry = tier.upload("s", chunks(first, 4_200_000_000_000), epoch=1, floor=0)
        root = root.appended([entry], LastChunk(first + 90, 1))
    tier.commit("s", root)
    result = run(*words)

    begin = 150 if start == "150" else 100
    assert f"{300 - begin} messages up to offset 299" in result.stderr
    (file,) = (tmp_path / "s").glob("*.jsonl")
    assert json.loads(file.read_text().splitlines()[0])["offset"] == begin


@pytest.mark.parametrize("start", ["next", " NEXT ", "1h", "2026-01-01", "1"])
def test_an_export_from_an_end_that_is_reached_has_all_that_comes_after_its_first_run(
    tier: Tier, run: Run, tmp_path: Path, start: str
) -> None:
    """Also of an hour ago: the hour of the first run counts, and not that of each."""
    root = tier.add("s", [[chunk(0, b"a")]])
    words = ("export", "s", "--to", str(tmp_path), "--format", "jsonl", "--from", start)

    run(*words)
    entry = tier.upload("s", [chunk(1, b"b"), chunk(2, b"c")], epoch=1, floor=0)
    tier.commit("s", root.appended([entry], LastChunk(2, 1)))

    assert "2 messages up to offset 2 in 1 file" in run(*words).stderr


def test_a_file_size_that_no_segment_has_is_refused(tier: Tier, run: Run, tmp_path: Path) -> None:
    tier.add("s", [[chunk(0, b"a")]])
    words = ("--to", str(tmp_path), "--format", "segments", "--file-size", "1MiB")
    result = run("export", "s", *words)
    assert result.exit_code == ExitCode.USAGE
    assert "--file-size" in result.stderr


@pytest.mark.parametrize(
    "words",
    [("restore",), ("export", "--format", "jsonl"), ("export", "--format", "segments")],
    ids=" ".join,
)
def test_a_target_that_cannot_be_written_is_named_with_what_to_do(
    tier: Tier, run: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """It was a traceback, and "a bug in coldstream"."""
    tier.add("s", [[chunk(0, b"0")]])
    (tmp_path / "file").write_text("mine")
    command, *more = words

    done = run(command, "s", "--to", str(tmp_path / "file"), *more)

    assert done.exit_code == ExitCode.OUTPUT, done.stderr
    assert "Traceback" not in done.stderr
    assert str(tmp_path / "file") in done.stderr
    assert "name a directory that can be written" in done.stderr
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("rate", ["nan", "inf"])
def test_a_rate_that_is_no_number_is_refused(tier: Tier, run: Run, rate: str) -> None:
    stream = tier.add_fixture("plain-3.10.8")

    done = run("replay", stream, "--to", "rabbitmq-stream://127.0.0.1:1", "--rate", rate)

    assert done.exit_code == ExitCode.USAGE, done.stderr
    assert "--rate" in done.stderr


@pytest.mark.parametrize(
    "uri", ["amqp://here", "rabbitmq-stream://guest:secret@127.0.0.1:1/%2f?x=1"]
)
def test_a_replay_to_nowhere_tells_no_secrets(tier: Tier, run: Run, uri: str) -> None:
    stream = tier.add_fixture("plain-3.10.8")

    done = run("replay", stream, "--to", uri)

    assert done.exit_code == 2
    assert "secret" not in done.stderr


def test_what_is_wrong_with_the_target_is_not_looked_for_at_aws(
    tier: Tier, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = tier.add_fixture("plain-3.10.8")

    def answer(key: int, body: bytes) -> list[bytes]:
        if key == Key.SASL_AUTHENTICATE:
            return [reply(Key.SASL_AUTHENTICATE, body, code=Code.AUTHENTICATION_FAILED)]
        return logging_in(key, body)

    with closing(Peer(answer)) as peer:
        refused = run(
            "replay", stream, "--to", f"rabbitmq-stream://127.0.0.1:{peer.port}", "--queue", "x"
        )
    monkeypatch.setattr("coldstream.copies.replay._PAUSES", (0.0,))
    nobody = run("replay", stream, "--to", "rabbitmq-stream://127.0.0.1:1", "--queue", "x")

    assert (refused.exit_code, nobody.exit_code) == (ExitCode.NO_PERMISSION, ExitCode.UNAVAILABLE)
    assert "rabbitmqctl list_user_permissions" in refused.stderr
    assert "again in 0 s" in nobody.stderr
    assert "check that a broker listens there" in nobody.stderr
    assert "AWS" not in (refused.stderr + nobody.stderr)


@pytest.mark.parametrize(
    ("may_read", "begins"), [(True, 0), (True, 3), (False, 0)], ids=["all", "tail", "no right"]
)
def test_a_replay_into_the_very_stream_is_refused_before_anything_is_published(
    tier: Tier, run: Run, may_read: bool, begins: int
) -> None:
    """It had each message of the stream in it once more; local retention may have taken some."""
    log = [chunk(n, b"%d" % n) for n in range(6)]
    tier.add("s", [log[:2], log[2:4]], name=QueueName("c", "/", "orders"))
    tier.commit("s", replace(tier.reader("s").snapshot().root, last_chunk=LastChunk(3, 1)))

    def answer(key: int, body: bytes) -> list[bytes]:
        if key == Key.SUBSCRIBE and not may_read:
            return [reply(Key.SUBSCRIBE, body, code=Code.ACCESS_REFUSED)]
        if key == Key.SUBSCRIBE:
            asked = int.from_bytes(body[-10:-2], "big")  # before two bytes of credit
            return [reply(Key.SUBSCRIBE, body), deliver(body[4], log[max(begins, asked)])]
        if key == Key.QUERY_PUBLISHER_SEQUENCE:
            return [reply(Key.QUERY_PUBLISHER_SEQUENCE, body, code=Code.ACCESS_REFUSED)]
        return logging_in(key, body)

    with closing(Peer(answer)) as peer:
        done = run("replay", "s", "--to", f"rabbitmq-stream://127.0.0.1:{peer.port}")

    assert Key.PUBLISH not in peer.heard
    assert done.exit_code == (ExitCode.USAGE if may_read else ExitCode.NO_PERMISSION), done.stderr
    assert ("has this very log" in done.stderr) is may_read


def test_what_a_source_has_lost_elsewhere_does_not_stop_a_replay_from_looking(
    tier: Tier, run: Run
) -> None:
    """The target's own chunks say where to look in the source no more."""
    log = [chunk(0, b"0"), chunk(6, b"6"), chunk(7, b"7")]
    tier.add("s", [log[:1], tier.hole(1, 6), log[1:]], name=QueueName("c", "/", "orders"))

    def answer(key: int, body: bytes) -> list[bytes]:
        if key == Key.SUBSCRIBE:
            return [reply(Key.SUBSCRIBE, body), deliver(body[4], chunk(3, b"another stream"))]
        if key == Key.QUERY_PUBLISHER_SEQUENCE:
            return [reply(Key.QUERY_PUBLISHER_SEQUENCE, body, code=Code.ACCESS_REFUSED)]
        return logging_in(key, body)

    with closing(Peer(answer)) as peer:
        uri = f"rabbitmq-stream://127.0.0.1:{peer.port}"
        done = run("replay", "s", "--to", uri, "--from", "6")

    assert done.exit_code == ExitCode.NO_PERMISSION, done.stderr


@pytest.mark.parametrize(
    ("start", "moves"),
    [
        *((each, True) for each in ("-10", "1h", "30d", "last", "next")),
        *((each, False) for each in ("first", "First", "12", " 12 ")),
        *((each, False) for each in ("2026-03-01", "2026-03-01T08:00+01:00", "timestamp:5")),
    ],
)
def test_a_replay_begins_below_what_was_asked_for_only_where_that_moves_by_itself(
    tier: Tier, run: Run, monkeypatch: pytest.MonkeyPatch, start: str, *, moves: bool
) -> None:
    """From March on, and the target had January: February was sent as well."""
    stream = tier.add_fixture("plain-3.10.8")
    seen: list[bool] = []

    def ran(each: Replay) -> Replayed:
        seen.append(each.goes_on)
        return Replayed(0, 1)

    monkeypatch.setattr(Replay, "run", ran)
    done = run("replay", stream, "--to", "rabbitmq-stream://127.0.0.1:1", f"--from={start}")

    assert done.exit_code == 0, done.stderr
    assert seen == [moves]


@pytest.mark.parametrize("found", [0, 4, 3, 9])
def test_a_replay_that_has_all_up_to_its_end_misses_nothing_of_what_retention_takes(
    tier: Tier, run: Run, found: int
) -> None:
    """Run again, it was refused for what lay behind its end; a new one, as for a hole."""
    tier.add("s", [[chunk(n, b"%d" % n)] for n in range(10)], name=QueueName("c", "/", "orders"))
    retain(tier, "s", 7)

    def answer(key: int, body: bytes) -> list[bytes]:
        if key == Key.SUBSCRIBE:
            return [reply(Key.SUBSCRIBE, body, code=Code.ACCESS_REFUSED)]
        if key == Key.QUERY_PUBLISHER_SEQUENCE:
            return [reply(Key.QUERY_PUBLISHER_SEQUENCE, body, rest=found.to_bytes(8, "big"))]
        return logging_in(key, body)

    with closing(Peer(answer)) as peer:
        to = f"rabbitmq-stream://127.0.0.1:{peer.port}"
        done = run("replay", "s", "--to", to, "--until", "4")
        numbered = run("replay", "s", "--to", to, "--until", "4", "--from", "0")

    assert Key.PUBLISH not in peer.heard
    if found == 3:
        assert done.exit_code == 65
        assert "ends at offset 3 of this publisher, and the replay begins at 4" in done.stderr
    else:
        assert done.exit_code == 0, done.stderr
        assert "the stream begins at offset 7: nothing of it is below 4" in done.stderr
    assert numbered.exit_code == 65
    assert ("--from first" in numbered.stderr) is (found == 0)
    assert ("the target has them" in numbered.stderr) is (found >= 4)


def test_a_replay_needs_the_name_of_a_queue(tier: Tier, run: Run) -> None:
    tier.add("s", [[chunk(0, b"0")]])

    done = run("replay", "s", "--to", "rabbitmq-stream://127.0.0.1:1")

    assert done.exit_code == 2
    assert "--queue" in done.stderr


def test_a_replay_that_went_on_claims_nothing_of_what_it_has_not_looked_at(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The id may be another program's, or of a replay that began later."""
    replay._show(Replayed(0, 5000, 4301, 1, found=700), "//copy at there", as_json=False)
    went_on = capsys.readouterr().err
    replay._show(Replayed(0, 5000, 5000, 1), "//copy at there", as_json=False)
    whole = capsys.readouterr().err

    assert "offsets 0 to 699 are taken to be there" in went_on
    assert "all messages" not in went_on
    assert "has all messages up to offset 4999" in whole
