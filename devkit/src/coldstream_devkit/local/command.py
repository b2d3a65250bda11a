"""`coldstream local`: the embedded AWS on this machine."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from coldstream.cli.exit_codes import ExitCode
from coldstream.cli.options import JsonOption, with_options
from coldstream.cli.output import note, print_json, print_section, size
from coldstream.cli.report import ConfigurationError
from coldstream.errors import InvalidInputError

app = typer.Typer(help="Run the embedded AWS on this machine.", no_args_is_help=True)


def _directory(text: str) -> Path:
    """A directory as typed; `Path("")` would be the working directory, which nobody has named."""
    if not text.strip():
        raise typer.BadParameter("an empty value names no directory")
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise typer.BadParameter(f"{text!r} is a file")
    return path


RootOption = Annotated[
    Path | None,
    typer.Option(
        "--project",
        metavar="DIRECTORY",
        parser=_directory,
        help="The checkout with app.py; the working directory or one above it by default.",
    ),
]
StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIRECTORY",
        parser=_directory,
        help="Where everything is kept; .local in the project by default.",
    ),
]


@app.command("up")
@with_options
def up(
    project: RootOption = None,
    state: StateOption = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port on 127.0.0.1; 0 for any free one; by default the last one, or 4566.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting of cdk.json with another value, such as branching=4; repeatable.",
        ),
    ] = None,
) -> None:
    """Start it and deploy the CDK app to it; does nothing where both are done.

    Example:

        coldstream local up && eval "$(coldstream local env)"
    """
    from coldstream_devkit.local import environment
    from coldstream_devkit.local.synth import AppFailedError

    context = _context(settings or [])
    try:
        running = environment.up(_project(project), port=port, state_dir=state, context=context)
    except AppFailedError as exc:
        raise ConfigurationError(
            str(exc), remedy="correct --set or cdk.json; docs/how-to/deploy.md lists the settings"
        ) from exc
    where = "".join(
        f" {option} {shlex.quote(str(given))}"
        for option, given in (("--project", project), ("--state", state))
        if given is not None
    )
    note(f'{running.endpoint} is up; next: eval "$(coldstream local env{where})"')


@app.command("down")
@with_options
def down(
    project: RootOption = None,
    state: StateOption = None,
    wipe: Annotated[bool, typer.Option("--wipe", help="Remove all that it holds, too.")] = False,
) -> None:
    """Stop it; what it holds is kept unless --wipe. Stopping twice is fine.

    --wipe removes only what an embedded AWS has put into a directory, and follows no link.
    """
    from coldstream_devkit.local import environment

    environment.down(_project(project), state_dir=state, wipe=wipe)


@app.command("status")
@with_options
def status(
    project: RootOption = None, state: StateOption = None, as_json: JsonOption = False
) -> None:
    """Say whether it runs and what is deployed; exit with 1 if it does not run."""
    from coldstream_devkit.local import environment

    found = environment.status(_project(project), state_dir=state)
    endpoint = found.server.endpoint if found.server is not None else None
    if as_json:
        print_json(
            {
                "running": found.running,
                "endpoint": endpoint,
                "state": str(found.state_dir),
                "state_bytes": found.state_bytes,
                "outputs": found.outputs,
            }
        )
    else:
        summary = {
            "running": "yes" if found.running else "no",
            "endpoint": endpoint,
            "state": found.state_dir,
            "size": size(found.state_bytes),
        }
        print_section("SUMMARY", summary)
        if found.outputs:
            print_section("OUTPUTS", found.outputs)
    if not found.running:
        raise typer.Exit(ExitCode.FAILED)


@app.command("env")
@with_options
def env(project: RootOption = None, state: StateOption = None, as_json: JsonOption = False) -> None:
    """Print the variables that point any AWS SDK and coldstream at it, as `export` lines.

    Example:

        eval "$(coldstream local env)"
    """
    from coldstream_devkit.local import environment

    variables = environment.environment(_project(project), state_dir=state)
    if as_json:
        print_json(variables)
        return
    for name, value in variables.items():
        sys.stdout.write(f"export {name}={shlex.quote(value)}\n")


def _context(settings: list[str]) -> dict[str, str]:
    context: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not name or not equals:
            raise InvalidInputError(f"--set takes NAME=VALUE, not {setting[:80]!r}")
        context[f"coldstream:{name}"] = value
    return context


def _project(given: Path | None) -> Path:
    """The directory with app.py."""
    here = Path.cwd() if given is None else given
    for directory in (here, *here.resolve().parents) if given is None else (here,):
        if (directory / "app.py").is_file() and (directory / "cdk.json").is_file():
            return directory
    raise ConfigurationError(
        f"no app.py with a cdk.json in {here}",
        remedy="run it in a checkout of coldstream, or give --project",
    )
