"""`coldstream rebalance STREAM`: group the oldest entries of a root that has grown long."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from coldstream.cli.connect import (
    DEFAULT_PREFIX_VALUE,
    BucketOption,
    PrefixOption,
    Remote,
    TableOption,
    connect,
)
from coldstream.cli.deleted import workable
from coldstream.cli.output import JsonOption, note, print_json, print_table
from coldstream.cli.over_streams import no_pause
from coldstream.cli.read_only import read_only
from coldstream.cli.resolve import StreamArgument
from coldstream.cli.workflow import (
    DryRunOption,
    NoWaitOption,
    ReasonOption,
    WorkflowsOption,
    connect_workflows,
    run_workflow,
)
from coldstream.names import ENV_BRANCHING


def _branching(about: str) -> Any:
    return typer.Option("--branching", envvar=ENV_BRANCHING, min=2, max=4096, help=about)


#: For commands that write here, and not by a workflow of the stack, which knows its own.
OwnBranchingOption = Annotated[int, _branching("Entries of a group, as the stack has it.")]
BranchingOption = Annotated[
    int, _branching("Entries of a group, as the stack has it; only for --dry-run.")
]
DEFAULT_BRANCHING = 1024
_COLUMNS = ("kind", "first", "next", "fragments", "bytes")


def rebalance(
    stream: StreamArgument,
    dry_run: DryRunOption = False,
    branching: BranchingOption = DEFAULT_BRANCHING,
    reason: ReasonOption = "",
    no_wait: NoWaitOption = False,
    as_json: JsonOption = False,
    workflows: WorkflowsOption = "",
    bucket: BucketOption = "",
    table: TableOption = "",
    prefix: PrefixOption = DEFAULT_PREFIX_VALUE,
) -> None:
    """Move the oldest entries of a stream's root under groups, if there are too many.

    A commit that leaves a crowded root starts this by itself; nothing is lost by starting it again.

    Example: coldstream rebalance //orders --dry-run
    """
    remote = connect(bucket=bucket, table=table, prefix=prefix)
    if dry_run:
        document = _plan(remote, workable(remote.catalog, stream), branching)
        if as_json:
            print_json(document)
        else:
            print_table(document["groups"], _COLUMNS)
            note(
                f"{document['stream']}: {document['entries_before']} entries in the root now, "
                f"{document['entries_after']} after it"
            )
        return
    machines = connect_workflows(workflows)
    name = workable(remote.catalog, stream)
    run_workflow(
        remote, machines, "rebalance", name, reason=reason, wait=not no_wait, as_json=as_json
    )


def _plan(remote: Remote, stream: str, branching: int) -> dict[str, Any]:
    from coldstream.usecases import rebalance as usecase

    world, _ = read_only(remote)
    report = usecase.rebalance(world, stream, branching=branching, pause=no_pause, dry_run=True)
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
