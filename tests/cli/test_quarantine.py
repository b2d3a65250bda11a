"""`coldstream quarantine`: what it shows, reads, and gives up only when it is told twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from coldstream.adapters.place import Place
from coldstream.adapters.place import Remote as Connected
from coldstream.cli import options
from coldstream.cli.exit_codes import ExitCode
from coldstream.cli.main import app
from coldstream.plans.claim import KnownHistory, LocalChunk
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.rebalance import rebalance
from coldstream_devkit.claims import claim
from tests.support.remote import PREFIX, STREAM, Remote, chain, log_of, no_pause, piece

Run = Callable[..., Result]
OLD = chain(12)


@pytest.fixture
def remote() -> Remote:
    """[0, 70) of a stream whose end, [70, 120), a claim of epoch 2 has cut off."""
    remote = Remote().claimed(1)
    remote.upload(*OLD[:11])
    commit_runs(remote.context, STREAM, pause=no_pause)
    rebalance(remote.context, STREAM, branching=2, pause=no_pause)
    remote.upload(OLD[11])  # only listed when the claim comes
    log = KnownHistory((*log_of(*OLD[:7]).chunks, LocalChunk(70, 80, 2)))
    claim(remote.context, STREAM, 2, log=log, pause=no_pause, now_ms=1_763_000_000_000)
    remote.upload(*chain(6, start=70, epoch=2, floor=70))
    commit_runs(remote.context, STREAM, pause=no_pause)
    return remote


@pytest.fixture
def run(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(
        options,
        "connect",
        lambda **_: Connected(remote.memory, remote.items, None, Place("b", "t", PREFIX)),  # type: ignore[arg-type]
    )

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["quarantine", *arguments])

    return invoke


def document(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_list_shows_every_timeline_with_sums_and_why(run: Run, remote: Remote) -> None:
    size = sum(len(each.data) for each in OLD[7:])

    result = run("list", STREAM)

    assert result.exit_code == 0, result.stderr
    header, row = result.stdout.splitlines()
    assert header.split("\t") == [
        "timeline", "first", "next", "created", "fragments", "bytes", "only_listed",
    ]  # fmt: skip
    assert row.split("\t") == [
        "2", "70", "120", "2025-11-13T02:13:20.000Z", "5", str(size), "1",
    ]  # fmt: skip
    assert "timeline 2: the log of epoch 2 has chunk 70..80" in result.stderr


def test_list_as_json_has_every_key(run: Run, remote: Remote) -> None:
    found = document(run("list", STREAM, "--json"))

    (row,) = found["timelines"]
    assert found["record_key"] == remote.root().quarantine_key
    assert [each["key"] for each in row["listed"]] == [OLD[11].path(PREFIX)]
    assert row["root_key"] in remote.memory.objects
    assert (row["complete"], found["strays"], found["dropped"]) == (True, [], [])


def test_list_names_strays_unless_it_need_not_look(run: Run, remote: Remote) -> None:
    (stray,) = remote.upload(piece(75, 125, uid=9))

    assert document(run("list", STREAM, "--json"))["strays"] == [stray]
    assert document(run("list", STREAM, "--json", "--no-strays"))["strays"] is None
    assert f"stray: {stray}" in run("list", STREAM).stderr


def test_a_stream_without_a_quarantine_says_so(
    run: Run, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = Remote().claimed(1)
    connected = Connected(fresh.memory, fresh.items, None, Place("b", "t", PREFIX))  # type: ignore[arg-type]
    monkeypatch.setattr(options, "connect", lambda **_: connected)

    result = run("list", STREAM)

    assert result.exit_code == 0, result.stderr
    assert "nothing is in quarantine" in result.stderr


def test_read_gives_every_lost_message_once_and_in_order(run: Run) -> None:
    result = run("read", STREAM, "--timeline", "2", "--output", "json")

    assert result.exit_code == 0, result.stderr
    offsets = [json.loads(line)["offset"] for line in result.stdout.splitlines()]
    assert offsets == list(range(70, 120))
    assert result.stderr == ""


def test_read_begins_where_it_is_told_also_below_the_cut(run: Run) -> None:
    def offsets(*more: str) -> list[int]:
        result = run("read", STREAM, "--timeline", "2", *more)
        assert result.exit_code == 0, result.stderr
        return [int(line.split("\t")[0]) for line in result.stdout.splitlines()]

    assert offsets("--from", "93") == list(range(93, 120))
    assert offsets("--from", "68", "--limit", "4") == [68, 69, 70, 71]
    assert offsets("--from", "500") == []


def test_read_of_the_stream_itself_has_none_of_it(run: Run, remote: Remote) -> None:
    before = {each.path(PREFIX): each.data for each in OLD[7:]}

    assert all(remote.memory.objects[path] == data for path, data in before.items())
    assert [span[:2] for span in remote.ranges()][-1] == (120, 130)


def test_a_timeline_that_is_not_there_is_66(run: Run) -> None:
    assert run("read", STREAM, "--timeline", "7").exit_code == ExitCode.NO_STREAM
    assert run("drop", STREAM, "--timeline", "7", "--yes").exit_code == ExitCode.NO_STREAM


def test_to_give_up_takes_two_words(run: Run, remote: Remote) -> None:
    before, items = remote.tampered(), dict(remote.items.items)

    assert run("drop", STREAM, "--timeline", "2").exit_code == ExitCode.USAGE
    dry = run("drop", STREAM, "--timeline", "2", "--dry-run")

    assert dry.exit_code == 0, dry.stderr
    assert "would be given up; nothing was changed" in dry.stderr
    assert (remote.tampered(), remote.items.items) == (before, items)


def test_what_was_given_up_is_not_listed_any_more_and_everything_else_is(
    run: Run, remote: Remote
) -> None:
    version = remote.items.items[STREAM].version

    found = document(run("drop", STREAM, "--timeline", "2", "--yes", "--json"))

    assert (found["landed"], found["version"], found["first"]) == (True, version + 1, 70)
    after = document(run("list", STREAM, "--json"))
    assert after["timelines"] == []
    assert [each["timeline"] for each in after["dropped"]] == [2]
    assert remote.root().next_offset == 130
    assert run("read", STREAM, "--timeline", "2").exit_code == ExitCode.NO_STREAM


def test_a_lost_fragment_that_is_gone_is_an_error_and_not_a_shorter_answer(
    run: Run, remote: Remote
) -> None:
    del remote.memory.objects[OLD[9].path(PREFIX)]

    result = run("read", STREAM, "--timeline", "2")

    assert result.exit_code == ExitCode.DATA
    assert OLD[9].path(PREFIX) in result.stderr


def test_giving_up_a_timeline_twice_says_so_and_writes_nothing(run: Run, remote: Remote) -> None:
    run("drop", STREAM, "--timeline", "2", "--yes")
    before = remote.items.get(STREAM)

    again = run("drop", STREAM, "--timeline", "2", "--yes")

    assert again.exit_code == 0
    assert "given up before" in again.stderr
    assert remote.items.get(STREAM) == before
    assert document(run("drop", STREAM, "--timeline", "2", "--yes", "--json"))["landed"] is False


@pytest.fixture
def shorter(remote: Remote) -> Remote:
    """A claim of epoch 3 that has cut nothing off: its log is the manifest's."""
    claim(remote.context, STREAM, 3, log=KnownHistory(), pause=no_pause)
    return remote


@pytest.mark.parametrize("option", ["--yes", "--dry-run"])
def test_a_claim_that_has_cut_off_nothing_that_is_there_has_nothing_to_give_up(
    run: Run, shorter: Remote, option: str
) -> None:
    before, items = shorter.tampered(), dict(shorter.items.items)

    done = run("drop", STREAM, "--timeline", "3", option)

    assert done.exit_code == ExitCode.NO_STREAM
    assert "nothing is there that a claim of epoch 3 has cut off" in done.stderr
    assert (shorter.tampered(), shorter.items.items) == (before, items)


@pytest.mark.parametrize(
    "late", [(120, 135), (125, 150), (140, 150)], ids=["below the end", "over it", "behind it"]
)
def test_a_claim_that_has_cut_off_nothing_but_a_late_upload_can_be_dropped_once(
    run: Run, shorter: Remote, late: tuple[int, int]
) -> None:
    shorter.upload(*chain(1, start=130, epoch=3, floor=130))
    commit_runs(shorter.context, STREAM, pause=no_pause)
    assert shorter.root().next_offset == 140
    shorter.upload(piece(*late, epoch=2, floor=70, uid=9))

    first = document(run("drop", STREAM, "--timeline", "3", "--yes", "--json"))
    again = run("drop", STREAM, "--timeline", "3", "--yes")

    assert (first["landed"], first["timeline"], first["first"]) == (True, None, 130)
    assert "given up before" in again.stderr


def test_what_another_claim_has_cut_off_is_no_reason_to_give_a_timeline_up_again(
    run: Run, shorter: Remote
) -> None:
    run("drop", STREAM, "--timeline", "2", "--yes")
    shorter.upload(piece(125, 150, epoch=2, floor=70, uid=9))  # of epoch 3

    assert "given up before" in run("drop", STREAM, "--timeline", "2", "--yes").stderr


@pytest.mark.parametrize("command", ["drop --yes", "drop --dry-run", "read"])
def test_an_unknown_timeline_is_told_where_the_known_ones_are(run: Run, command: str) -> None:
    verb, *options = command.split()

    done = run(verb, STREAM, "--timeline", "7", *options)

    assert done.exit_code == ExitCode.NO_STREAM
    assert f"coldstream quarantine {verb} failed: " in done.stderr
    assert "try: see which timelines there are with `coldstream quarantine list" in done.stderr
