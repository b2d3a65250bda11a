from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

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
