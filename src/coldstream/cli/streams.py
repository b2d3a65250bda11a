"""`coldstream streams`: what the catalog holds."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from coldstream.cli.agents_said import COLUMNS as AGENT_COLUMNS
from coldstream.cli.agents_said import agents_told, stream_cells
from coldstream.cli.options import JsonOption, Where, with_options
from coldstream.cli.output import print_json, print_table, when
from coldstream.clock import now_ms
from coldstream.manifest.catalog import CatalogItem
from coldstream.plans.probe import is_probe

_COLUMNS = (
    "stream",
    "vhost",
    "queue",
    "state",
    "first",
    "next",
    "bytes",
    "fragments",
    "last_time",
    *AGENT_COLUMNS,
    "undelete_until",
)


@with_options
def streams(
    match: Annotated[
        str, typer.Option("--match", help="Only streams whose directory or queue contains this.")
    ] = "",
    as_json: JsonOption = False,
    *,
    where: Where,
) -> None:
    """List the streams of the remote tier.

    `agent` is the node that uploads, as its heartbeats say, or `gone` if all agents live and none
    has the stream any more; where a rule of theirs leaves streams out, they cannot tell, and it is
    empty. `lag_s` and `lag_bytes` are what it has that is not here yet, and `stuck_since` is when
    it last made progress, if something waits for minutes. Where its broker proves nothing new of a
    stream for a minute, `(unproved)` follows its name; a stream of which nothing was ever proved
    has no `state`. `super_stream` is the one of which it is a partition.

    A stream in the state `deleting` can be had back until `undelete_until`, see `undelete`; of one
    in the state `deleted` nothing is left but this line, with the figures that it had last. Streams
    of `doctor` are listed with `--match doctor` only.

    Example:

        coldstream streams --match orders --json
    """
    remote = where.connect()
    now, told = now_ms(), agents_told(remote, now_ms())
    items = list(remote.catalog.streams())
    rows = sorted(
        (
            _row(item)
            | stream_cells(
                told, item.stream, item.next_offset, now, super_stream=item.name.super_stream
            )
            for item in items
            if (match or not is_probe(item.stream))
            and (match in item.stream or match in item.name.queue)
        ),
        key=lambda row: (row["vhost"], row["queue"], row["stream"]),
    )
    # What is proved of a stream makes its item; of one without, only the agents know.
    unknown = told.said.keys() - {item.stream for item in items}
    rows += [
        _UNKNOWN | {"stream": each} | stream_cells(told, each, 0, now)
        for each in sorted(unknown)
        if match in each and (match or not is_probe(each))
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(rows, _COLUMNS)


#: The row of a stream of which only agents tell.
_UNKNOWN: dict[str, Any] = {
    "stream": None,
    "cluster": "",
    "vhost": "",
    "queue": "",
    "state": None,
    "first": None,
    "next": None,
    "bytes": None,
    "fragments": None,
    "first_time": None,
    "last_time": None,
    "epoch": None,
    "version": None,
    "undelete_until": None,
}


def _row(item: CatalogItem) -> dict[str, Any]:
    return {
        "stream": item.stream,
        "cluster": item.name.cluster,
        "vhost": item.name.vhost,
        "queue": item.name.queue,
        "state": str(item.state),
        "first": item.first_offset,
        "next": item.next_offset,
        "bytes": item.total_size,
        "fragments": item.fragments,
        "first_time": when(item.first_timestamp) if item.fragments else None,
        "last_time": when(item.last_timestamp) if item.fragments else None,
        "epoch": item.epoch,
        "version": item.version,
        "undelete_until": when(item.undelete_until) if item.undelete_until else None,
    }
