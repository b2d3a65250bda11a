"""`coldstream rename STREAM`: correct which queue a directory is said to be."""

from __future__ import annotations

from typing import Annotated

import typer

from coldstream.cli.options import JsonOption, Where, with_options
from coldstream.cli.output import note, print_json, print_table
from coldstream.cli.resolve import StreamArgument
from coldstream.errors import ConflictError, InvalidInputError
from coldstream.manifest.catalog import QueueName
from coldstream.remote.resolve import item_of, resolve


@with_options
def rename(
    stream: StreamArgument,
    queue: Annotated[str, typer.Argument(help="What the broker calls it.")],
    *,
    vhost: Annotated[str, typer.Option("--vhost", help="Virtual host of the queue.")] = "/",
    yes: Annotated[bool, typer.Option("--yes", help="Really do it; see --dry-run first.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
    as_json: JsonOption = False,
    where: Where,
) -> None:
    """Correct the queue's name of a stream in the catalog, by which rules and listings go.

    Agents name a stream when they claim it first, and never give it another name after that: rules
    may delete, and go by names. An agent whose broker says another one tells so, with this command.
    No data is changed. The name must be one for which a broker makes this directory.

    Example:

        coldstream rename __or_dN1_1745252105682952932 or_dN1 --yes
    """
    if not (yes or dry_run):
        raise InvalidInputError("this changes which rules hold: add --yes, or --dry-run to see")
    catalog = where.connect().catalog
    directory = resolve(catalog, stream)
    item = item_of(catalog, directory)
    new = QueueName(item.name.cluster, vhost, queue)
    if not queue or not new.fits(directory):
        raise InvalidInputError(
            f"no broker makes this directory for a queue {queue[:300]!r} in vhost {vhost[:300]!r}",
            stream=directory,
        )
    if item.state.is_tombstone:
        raise ConflictError(
            f"the stream is {item.state}",
            stream=directory,
            remedy="call the deletion off with `coldstream undelete`, where that is still possible",
        )
    new = new.filled(item.name)
    old = f"{item.name.vhost}/{item.name.queue}" if item.name.queue else ""
    if yes and not dry_run and new != item.name:
        catalog.set_name(directory, new)
    row = {"stream": directory, "old": old, "new": f"{new.vhost}/{new.queue}"}
    if as_json:
        print_json({**row, "done": yes and not dry_run})
    else:
        print_table([row], ("stream", "old", "new"))
    if dry_run:
        note("nothing was changed; --yes would do it")
