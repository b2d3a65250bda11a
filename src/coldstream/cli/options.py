"""Options that several commands share, as frozen values: a command takes one as a parameter.

typer reads every option from a parameter of the function. `with_options` gives it the fields of
these values instead, in their place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from coldstream.cli.connect import Remote, connect
from coldstream.deployment import ENV_BRANCHING, ENV_BUCKET, ENV_PREFIX, ENV_TABLE
from coldstream.errors import InvalidInputError
from coldstream.names import DEFAULT_PREFIX
from coldstream.quantities import parse_duration, parse_size

if TYPE_CHECKING:
    from coldstream.adapters.s3_send import Sender

#: Bytes, or seconds: nobody means more, and in milliseconds it still is a signed 64-bit number.
MAX_QUANTITY = 2**50

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Tell no progress.")]
#: Where the copies of a stream go.
ToOption = Annotated[
    Path,
    typer.Option(
        "--to",
        metavar="DIR",
        help="Directory that the stream's own goes into; made if it is not there.",
        show_default=False,
    ),
]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Only say what would be done; needs rights to read, and writes nothing."
    ),
]


def size_option(name: str, about: str, *, default: str, least: int = 1, envvar: str = "") -> Any:
    """An option that takes a size such as 64MiB, and gives bytes.

    Args:
        name: with its dashes.
        about: for `--help`.
        default: of the option, as it is written.
        least: bytes.
        envvar: the variable that stands in for it, if any.
    """
    return _quantity(name, about, parse_size, default, (least, MAX_QUANTITY), envvar, "SIZE")


def duration_option(
    name: str, about: str, *, default: str, most: int = MAX_QUANTITY, envvar: str = ""
) -> Any:
    """An option that takes a duration such as 15m, and gives seconds, at most `most` of them."""
    return _quantity(name, about, parse_duration, default, (0, most), envvar, "DURATION")


def _quantity(
    name: str,
    about: str,
    parse: Callable[[str], int],
    default: str,
    limits: tuple[int, int],
    envvar: str,
    metavar: str,
) -> Any:
    def read(given: str | int) -> int:
        """typer gives the default as it is, and all else as text."""
        try:
            value = given if isinstance(given, int) else parse(given)
        except InvalidInputError as exc:
            raise typer.BadParameter(exc.reason) from exc
        if not limits[0] <= value <= limits[1]:
            raise typer.BadParameter(f"must be from {limits[0]} to {limits[1]}, not {value}")
        return value

    return typer.Option(
        *name.split(),
        parser=read,
        metavar=metavar,
        help=about,
        show_default=default,
        envvar=envvar or None,
    )


def _branching(about: str) -> Any:
    return typer.Option("--branching", envvar=ENV_BRANCHING, min=2, max=4096, help=about)


#: For commands that write here, and not by a workflow of the stack, which knows its own.
OwnBranchingOption = Annotated[int, _branching("Entries of a group, as the stack has it.")]
BranchingOption = Annotated[
    int, _branching("Entries of a group, as the stack has it; only for --dry-run.")
]
DEFAULT_BRANCHING = 1024


def _where(name: str, envvar: str, about: str) -> Any:
    return typer.Option(f"--{name}", envvar=envvar, help=about, rich_help_panel="Where")


@dataclass(frozen=True, slots=True)
class Where:
    """Which remote tier.

    Attributes:
        bucket: of the fragments.
        table: of the catalog.
        prefix: of all keys of the cluster.
    """

    bucket: Annotated[str, _where("bucket", ENV_BUCKET, "S3 bucket of the fragments.")] = ""
    table: Annotated[str, _where("table", ENV_TABLE, "DynamoDB table of the catalog.")] = ""
    prefix: Annotated[
        str, _where("prefix", ENV_PREFIX, "What all keys of the cluster begin with.")
    ] = DEFAULT_PREFIX

    def connect(self, sender: Sender | None = None) -> Remote:
        """The adapters for it; nothing is sent yet.

        Args:
            sender: as in `open_place`.

        Raises:
            As `connect`.
        """
        return connect(bucket=self.bucket, table=self.table, prefix=self.prefix, sender=sender)


def is_typed(context: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line itself, be it with the value that it has anyhow.

    Args:
        context: of the command.
        name: of the parameter.
    """
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command of typer of a function whose parameters may be such values.

    Its help is the docstring, as `_help_of` gives it. A parameter whose type is a dataclass gives
    way to one option for each field; the function gets the value made of them. Such parameters are
    keyword-only, because they have no default.
    """
    hints = get_type_hints(command, include_extras=True)
    values = {
        name: kind for name, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)
    }
    parameters: list[inspect.Parameter] = []
    for each in inspect.signature(command).parameters.values():
        if each.name in values:
            parameters += _parameters(values[each.name])
        else:
            annotation = hints[each.name]
            parameters.append(each.replace(kind=each.KEYWORD_ONLY, annotation=annotation))

    @wraps(command)
    def run(**given: Any) -> None:
        for name, kind in values.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    run.__doc__ = _help_of(command)
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _help_of(command: Callable[..., None]) -> str | None:
    """The docstring with each paragraph in one line: typer would keep the ends of its lines.

    What is indented, such as examples, stays line by line and begins at the margin: how far typer
    would indent it depends on what stands before it.
    """
    written = inspect.getdoc(command)
    if written is None:
        return None
    paragraphs = (each.strip("\n") for each in written.split("\n\n"))
    return "\n\n".join(
        dedent(each) if each.startswith(" ") else " ".join(each.split("\n")) for each in paragraphs
    )


def _parameters(kind: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(kind)
    ]
