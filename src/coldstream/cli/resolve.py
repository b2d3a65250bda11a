"""How a stream is named on the command line; `remote.resolve` says which one is meant."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from coldstream.cli.complete import stream_names


def _named(text: str) -> str:
    """A stream as typed; an empty word is a variable that was never set, and means no stream."""
    if not text:
        raise typer.BadParameter(
            "an empty word names no stream; where all may be meant, leave it out"
        )
    return text


StreamArgument = Annotated[
    str,
    typer.Argument(
        metavar="STREAM",
        parser=_named,
        autocompletion=stream_names,
        help="Directory name, or VHOST/QUEUE (//orders for queue orders in vhost /), or the queue "
        "alone, where that is unique.",
        show_default=False,
    ),
]


def _optional(about: str) -> Any:
    return typer.Argument(
        metavar="[STREAM]",
        parser=_named,
        autocompletion=stream_names,
        help=about,
        show_default=False,
    )


OptionalStream = Annotated[
    str | None, _optional("Directory name, VHOST/QUEUE or queue; all streams if left out.")
]
StreamOrGone = Annotated[
    str | None, _optional("Directory name, VHOST/QUEUE or queue; left out with --gone only.")
]
