"""`coldstream undo`: what it says, and that it does nothing until it is told twice."""

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
from coldstream_devkit.claims import claim
from tests.support.remote import PREFIX, STREAM, Remote, chain, log_of, no_pause

Run = Callable[..., Result]
TRUE = chain(12)


@pytest.fixture
def remote() -> Remote:
    """[0, 120) of a stream; a false claim of epoch 2 has cut it off at 70, and ends at 90."""
    remote = Remote().claimed(1)
    remote.upload(*TRUE)
    commit_runs(remote.context, STREAM, pause=no_pause)
    log = KnownHistory((*log_of(*TRUE[:7]).chunks, LocalChunk(70, 80, 2)))
    claim(remote.context, STREAM, 2, log=log, pause=no_pause)
    remote.upload(*chain(2, start=70, epoch=2, floor=70))
    commit_runs(remote.context, STREAM, pause=no_pause)
    return remote


@pytest.fixture
def run(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(
        options,
        "connect",
        lambda **_: Connected(remote.memory, remote.items, None, Place("b", "t", PREFIX)),  # type: ignore[arg-type]
    )
    monkeypatch.setattr(Connected, "composer", lambda self: remote.memory)
    return lambda *arguments: CliRunner().invoke(app, ["undo", STREAM, *arguments])


def document(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_a_table_says_what_goes_and_what_comes_back(run: Run, remote: Remote) -> None:
    before = remote.tampered()

    result = run("--claim", "2", "--dry-run")

    header, row = (line.split("\t") for line in result.stdout.splitlines())
    shown = dict(zip(header, row, strict=True))
    assert shown["cut_off"] == "70..90"
    assert shown["put_back"] == "70..120"
    assert "nothing was changed; --yes would do it" in result.stderr
    assert remote.tampered() == before


def test_without_yes_nothing_is_done(run: Run, remote: Remote) -> None:
    result = run("--claim", "2")

    assert result.exit_code == ExitCode.USAGE
    assert "--yes" in result.stderr
    assert remote.root().next_offset == 90


def test_what_was_cut_off_is_back_and_what_was_made_up_is_in_quarantine(
    run: Run, remote: Remote
) -> None:
    found = document(run("--claim", "2", "--yes", "--json"))

    assert (found["done"], found["next"], found["fragments"]) == (True, 120, 5)
    assert found["put_back"] == [{"first": 70, "next": 120}]
    assert remote.root().next_offset == 120
    assert found["timeline"] == remote.root().epoch == found["epoch"]


def test_what_could_not_be_put_back_is_named(run: Run, remote: Remote) -> None:
    del remote.memory.objects[TRUE[9].path(PREFIX)]

    result = run("--claim", "2", "--yes")

    assert result.exit_code == 0
    assert TRUE[9].path(PREFIX) in result.stderr
    assert "repair" in result.stderr


@pytest.mark.parametrize("arguments", [(), ("--claim", "2", "--from", "70"), ("--claim", "9")])
def test_a_claim_or_an_offset_that_is_there_must_be_named(
    run: Run, remote: Remote, arguments: tuple[str, ...]
) -> None:
    before = remote.tampered()

    result = run(*arguments, "--yes")

    assert result.exit_code == ExitCode.USAGE
    assert remote.tampered() == before


def test_the_end_of_what_is_forged_may_be_said_in_its_older_spelling(run: Run) -> None:
    words = ("--from", "70", "--dry-run", "--json")

    assert document(run(*words, "--to", "80")) == document(run(*words, "--until", "80"))
    assert document(run(*words, "--until", "80")) != document(run(*words))
    assert run(*words, "--until", "80", "--to", "80").exit_code == ExitCode.USAGE
    assert "--to " not in run("--help").stdout
