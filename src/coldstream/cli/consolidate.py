"""`coldstream consolidate [STREAM]`: few fragments out of many small ones."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from coldstream.cli.connect import Remote
from coldstream.cli.deleted import workable
from coldstream.cli.options import DryRunOption, Where, is_typed, size_option, with_options
from coldstream.cli.output import note, print_json, print_table
from coldstream.cli.over_streams import Plans, no_pause, plan_each, scanned
from coldstream.cli.read_only import read_only
from coldstream.cli.resolve import OptionalStream
from coldstream.cli.workflow import WorkflowOptions, run_workflow
from coldstream.deployment import ENV_FRAGMENT_SIZE
from coldstream.errors import InvalidInputError

DEFAULT_FRAGMENT_SIZE = 64 * 2**20
_COLUMNS = ("stream", "merges", "pieces", "bytes", "damaged", "consolidate")


@with_options
def consolidate(
    context: typer.Context,
    stream: OptionalStream = None,
    dry_run: DryRunOption = False,
    fragment_size: Annotated[
        int,
        size_option(
            "--fragment-size",
            "Data of a full fragment, as the stack has it; only for --dry-run.",
            default="64MiB",
            envvar=ENV_FRAGMENT_SIZE,
        ),
    ] = DEFAULT_FRAGMENT_SIZE,
    *,
    options: WorkflowOptions,
    where: Where,
) -> None:
    """Make large fragments out of small neighbours; readers do not notice.

    With --dry-run it prints how many new fragments (merges) would replace how many (pieces), and
    their bytes of data. A rule with `"consolidate": false` switches it off for its streams.

    Example:

        coldstream consolidate //orders --dry-run
    """
    remote = where.connect()
    if dry_run:
        _print(_plan(remote, stream, fragment_size), as_json=options.as_json)
        return
    if is_typed(context, "fragment_size"):
        raise InvalidInputError(
            "--fragment-size is for --dry-run: the stack goes by its own setting"
        )
    machines = options.connect()
    name = workable(remote.catalog, stream) if stream else ""
    run_workflow(remote, machines, "consolidate", name, options)


def _plan(remote: Remote, stream: str | None, target_size: int) -> Plans:
    from coldstream.plans.policy import effective
    from coldstream.usecases import consolidate as usecase
    from coldstream.usecases.scan import ScanFor

    context, composer = read_only(remote)
    policies, _ = remote.policies.load()
    plans = Plans()

    def act(name: str) -> dict[str, Any] | None:
        item = context.catalog.get(name)
        wanted = item is None or effective(policies, name, item.name).consolidate
        row: dict[str, Any] = {"stream": name, "merges": 0, "pieces": 0, "bytes": 0, "damaged": []}
        cursor: int | None = 0
        while wanted and cursor is not None:
            step = usecase.consolidate(
                context,
                composer,
                name,
                target_size=target_size,
                branching=2,  # a dry run makes no groups
                pause=no_pause,
                cursor=cursor,
                dry_run=True,
            )
            row["merges"] += step.merges
            row["pieces"] += step.pieces
            row["bytes"] += step.bytes
            row["damaged"] += [
                {"key": error.key, "offset": error.offset, "problem": error.reason}
                for error in step.failed
            ]
            cursor = step.cursor
        row["consolidate"] = "on" if wanted else "off"
        return row if stream or row["merges"] or row["damaged"] else None

    if stream:
        plans.rows = list(filter(None, [act(workable(remote.catalog, stream))]))
    else:
        found = scanned(context, ScanFor.CONSOLIDATE, policies, plans, target_size=target_size)
        plan_each(found, act, plans)
    return plans


def _print(plans: Plans, *, as_json: bool) -> None:
    if as_json:
        print_json(plans.rows)
    else:
        print_table(({**row, "damaged": len(row["damaged"])} for row in plans.rows), _COLUMNS)
        for row in plans.rows:
            if row["consolidate"] == "off":
                note(f"{row['stream']}: a rule switches it off, see `coldstream retention rules`")
            for each in row["damaged"]:
                note(f"{each['problem']} (offset {each['offset']}, {each['key']})")
    plans.finish()
