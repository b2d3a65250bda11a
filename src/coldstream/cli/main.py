"""The `coldstream` command: one module a command, registered here.

The modules import only names and typer; SDKs and numpy come in when a command runs.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from importlib.metadata import entry_points
from typing import Any

import typer

from coldstream.cli import (
    agent,
    collect,
    consolidate,
    delete,
    describe,
    doctor,
    erase,
    export,
    gateway,
    quarantine,
    read,
    rebalance,
    rebuild,
    reconcile,
    rename,
    repair,
    replay,
    restore,
    retention,
    streams,
    undo,
    verify,
)
from coldstream.cli.exit_codes import ExitCode
from coldstream.cli.report import (
    Commands,
    OutputError,
    cannot_write,
    explain,
    give_up_stderr,
    silence_stdout,
)

#: What only a checkout has, such as `local`.
_OF_A_CHECKOUT = entry_points(group="coldstream.commands")

app = typer.Typer(
    name="coldstream",
    cls=Commands,
    help="Bottomless S3 storage for RabbitMQ streams.\n\nReads, checks and describes the remote "
    "tier; starts the workflows that keep it; runs the agent that fills it"
    + ("; runs it all on one machine." if "local" in _OF_A_CHECKOUT.names else "."),
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("coldstream"))
        raise typer.Exit


def _region(name: str | None) -> None:
    if name:
        os.environ["AWS_REGION"] = os.environ["AWS_DEFAULT_REGION"] = name


def _profile(name: str | None) -> None:
    """As `aws --profile`: keys of the environment, which would win over a profile, do not count."""
    if name:
        os.environ["AWS_PROFILE"] = name
        for each in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            os.environ.pop(each, None)


@app.callback()
def _options(
    _: bool = typer.Option(
        False,
        "--version",
        "-V",
        callback=_version,
        is_eager=True,
        help="Print the version and exit.",
    ),
    _of_aws: str = typer.Option(
        "", "--region", metavar="NAME", callback=_region, help="Of AWS, in place of AWS_REGION."
    ),
    _of_keys: str = typer.Option(
        "",
        "--profile",
        metavar="NAME",
        callback=_profile,
        help="Of AWS's shared files, in place of AWS_PROFILE and of keys in the environment.",
    ),
) -> None:
    pass


app.command("streams", rich_help_panel="Look")(streams.streams)
app.command("describe", rich_help_panel="Look")(describe.describe)
app.command("read", rich_help_panel="Look")(read.read)
app.command("export", rich_help_panel="Copy")(export.export)
app.command("replay", rich_help_panel="Copy")(replay.replay)
app.command("restore", rich_help_panel="Copy")(restore.restore)
app.command("verify", rich_help_panel="Check")(verify.verify)
app.command("reconcile", rich_help_panel="Keep")(reconcile.reconcile)
app.command("rebalance", rich_help_panel="Keep")(rebalance.rebalance)
app.command("consolidate", rich_help_panel="Keep")(consolidate.consolidate)
app.add_typer(retention.app, name="retention", cls=Commands, rich_help_panel="Keep")
app.command("collect", rich_help_panel="Keep")(collect.collect)
app.command("rebuild", rich_help_panel="Keep")(rebuild.rebuild)
app.command("repair", rich_help_panel="Keep")(repair.repair)
app.add_typer(quarantine.app, name="quarantine", cls=Commands, rich_help_panel="Keep")
app.command("undo", rich_help_panel="Keep")(undo.undo)
app.command("rename", rich_help_panel="Keep")(rename.rename)
app.command("erase", rich_help_panel="Keep")(erase.erase)
app.command("delete", rich_help_panel="Keep")(delete.delete)
app.command("undelete", rich_help_panel="Keep")(delete.undelete)
app.command("doctor", rich_help_panel="Run")(doctor.doctor)
app.add_typer(agent.agent_app, name="agent", cls=Commands, rich_help_panel="Run")
app.add_typer(gateway.gateway_app, name="gateway", cls=Commands, rich_help_panel="Run")


for _more in _OF_A_CHECKOUT:
    app.add_typer(_more.load(), name=_more.name, cls=Commands, rich_help_panel="Run")


def main() -> None:
    """Entry point."""
    _open_closed()
    # numpy would start a thread for each core that spins for a moment; nothing here multiplies.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A locale that lacks a character of a queue's name is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    code: Any = ExitCode.OK
    try:
        app(prog_name="coldstream")
    except SystemExit as left:
        # Who reads our help no longer (`| head`) has what he wanted, as of every command.
        code = ExitCode.OK if isinstance(left.__context__, BrokenPipeError) else left.code
        with contextlib.suppress(BrokenPipeError):
            _flush()
    except OSError as error:  # help and usage are written outside of any command
        if not cannot_write(error):
            raise
        code = _tell_unwritable(error)
    # All is written, or cannot be; nothing is left that the interpreter's exit could fail on.
    silence_stdout()
    give_up_stderr()
    sys.exit(code)


def _flush() -> None:
    try:
        sys.stdout.flush()
    except OSError as error:
        if not cannot_write(error):
            raise
        sys.exit(_tell_unwritable(error))


def _tell_unwritable(error: OSError) -> int:
    silence_stdout()
    sys.stderr.write(explain(OutputError(f"cannot write: {error}"), "") + "\n")
    return ExitCode.OUTPUT


def _open_closed() -> None:
    """Give `>&-` and `2>&-` a stream: Python has none, and the next socket would take its place.

    Writing to the closed stdout fails, as it does in every other program.
    """
    if sys.stdout is None:
        _occupy(1, os.O_RDONLY)
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        _occupy(2, os.O_WRONLY)
        sys.stderr = os.fdopen(2, "w", closefd=False)


def _occupy(descriptor: int, flags: int) -> None:
    opened = os.open(os.devnull, flags)
    if opened != descriptor:
        os.dup2(opened, descriptor)
        os.close(opened)
