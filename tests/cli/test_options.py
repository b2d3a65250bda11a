from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from coldstream.cli import main
from coldstream.cli.options import with_options


@dataclass(frozen=True, slots=True)
class Place:
    shelf: Annotated[str, typer.Option("--shelf", envvar="SHELF")]
    row: Annotated[int, typer.Option("--row", min=1)] = 1


def probe() -> tuple[typer.Typer, list[tuple[str, bool, Place]]]:
    app, seen = typer.Typer(add_completion=False), []

    @app.command()
    @with_options
    def put(book: str, dry_run: bool = False, *, place: Place) -> None:
        """Put a book back."""
        seen.append((book, dry_run, place))

    return app, seen


def test_a_value_is_made_of_its_own_options_and_the_rest_stays() -> None:
    app, seen = probe()

    for line in (["b", "--shelf", "s", "--row", "2"], ["b", "--dry-run", "--shelf", "s"]):
        assert CliRunner().invoke(app, line).exit_code == 0

    assert seen == [("b", False, Place("s", 2)), ("b", True, Place("s", 1))]


def test_a_field_without_a_default_is_a_required_option() -> None:
    app, seen = probe()

    assert CliRunner().invoke(app, ["b"]).exit_code == 2
    assert CliRunner().invoke(app, ["b"], env={"SHELF": "e"}).exit_code == 0

    assert seen == [("b", False, Place("e"))]


def test_the_options_of_a_value_are_shown_in_its_place_with_their_limits() -> None:
    app, _ = probe()
    command = typer.main.get_command(app)

    assert [each.name for each in command.params] == ["book", "dry_run", "shelf", "row"]
    assert command.help == "Put a book back."
    assert CliRunner().invoke(app, ["b", "--shelf", "s", "--row", "0"]).exit_code == 2


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_the_version_has_a_short_flag_too(flag: str) -> None:
    ended = CliRunner().invoke(main.app, [flag])

    assert (ended.exit_code, ended.stdout) == (0, f"{version('coldstream')}\n")


def test_region_and_profile_of_aws_stand_before_every_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", *keys):
        monkeypatch.setenv(name, "of the shell")
    found: dict[str, str] = {}

    def look() -> None:
        found.update(os.environ)

    app = typer.Typer()
    app.callback()(main._options)
    app.command("look")(look)
    for words in (["look"], ["--region", "eu-west-1", "--profile", "p", "look"]):
        found.clear()
        assert CliRunner().invoke(app, words).exit_code == 0
        if words == ["look"]:
            assert found["AWS_PROFILE"] == found["AWS_ACCESS_KEY_ID"] == "of the shell"

    assert (found["AWS_REGION"], found["AWS_DEFAULT_REGION"]) == ("eu-west-1", "eu-west-1")
    assert found["AWS_PROFILE"] == "p"
    assert not set(keys) & found.keys(), "keys of the environment would win over a profile"
