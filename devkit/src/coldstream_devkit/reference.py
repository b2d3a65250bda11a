"""docs/reference/cli.md, from the commands themselves.

python -m coldstream_devkit.reference > docs/reference/cli.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from textwrap import fill, indent
from typing import Any

import typer

from coldstream.adapters.settings import MisconfiguredError
from coldstream.cli.delete import NothingToUndeleteError
from coldstream.cli.deleted import DeletedError, MissingObjectError, NotLiveError
from coldstream.cli.exit_codes import BY_KIND, ExitCode, exit_code_of
from coldstream.cli.gone import NotThisBrokerError
from coldstream.cli.main import app
from coldstream.cli.report import OutputError
from coldstream.cli.rules import EndedHoldError
from coldstream.cli.workflow import StartedBeforeError, WorkflowFailedError
from coldstream.copies.replay import OtherHistoryError
from coldstream.copies.runs import HistoryChangedError
from coldstream.copies.workplace import ForeignFilesError
from coldstream.deployment import ENV_BUCKET, ENV_PREFIX, ENV_TABLE, ENV_WORKFLOWS
from coldstream.errors import ColdstreamError

#: Errors that have a word of their own for why, one of each.
SPECIAL: tuple[ColdstreamError, ...] = (
    *(DeletedError(""), NotLiveError(""), MissingObjectError(""), MisconfiguredError("")),
    *(
        OutputError(""),
        EndedHoldError(""),
        NothingToUndeleteError(""),
        NotThisBrokerError(""),
        WorkflowFailedError(""),
        StartedBeforeError(""),
    ),
    *(ForeignFilesError(""), HistoryChangedError(""), OtherHistoryError("")),
)

#: Characters of a line, as in the introduction.
_WIDTH = 100
_WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}

_INTRODUCTION = f"""\
# The command line

This page is generated: `python -m coldstream_devkit.reference > docs/reference/cli.md`.

Data goes to stdout, progress, notes and errors to stderr. Tables are drawn on a terminal, or row by
row where it is too narrow for them, and are tab-separated with a header line elsewhere; `--json`
prints the same as JSON, to which fields may be added. `NO_COLOR` is respected.
`coldstream --install-completion` teaches the shell commands, options and the names of streams.

Bucket, table and prefix come from `--bucket`, `--table`, `--prefix` or `{ENV_BUCKET}`,
`{ENV_TABLE}`, `{ENV_PREFIX}`; credentials, region and endpoint as for every AWS SDK
(`AWS_PROFILE`, `AWS_REGION`, `AWS_ENDPOINT_URL`, ...). The region is that of `AWS_REGION`, else of
`AWS_DEFAULT_REGION`, else of the profile, for all services alike. `coldstream local env` prints all
of them for the embedded AWS.

What changes manifests runs as state machines. `rebalance`, `retention run`, `consolidate`,
`collect --delete` and `reconcile` start one (`--workflows` or `{ENV_WORKFLOWS}`), tell on
stderr how long it has been running, and print what it gave. Their `--dry-run` plans here, with
rights to read and nothing else; numbers that the stack has set (`--branching`, `--grace`,
`--fragment-size`) have to be given where they are not the stack's defaults.

`STREAM` is the broker's directory name of a stream or, where it is unique, `VHOST/QUEUE`
(`//orders` is queue `orders` in vhost `/`) or the queue's name alone. An empty word, such as a
variable that was never set, is a usage error: it never stands for all streams.
"""


def render() -> str:
    """The whole page."""
    lines = [_INTRODUCTION]
    for path, command in _commands(typer.main.get_command(app), "coldstream"):
        lines += _command(path, command)
    lines += [
        "## Exit codes",
        "",
        "An error is three lines on stderr: what failed, why (the kind), what to try.",
        "",
    ]
    lines += ["| code | meaning | kinds of error |", "|---|---|---|"]
    for code in ExitCode:
        kinds = [str(kind) for kind, exit_code in BY_KIND.items() if exit_code is code]
        kinds += [str(getattr(e, "why", e.kind)) for e in SPECIAL if exit_code_of(e) is code]
        named = ", ".join(f"`{kind}`" for kind in kinds)
        lines.append(f"| {int(code)} | {code.meaning} | {named} |")
    return "\n".join(lines) + "\n"


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The commands that do something, with the words that call them."""
    children = getattr(command, "commands", None)
    if not children:
        yield path, command
        return
    for name, child in children.items():
        yield from _commands(child, f"{path} {name}")


def _command(path: str, command: Any) -> list[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [
        p
        for p in command.params
        if p.param_type_name == "option" and p.name != "help" and not p.hidden
    ]
    usage = " ".join([path, *(str(a.metavar or a.name).upper() for a in arguments)])
    lines = [f"## `{usage}`", "", *_help(command.help or ""), ""]
    if options:
        lines += ["| option | default | |", "|---|---|---|"]
        lines += [_option(option) for option in options]
        lines.append("")
    return lines


def _help(text: str) -> Iterator[str]:
    """Lines of paragraphs, and examples as Markdown has code."""
    about, heading, examples = text.partition("\n\nExample")
    yield "\n\n".join(fill(each, _WIDTH, **_WHOLE_WORDS) for each in about.split("\n\n"))
    if heading:
        title, _, commands = examples.partition("\n\n")
        yield f"\nExample{title}\n\n{indent(commands, '    ')}"


def _option(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    shown = option.show_default if isinstance(option.show_default, str) else option.default
    default = "" if shown in (None, False, "") else f"`{getattr(shown, 'value', shown)}`"
    if option.required or isinstance(option.show_default, str):
        default = "required" if option.required else option.show_default
    environment = f" `{option.envvar}`" if option.envvar else ""
    text = " ".join((option.help or "").split()).replace("|", "\\|")
    return f"| {names} | {default} | {text}{environment} |"


if __name__ == "__main__":
    sys.stdout.write(render())
