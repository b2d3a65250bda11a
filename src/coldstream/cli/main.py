"""The `coldstream` command: one module a command, registered here.

The modules import only names and typer; SDKs and numpy come in when a command runs.
"""

from __future__ import annotations

import io
import sys

import typer

from coldstream.cli import (
    agent,
    collect,
    consolidate,
    delete,
    describe,
    local,
    quarantine,
    read,
    rebalance,
    rebuild,
    reconcile,
    repair,
    retention,
    streams,
    verify,
)
from coldstream.cli.report import Commands

app = typer.Typer(
    name="coldstream",
    cls=Commands,
    help="Bottomless S3 storage for RabbitMQ streams.\n\nReads, checks and describes the remote "
    "tier; starts the workflows that keep it; runs the agent that fills it; runs it all on one "
    "machine.",
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


@app.callback()
def _options(
    _: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    pass


app.command("streams", rich_help_panel="Look")(streams.streams)
app.command("describe", rich_help_panel="Look")(describe.describe)
app.command("read", rich_help_panel="Look")(read.read)
app.command("verify", rich_help_panel="Check")(verify.verify)
app.command("reconcile", rich_help_panel="Keep")(reconcile.reconcile)
app.command("rebalance", rich_help_panel="Keep")(rebalance.rebalance)
app.command("consolidate", rich_help_panel="Keep")(consolidate.consolidate)
app.add_typer(retention.app, name="retention", rich_help_panel="Keep")
app.command("collect", rich_help_panel="Keep")(collect.collect)
app.command("rebuild", rich_help_panel="Keep")(rebuild.rebuild)
app.command("repair", rich_help_panel="Keep")(repair.repair)
app.add_typer(quarantine.app, name="quarantine", rich_help_panel="Keep")
app.command("delete", rich_help_panel="Keep")(delete.delete)
app.command("undelete", rich_help_panel="Keep")(delete.undelete)
app.add_typer(local.app, name="local", rich_help_panel="Run")
app.add_typer(agent.agent_app, name="agent", rich_help_panel="Run")


def main() -> None:
    """Entry point."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A locale that lacks a character of a queue's name is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="coldstream")
