"""`coldstream rebalance STREAM`: group the oldest entries of a root that has grown long."""

from __future__ import annotations

from typing import Any

import typer

from coldstream.cli.connect import Remote
from coldstream.cli.deleted import workable
from coldstream.cli.options import (
    DEFAULT_BRANCHING,
    BranchingOption,
    DryRunOption,
    Where,
    is_typed,
    with_options,
)
from coldstream.cli.output import note, print_json, print_table
from coldstream.cli.over_streams import no_pause
from coldstream.cli.read_only import read_only
from coldstream.cli.resolve import StreamArgument
from coldstream.cli.workflow import WorkflowOptions, run_workflow
from coldstream.errors import InvalidInputError

_COLUMNS = ("kind", "first", "next", "fragments", "bytes")


@with_options
def rebalance(
    context: typer.Context,
    stream: StreamArgument,
    dry_run: DryRunOption = False,
    branching: BranchingOption = DEFAULT_BRANCHING,
    *,
    options: WorkflowOptions,
    where: Where,
) -> None:
    """Move the oldest entries of a stream's root under groups, if there are too many.

    A commit that leaves a crowded root starts this by itself; nothing is lost by starting it again.

    Example:

        coldstream rebalance //orders --dry-run
    """
    remote = where.connect()
    if dry_run:
        document = _plan(remote, workable(remote.catalog, stream), branching)
        if options.as_json:
            print_json(document)
        else:
            print_table(document["groups"], _COLUMNS)
            note(
                f"{document['stream']}: {document['entries_before']} entries in the root now, "
                f"{document['entries_after']} after it"
            )
        return
    if is_typed(context, "branching"):
        raise InvalidInputError("--branching is for --dry-run: the stack goes by its own setting")
    machines = options.connect()
    name = workable(remote.catalog, stream)
    run_workflow(remote, machines, "rebalance", name, options)


def _plan(remote: Remote, stream: str, branching: int) -> dict[str, Any]:
    from coldstream.usecases import rebalance as usecase

    context, _ = read_only(remote)
    report = usecase.rebalance(context, stream, branching=branching, pause=no_pause, dry_run=True)
    return {
        "stream": stream,
        "entries_before": report.entries_before,
        "entries_after": report.entries_after,
        "groups": [
            {
                "kind": entry.kind.name.lower(),
                "first": entry.first_offset,
                "next": entry.next_offset,
                "fragments": entry.fragments,
                "bytes": entry.size,
            }
            for entry in report.made
        ],
    }
